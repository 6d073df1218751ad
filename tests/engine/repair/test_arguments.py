"""Arguments while they stream: what has one meaning is mended, the rest goes out as it came, nothing is invented."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest

from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.repair.arguments import Arguments, PlainArguments, SafeArguments
from tests.support.looped import looped

SIZES = (1, 2, 3, 7, 100_000)


def safe(limit: int = 1024 * 1024) -> SafeArguments:
    return SafeArguments(ArgumentsRecord(), limit=limit)


def run(arguments: Arguments, text: str, size: int = 100_000, *, cut: bool = False) -> str:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return "".join([*map(arguments.feed, pieces), arguments.close(cut=cut)])


def rules(arguments: Arguments) -> list[str]:
    return [repair.rule for repair in arguments.drain()]


RIGHT: dict[str, str] = {
    "an empty object": "{}",
    "an empty object with a space in it": "{ }",
    "an object": '{"a": 1, "b": [true, null, {"c": "d"}]}',
    "white space around": ' \n{"a": 1}\n',
    "every escape": r'{"a": "\"\\\/\b\f\n\r\té"}',
    "a pair of escaped halves": r'{"a": "\ud83d\ude00"}',
    "characters of all kinds": '{"a": "é 你好 😀 \u2028\x7f"}',
    "a marker in a string": '{"a": "<|tool_call_end|>"}',
    "brackets in a string": '{"a": "}]{["}',
    "an array": "[1, 2]",
    "an honest string": '"just words"',
    "a number": "12",
    "true": "true",
}


@looped("size", SIZES)
@pytest.mark.parametrize("case", RIGHT)
def test_what_is_right_leaves_as_it_came(case: str, size: int) -> None:
    arguments = safe()
    assert run(arguments, RIGHT[case], size) == RIGHT[case]
    assert rules(arguments) == []
    assert arguments.complete


MENDED: dict[str, tuple[str, str, list[str]]] = {
    "nothing": ("", "{}", ["arguments_empty"]),
    "null": ("null", "{}", ["arguments_empty"]),
    "a leading empty object": ('{}{"a": 1}', '{"a": 1}', ["arguments_leading_empty"]),
    "a leading empty object and a space": ('{} {"a": 1}', '{"a": 1}', ["arguments_leading_empty"]),
    "a leading null": ('null{"a": 1}', '{"a": 1}', ["arguments_leading_null"]),
    "leading words": ('Sure: {"a": 1}', '{"a": 1}', ["arguments_leading_junk"]),
    "the same object twice": ('{"a": 1}{"a": 1}', '{"a": 1}', ["arguments_doubled"]),
    "the same object twice, spaced otherwise": (
        '{"a": 1, "b": 2}{"b":2,"a":1}',
        '{"a": 1, "b": 2}',
        ["arguments_doubled"],
    ),
    "two different objects": ('{"a": 1}{"a": 2}', '{"a": 1}', ["arguments_trailing"]),
    "words behind the object": ('{"a": 1} and so on', '{"a": 1} ', ["arguments_trailing"]),
    "one brace too many": ('{"a": 1}}', '{"a": 1}', ["arguments_trailing"]),
    "the object as a string": (json.dumps('{"a": "b\\nc"}'), '{"a": "b\\nc"}', ["arguments_stringified"]),
    "an empty object as a string": ('"{}"', "{}", ["arguments_stringified"]),
    "an object with other characters as a string": (
        json.dumps('{"a": "é/"}'),
        '{"a": "é/"}',
        ["arguments_stringified"],
    ),
    "an object with an escaped pair as a string": (
        json.dumps('{"a": "😀"}'),
        '{"a": "😀"}',
        ["arguments_stringified"],
    ),
    "an object with escaped halves as a string": (
        json.dumps('{"a": "\\ud83d\\ude00"}'),
        '{"a": "\\ud83d\\ude00"}',
        ["arguments_stringified"],
    ),
    "an invalid escape in an object as a string": (
        r'"{\"a\": \"\q\"}"',
        r'{"a": "\\q"}',
        ["arguments_stringified", "arguments_invalid_escape"],
    ),
    "words behind an object as a string": ('"{}" x', "{} ", ["arguments_stringified", "arguments_trailing"]),
    "a raw newline": ('{"a": "b\nc"}', '{"a": "b\\nc"}', ["arguments_control_character"]),
    "a raw tab and a raw return": ('{"a": "\t\r"}', '{"a": "\\t\\r"}', ["arguments_control_character"] * 2),
    "another control character": ('{"a": "\x01"}', '{"a": "\\u0001"}', ["arguments_control_character"]),
    "an invalid escape": (r'{"a": "\q"}', r'{"a": "\\q"}', ["arguments_invalid_escape"]),
    "an invalid hexadecimal escape": (r'{"a": "\x41"}', r'{"a": "\\x41"}', ["arguments_invalid_escape"]),
    "an escape without its digits": (r'{"a": "\u12"}', r'{"a": "\\u12"}', ["arguments_invalid_escape"]),
    "a backslash before a raw newline": (
        '{"a": "\\\n"}',
        '{"a": "\\\\\\n"}',
        ["arguments_invalid_escape", "arguments_control_character"],
    ),
    "half a character, the first": (r'{"a": "\ud83d"}', r'{"a": "\ufffd"}', ["arguments_lone_surrogate"]),
    "half a character, the second": (r'{"a": "\uDE00x"}', r'{"a": "\ufffdx"}', ["arguments_lone_surrogate"]),
    "half a character before another escape": (
        r'{"a": "\ud83d\n"}',
        r'{"a": "\ufffd\n"}',
        ["arguments_lone_surrogate"],
    ),
    "a first half before a pair": (
        r'{"a": "\ud83d\ud83d\ude00"}',
        r'{"a": "\ufffd\ud83d\ude00"}',
        ["arguments_lone_surrogate"],
    ),
}


MENDED |= {
    "a comma before a brace": ('{"a": "x",}', '{"a": "x"}', ["arguments_trailing_comma"]),
    "commas before brackets": ('{"a": [1, 2 , ] ,\n}', '{"a": [1, 2  ] \n}', ["arguments_trailing_comma"]),
    "single quotes": ("{'a': 'x'}", '{"a": "x"}', ["arguments_single_quotes"]),
    "both kinds of quotes": (
        """{'a': "it's", 'b': 'say "hi"'}""",
        '{"a": "it\'s", "b": "say \\"hi\\""}',
        ["arguments_single_quotes"],
    ),
    "escapes in single quotes": (
        r"{'a': 'it\'s \x41 \" \n \u00e9'}",
        '{"a": "it\'s \\u0041 \\" \\n \\u00e9"}',
        ["arguments_single_quotes"],
    ),
    "a raw newline in single quotes": (
        "{'a': 'b\nc'}",
        '{"a": "b\\nc"}',
        ["arguments_single_quotes", "arguments_control_character"],
    ),
    "Python's literals": (
        '{"a": None, "b": [True, False]}',
        '{"a": null, "b": [true, false]}',
        ["arguments_python_literal"],
    ),
    "a Python dict": (
        "{'a': None, 'b': ['c', True,],}",
        '{"a": null, "b": ["c", true]}',
        ["arguments_single_quotes", "arguments_python_literal", "arguments_trailing_comma"],
    ),
    "a Python dict as a string": (
        json.dumps("{'a': None}"),
        '{"a": null}',
        ["arguments_stringified", "arguments_single_quotes", "arguments_python_literal"],
    ),
    "None alone": ("None", "{}", ["arguments_empty"]),
}


@looped("size", SIZES)
@pytest.mark.parametrize("case", MENDED)
def test_what_has_one_meaning_is_mended_and_told(case: str, size: int) -> None:
    text, mended, told = MENDED[case]
    arguments = safe()
    assert run(arguments, text, size) == mended
    assert rules(arguments) == told
    assert arguments.complete
    json.loads(mended)


@pytest.mark.parametrize("case", [*RIGHT, *MENDED])
def test_what_was_mended_is_right(case: str) -> None:
    mended = RIGHT[case] if case in RIGHT else MENDED[case][1]
    arguments = safe()
    assert run(arguments, mended) == mended
    assert rules(arguments) == []


def test_a_second_object_is_told_whole() -> None:
    arguments = safe()
    run(arguments, '{"a": 1}{"b": "two"}', 3)
    assert [repair.detail for repair in arguments.drain()] == ['{"b": "two"}']


INVALID: dict[str, tuple[str, str]] = {
    "brackets that do not match": ("{]", "{"),
    "a bracket of the other kind": ('{"a": [1}}', '{"a": [1'),
    "a key without quotes": ("{a: 1}", "{"),
    "a key without a value": ('{"a"}', '{"a"'),
    "a colon without a value": ('{"a":}', '{"a":'),
    "two commas": ('{"a": 1,,}', '{"a": 1,'),
    "only a comma": ("{,}", "{"),
    "no comma": ('{"a": 1 "b": 2}', '{"a": 1 '),
    "a comma before the other bracket": ('{"a": [1,}', '{"a": [1'),
    "a word": ('{"a": yes}', '{"a": '),
    "a longer word than Python's": ('{"a": Nonesuch}', '{"a": null'),
    "half a word": ('{"a": tru}', '{"a": tru'),
    "half a word of Python": ('{"a": Tru}', '{"a": '),
    "a number with a leading zero": ('{"a": 01}', '{"a": 0'),
    "half a number": ('{"a": 1.}', '{"a": 1.'),
    "a number and a word": ('{"a": 12abc}', '{"a": 12'),
    "no number": ('{"a": NaN}', '{"a": '),
    "an apostrophe in single quotes": ("{'a': 'it's'}", '{"a": "it"'),
    "a set": ("{1, 2}", "{"),
    "a tuple": ('{"a": (1, 2)}', '{"a": '),
    "a comment": ('{"a": /* one */ 1}', '{"a": '),
    "a marker": ('{"a": <|tool_call_end|>}', '{"a": '),
    "one comma and too much white space": ('{"a": 1,' + " " * 300 + "}", '{"a": 1,' + " " * 300),
    "an endless number": ('{"a": ' + "1" * 5000 + "}", '{"a": ' + "1" * 4096),
    "too deep": ('{"a": ' + "[" * 1000 + "]" * 1000 + "}", '{"a": ' + "[" * 999),
    "words": ("I cannot do that", ""),
    "no JSON as a string": (json.dumps("{a: 1}"), "{"),
}


@looped("size", SIZES)
@pytest.mark.parametrize("case", INVALID)
def test_what_is_neither_json_nor_has_one_reading_stops_at_the_error_and_is_told(case: str, size: int) -> None:
    text, begins = INVALID[case]
    arguments = safe()
    assert run(arguments, text, size) == begins
    assert not arguments.complete
    assert arguments.invalid
    told = [repair for repair in arguments.drain() if repair.rule != "arguments_stringified"]
    assert told[-1].rule == "arguments_invalid"
    if len(told) == 1 and "string" not in case:
        assert begins + told[0].detail == text


CUT: dict[str, str] = {
    "in a string": '{"a": "b',
    "in an escape": '{"a": "b\\',
    "in the digits of an escape": '{"a": "\\u12',
    "between the halves of a character": '{"a": "\\ud83d',
    "before a value": '{"a": ',
    "behind the first brace": "{",
    "in an array": '{"a": [1, 2',
    "in a word": "tru",
    "in an honest string": '"wor',
}


@looped("size", SIZES)
@pytest.mark.parametrize("case", CUT)
def test_arguments_that_were_cut_off_stay_cut_off(case: str, size: int) -> None:
    arguments = safe()
    assert run(arguments, CUT[case], size, cut=True) == CUT[case]
    assert not arguments.complete
    assert rules(arguments) == []


def test_nothing_is_made_up_for_arguments_that_never_came() -> None:
    arguments = safe()
    assert run(arguments, "", cut=True) == ""
    assert not arguments.complete


@looped("size", SIZES)
def test_an_object_in_a_string_that_was_cut_off_is_the_object_cut_off(size: int) -> None:
    arguments = safe()
    assert run(arguments, '"{\\"a\\": \\"b', size, cut=True) == '{"a": "b'
    assert not arguments.complete


@looped("size", SIZES)
def test_an_object_in_a_string_without_its_last_quote_is_the_object(size: int) -> None:
    arguments = safe()
    assert run(arguments, '"{\\"a\\": 1}', size) == '{"a": 1}'
    assert arguments.complete


def test_a_value_that_has_ended_is_complete_even_if_the_answer_was_cut() -> None:
    arguments = safe()
    assert run(arguments, '{"a": 1}', cut=True) == '{"a": 1}'
    assert arguments.complete


@pytest.mark.parametrize("text", [RIGHT["an object"], RIGHT["every escape"], RIGHT["characters of all kinds"]])
def test_within_a_value_at_most_an_escape_is_kept_back(text: str) -> None:
    arguments = safe()
    gone = [len(out) for out in accumulate(arguments.feed(char) for char in text)]
    assert all(came - went <= 11 for came, went in zip(range(1, len(text) + 1), gone, strict=True))
    assert arguments.held == ""


def test_plain_text_of_a_string_leaves_at_once() -> None:
    arguments = safe()
    assert arguments.feed('{"a": "one') == '{"a": "one'
    assert arguments.feed(" two") == " two"
    assert arguments.feed(' \\"three\\"') == ' \\"three\\"'
    assert arguments.held == ""


@pytest.mark.parametrize(
    ("text", "held"),
    [('{"a": "\\u00', "u00"), ('{"a": "\\ud83d\\', "ud83d\\"), ("{}", "}"), ('"', '"'), ('{"a": 1}', "")],
)
def test_what_is_held_is_what_came_and_has_not_gone(text: str, held: str) -> None:
    arguments = safe()
    gone = arguments.feed(text)
    assert arguments.held == held
    assert gone + held == text


@looped("size", [7, 100_000])
def test_text_after_the_object_is_reported_up_to_the_limit(size: int) -> None:
    arguments = safe(limit=1024)
    assert run(arguments, '{"a": 1}' + "junk" * 1000, size) == '{"a": 1}'
    assert [(repair.rule, repair.detail) for repair in arguments.drain()] == [("arguments_trailing", "junk" * 256)]
    assert arguments.complete


@looped("size", [7, 100_000])
def test_over_the_limit_words_without_an_object_go_out_as_they_came_and_so_does_the_rest(size: int) -> None:
    arguments, text = safe(limit=1024), "word " * 1000
    assert run(arguments, text, size) == text
    assert rules(arguments) == ["buffer_limit"]


@pytest.mark.parametrize("text", ["{}" + " " * 600, '"' + " " * 600 + 'words"'], ids=["behind {}", "in a string"])
@looped("size", SIZES)
def test_white_space_waits_for_what_follows_but_not_for_ever(text: str, size: int) -> None:
    arguments = safe()
    assert run(arguments, text, size) == text


def test_the_record_is_of_what_went_out() -> None:
    arguments = safe()
    run(arguments, '{}{"a": "b\nc"}junk', 3)
    assert arguments.record.same_as(ArgumentsRecord.of('{"a": "b\\nc"}'))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{} ",
        "{} x",
        "",
        "null",
        '"{}"',
    ],
)
def test_an_empty_object_is_recorded_however_it_came(text: str) -> None:
    arguments = safe()
    run(arguments, text)
    assert arguments.record.same_as(ArgumentsRecord.of("{}"))


def test_an_invalid_escape_before_a_pair_in_an_object_as_a_string() -> None:
    assert json.loads(run(safe(), json.dumps('{"a": "\\😀"}'))) == {"a": "\\😀"}


@pytest.mark.parametrize("inner", ['{"a": "\\u12', '{"a": "\\ud83d'])
def test_an_object_in_a_string_that_was_cut_off_in_an_escape_loses_nothing(inner: str) -> None:
    assert run(safe(), json.dumps(inner)[:-1], cut=True) == inner


@pytest.mark.parametrize("pieces", [1, 63, 64, 65, 1000])
def test_the_record_holds_every_piece_of_a_long_string(pieces: int) -> None:
    arguments = safe()
    arguments.feed('{"a": "')
    for _ in range(pieces):
        arguments.feed("four")
    arguments.feed('"}')
    assert arguments.record.same_as(ArgumentsRecord.of('{"a": "' + "four" * pieces + '"}'))


class TestPlainArguments:
    @looped("size", SIZES)
    @pytest.mark.parametrize("text", [*RIGHT.values(), *(text for text, _, _ in MENDED.values())])
    def test_let_everything_through(self, text: str, size: int) -> None:
        arguments = PlainArguments(ArgumentsRecord())
        assert run(arguments, text, size) == text
        assert (rules(arguments), arguments.held) == ([], "")
        assert arguments.record.same_as(ArgumentsRecord.of(text))

    @looped("size", SIZES)
    @pytest.mark.parametrize(
        ("text", "complete"),
        [('{"a": 1}', True), ('{"a": 1', False), ('{"a": "}', False), ('{"a": <b>}', True), ('{"a": "\\"<"}', True)],
    )
    def test_know_whether_the_value_has_ended(self, text: str, complete: bool, size: int) -> None:
        arguments = PlainArguments(ArgumentsRecord())
        run(arguments, text, size)
        assert arguments.complete is complete
