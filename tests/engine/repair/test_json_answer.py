"""The JSON that a model was asked for is found in what it wrote, and never written anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.repair.json_answer import read_json_answer

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "text": {"type": "string"}},
    "required": ["n"],
    "additionalProperties": False,
}
RIGHT = '{"n": 1, "text": "a {b} `c`"}'

FOUND: dict[str, tuple[str, str]] = {
    "nothing else": (RIGHT, RIGHT),
    "blanks around it": (f"\n  {RIGHT}\n", RIGHT),
    "a code block": (f"```json\n{RIGHT}\n```", RIGHT),
    "a code block without a label": (f"```\n{RIGHT}\n```", RIGHT),
    "a code block in one line": (f"```{RIGHT}```", RIGHT),
    "sentences around it": (f"Here it is: {RIGHT}. Anything else?", RIGHT),
    "a sentence with brackets before it": (f"As [1] and {{2}} say:\n{RIGHT}", RIGHT),
    "another value before it": (f'{{"m": 2}}\n{RIGHT}', RIGHT),
    "a code block that never ends": (f"```json\n{RIGHT}", RIGHT),
    "a marker after it": (f"{RIGHT}<|im_end|>", RIGHT),
    "a trailing comma": ('{"n": 1,}', '{"n": 1}'),
    "a number in quotes": ('{"n": "1"}', '{"n": 1}'),
    "a raw newline": ('{"n": 1, "text": "a\nb"}', '{"n": 1, "text": "a\\nb"}'),
    "python's words": ("{'n': 1}", '{"n": 1}'),
    "half of a surrogate pair": ('{"n": 1, "text": "\\ud83d"}', '{"n": 1, "text": "\\ud83d"}'),
}


@pytest.mark.parametrize(("text", "expected"), FOUND.values(), ids=FOUND.keys())
def test_the_json_is_found(text: str, expected: str) -> None:
    answer = read_json_answer(text, SCHEMA)
    assert answer.text == expected
    assert bool(answer.changed) == (text.strip() != expected)
    assert answer.wrong == ()


WRONG: dict[str, tuple[str, str]] = {
    "prose": ("One.", "the answer is not JSON"),
    "nothing": ("", "the answer is not JSON"),
    "a wrong value": ('{"n": "one"}', "$.n: must be of type integer, not string"),
    "a wrong value in a code block": ('Sure:\n```json\n{"m": 1}\n```', "$: the property 'n' is missing"),
    "the largest value is the one that was meant": ('[1] {"text": "a", "n": null}', "$.n: must be of type integer"),
    "half of it": ('{"text": "a', "the answer is not JSON"),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG.keys())
def test_an_answer_that_does_not_match_says_why(text: str, expected: str) -> None:
    answer = read_json_answer(text, SCHEMA)
    assert answer.text is None
    assert any(one.startswith(expected) for one in answer.wrong), answer.wrong


def test_a_list_can_be_asked_for() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    assert read_json_answer("The numbers are [1, 2].", schema).text == "[1, 2]"


def test_brackets_without_end_take_no_time() -> None:
    assert read_json_answer("[" * 200_000, SCHEMA).text is None
    assert read_json_answer('{"a":' * 50_000, SCHEMA).text is None


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    answer = read_json_answer(text, SCHEMA)
    assert (answer.text is None) == bool(answer.wrong)
