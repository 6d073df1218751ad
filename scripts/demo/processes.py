"""The address of a host -> the gateway before it, as a process of its own, until it is no longer wanted."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["CannotStart", "gateway_before"]

_URL: Final = re.compile(r"http://127\.0\.0\.1:\d+")
_CONFIG: Final = """\
[[providers]]
name = "broken"
api_base_url = "{url}/v1"
models = ["{model}"]
"""


class CannotStart(Exception):
    """A gateway did not start; the message is what it said."""


@contextmanager
def gateway_before(url: str, model: str) -> Iterator[str]:
    """The address of a gateway that knows this one host."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "moonshim.toml"
        config.write_text(_CONFIG.format(url=url, model=model))
        command = [sys.executable, "-m", "moonshim", "serve", "--config", str(config), "--port", "0"]
        with (
            tempfile.TemporaryFile("w+") as told,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True) as process,
        ):
            try:
                assert process.stdout is not None
                found = _URL.search(process.stdout.readline())
                if found is None:
                    process.wait(10)
                    told.seek(0)
                    raise CannotStart(f"moonshim serve did not start:\n{told.read().strip()[-2000:]}")
                yield found[0]
            finally:
                process.terminate()
