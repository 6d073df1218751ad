"""JSON text to values and back, half characters too."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.wire.json_codec import decode_object, encode

HALF = "\ud83d"

DECODED: dict[str, tuple[bytes, dict[str, Any] | None]] = {
    "an object": (b'{"a": [1, "\xc3\xa9", null]}', {"a": [1, "é", None]}),
    "an empty object": (b"{}", {}),
    "white space around": (b' \n{"a": 1}\t', {"a": 1}),
    "an escaped pair": (b'{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
    "the first half of a character": (b'{"a": "x\\ud83d"}', {"a": "x" + HALF}),
    "the second half of a character": (b'{"a": "\\uDE00x"}', {"a": "\ude00x"}),
    "a list": (b"[1]", None),
    "a string": (b'"a"', None),
    "a string with half a character": (b'"\\ud83d"', None),
    "a number": (b"7", None),
    "null": (b"null", None),
    "nothing": (b"", None),
    "no JSON": (b"keep-alive", None),
    "an object that breaks off": (b'{"a": ', None),
    "an object that breaks off behind half a character": (b'{"a": "\\ud83d', None),
    "junk behind the object": (b"{} {}", None),
    "bytes that are no UTF-8": (b'{"a": "\xff"}', None),
    "bytes that are no UTF-8, and half a character": (b'{"a": "\xff\\ud83d"}', None),
    "deeper than anyone can read": (b'{"a":' * 100_000, None),
    "deeper than anyone can read, with half a character": (b'{"a\\ud83d":' * 100_000, None),
}


@pytest.mark.parametrize("case", DECODED)
def test_bytes_are_the_object_they_tell_or_none(case: str) -> None:
    data, value = DECODED[case]
    assert decode_object(data) == value


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"a": 1, "b": [True, None]}, b'{"a":1,"b":[true,null]}'),
        ({"a": "é😀"}, '{"a":"é😀"}'.encode()),
        ({"a": HALF}, b'{"a":"\\ud83d"}'),
        ({"a": ["é", HALF]}, b'{"a":["\\u00e9","\\ud83d"]}'),
    ],
)
def test_a_value_becomes_compact_json_and_half_a_character_an_escape(value: Any, data: bytes) -> None:
    assert encode(value) == data


@pytest.mark.parametrize("value", [{}, {"a": '\n\t"\\\x00'}, {"a": HALF, "b": {"c": [0.5, "\ude00"]}}])
def test_what_was_encoded_reads_as_it_was(value: dict[str, Any]) -> None:
    assert decode_object(encode(value)) == value
