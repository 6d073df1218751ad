"""The README is true: its Python runs and prints what it should, its files exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import moonshim

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
ADDRESS = "127.0.0.1:8484"
SNIPPETS = [snippet for snippet in PYTHON if ADDRESS not in snippet]
ASKING = [snippet for snippet in PYTHON if ADDRESS in snippet]
COMMANDS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)

CROSSING = """\
functions.Read:0
None cache_control is left out: other hosts cache what they know again
system x-anthropic-billing-header changes with every request: no cache fits
messages[2] identifiers as the host wants them: toolu_01 -> functions.Read:0
tool_choice 'auto', since the client chose nothing
thinking effort 'medium' cannot be said to this host: left out
stream_options a stream tells its usage only when it is asked to
messages[3] Chat has no mark for a failed tool; its text tells
tool_calls
['data: {"type":"content_block_start","index":1,"content_block":\
{"type":"tool_use","id":"toolu_functions-Read-1","name":"Read","input":{}}}']
"""
PROBLEMS = """\
429 5.0
{'type': 'error', 'error': {'type': 'rate_limit_error', 'message': 'too fast'}}
400 messages[0].content invalid_request_error
"""
PRINTED = [
    "Here is what came back: the text of notes.txt\n",
    CROSSING,
    PROBLEMS,
    "tool_calls\n['marker_call', 'marker_call', 'finish_reason']\n['get_weather', 'get_time']\n",
    "ls\nTrue\n",
    "True\nqwen\nfunctions.ls:0 functions.ls:0\n",
    "True\n",
]


@pytest.mark.parametrize(("snippet", "printed"), list(zip(SNIPPETS, PRINTED, strict=True)), ids=range(len(PRINTED)))
def test_a_snippet_runs_and_prints(snippet: str, printed: str) -> None:
    run = subprocess.run([sys.executable, "-c", snippet], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (printed, "")


def test_the_first_command_gets_a_call(demo: str) -> None:
    (command,) = COMMANDS
    asked = ["sh", "-c", command.replace(ADDRESS, demo)]
    run = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60)
    (choice,) = json.loads(run.stdout)["choices"]
    assert choice["message"]["tool_calls"][0]["id"] == "functions.get_weather:0"
    assert choice["finish_reason"] == "tool_calls"


def test_the_first_snippet_gets_one_too(demo: str) -> None:
    (snippet,) = ASKING
    asked = [sys.executable, "-c", snippet.replace(ADDRESS, demo)]
    run = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert (run.stdout, run.stderr) == ("['thinking', 'tool_use'] tool_use\n", "")


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_a_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_the_broken_example_is_really_in_the_recording() -> None:
    before = README.partition("## Before and after")[2].partition("## The engine")[0]
    recording = (ROOT / "examples" / "leaked_markers.sse").read_text()
    broken, _, whole = before.partition("`moonshim mend` gives")
    mender = moonshim.Mender(model="kimi-k2.5")
    mended = (mender.feed(recording.encode()) + mender.flush()).decode()
    for shown, stream in ((broken, recording), (whole, mended)):
        lines = re.findall(r'^"delta":.*$', shown, re.MULTILINE)
        assert lines
        assert [line for line in lines if line not in stream] == []
