"""Content and the entries of tool calls in a Chat delta, in whatever shape; and the only text of a chunk."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.dialects.openai_chat.delta import read_content, read_pieces, write_piece
from moonshim.engine.values.events import CallPiece


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hi", "Hi"),
        (None, ""),
        (7, ""),
        ({"text": "a"}, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "image_url"}, "a", {"text": "b"}, 7, {"text": 7}], "ab"),
    ],
)
def test_content_is_a_string_or_the_text_of_its_parts(content: Any, text: str) -> None:
    assert read_content(content) == text


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
        [CallPiece(3, "x", "ls", "{}", odd="an index that is not a number")],
    ),
    "an index as a float cannot stay": (
        [entry(index=3.0)],
        [CallPiece(3, "x", "ls", "{}", odd="an index that is not a number")],
    ),
    "an index that is not a number": (
        [entry(index="first")],
        [CallPiece(None, "x", "ls", "{}", odd="an index that is not a number")],
    ),
    "an invalid index": ([entry(index=None)], [CallPiece(None, "x", "ls", "{}", odd="no index")]),
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
def test_what_the_entries_of_tool_calls_contain(case: str) -> None:
    entries, pieces = PIECES[case]
    assert read_pieces(entries) == pieces


@pytest.mark.parametrize("case", PIECES)
def test_an_entry_that_is_written_is_read_as_the_same_piece(case: str) -> None:
    _, pieces = PIECES[case]
    for piece in pieces:
        (again,) = read_pieces([write_piece(piece)])
        assert (again.id, again.name, again.arguments, again.extras) == (
            piece.id,
            piece.name,
            piece.arguments,
            piece.extras,
        )
        assert again.index == piece.index
