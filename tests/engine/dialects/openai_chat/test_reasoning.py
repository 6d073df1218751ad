"""Reasoning in whichever fields a Chat host uses: read, written into each copy, and collected for the way back."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.dialects.openai_chat.reasoning import ReasoningReader, reasoning_copies, write_reasoning
from moonshim.engine.grammar.protocol import Notice
from moonshim.engine.upstream_events import SignatureReported, TextDelta


def details(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "reasoning.text", "text": text} for text in texts]


# a delta; the fields that contain reasoning, each with its text
COPIES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "nothing": ({}, []),
    "content alone": ({"role": "assistant", "content": "Hi"}, []),
    "empty and null fields": ({"content": None, "reasoning": "", "reasoning_details": []}, []),
    "reasoning_content": ({"reasoning_content": "Hm"}, [("reasoning_content", "Hm")]),
    "reasoning": ({"reasoning": "Hm"}, [("reasoning", "Hm")]),
    "reasoning_details": ({"reasoning_details": details("H", "m")}, [("reasoning_details", "Hm")]),
    "details with a summary": ({"reasoning_details": [{"summary": "Hm"}]}, [("reasoning_details", "Hm")]),
    "reasoning and content": ({"reasoning": "Hm", "content": "Hi"}, [("reasoning", "Hm")]),
    "equal copies": (
        {"reasoning_details": details("Hm"), "reasoning": "Hm", "reasoning_content": "Hm"},
        [("reasoning_content", "Hm"), ("reasoning", "Hm"), ("reasoning_details", "Hm")],
    ),
    "of unequal copies reasoning_content comes first": (
        {"reasoning": "other", "reasoning_content": "Hm"},
        [("reasoning_content", "Hm"), ("reasoning", "other")],
    ),
    "details without text": ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}, 7]}, []),
    "fields of another type": ({"reasoning_content": ["x"], "reasoning": 7, "reasoning_details": "x"}, []),
}


@pytest.mark.parametrize("case", COPIES)
def test_the_fields_of_a_delta_that_contain_reasoning(case: str) -> None:
    delta, copies = COPIES[case]
    assert reasoning_copies(delta) == copies


# deltas; the text that is read in them, and the fields with another text
READ: dict[str, tuple[list[dict[str, Any]], str, list[str]]] = {
    "nothing": ([{"reasoning": ""}, {"content": "Hi"}], "", []),
    "one field": ([{"reasoning": "H"}, {"reasoning": "m"}], "Hm", []),
    "equal copies count once": (
        [{"reasoning_content": "Hm", "reasoning": "Hm", "reasoning_details": details("Hm")}],
        "Hm",
        [],
    ),
    "of unequal copies reasoning_content wins": (
        [{"reasoning": "other", "reasoning_content": "Hm"}],
        "Hm",
        ["reasoning: other"],
    ),
    "two that do not agree": (
        [{"reasoning_content": "a", "reasoning": "b", "reasoning_details": details("c")}],
        "a",
        ["reasoning: b", "reasoning_details: c"],
    ),
}


@pytest.mark.parametrize("case", READ)
def test_copies_count_once_and_those_that_differ_are_reported(case: str) -> None:
    deltas, text, conflicts = READ[case]
    reader = ReasoningReader()
    events = [event for delta in deltas for event in reader.read(delta)]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text
    reported = [event for event in events if not isinstance(event, TextDelta)]
    assert reported == [Notice("reasoning_conflict", detail) for detail in conflicts]


@pytest.mark.parametrize(
    ("delta", "text", "written"),
    [
        ({"reasoning": "old"}, "new", {"reasoning": "new"}),
        ({"reasoning": "old", "reasoning_content": "old"}, "new", {"reasoning": "new", "reasoning_content": "new"}),
        ({"reasoning_details": details("o", "ld")}, "new", {"reasoning_details": details("new", "")}),
        ({"reasoning": "old"}, "", {}),
        ({"content": "x"}, "new", {"reasoning_content": "new"}),
        ({"content": "x"}, "", {}),
    ],
)
def test_every_copy_of_the_reasoning_gets_the_same_text(
    delta: dict[str, Any], text: str, written: dict[str, Any]
) -> None:
    assert write_reasoning(delta, text, first=True) == written


def test_reasoning_is_written_in_the_fields_that_this_host_uses() -> None:
    written = write_reasoning({}, "new", first=True, like={"reasoning": "old", "reasoning_details": details("old")})
    assert written == {"reasoning": "new", "reasoning_details": details("new")}


def test_a_second_delta_repeats_only_the_text_of_the_details() -> None:
    secret = {"type": "reasoning.encrypted", "data": "x"}
    delta = {"reasoning_details": [secret, {"type": "reasoning.text", "text": "old", "signature": "s"}]}
    first = write_reasoning(delta, "one", first=True)
    second = write_reasoning(delta, "two", first=False)
    assert first == {"reasoning_details": [secret, {"type": "reasoning.text", "text": "one", "signature": "s"}]}
    assert [one.get("text") for one in second["reasoning_details"]] == ["two"]
    assert reasoning_copies(first) + reasoning_copies(second) == [
        ("reasoning_details", "one"),
        ("reasoning_details", "two"),
    ]


# -- what goes back to the host ---------------------------------------------------------------------------------------


def collected(*deltas: dict[str, Any]) -> list[SignatureReported]:
    reader = ReasoningReader()
    for delta in deltas:
        reader.read(delta)
    return reader.close()


SIGNED = {"type": "reasoning.text", "text": "Hm", "signature": "s"}
ENCRYPTED = {"type": "reasoning.encrypted", "data": "xy", "id": "r1"}

# deltas; the details and the field that are reported when something else begins
COLLECTED: dict[str, tuple[list[dict[str, Any]], list[SignatureReported]]] = {
    "nothing": ([{"content": "a"}], []),
    "one field": ([{"reasoning": "H"}, {"reasoning": "m"}], [SignatureReported(field="reasoning")]),
    "the usual field in copies is not named": ([{"reasoning_content": "H", "reasoning": "H"}], []),
    "the first field counts": (
        [{"reasoning": "H"}, {"reasoning_content": "m"}],
        [SignatureReported(field="reasoning")],
    ),
    "entries of plain text need not go back": (
        [{"reasoning_details": details("Hm")}],
        [SignatureReported(field="reasoning_details")],
    ),
    "a signed entry goes back whole": (
        [{"reasoning_details": [SIGNED]}],
        [SignatureReported(None, (SIGNED,), "reasoning_details")],
    ),
    "an entry that grows is joined, without its streaming index": (
        [
            {"reasoning_details": [{**ENCRYPTED, "data": "x", "index": 0}]},
            {"reasoning_details": [{"data": "y", "index": 0}]},
        ],
        [SignatureReported(None, (ENCRYPTED,), "reasoning_details")],
    ),
    "of entries in another form the form goes back": (
        [{"reasoning_details": [{"type": "reasoning.summary", "summary": "a"}, {"type": "other", "text": "b"}]}],
        [SignatureReported(None, ({"type": "reasoning.summary"},), "reasoning_details")],
    ),
}


@pytest.mark.parametrize("case", COLLECTED)
def test_what_the_host_wants_back_is_reported_when_the_reasoning_is_over(case: str) -> None:
    deltas, reported = COLLECTED[case]
    assert collected(*deltas) == reported


def test_nothing_is_reported_twice() -> None:
    reader = ReasoningReader()
    reader.read({"reasoning": "Hm"})
    states = [reader.is_open, reader.close(), reader.is_open, reader.close()]
    assert states == [True, [SignatureReported(field="reasoning")], False, []]


LONG = "Let me see what is there."

# what came; then entries of `reasoning_details`; whether they repeat it
REPEATED: dict[str, tuple[list[dict[str, Any]], dict[str, Any], bool]] = {
    "the whole text": ([{"reasoning": LONG}], {"reasoning_details": details(LONG)}, True),
    "the text came in pieces": (
        [{"reasoning_content": LONG[:10]}, {"reasoning_content": LONG[10:]}],
        {"reasoning_details": details(LONG)},
        True,
    ),
    "another text": ([{"reasoning": LONG}], {"reasoning_details": details("Then I look.")}, False),
    "too short a start to be sure": ([{"reasoning": "Let"}], {"reasoning_details": details(LONG)}, False),
    "in a field of its own": ([{"reasoning": LONG}], {"reasoning_content": LONG}, False),
    "in copies": ([{"reasoning": LONG}], {"reasoning": LONG, "reasoning_details": details(LONG)}, False),
    "entries after entries": ([{"reasoning_details": details(LONG)}], {"reasoning_details": details(LONG)}, False),
    "nothing before it": ([], {"reasoning_details": details(LONG)}, False),
}


@pytest.mark.parametrize("case", REPEATED)
def test_entries_that_begin_like_the_reasoning_before_them_repeat_it(case: str) -> None:
    before, delta, repeats = REPEATED[case]
    reader = ReasoningReader()
    for one in before:
        reader.read(one)
    assert [type(event) for event in reader.read(delta)] == [Notice if repeats else TextDelta]
