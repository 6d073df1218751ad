"""Arguments from the start of a block and from its deltas: one JSON value, whatever the cut."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.dialects.anthropic.input_json import InputText
from tests.support.looped import looped

LS: Final = {"command": "ls"}
CASES: Final[dict[str, tuple[Any, str, str]]] = {
    "nothing at all": (None, "", "{}"),
    "an empty start": ({}, "", "{}"),
    "the start alone": (LS, "", '{"command":"ls"}'),
    "the start alone, as a string": ('{"command": "ls"}', "", '{"command": "ls"}'),
    "deltas alone": (None, '{"command": "ls"}', '{"command": "ls"}'),
    "deltas after an empty start": ({}, '{"command": "ls"}', '{"command": "ls"}'),
    "deltas that say the start again": (LS, '{"command": "ls"}', '{"command": "ls"}'),
    "deltas that know better": (LS, ' {"command": "pwd"}', '{"command": "pwd"}'),
    "deltas that go on": (LS, ',"timeout":1}', '{"command":"ls","timeout":1}'),
    "deltas that go on without a comma": (LS, '"timeout":1}', '{"command":"ls","timeout":1}'),
    "deltas that only close": (LS, "}", '{"command":"ls"}'),
    "deltas that say the start again as a string": (LS, '"{\\"command\\": 1}"', '"{\\"command\\": 1}"'),
    "empty objects in the deltas say nothing": (LS, "{} { }", '{"command":"ls"}'),
    "an empty object, and then the whole": (LS, '{}{"command": "pwd"}', '{"command": "pwd"}'),
    "null in the deltas says nothing": (LS, "null", '{"command":"ls"}'),
    "half an object as a string, and its end": ('{"command": "l<', 's"}', '{"command": "l<s"}'),
    "a string that is no JSON gives way": ("ls -la", '{"command": "ls"}', '{"command": "ls"}'),
    "white space alone": (None, " \n", " \n{}"),
    "what stands behind the value is not ours": (LS, '{"a": 1} {', '{"a": 1} {'),
}


@pytest.mark.parametrize(("start", "deltas", "expected"), CASES.values(), ids=CASES.keys())
@looped("size", [1, 2, 3, 1000])
def test_start_and_deltas_make_one_value(start: Any, deltas: str, expected: str, size: int) -> None:
    text = InputText(start)
    out = "".join(text.feed(deltas[at : at + size]) for at in range(0, len(deltas), size))
    assert out + text.finish() == expected


@given(st.lists(st.sampled_from(("{", "}", " ", '"', ",", "a", "null", "{}", "[", "1")), max_size=12))
def test_the_cut_is_invisible(pieces: list[str]) -> None:
    def run(parts: list[str]) -> str:
        text = InputText(LS)
        return "".join(map(text.feed, parts)) + text.finish()

    assert run(pieces) == run(["".join(pieces)]) == run(list("".join(pieces)))


def test_deltas_leave_at_once_where_the_start_said_nothing() -> None:
    text = InputText({})
    assert [text.feed(piece) for piece in ("{", '"a', '": 1}')] == ["{", '"a', '": 1}']


def test_very_many_empty_objects_are_no_burden() -> None:
    text = InputText(LS)
    assert text.feed("{}" * 100_000) + text.finish() == '{"command":"ls"}'
