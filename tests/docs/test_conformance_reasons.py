"""The list of reasons why vectors of other projects are not met, and the verdicts that follow from it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conformance import kimi, run
from conformance.checked import Checked
from conformance.other_reasons import OTHER_FORMATS
from conformance.reasons import KIMI, REASONS, SOURCE_DOCUMENTS
from conformance.replies import Reply
from conformance.verdicts import Suite, judge

CALL = "<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}<|tool_call_end|>"


@pytest.mark.parametrize(
    "listed", [KIMI, SOURCE_DOCUMENTS, OTHER_FORMATS], ids=["kimi", "source_documents", "other_formats"]
)
def test_every_listed_row_has_one_reason_that_exists(listed: dict[str, tuple[str, ...]]) -> None:
    assert listed.keys() <= REASONS.keys()
    assert [key for key, count in Counter(key for keys in listed.values() for key in keys).items() if count > 1] == []


def test_no_reason_is_left_over_and_each_is_a_sentence() -> None:
    assert REASONS.keys() == KIMI.keys() | SOURCE_DOCUMENTS.keys() | OTHER_FORMATS.keys()
    assert [code for code, reason in REASONS.items() if not reason.sentence.endswith(".")] == []


def test_rows_are_listed_by_name_and_never_by_their_text() -> None:
    names = [key for listed in (KIMI, SOURCE_DOCUMENTS, OTHER_FORMATS) for keys in listed.values() for key in keys]
    assert [name for name in names if "<|" in name or " " in name] == []


def verdict(checked: Checked, code: str | None = None) -> tuple[str, str]:
    reasons = {code: ("one",)} if code is not None else {}
    suite = Suite("f", lambda row: checked, lambda row: "one", lambda row: "a", reasons)
    (found,) = judge(suite, [{}])
    return found.outcome, found.why


@pytest.mark.parametrize(
    ("got", "expected", "code", "outcome"),
    [
        ({"content": "a"}, {"content": "a"}, None, "agrees"),
        ({"content": "a"}, {"content": "b"}, None, "unexplained"),
        ({"content": "a"}, {"content": "b"}, "text_after_section", "decision"),
        ({"content": "a"}, {"content": "a"}, "text_after_section", "stale"),
        ({"content": "a", "calls": []}, {"content": "b", "calls": [1]}, "text_after_section", "unexplained"),
        ({"calls": [1]}, {"calls": [True]}, None, "unexplained"),
        ({"content": "a"}, {"content": "b"}, "known_leak", "source"),
    ],
)
def test_a_difference_needs_a_reason_that_covers_it(got: Any, expected: Any, code: str | None, outcome: str) -> None:
    assert verdict(Checked(got, expected), code)[0] == outcome


def test_ways_that_differ_are_a_fault_whatever_is_expected() -> None:
    ways = {"as given": Reply("a"), "byte by byte": Reply("b")}
    assert verdict(Checked("a", "a", ways))[0] == "inconsistent"


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(finish="tool_calls"), "unexplained"),
        (Reply(finish="length"), "decision"),
        (Reply(error="arguments_cut_off"), "decision"),
    ],
)
def test_a_call_that_breaks_off_may_differ_only_when_the_reply_says_so(reply: Reply, outcome: str) -> None:
    assert verdict(Checked({"calls": [1]}, {"calls": []}, {"as given": reply}), "cut_off_call")[0] == outcome


def test_a_listed_row_that_does_not_exist_is_stale() -> None:
    suite = Suite("f", lambda row: Checked(1, 1), lambda row: "one", lambda row: "a", {"agent": ("two",)})
    assert [(one.key, one.outcome) for one in judge(suite, [{}])] == [("one", "agrees"), ("two", "stale")]


def test_without_vectors_there_is_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOONSHIM_VECTORS", str(tmp_path / "none"))
    assert run.main([]) == 0
    assert "nothing was compared" in capsys.readouterr().out


@pytest.mark.parametrize(("content", "code"), [("hi", 0), ("ho", 1)])
def test_the_report_fails_when_a_row_differs_for_no_reason(
    content: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expect: dict[str, Any] = {
        "content": content,
        "reasoning": None,
        "tool_calls": [{"name": "ls", "arguments": {}, "id": None}],
    }
    row = {
        "name": "mine",
        "family": "kimi_k2",
        "stage": "tool",
        "chunks": ["hi", CALL],
        "tools": None,
        "expect": expect,
    }
    (tmp_path / "kimi.jsonl").write_text(json.dumps(row), encoding="utf-8")
    monkeypatch.setenv("MOONSHIM_VECTORS", str(tmp_path))
    suite = Suite("kimi.jsonl", kimi.check, kimi.key_of, kimi.area_of, {})
    monkeypatch.setattr(run, "SUITES", (suite,))
    assert run.main(["--verbose"]) == code
    assert ("unexplained: mine" in capsys.readouterr().out) == bool(code)
