"""What is told of the repairs: the table, the JSON document, and that no stream can speak to the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import moonshim
from moonshim.cli import console
from moonshim.cli.mend.options import EXPLAINED
from moonshim.cli.mend.report import Outcome, render_json, render_table
from moonshim.engine.values.events import Failed, Finished, Repaired
from tests.support.command import CLEAN, EXAMPLE, RESPONSE, mend

PLAIN = console.Paint(None)
HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u202e\u2028\ud800"


def table(outcome: Outcome, width: int = 80) -> list[str]:
    return render_table(outcome, PLAIN, width).split("\n")


def test_the_table() -> None:
    assert mend(EXAMPLE.name, cwd=EXAMPLE.parent).lines == [
        "leaked_markers.sse: 3 repairs",
        "  rule           count  example",
        "  marker_call        2  functions.get_weather:0 -> get_weather",
        "  finish_reason      1  stop -> tool_calls",
        "  ending: tool_calls (the host sent stop)",
    ]


def test_one_repair_is_not_several() -> None:
    assert table(Outcome("x", "sse", counts={"framing": 1}))[0] == "x: 1 repair"


@pytest.mark.parametrize(
    ("ending", "line"),
    [
        (None, "none"),
        (Finished("stop", "stop"), "stop"),
        (Finished("stop", None), "stop (the host sent nothing)"),
        (Failed("stream_ended", "It just ended."), "error stream_ended: It just ended."),
    ],
)
def test_the_ending(ending: Finished | Failed | None, line: str) -> None:
    assert table(Outcome("x", "sse", ending=ending)) == ["x: clean", f"  ending: {line}"]


def test_a_stream_that_was_not_read_to_its_end_is_reported_as_far_as_it_came() -> None:
    lines = table(Outcome("x", "sse", counts={"failed": 1}, error="Input/output error"))
    assert lines[0] == "x: 1 repair"
    assert lines[-1] == "moonshim mend: x: Input/output error"


@given(st.text(max_size=200), st.integers(40, 120))
def test_rows_fit_the_width_and_hold_only_printable_characters(detail: str, width: int) -> None:
    repairs = [Repaired("marker_call", detail)]
    for line in table(Outcome("x", "sse", repairs=repairs, counts={"marker_call": 12}), width):
        assert line.isprintable()
        assert console.fit_columns(line, width) == line


def test_hostile_text_cannot_move_the_cursor() -> None:
    repairs = [Repaired(HOSTILE, HOSTILE)]
    outcome = Outcome(HOSTILE, "sse", HOSTILE, HOSTILE, repairs, {HOSTILE: 1}, Finished(HOSTILE, HOSTILE), HOSTILE)
    assert all(line.isprintable() for line in table(outcome, 300))
    assert all(line.isprintable() for line in table(Outcome(HOSTILE, error=HOSTILE)))
    text = render_json([outcome])
    assert all(line.isprintable() and line.isascii() for line in text.split("\n"))
    assert json.loads(text)["files"][0]["details"][0]["detail"] == HOSTILE


def test_a_hostile_stream_through_the_command(tmp_path: Path) -> None:
    event = {"choices": [{"delta": {"content": "a"}, "finish_reason": "st\x1b[2J\x9bop"}]}
    path = tmp_path / "evil\x1b[31m.sse"
    path.write_bytes(b"data: \x1b[2J\x1b]0;x\x07 nothing\n\ndata: " + msgspec.json.encode(event) + b"\n\n")
    done = mend(path)
    assert done.code == 0
    assert all(line.isprintable() for line in done.lines)
    assert "\\x1b[2J" in done.stderr


def test_a_long_detail_costs_no_more_than_a_short_one() -> None:
    huge = Outcome("x", "sse", repairs=[Repaired("framing", "\x00" * 50_000_000)], counts={"framing": 1})
    assert len(table(huge)[2]) <= 80


@pytest.mark.parametrize(("columns", "longest"), [("60", 60), ("", 100)])
def test_the_width_is_that_of_the_terminal(columns: str, longest: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"data: " + b"hello " * 30 + b"\n\n" + CLEAN)
    assert max(map(len, mend("x", cwd=tmp_path, COLUMNS=columns).lines)) == longest


def test_the_json_document(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(msgspec.json.encode(RESPONSE))
    (tmp_path / "clean").write_bytes(CLEAN)
    done = mend("r.json", "clean", "none", "-", "--report", "json", "--output", "out", cwd=tmp_path, stdin=CLEAN[:-60])
    clean: dict[str, Any] = {
        "file": "clean",
        "kind": "sse",
        "model": "kimi-k2",
        "output": "out/clean",
        "clean": True,
        "repairs": 0,
        "rules": {},
        "details": [],
        "ending": {"finish_reason": "stop", "raw": "stop", "error": None},
        "error": None,
    }
    document = json.loads(done.stderr)
    broken = document["files"].pop()
    assert document == {
        "files": [
            clean
            | {
                "file": "r.json",
                "kind": "json",
                "output": "out/r.json",
                "clean": False,
                "repairs": 2,
                "rules": {"marker_call": 1, "finish_reason": 1},
                "details": [
                    {"rule": "marker_call", "detail": "functions.ls:0 -> ls", "choice": 0},
                    {"rule": "finish_reason", "detail": "stop -> tool_calls", "choice": 0},
                ],
                "ending": {"finish_reason": "tool_calls", "raw": "stop", "error": None},
            },
            clean,
            clean
            | {
                "file": "none",
                "kind": None,
                "model": None,
                "output": None,
                "clean": False,
                "ending": None,
                "error": "No such file or directory",
            },
        ]
    }
    assert done.code == 1
    assert (broken["file"], broken["clean"], broken["error"]) == ("-", False, None)
    assert broken["ending"]["error"].keys() == {"code", "message", "retryable"}


def test_the_json_document_is_all_that_is_told() -> None:
    done = mend(EXAMPLE, "/nowhere", "--model", "gpt-4o", "--report", "json")
    assert done.code == 1
    assert [file["error"] is None for file in json.loads(done.stderr)["files"]] == [True, False]


def test_every_option_is_explained() -> None:
    assert list(EXPLAINED) == [field.name for field in msgspec.structs.fields(moonshim.KimiOptions)]
