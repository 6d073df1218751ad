"""What a Chat delta tells: reasoning in whichever field, content, and entries of tool calls in whatever shape."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.dialects.openai_chat.delta import (
    DeltaText,
    read_pieces,
    read_speech,
    reasoning_fields,
    write_reasoning,
)
from moonshim.engine.values.events import CallPiece


def details(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "reasoning.text", "text": text} for text in texts]


SPEECH: dict[str, tuple[dict[str, Any], DeltaText]] = {
    "nothing": ({}, DeltaText()),
    "content": ({"role": "assistant", "content": "Hi"}, DeltaText(content="Hi")),
    "empty and null fields": ({"content": None, "reasoning": "", "reasoning_details": []}, DeltaText()),
    "reasoning_content": ({"reasoning_content": "Hm"}, DeltaText("Hm")),
    "reasoning": ({"reasoning": "Hm"}, DeltaText("Hm")),
    "reasoning_details": ({"reasoning_details": details("H", "m")}, DeltaText("Hm")),
    "reasoning and content": ({"reasoning": "Hm", "content": "Hi"}, DeltaText("Hm", "Hi")),
    "equal copies count once": (
        {"reasoning_content": "Hm", "reasoning": "Hm", "reasoning_details": details("Hm")},
        DeltaText("Hm"),
    ),
    "of unequal copies reasoning_content wins": (
        {"reasoning": "other", "reasoning_content": "Hm"},
        DeltaText("Hm", "", (("reasoning", "other"),)),
    ),
    "two that do not agree": (
        {"reasoning_content": "a", "reasoning": "b", "reasoning_details": details("c")},
        DeltaText("a", "", (("reasoning", "b"), ("reasoning_details", "c"))),
    ),
    "details without text": ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}, 7]}, DeltaText()),
    "fields of another type": ({"content": [{"type": "text"}], "reasoning": 7, "reasoning_details": "x"}, DeltaText()),
}


@pytest.mark.parametrize("case", SPEECH)
def test_what_a_delta_says(case: str) -> None:
    delta, said = SPEECH[case]
    assert read_speech(delta) == said


def test_the_fields_in_which_a_delta_tells_its_reasoning() -> None:
    assert reasoning_fields({"reasoning": "a", "reasoning_content": "a", "reasoning_details": []}) == (
        "reasoning_content",
        "reasoning",
    )
    assert reasoning_fields({"content": "a"}) == ()


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
    assert write_reasoning(delta, text, ("reasoning_content",), first=True) == written


def test_reasoning_goes_where_this_host_tells_it() -> None:
    written = write_reasoning({}, "new", ("reasoning", "reasoning_details"), first=True)
    assert written == {"reasoning": "new", "reasoning_details": details("new")}


def test_what_is_said_again_of_details_is_the_text_alone_and_the_rest_goes_once() -> None:
    secret = {"type": "reasoning.encrypted", "data": "x"}
    delta = {"reasoning_details": [secret, {"type": "reasoning.text", "text": "old", "signature": "s"}]}
    first = write_reasoning(delta, "one", (), first=True)
    again = write_reasoning(delta, "two", (), first=False)
    assert first == {"reasoning_details": [secret, {"type": "reasoning.text", "text": "one", "signature": "s"}]}
    assert [one.get("text") for one in again["reasoning_details"]] == ["two"]
    assert read_speech(first).reasoning + read_speech(again).reasoning == "onetwo"


def entry(**fields: Any) -> dict[str, Any]:
    return {"index": 0, "id": "x", "type": "function", "function": {"name": "ls", "arguments": "{}"}} | fields


PIECES: dict[str, tuple[Any, list[CallPiece]]] = {
    "a whole entry": ([entry()], [CallPiece(0, "x", "ls", "{}")]),
    "only arguments": ([{"index": 2, "function": {"arguments": "{"}}], [CallPiece(2, None, None, "{")]),
    "empty strings count as absent": (
        [entry(id="", function={"name": "", "arguments": ""})],
        [CallPiece(0, None, None, "")],
    ),
    "null counts as absent, and cannot stay": (
        [entry(id=None, function={"name": None, "arguments": None})],
        [CallPiece(0, odd="null fields")],
    ),
    "an index as a string cannot stay": (
        [entry(index="3")],
        [CallPiece(3, "x", "ls", "{}", odd="an index that is no number")],
    ),
    "an index as a float cannot stay": (
        [entry(index=3.0)],
        [CallPiece(3, "x", "ls", "{}", odd="an index that is no number")],
    ),
    "an index that is no number": (
        [entry(index="first")],
        [CallPiece(None, "x", "ls", "{}", odd="an index that is no number")],
    ),
    "an index that is none": ([entry(index=None)], [CallPiece(None, "x", "ls", "{}", odd="no index")]),
    "arguments as an object cannot stay": (
        [entry(function={"name": "ls", "arguments": {"a": [1]}})],
        [CallPiece(0, "x", "ls", '{"a":[1]}', odd="arguments as an object")],
    ),
    "a header without its type cannot stay": ([entry(type=None)], [CallPiece(0, "x", "ls", "{}", odd="no type")]),
    "fields that nobody knows": (
        [entry(cache=1, function={"name": "ls", "arguments": "{}", "strict": True})],
        [CallPiece(0, "x", "ls", "{}", {"cache": 1, "function": {"strict": True}})],
    ),
    "a function that is no object": ([entry(function="ls")], [CallPiece(0, "x")]),
    "entries that are none": ([7, entry(), None], [CallPiece(0, "x", "ls", "{}")]),
    "no list": ({"index": 0}, []),
    "null": (None, []),
}


@pytest.mark.parametrize("case", PIECES)
def test_what_the_entries_of_tool_calls_tell(case: str) -> None:
    entries, pieces = PIECES[case]
    assert read_pieces(entries) == pieces
