"""A large body is parsed as any other, in windows of every size, and no further than its limit."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.gateway.inbound import large_json
from moonshim.gateway.inbound.large_json import TooManyValues, encode_large_json, parse_large_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)
PLENTY = 1_000_000


def reject(name: str) -> NoReturn:
    raise ValueError(name)


def expected(text: str) -> tuple[bool, Any]:
    try:
        return True, json.loads(text, parse_constant=reject)
    except ValueError:
        return False, None


def parsed(text: str) -> tuple[bool, Any]:
    try:
        return True, parse_large_json([text.encode()], PLENTY)
    except ValueError:
        return False, None


def count(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inside))


@pytest.fixture(params=[1, 5, 17, 128 * 1024], autouse=True)
def _window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_json, "WINDOW", request.param)


def test_any_value_is_read_as_the_standard_library_reads_it() -> None:
    @given(VALUES, st.sampled_from([None, 1]), st.booleans())
    def check(value: Any, indent: int | None, ascii_only: bool) -> None:
        assert parsed(json.dumps(value, indent=indent, ensure_ascii=ascii_only)) == (True, value)

    check()


def test_any_value_is_written_as_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_json, "_MANY", 1)

    @given(VALUES)
    def check(value: Any) -> None:
        assert json.loads(encode_large_json(value)) == value

    check()


@pytest.mark.parametrize("said", ["\U0001f600" * 300, "\ud83d" * 300, "\\" * 301, '"\n' * 300, "é" * 300])
def test_a_string_longer_than_the_window_is_read_whatever_its_escapes(said: str) -> None:
    for ascii_only in (True, False) if said.isprintable() else (True,):
        text = json.dumps({said: [said]}, ensure_ascii=ascii_only).encode()
        assert parse_large_json([text[:101], text[101:]], PLENTY) == {said: [said]}
    for wrong in ("\\x", "\\u12g4", "\n"):
        with pytest.raises(ValueError, match="at character"):
            parse_large_json([json.dumps(said).encode()[:-1] + wrong.encode() + b"x" * 300 + b'"'], PLENTY)


def test_what_is_not_utf_8_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match="invalid UTF-8 at byte 302"):
        parse_large_json(['"{}"'.format("é" * 150 + "x").encode()[:302] + b"\xff" + b"x" * 100 + b'"'], PLENTY)


def test_text_that_is_no_json_is_refused_where_the_standard_library_refuses_it() -> None:
    @given(VALUES, st.integers(0, 200), st.sampled_from(["", *'{}[],:"\\01ae-.tn \n']), st.booleans())
    def check(value: Any, place: int, character: str, replaces: bool) -> None:
        text = json.dumps(value)
        text = text[:place] + character + text[place + replaces :]
        assert parsed(text) == expected(text)

    check()


def test_no_value_goes_uncounted_and_an_empty_container_counts_as_two_at_most() -> None:
    @given(VALUES)
    def check(value: Any) -> None:
        text, values = json.dumps(value), count(value)
        assert parse_large_json([text.encode()], 2 * values) == value
        with pytest.raises(TooManyValues):
            parse_large_json([text.encode()], values - 1)

    check()


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_nesting_without_end_is_refused(opening: str) -> None:
    with pytest.raises(RecursionError):
        parse_large_json([opening.encode() * 5_000], PLENTY)
