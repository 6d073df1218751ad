"""Copies of JSON-like values share nothing, at any depth."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.values.copies import deep_copy

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def containers(value: Any) -> list[int]:
    if not isinstance(value, (dict, list)):
        return []
    inside = value.values() if isinstance(value, dict) else value
    return [id(value), *(one for inner in inside for one in containers(inner))]


@given(JSON)
def test_a_copy_is_equal_and_shares_no_container(value: Any) -> None:
    copy = deep_copy(value)
    assert copy == value
    assert not set(containers(copy)) & set(containers(value))


def test_nesting_deeper_than_the_stack_is_copied() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    copy, levels = deep_copy(deep), 0
    while copy:
        copy, levels = copy[0], levels + 1
    assert levels == 100_000
    while deep:  # taken apart by hand: the interpreter would recurse
        deep = deep.pop()
