"""The one string among the arguments of a custom tool, taken out while it streams."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moonshim.engine.formats.free_text import InputReader
from tests.support.looped import looped


def read(*pieces: str) -> str:
    reader = InputReader()
    return "".join([*(reader.feed(piece) for piece in pieces), reader.close()])


ARGUMENTS: dict[str, tuple[str, str]] = {
    "the form itself": ('{"input": "a\\nb"}', "a\nb"),
    "white space wherever it may be": (' {\n "input" :\t"a" } ', "a"),
    "an empty text": ('{"input":""}', ""),
    "every escape": (r'{"input":"\"\\\/\b\f\n\r\t\u00e9"}', '"\\/\b\f\n\r\té'),
    "a character in two halves": (r'{"input":"\ud83d\ude00!"}', "😀!"),
    "half a character": (r'{"input":"\ud83d!\ude00"}', "\ud83d!\ude00"),
    "half a character before another escape": (r'{"input":"\ud83d\n"}', "\ud83d\n"),
    "two first halves": (r'{"input":"\ud83d\ud83d\ude00"}', "\ud83d😀"),
    "raw line breaks": ('{"input":"a\nb"}', "a\nb"),
    "escapes that JSON does not have": (r'{"input":"\d+\uzzzz"}', r"\d+\uzzzz"),
    "cut off": ('{"input":"abc', "abc"),
    "cut off in an escape": ('{"input":"abc\\u00', "abc\\u00"),
    "a member behind it": ('{"input":"abc","x":1}', "abc"),
    "a member before it": ('{"x":1,"input":"abc"}', "abc"),
    "free text": ("*** Begin Patch", "*** Begin Patch"),
    "free text that begins with a brace": ("{ not json", "{ not json"),
    "another object": ('{"patch":"abc"}', '{"patch":"abc"}'),
    "an input that is no text": ('{"input":7}', '{"input":7}'),
    "nothing": ("", ""),
    "only white space": ("  ", "  "),
    "the beginning of the form": ('{"inp', '{"inp'),
}


@pytest.mark.parametrize(("arguments", "text"), ARGUMENTS.values(), ids=ARGUMENTS.keys())
@looped("size", [1, 2, 3, 7, 1000])
def test_arguments_at_every_chunk_size(arguments: str, text: str, size: int) -> None:
    assert read(*(arguments[at : at + size] for at in range(0, len(arguments), size))) == text


@given(st.text(), st.booleans(), st.data())
@example("\ud83d", True, None)
def test_any_text_comes_out_as_it_was_at_any_cut(text: str, ascii_only: bool, data: st.DataObject | None) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only)
    at = data.draw(st.integers(0, len(arguments))) if data is not None else 12
    assert read(arguments[:at], arguments[at:]) == text


@given(st.text(alphabet='{}" :input\\u\nxd83e0', max_size=30), st.integers(0, 30))
def test_no_cut_changes_what_is_read(arguments: str, at: int) -> None:
    assert read(arguments[:at], arguments[at:]) == read(arguments)


def test_the_text_goes_out_as_soon_as_it_is_known() -> None:
    reader = InputReader()
    assert [reader.feed(piece) for piece in ['{"input": "', "abc", "d\\", "n", '"}']] == ["", "abc", "d", "\n", ""]
