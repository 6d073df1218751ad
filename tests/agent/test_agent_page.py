"""docs/guides/agent.md is true: its Python runs, against the simulator, and prints what it should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from moonshim.simulator import Simulator

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "guides" / "agent.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ADDRESS = '"https://api.moonshot.ai/v1"'
PRINTED = [
    "Here is what came back: the text of notes.txt\n",
    'round 1\ncalls read_file {"path": "list.txt"}\nround 2\nanswered\n',
    "['bash', 'edit_file', 'glob', 'grep', 'read_file', 'write_file']\n",
    "4 0o600\n",
]


@pytest.mark.parametrize(("snippet", "printed"), list(zip(SNIPPETS, PRINTED, strict=True)), ids=range(len(PRINTED)))
def test_a_snippet_runs_and_prints(snippet: str, printed: str) -> None:
    with Simulator().running() as server:
        code = snippet.replace(ADDRESS, f'"{server.url}/v1", host="moonshot"')
        ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.stderr) == (printed, "")
        assert server.refusals == []


def test_every_default_of_the_page_is_that_of_the_code() -> None:
    import inspect

    from moonshim.agent import Agent
    from moonshim.agent.execution.runner import GRACE_SECONDS
    from moonshim.agent.toolbox import toolbox

    agent = inspect.signature(Agent).parameters
    assert "`rounds` times (default 50; -1 for no limit)" in PAGE
    assert "`repeats` times in a row (default 4; 0 for no limit)" in PAGE
    assert (agent["rounds"].default, agent["repeats"].default, GRACE_SECONDS) == (50, 4, 3.0)
    box = inspect.signature(toolbox).parameters
    assert (box["seconds"].default, box["most_seconds"].default, box["output_limit"].default) == (120.0, 600.0, 30_000)
