"""The URL of a host -> a gateway in front of it, in a separate process that leaves no files behind."""

from __future__ import annotations

import os
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
    """The gateway did not start; the message contains its output."""


@contextmanager
def gateway_before(url: str, model: str) -> Iterator[str]:
    """The URL of a gateway with this host as its only provider."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "moonshim.toml"
        config.write_text(_CONFIG.format(url=url, model=model))
        # Its own state: a demonstration is not part of the user's usage records.
        environment = os.environ | {"XDG_STATE_HOME": folder, "XDG_RUNTIME_DIR": folder}
        command = [sys.executable, "-m", "moonshim", "serve", "--config", str(config), "--port", "0"]
        with (
            tempfile.TemporaryFile("w+") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
        ):
            try:
                assert process.stdout is not None
                found = _URL.search(process.stdout.readline())
                if found is None:
                    process.wait(10)
                    log.seek(0)
                    raise CannotStart(f"moonshim serve did not start:\n{log.read().strip()[-2000:]}")
                yield found[0]
            finally:
                process.terminate()
