"""`make demo`, as a new user runs it: it ends well, shows both runs, and has colour on a terminal only."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Final

from rich.console import Console

from moonshim.simulator import Simulator
from scripts.demo import page
from scripts.demo.talk import MARKER, ROUNDS, Round, Run, converse

ROOT: Final = Path(__file__).resolve().parents[2]
COMMAND: Final = [sys.executable, "-m", "scripts.demo"]
JOURNEY: Final = str(ROOT / "scripts" / "demo" / "journey.toml")


def test_it_ends_well_says_so_and_leaves_no_files(tmp_path: Path) -> None:
    folders = {name: str(tmp_path / name) for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")}
    env = os.environ | folders
    run = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "failed in round 3 of 5" in run.stdout
    assert "all 5 rounds completed, every tool result in the answer, no markers" in run.stdout
    assert '{"content":"<|tool_call_begin|>"}' in run.stdout
    assert "functions.read_file:1" in run.stdout
    assert "marker_call" in run.stdout
    assert "\x1b" not in run.stdout
    assert "Traceback" not in run.stderr
    assert not list(tmp_path.rglob("*")), "such as usage.db: a demo is not part of the user's usage"


def test_it_ends_well_behind_a_proxy_and_on_a_terminal_of_few_characters() -> None:
    nobody = "http://127.0.0.1:1"
    proxies = {name: nobody for low in ("http_proxy", "https_proxy", "all_proxy") for name in (low, low.upper())}
    env = os.environ | proxies | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    run = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "all 5 rounds completed" in run.stdout
    assert run.stdout.isascii()


def test_markers_are_in_colour_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    env = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    env.pop("NO_COLOR", None)
    with subprocess.Popen(COMMAND, cwd=ROOT, stdout=theirs, stderr=subprocess.PIPE, env=env) as process:
        os.close(theirs)
        shown = bytearray()
        while data := _read(ours):
            shown += data
        assert process.wait(60) == 0
    os.close(ours)
    assert b"\x1b[1;30;43m<|tool_call_begin|>" in shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


def talk(faults: str) -> Run:
    told: list[Round] = []
    with Simulator(behaviour="moonshot", scenario=JOURNEY, faults=(faults,)).running() as host:
        run = converse(host.url, "kimi-k2-0905-preview", told.append)
    assert list(run.rounds) == told
    return run


def test_a_run_that_went_well_is_perfect() -> None:
    run = talk("usage-last")
    assert run.perfect
    assert len(run.rounds) == ROUNDS + 1


def test_a_run_whose_calls_came_as_text_is_not() -> None:
    run = talk("markers-in-content@2")
    assert run.broke_in is not None
    assert run.broke_in.number == 2
    assert MARKER.search(run.rounds[-1].text)
    assert not run.perfect


def test_arguments_that_came_twice_and_errors_are_seen() -> None:
    assert (broken := talk("arguments-twice@4").broke_in) is not None
    assert broken.problem == "the arguments are not valid JSON"
    assert (broken := talk("overloaded@3").broke_in) is not None
    assert "overloaded" in broken.problem


def test_in_a_narrow_terminal_no_marker_is_torn_apart_and_lines_differ() -> None:
    text = 'Where?<|tool_calls_section_begin|><|tool_call_begin|>call_36ea762163ef<|tool_call_argument_begin|>{"'
    broken = Round(
        number=3, text=text, problem="its call came as text", raw=_frames({"content": "<|tool_call_begin|>"})
    )
    deltas = [{"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in ("", "one", "two")]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(page.journey([broken], [], width=80))
    console.print(page.bytes_seen(broken, Round(number=3, raw=_frames(*deltas)), width=80))
    shown = console.export_text()
    for whole in (
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        '"arguments":"one"}}]}',
        '"arguments":"two"}}]}',
    ):
        assert whole in shown
    assert max(map(len, shown.splitlines())) <= 80


def _frames(*deltas: object) -> bytes:
    return b"".join(b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n" for delta in deltas)
