"""Arguments mended by their schema: a string where none may be becomes the value that was meant, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.repair.arguments import Arguments, SafeArguments
from moonshim.engine.repair.schema import SchemaArguments
from moonshim.engine.values.options import DEFAULT_BUFFER_LIMIT
from tests.support.looped import looped

SIZES = (1, 2, 3, 7, 1 << 20)


def by_size(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


def by_cuts(text: str, cuts: Sequence[int]) -> list[str]:
    at = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(at)]


def run(arguments: Arguments, pieces: Sequence[str], *, cut: bool = False) -> str:
    return "".join([*map(arguments.feed, pieces), arguments.close(cut=cut)])


def of(schema: Any, *, limit: int = DEFAULT_BUFFER_LIMIT) -> SchemaArguments:
    return SchemaArguments(ArgumentsRecord(), schema, limit=limit)


def safe() -> SafeArguments:
    return SafeArguments(ArgumentsRecord())


def told(arguments: Arguments) -> list[tuple[str, str]]:
    return [(repair.rule, repair.detail) for repair in arguments.drain()]


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def quoted(text: str) -> str:
    return json.dumps(text)


INTEGER, NUMBER, BOOLEAN, STRING = ({"type": name} for name in ("integer", "number", "boolean", "string"))
ARRAY, OBJECT = {"type": "array"}, {"type": "object"}
TODO = obj(text=STRING, done=BOOLEAN)
TODOS = {"type": "array", "items": TODO}
TREE = {
    "$defs": {"node": obj(size=INTEGER, children={"type": "array", "items": {"$ref": "#/$defs/node"}})},
    "$ref": "#/$defs/node",
}

# what the value at `$.v` is declared to be, how it is sent, how it leaves
TAKEN_FOR_WHAT_WAS_MEANT: dict[str, tuple[Any, str, str]] = {
    "an array": (ARRAY, quoted("[1, 2]"), "[1, 2]"),
    "an empty array": (ARRAY, quoted("[]"), "[]"),
    "an object": (OBJECT, quoted('{"a": "b"}'), '{"a": "b"}'),
    "an empty object": (OBJECT, quoted("{}"), "{}"),
    "an integer": (INTEGER, quoted("12"), "12"),
    "a negative integer": (INTEGER, quoted("-7"), "-7"),
    "a whole number with a point is an integer": (INTEGER, quoted("3.0"), "3.0"),
    "a number keeps its digits": (NUMBER, quoted("1.10"), "1.10"),
    "a number with an exponent": (NUMBER, quoted("-1.5E+300"), "-1.5E+300"),
    "a number too large for a float": (
        NUMBER,
        quoted("123456789012345678901234567890.5"),
        "123456789012345678901234567890.5",
    ),
    "an integer is a number": (NUMBER, quoted("5"), "5"),
    "true": (BOOLEAN, quoted("true"), "true"),
    "false": (BOOLEAN, quoted("false"), "false"),
    "white space around it goes": (ARRAY, quoted(" \n\t[1,\n 2] \r"), "[1,\n 2]"),
    "escapes in the string": (ARRAY, r'"\u005b1\u002c 2\u005d"', "[1, 2]"),
    "blanks before the first character": (INTEGER, quoted(" " * 100 + "1"), "1"),
    "null, where it is allowed too": ({"type": ["integer", "null"]}, quoted("null"), "null"),
    "one of several types": ({"type": ["integer", "array"]}, quoted("[1]"), "[1]"),
    "nullable, the OpenAPI way": ({"type": "integer", "nullable": True}, quoted("null"), "null"),
    "anyOf": ({"anyOf": [ARRAY, BOOLEAN]}, quoted("true"), "true"),
    "oneOf": ({"oneOf": [ARRAY, {"type": "null"}]}, quoted("[]"), "[]"),
    "anyOf beside a type": (
        {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        quoted('{"b":1}'),
        '{"b":1}',
    ),
    "allOf": ({"allOf": [{"type": ["string", "array"]}, {"type": ["array", "object"]}]}, quoted("[]"), "[]"),
    "enum without a type": ({"enum": [1, 2, None]}, quoted("2"), "2"),
    "const without a type": ({"const": True}, quoted("true"), "true"),
    "an enum that has other strings": ({"type": "integer", "enum": ["1", 2]}, quoted("2"), "2"),
    "a raw newline in a string inside": (TODOS, quoted('[{"text": "a\nb"}]'), r'[{"text": "a\nb"}]'),
    "an invalid escape in a string inside": (TODOS, quoted(r'[{"text": "\d+"}]'), r'[{"text": "\\d+"}]'),
    "values inside, too": (TODOS, quoted('[{"done": "true", "text": "true"}]'), '[{"done": true, "text": "true"}]'),
    "values inside that were never quoted": (TODOS, '[{"done": "false"}, 5]', '[{"done": false}, 5]'),
    "strings within strings": (
        {"type": "array", "items": {"type": "array", "items": INTEGER}},
        quoted(json.dumps(["[1, 2]", json.dumps(["3"])])),
        "[[1, 2], [3]]",
    ),
    "items": ({"type": "array", "items": INTEGER}, '["1", 2, "3"]', "[1, 2, 3]"),
    "items after many plain ones": ({"items": INTEGER}, '[1,2 , 3,\n4, "5", null, "6"]', "[1,2 , 3,\n4, 5, null, 6]"),
    "prefixItems": ({"prefixItems": [STRING, INTEGER], "items": BOOLEAN}, '["1", "1", "true"]', '["1", 1, true]'),
    "prefixItems after plain ones": (
        {"prefixItems": [INTEGER, INTEGER, INTEGER, STRING]},
        '[1,2,"3","4"]',
        '[1,2,3,"4"]',
    ),
    "items as a list": ({"items": [STRING], "additionalItems": INTEGER}, '["1", "1"]', '["1", 1]'),
    "additionalProperties": (
        {"properties": {"s": STRING}, "additionalProperties": INTEGER},
        '{"s": "1", "x": "1"}',
        '{"s": "1", "x": 1}',
    ),
    "a key with escapes": (obj(näh=INTEGER), r'{"n\u00e4h": "1"}', r'{"n\u00e4h": 1}'),
    "a reference": ({"$ref": "#/$defs/count"}, quoted("1"), "1"),
    "a reference into definitions": ({"$ref": "#/definitions/a~1b"}, quoted("1"), "1"),
    "a reference into a list": ({"$ref": "#/$defs/either/anyOf/1"}, quoted("1"), "1"),
    "a reference with a type beside it": ({"$ref": "#/$defs/either", "type": "integer"}, quoted("1"), "1"),
    "a schema that contains itself": (
        {"$ref": "#/$defs/tree"},
        '{"size": "1", "children": "[{\\"size\\": \\"2\\", \\"children\\": [{\\"size\\": \\"3\\"}]}]"}',
        '{"size": 1, "children": [{"size": 2, "children": [{"size": 3}]}]}',
    ),
    "a property of one branch, where no other branch allows the string": (
        {"anyOf": [obj(n=INTEGER), STRING, {**obj(m=STRING), "additionalProperties": False}]},
        '{"n": "1"}',
        '{"n": 1}',
    ),
    "what one part of allOf declares and another does not know": (
        {"allOf": [obj(n=INTEGER), {**obj(m=BOOLEAN), "additionalProperties": False}]},
        '{"n": "1", "m": "true"}',
        '{"n": 1, "m": true}',
    ),
}

LEFT_ALONE: dict[str, tuple[Any, str]] = {
    "a string that may be one": (STRING, quoted("[1]")),
    "a string among other types": ({"type": ["string", "array"]}, quoted("[1]")),
    "a string in one branch": ({"anyOf": [ARRAY, STRING]}, quoted("[1]")),
    "no opinion": ({}, quoted("[1]")),
    "no opinion but a description": ({"description": "a list"}, quoted("[1]")),
    "true as a schema": (True, quoted("1")),
    "false as a schema": (False, quoted("1")),
    "properties without a type": ({"properties": {}}, quoted("{}")),
    "an unknown type": ({"type": "list"}, quoted("[]")),
    "an unknown type among known ones": ({"type": ["array", "any"]}, quoted("[]")),
    "another kind of value": (INTEGER, quoted("[1]")),
    "an object where an array belongs": (ARRAY, quoted("{}")),
    "words": (INTEGER, quoted("twelve")),
    "words that begin like a value": (BOOLEAN, quoted("truely")),
    "a number with more behind it": (INTEGER, quoted("12 apples")),
    "an array with more behind it": (ARRAY, quoted("[1] and so on")),
    "an array twice": (ARRAY, quoted("[1][1]")),
    "an array that breaks off": (ARRAY, quoted("[1, 2")),
    "an array with a hole": (ARRAY, quoted("[1,,2]")),
    "an object in Python's words": (OBJECT, quoted("{'a': True}")),
    "a fraction for an integer": (INTEGER, quoted("1.5")),
    "an exponent for an integer": (INTEGER, quoted("1e2")),
    "no JSON number": (NUMBER, quoted("01")),
    "a sign too many": (NUMBER, quoted("+1")),
    "half a number": (NUMBER, quoted("1.")),
    "not a number": (NUMBER, quoted("NaN")),
    "digits of another script": (NUMBER, quoted("٣")),
    "True with a capital": (BOOLEAN, quoted("True")),
    "one for true": (BOOLEAN, quoted("1")),
    "null, where it is not allowed": (INTEGER, quoted("null")),
    "null, where nothing else is": ({"type": "null"}, quoted("null")),
    "the empty string": (ARRAY, quoted("")),
    "white space": (ARRAY, quoted(" \n")),
    "a string in a string": (INTEGER, quoted('"1"')),
    "a declared string of the wrong type": ({"type": ["integer"], "enum": ["1", 2]}, quoted("1")),
    "an enum with a string of its own": ({"enum": ["auto", 1]}, quoted("1")),
    "a branch that does not know the key": ({"anyOf": [obj(n=INTEGER), obj(m=STRING)]}, '{"n": "1"}'),
    "a key that a pattern may catch": (
        {"patternProperties": {"^s": {}}, "additionalProperties": INTEGER},
        '{"s": "1"}',
    ),
    "the value of a key longer than anybody reads": ({"additionalProperties": INTEGER}, f'{{"{"k" * 2000}": "1"}}'),
    "a key, whatever it looks like": (obj(n=INTEGER), '{"1": 1, "[1]": 2, "true": null}'),
    "a remote reference": ({"$ref": "https://example.com/int"}, quoted("1")),
    "a reference to nothing": ({"$ref": "#/$defs/nothing"}, quoted("1")),
    "a reference to itself": ({"$ref": "#/$defs/loop"}, quoted("1")),
    "deeper than anybody looks": (OBJECT, '{"a":' * 200 + '"1"' + "}" * 200),
    "a value that is right already": (TODOS, '[{"done": true, "text": "[1]"}]'),
    "an array where an object belongs": (obj(n=INTEGER), '["1", {"n": "1"}]'),
}

DEFS = {
    "$defs": {
        "count": INTEGER,
        "either": {"anyOf": [STRING, INTEGER]},
        "loop": {"$ref": "#/$defs/loop"},
        "tree": obj(size=INTEGER, children={"type": "array", "items": {"$ref": "#/$defs/tree"}}),
    },
    "definitions": {"a/b": INTEGER},
}


class TestAString:
    @pytest.mark.parametrize("case", TAKEN_FOR_WHAT_WAS_MEANT)
    @looped("size", SIZES)
    def test_is_taken_for_the_value_that_was_meant(self, case: str, size: int) -> None:
        schema, sent, intended = TAKEN_FOR_WHAT_WAS_MEANT[case]
        arguments = of({**obj(v=schema), **DEFS})
        text = run(arguments, by_size(f'{{"a": "x", "v": {sent}, "z": "1"}}', size))
        assert text == f'{{"a": "x", "v": {intended}, "z": "1"}}'
        json.loads(text)
        assert {rule for rule, _ in told(arguments)} >= {"arguments_schema"}
        assert arguments.complete
        assert arguments.record.same_as(ArgumentsRecord.of(text))

    @pytest.mark.parametrize("case", LEFT_ALONE)
    @looped("size", SIZES)
    def test_is_left_alone(self, case: str, size: int) -> None:
        schema, sent = LEFT_ALONE[case]
        arguments = of({**obj(v=schema), **DEFS})
        whole = f' {{"a": "x", "v": {sent}, "z": "1"}} '
        assert run(arguments, by_size(whole, size)) == whole
        assert told(arguments) == []
        assert arguments.complete
        assert arguments.record.same_as(ArgumentsRecord.of(whole))


WHERE: dict[str, tuple[Any, str, list[str]]] = {
    "a property": (obj(todos=ARRAY), '{"todos": "[]"}', ["$.todos"]),
    "an item": (obj(todos=TODOS), '{"todos": [{}, {"done": "true"}]}', ["$.todos[1].done"]),
    "an item of what was a string": (
        obj(todos=TODOS),
        '{"todos": "[{}, {\\"done\\": \\"true\\"}]"}',
        ["$.todos", "$.todos[1].done"],
    ),
    "a key that is no name": ({"additionalProperties": INTEGER}, '{"a b": "1"}', ["$['a b']"]),
    "the whole": ({"type": "array"}, '"[1]"', ["$"]),
}


@looped("size", SIZES)
@pytest.mark.parametrize("case", WHERE)
def test_the_repair_says_where(case: str, size: int) -> None:
    schema, text, paths = WHERE[case]
    arguments = of(schema)
    run(arguments, by_size(text, size))
    assert told(arguments) == [("arguments_schema", path) for path in paths]


# What comes out at each piece: only the value that may be another one waits.
PROMPT: dict[str, list[tuple[str, str]]] = {
    "everything else goes out at once": [
        ('{"te', '{"te'),
        ('xt": "a', 'xt": "a'),
        ("b\\", "b\\"),
        ('"c", "n', '"c", "n'),
        ('": ', '": '),
        ('"', ""),
        ("1", ""),
        ("2", ""),
        ('"', "12"),
        (', "list": ["', ', "list": ['),
        ('1", "2', "1, "),
        ('"], "other": "', '2], "other": "'),
        ("1", "1"),
        ('"}', '"}'),
    ],
    "the first character tells that a string is only a string": [
        ('{"n": "', '{"n": '),
        ("  ", ""),
        ("twel", '"  twel'),
        ("ve", "ve"),
        ('", "list": "[', '", "list": '),
        ("1", ""),
        (' x"', '"[1 x"'),
        ("}", "}"),
    ],
}


@pytest.mark.parametrize("case", PROMPT)
def test_only_the_affected_value_is_held_back(case: str) -> None:
    arguments = of(obj(text=STRING, n=INTEGER, list={"type": "array", "items": INTEGER}))
    assert [(piece, arguments.feed(piece)) for piece, _ in PROMPT[case]] == PROMPT[case]


@looped("size", SIZES)
@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize(
    "text", ['{"n": "', '{"n": "12', '{"n": "  ', '{"list": "[\\"a\\', '{"list": "[\\u00', '{"n', '{"n": 1']
)
def test_what_breaks_off_goes_out_as_it_came(text: str, cut: bool, size: int) -> None:
    arguments = of(obj(n=INTEGER, list=ARRAY))
    assert run(arguments, by_size(text, size), cut=cut) == text
    assert told(arguments) == []
    assert not arguments.complete
    assert arguments.record.same_as(ArgumentsRecord.of(text))


@looped("size", SIZES)
def test_over_the_limit_a_value_goes_out_as_it_came_and_the_next_is_mended(size: int) -> None:
    arguments = of(obj(a=ARRAY, b=ARRAY, c=ARRAY), limit=20)
    fits, over = "[" + " " * 18 + "]", "[" + " " * 19 + "]"
    text = run(arguments, by_size(f'{{"a": "{fits}", "b": "{over}", "c": "[]"}}', size))
    assert text == f'{{"a": {fits}, "b": "{over}", "c": []}}'
    assert told(arguments) == [("arguments_schema", "$.a"), ("buffer_limit", "$.b"), ("arguments_schema", "$.c")]


def test_over_the_limit_the_rest_of_a_value_streams() -> None:
    arguments = of(obj(a=ARRAY), limit=20)
    assert arguments.feed('{"a": "[' + " " * 19) == '{"a": '
    assert arguments.feed(" ") == '"[' + " " * 20
    assert arguments.feed(" 1\\") == " 1\\"
    assert arguments.feed('"') == '"'
    assert arguments.feed('"}') == '"}'


SAFE: dict[str, tuple[str, str, set[str]]] = {
    "the whole object as a string": (quoted('{"n": "1"}'), '{"n": 1}', {"arguments_stringified", "arguments_schema"}),
    "a leading {}": ('{}{"n": "1"}', '{"n": 1}', {"arguments_leading_empty", "arguments_schema"}),
    "the same object twice": ('{"n": "1"}{"n": "1"}', '{"n": 1}', {"arguments_doubled", "arguments_schema"}),
    "a raw newline": (
        '{"text": "a\nb", "n": "1\n"}',
        r'{"text": "a\nb", "n": 1}',
        {"arguments_control_character", "arguments_schema"},
    ),
    "nothing": ("", "{}", {"arguments_empty"}),
}


@looped("size", SIZES)
@pytest.mark.parametrize("case", SAFE)
def test_what_safe_mends_is_mended_too(case: str, size: int) -> None:
    text, intended, rules = SAFE[case]
    arguments = of(obj(n=INTEGER, text=STRING))
    assert run(arguments, by_size(text, size)) == intended
    assert {rule for rule, _ in told(arguments)} == rules
    assert arguments.record.same_as(ArgumentsRecord.of(intended))


NOT_JSON = (
    '{"n" "1"}',
    '{"n": 5 "1"}',
    '{"n"; "1"}',
    '{n: "1"}',
    '{"n": ]"1"}',
    '{"n": "1x" "2"}',
    '{"l": [1}, "n": "1"}',
    '{"l": ["1" "2"]}',
    '{"l": [:"1"]}',
    '["1"}',
    '{,"n": "1"}',
    '{{"n": "1"}}',
)


@looped("size", SIZES)
@pytest.mark.parametrize("text", NOT_JSON)
def test_what_is_not_json_goes_through_from_there_on(text: str, size: int) -> None:
    schema = {**obj(n=INTEGER, l={"type": "array", "items": {"type": "boolean"}}), "items": BOOLEAN}
    assert run(of(schema), by_size(text, size)) == run(safe(), [text])


def test_long_arguments_are_the_same_whatever_white_space_is_around_them() -> None:
    body = json.dumps({"text": "x" * 20_000, "n": "1"})
    one, other = of(obj(n=INTEGER)), of(obj(n=INTEGER))
    run(one, [body])
    run(other, by_size(f"\n {body} \n", 5))
    assert one.record.same_as(other.record)
    assert one.record.same_as(ArgumentsRecord.of(body.replace('"1"', "1")))


def deep(levels: int) -> Any:
    schema: Any = INTEGER
    for _ in range(levels):
        schema = {"allOf": [schema]}
    return schema


def chained(levels: int) -> dict[str, Any]:
    """Every definition leads to the next in two ways: as a tree it would have 2**levels leaves."""
    defs: dict[str, Any] = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$defs": defs | {f"d{levels}": INTEGER}, "properties": {"n": {"$ref": "#/$defs/d0"}}}


def knotted() -> dict[str, Any]:
    knot: dict[str, Any] = {"type": "object"}
    knot["properties"] = {"n": knot, "m": {"allOf": [knot, knot]}}
    knot["anyOf"] = knot["allOf"] = [knot]
    return knot


ODD: dict[str, Any] = {
    "not a schema at all": [1],
    "null": None,
    "false": False,
    "lists where dicts belong": {"properties": [], "$defs": [], "items": 3, "enum": {}, "anyOf": {}, "type": {}},
    "numbers everywhere": dict.fromkeys(("properties", "items", "type", "enum", "anyOf", "allOf", "$ref"), 1),
    "types that are no names": obj(n={"type": [["integer"], None, 3]}),
    "keys that are no strings": {"properties": {1: INTEGER, None: INTEGER}},
    "a reference through a string": {"properties": {"n": {"$ref": "#/type/0/x"}}, "type": "object"},
    "references in a circle": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
        "properties": {"n": {"$ref": "#/$defs/a"}},
    },
    "the root within itself": {"$ref": "#", "properties": {"n": {"$ref": "#"}}},
    "dicts that contain themselves": knotted(),
    "nested without end": obj(n=deep(50_000)),
    "more ways than can be counted": {"allOf": [{"anyOf": [obj(**{f"k{i}": INTEGER}), OBJECT]} for i in range(200)]},
    "a thousand branches": {"anyOf": [obj(**{f"k{i}": INTEGER}) for i in range(1000)]},
    "a thousand parts": {"allOf": [obj(**{f"k{i}": INTEGER}) for i in range(1000)]},
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_schema_has_no_opinion(case: str) -> None:
    text = '{"n": "x", "m": {"n": ["1", {"n": {}}]}, "l": [[["1"]]]}'
    arguments = of(ODD[case])
    assert run(arguments, by_size(text, 3)) == text


def test_branches_that_meet_again_are_read_once() -> None:
    assert run(of(chained(30)), ['{"n": "1"}']) == '{"n": 1}'


def test_strings_within_strings_are_read_to_a_limit_and_never_break() -> None:
    schema: dict[str, Any] = {"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}
    values = ["[]"]
    while len(values[-1]) < 1 << 18:
        values.append('["' + values[-1].replace("\\", "\\u005c").replace('"', "\\u0022") + '"]')
    texts = [run(of({**schema, **obj(v={"$ref": "#/$defs/a"})}), [f'{{"v": {value}}}']) for value in values]
    assert json.loads(texts[5])["v"] == [[[[[[]]]]]]
    # What is left of a string would not fit: then all of it stays as it came.
    assert texts[-1] == f'{{"v": {values[-1]}}}'


def test_deeper_than_anybody_looks_nothing_is_touched_and_what_follows_is() -> None:
    text = '{"children": [' * 70 + '{"size": "1"}' + '], "size": "2"}' * 70
    assert run(of(TREE), by_size(text, 7)) == text[: -15 * 64] + '], "size": 2}' * 64


def test_surrogates_in_the_text_are_kept() -> None:
    text = '{"\ud800": "1", "a": "[\ud800]"}'
    assert run(of({"additionalProperties": {"type": ["integer", "array"]}}), [text]) == '{"\ud800": 1, "a": "[\ud800]"}'


# -- laws ----------------------------------------------------------------------------------

CUTS = st.lists(st.integers(0, 10_000), max_size=40)
LOOKALIKES = st.sampled_from(
    ["1", "-2.5", "true", "null", "[1]", '{"a": "1"}', "[", " 1", '"', "\\", "a\nb", "\U0001f600", ""]
)
STRINGS = st.one_of(st.text(max_size=8), LOOKALIKES)
KEYS = st.sampled_from(["a", "b", "c d", "é", '"', "\\", "n"])

Case = tuple[Any, Any, str]
"""A schema, a value that conforms to it, and JSON for that value with parts of it sent as strings."""


def leaf(schema: dict[str, Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Case]:
    return values.map(lambda value: (schema, value, json.dumps(value)))


LEAVES = st.one_of(
    leaf(STRING, STRINGS),
    leaf({}, STRINGS),
    leaf({"type": ["string", "integer"]}, STRINGS | st.integers()),
    leaf(INTEGER, st.integers()),
    leaf(NUMBER, st.floats(allow_nan=False, allow_infinity=False) | st.integers()),
    leaf(BOOLEAN, st.booleans()),
    leaf({"type": ["boolean", "null"]}, st.booleans() | st.none()),
    leaf({"anyOf": [INTEGER, BOOLEAN]}, st.booleans() | st.integers()),
)


def allows_strings(schema: Any) -> bool:
    return not schema or "string" in schema.get("type", [])


@st.composite
def _maybe_quoted(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    schema, value, text = draw(inner)
    if not allows_strings(schema) and draw(st.booleans()):
        blank = draw(st.sampled_from(["", " ", "\n "]))
        text = json.dumps(blank + text + blank, ensure_ascii=draw(st.booleans()))
    return schema, value, text


@st.composite
def _arrays(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    cases = draw(st.lists(inner, max_size=3))
    schema = {"type": "array", "prefixItems": [schema for schema, _, _ in cases], "items": INTEGER}
    rest = draw(st.lists(st.integers(), max_size=3))
    texts = [text for _, _, text in cases] + [json.dumps(str(n)) if n % 2 else str(n) for n in rest]
    return schema, [value for _, value, _ in cases] + rest, "[" + ", ".join(texts) + "]"


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    cases = draw(st.dictionaries(KEYS, inner, max_size=4))
    schema = obj(**{key: schema for key, (schema, _, _) in cases.items()})
    text = ",".join(f"{json.dumps(key)}: {text}" for key, (_, _, text) in cases.items())
    return schema, {key: value for key, (_, value, _) in cases.items()}, "{" + text + "}"


VALUES = st.recursive(_maybe_quoted(LEAVES), lambda inner: _maybe_quoted(_arrays(inner) | objects(inner)), max_leaves=8)


@st.composite
def _arrays_plain(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    schema, value, text = draw(inner)
    return {"type": "array", "items": schema}, [value, value], f"[{text} , {text}]"


PLAIN = st.recursive(LEAVES, lambda inner: _arrays_plain(inner) | objects(inner), max_leaves=8)


@given(objects(VALUES), CUTS)
def test_values_sent_as_strings_become_the_values_that_were_meant(case: Case, cuts: list[int]) -> None:
    schema, value, text = case
    arguments = of(schema)
    mended = run(arguments, by_cuts(text, cuts))
    assert json.loads(mended) == value
    assert arguments.record.same_as(ArgumentsRecord.of(mended))
    assert run(again := of(schema), [mended]) == mended
    assert told(again) == []


@given(objects(PLAIN), CUTS)
def test_what_conforms_is_not_touched_and_never_waits(case: Case, cuts: list[int]) -> None:
    schema, _, text = case
    arguments, plain = of(schema), safe()
    for piece in by_cuts(text, cuts):
        before = arguments.held
        out = arguments.feed(piece)
        assert before + piece == out + arguments.held
        assert out == plain.feed(piece)
    assert arguments.close() == plain.close()
    assert told(arguments) == []


SOUP = st.lists(
    st.sampled_from([*'{}[]",:\\ \n1-x', '"a"', '"n": ', '"1"', "true", '\\"', "\\u00", "{}", '{"n": "', '"[1', "null"])
    | st.text(max_size=3),
    max_size=30,
).map("".join)


@given(SOUP, st.sampled_from([True, {}, {"description": "x"}, {"type": "object"}]), CUTS, st.booleans())
def test_without_an_opinion_it_is_what_safe_gives(text: str, schema: Any, cuts: list[int], cut: bool) -> None:
    arguments, plain = of(schema), safe()
    for piece in by_cuts(text, cuts):
        assert arguments.feed(piece) == plain.feed(piece)
        assert (arguments.held, arguments.complete) == (plain.held, plain.complete)
    assert arguments.close(cut=cut) == plain.close(cut=cut)
    assert (arguments.drain(), arguments.complete) == (plain.drain(), plain.complete)


KEYWORDS = (
    "type enum const nullable properties additionalProperties patternProperties items prefixItems additionalItems "
    "anyOf oneOf allOf $ref $defs n a"
)
WORDS = st.sampled_from(["integer", "array", "object", "#", "#/a", "1", "n"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS.split()), inner, max_size=4),
    max_leaves=20,
)


@given(
    SOUP,
    JSON | st.just({**obj(n=INTEGER, a=TREE), "items": ARRAY, "additionalProperties": {"type": ["array", "boolean"]}}),
    CUTS,
)
def test_junk_never_raises_and_chunking_is_invisible(text: str, schema: Any, cuts: list[int]) -> None:
    whole, pieces, plain = of(schema), of(schema), safe()
    mended = run(whole, [text])
    assert run(pieces, by_cuts(text, cuts)) == mended
    rules = told(whole)
    assert sorted(told(pieces)) == sorted(rules)
    if "arguments_schema" not in dict(rules):
        assert run(plain, [text]) == mended
        assert told(plain) == rules
