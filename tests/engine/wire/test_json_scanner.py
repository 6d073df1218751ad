"""The value scanner: where a JSON value ends, at any chunking, without parsing it."""

from __future__ import annotations

import pytest

from moonshim.engine.wire.json_scanner import ValueScanner

SIZES = (1, 2, 3, 100)

# a text, and how much of it is the value
VALUES: dict[str, tuple[str, str]] = {
    "an object": ('{"a": 1} rest', '{"a": 1}'),
    "an empty object": ("{}{}", "{}"),
    "an array": ("[1, [2]] rest", "[1, [2]]"),
    "a string": ('"abc" rest', '"abc"'),
    "an empty string": ('"""', '""'),
    "nested containers": ('{"a": [{"b": {}}]}}', '{"a": [{"b": {}}]}'),
    "a bracket inside a string": ('{"a": "}]"} rest', '{"a": "}]"}'),
    "an escaped quote": ('{"a": "\\"}"} rest', '{"a": "\\"}"}'),
    "an escaped backslash before the quote": ('{"a": "\\\\"} rest', '{"a": "\\\\"}'),
    "a < inside a string": ('{"a": "<|x|>"} rest', '{"a": "<|x|>"}'),
    "a bracket inside a single-quoted string": ("{'a': '}]', 'b': [ '{' ]} rest", "{'a': '}]', 'b': [ '{' ]}"),
    "a double quote inside a single-quoted string": ("{'a': 'say \"hi'} rest", "{'a': 'say \"hi'}"),
    "an escaped quote inside a single-quoted string": ("{'a': 'it\\'s }'} rest", "{'a': 'it\\'s }'}"),
    "an apostrophe where no string begins": ('{"a": it\'s} rest', '{"a": it\'s}'),
    "white space before the value": ('  \n{"a": 1} rest', '  \n{"a": 1}'),
    "brackets that do not match are counted all the same": ('{"a": [1}} rest', '{"a": [1}}'),
    "a closing bracket before the value": ("}{} rest", "}{}"),
    "bare words before the value": ("null{} rest", "null{}"),
}


@pytest.mark.parametrize("case", VALUES)
def test_reading_stops_just_behind_the_value_wherever_it_was_cut(case: str) -> None:
    text, value = VALUES[case]
    for cut in range(len(value)):
        scanner = ValueScanner()
        assert scanner.scan(text[:cut], 0) == cut
        assert cut + scanner.scan(text[cut:], 0) == len(value)
        assert not scanner.inside


@pytest.mark.parametrize("case", VALUES)
def test_a_value_is_open_until_its_last_character(case: str) -> None:
    _, value = VALUES[case]
    scanner = ValueScanner()
    seen = [scanner.inside for char in value if scanner.scan(char, 0)]
    assert seen[-2:] == [True, False]


@pytest.mark.parametrize("text", ['{"a": 1', '{"a": "}', '["', '"abc\\"', "{", '"\\'])
def test_a_value_that_breaks_off_is_not_over(text: str) -> None:
    for size in SIZES:
        scanner = ValueScanner()
        for at in range(0, len(text), size):
            piece = text[at : at + size]
            assert scanner.scan(piece, 0) == len(piece)
        assert scanner.inside


@pytest.mark.parametrize("text", ["", "  ", "null", "12", "true, false", "}"])
def test_what_has_no_end_of_its_own_is_no_value(text: str) -> None:
    scanner = ValueScanner()
    assert scanner.scan(text, 0) == len(text)
    assert not scanner.inside


def test_reading_stops_at_a_less_than_sign_outside_of_strings() -> None:
    scanner = ValueScanner()
    text = '{"<": <|x|>}'
    at = scanner.scan(text, 0)
    assert text[at:] == "<|x|>}"
    assert scanner.inside
    assert scanner.scan(text, at + 1) == len(text)
    assert not scanner.inside


def test_reading_begins_where_it_is_told_to() -> None:
    scanner = ValueScanner()
    assert scanner.scan('{{{"a": 1}', 2) == 10
    assert not scanner.inside


def test_after_one_value_comes_the_next() -> None:
    scanner, text = ValueScanner(), '{"a": 1}[2]"3"'
    ends = [0]
    while ends[-1] < len(text):
        ends.append(scanner.scan(text, ends[-1]))
    assert ends == [0, 8, 11, 14]


def test_what_is_open_can_be_seen() -> None:
    scanner = ValueScanner()
    scanner.scan('{"a": ["b\\', 0)
    assert (scanner.depth, scanner.in_string, scanner.escaped) == (2, True, True)
    scanner.scan('""]', 0)
    assert (scanner.depth, scanner.in_string, scanner.escaped) == (1, False, False)
