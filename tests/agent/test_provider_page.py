"""Every example of docs/guides/provider.md runs as it stands, with a simulator in the place of its host.

They are marked `py`, since what is marked `python` on a page is run without any host.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from moonshim.simulator import Simulator

PAGE: Final = (Path(__file__).parents[2] / "docs" / "guides" / "provider.md").read_text("utf-8")
EXAMPLES: Final = re.findall(r"^```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
ADDRESS: Final = re.compile(r"https://api\.moonshot\.ai/v1|http://localhost:8000/v1")
PRINTED: Final = (
    r"calls ls with \{.*\}\ntool_calls, \d+ tokens",
    r"Here is what came back: .*a\.py, b\.py",
    r"\{'city': .+\}",
    r"hermes True\n.*Hello",
    r"'\[REASONING\].*'\n(.*\n)*'\[USAGE\]\{.*\}'",
)


@pytest.mark.parametrize(("example", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)))
def test_an_example_runs(example: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Simulator(behaviour="selfhost", log=lambda seen: None).running() as server:
        code, changed = ADDRESS.subn(f"{server.url}/v1", example)
        assert changed == 1
        exec(compile(code, "docs/guides/provider.md", "exec"), {})
        assert not server.refusals
    assert re.search(printed, capsys.readouterr().out)
