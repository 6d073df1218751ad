"""The record of a call's arguments: known again, whatever their length, in bounded memory."""

from __future__ import annotations

import pytest

from moonshim.engine.repair.argument_record import ArgumentsRecord
from tests.support.looped import looped

LONG = '{"a": "' + "x" * 20_000 + '"}'


def in_pieces(text: str, size: int) -> ArgumentsRecord:
    record = ArgumentsRecord()
    for at in range(0, len(text), size):
        record.add(text[at : at + size])
    return record


SAME: dict[str, tuple[str, str]] = {
    "the same text": ('{"a": 1}', '{"a": 1}'),
    "other white space": ('{"a": 1}', '{ "a":1 }\n'),
    "another order of keys": ('{"a": 1, "b": {"c": 2, "d": 3}}', '{"b": {"d": 3, "c": 2}, "a": 1}'),
    "another way to write a character": ('{"a": "é"}', r'{"a": "\u00e9"}'),
    "no arguments at all": ("", ""),
    "the same text that is no JSON": ('{"a": ', '{"a": '),
    "the same long text": (LONG, LONG),
}
DIFFERENT: dict[str, tuple[str, str]] = {
    "another value": ('{"a": 1}', '{"a": 2}'),
    "another order of items": ("[1, 2]", "[2, 1]"),
    "a number and its text": ('{"a": 1}', '{"a": "1"}'),
    "more keys": ('{"a": 1}', '{"a": 1, "b": 2}'),
    "two texts that are no JSON": ('{"a": ', '{"b": '),
    "JSON, and none": ('{"a": 1}', '{"a": 1'),
    "two long texts": (LONG, LONG.replace("x", "y")),
    "long texts of other lengths": (LONG, LONG + " "),
    "a long text and a short one": (LONG, "{}"),
    "half a character and none": ('{"a": "\ud83d"}', '{"a": ""}'),
}


@looped("size", [1, 3, 100_000])
@pytest.mark.parametrize("case", SAME)
def test_the_same_json_is_known_again_however_it_came(case: str, size: int) -> None:
    one, other = SAME[case]
    assert in_pieces(one, size).same_as(ArgumentsRecord.of(other))
    assert ArgumentsRecord.of(other).same_as(in_pieces(one, size))


@looped("size", [1, 3, 100_000])
@pytest.mark.parametrize("case", DIFFERENT)
def test_other_arguments_are_others(case: str, size: int) -> None:
    one, other = DIFFERENT[case]
    assert not in_pieces(one, size).same_as(ArgumentsRecord.of(other))
    assert not ArgumentsRecord.of(other).same_as(in_pieces(one, size))


def test_a_record_can_be_compared_and_then_grow() -> None:
    record = ArgumentsRecord.of('{"a"')
    assert not record.same_as(ArgumentsRecord.of('{"a": 1}'))
    record.add(": 1}")
    assert record.same_as(ArgumentsRecord.of('{"a": 1}'))


def test_long_arguments_with_half_a_character_are_known_again() -> None:
    text = LONG + "\ud83d"
    assert in_pieces(text, 7).same_as(ArgumentsRecord.of(text))


def test_pieces_are_few_however_many_came() -> None:
    record = in_pieces("x" * 10_000, 1)
    assert len(record.pieces) < ArgumentsRecord.PIECES


def test_arguments_nested_too_deep_to_read_are_compared_as_text() -> None:
    deep = "[" * 5_000
    assert ArgumentsRecord.of(deep).same_as(ArgumentsRecord.of(deep))
    assert not ArgumentsRecord.of(deep).same_as(ArgumentsRecord.of(deep + " "))
