"""The K3 grammar: XTML and its known faults, at any chunking, come out as speech and calls."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.engine.grammar.kimi.k3 import KimiK3Grammar
from moonshim.engine.grammar.kimi.k3_arguments import HOLD_LIMIT, SPACE_LIMIT
from moonshim.engine.grammar.kimi.k3_tags import ATTRIBUTE_LIMIT, TAG_LIMIT
from moonshim.engine.grammar.protocol import (
    CallDelta,
    CallEnded,
    CallLost,
    CallStarted,
    Channel,
    GrammarEvent,
    Notice,
    TextFound,
)
from tests.engine.grammar.family_runs import CUTS, assert_laws, by_cuts, by_size, found_in, merged
from tests.support.looped import looped
from tests.support.profiles import examples

SEP = "<|sep|>"
THINK, END_THINK = f"<|open|>think{SEP}", f"<|close|>think{SEP}"
RESPONSE, END_RESPONSE = f"<|open|>response{SEP}", f"<|close|>response{SEP}"
TOOLS, END_TOOLS = f"<|open|>tools{SEP}", f"<|close|>tools{SEP}"
CALL, END_CALL = f'<|open|>call tool="ls" index="1"{SEP}', f"<|close|>call{SEP}"
END_ARGUMENT = f"<|close|>argument{SEP}"
JSON, END_JSON = f'<|open|>json type="object"{SEP}', f"<|close|>json{SEP}"
MESSAGE, END_MESSAGE = f'<|open|>message role="assistant"{SEP}', f"<|close|>message{SEP}"


def opened(key: str, kind: str = "string") -> str:
    return f'<|open|>argument key="{key}" type="{kind}"{SEP}'


def argument(key: str, value: str, kind: str = "string") -> str:
    return opened(key, kind) + value + END_ARGUMENT


def run(pieces: Iterable[str], channel: Channel = "text", *, calls: bool = True) -> list[GrammarEvent]:
    return found_in(KimiK3Grammar(channel, calls=calls), pieces)


def said(text: str) -> TextFound:
    return TextFound("text", text)


def thought(text: str) -> TextFound:
    return TextFound("reasoning", text)


def stray(text: str) -> Notice:
    return Notice("stray_marker", text)


def lost(raw: str, rest: str = "") -> CallLost:
    return CallLost("text", raw, rest)


def doubtful(key: str, raw: str, written: str, *, closed: bool = True) -> list[GrammarEvent]:
    """A call with one value that is not what its type says."""
    notice = Notice("k3_value_as_string", raw)
    return [CallStarted("text", "", "ls"), CallDelta(f'{{"{key}": '), notice, CallDelta(written), CallEnded(closed)]


def call(
    arguments: str, *, name: str | None = "ls", channel: Channel = "text", closed: bool = True
) -> list[GrammarEvent]:
    grown = [CallDelta(arguments)] if arguments else []
    return [CallStarted(channel, "", name), *grown, CallEnded(closed)]


CASES: dict[str, tuple[str, list[GrammarEvent]]] = {
    "nothing": ("", []),
    "plain text": ("a < b <| c |> <|x|>", [said("a < b <| c |> <|x|>")]),
    "think, then response": (f"{THINK}hm{END_THINK}{RESPONSE}Hi{END_RESPONSE}", [thought("hm"), said("Hi")]),
    "white space in speech is text": (f"{THINK}\nhm {END_THINK}\n{RESPONSE} Hi", [thought("\nhm "), said(" Hi")]),
    "white space behind the last wrapper is text": (f"{RESPONSE}Hi{END_RESPONSE}\n", [said("Hi\n")]),
    "the whole message": (
        MESSAGE
        + f"{THINK}hm{END_THINK}{RESPONSE}Hi{END_RESPONSE}{TOOLS}{CALL}{END_CALL}{END_TOOLS}"
        + END_MESSAGE
        + "<|end_of_msg|>",
        [
            stray(MESSAGE),
            thought("hm"),
            said("Hi"),
            *call("{}"),
            stray(END_MESSAGE),
            stray("<|end_of_msg|>"),
        ],
    ),
    "typed arguments": (
        TOOLS
        + CALL
        + argument("s", "raw")
        + argument("n", " -1.5e3\n", "number")
        + argument("b", "true", "boolean")
        + argument("z", "null", "null")
        + argument("o", '{"a": [1]}', "object")
        + argument("l", ' [1, "x"] ', "array")
        + END_CALL
        + END_TOOLS,
        call('{"s": "raw", "n": -1.5e3, "b": true, "z": null, "o": {"a": [1]}, "l": [1, "x"]}'),
    ),
    "a string is escaped": (
        CALL + argument("s", 'say "hi" \\ \n\t\x01 é 💥 &quot;&amp;') + END_CALL,
        call(r'{"s": "say \"hi\" \\ \n\t\u0001 é 💥 &quot;&amp;"}'),
    ),
    "an empty string": (CALL + argument("s", "") + END_CALL, call('{"s": ""}')),
    "a string keeps its white space": (CALL + argument("s", " \n") + END_CALL, call(r'{"s": " \n"}')),
    "an unknown type is a string": (CALL + argument("s", "1", "date") + END_CALL, call('{"s": "1"}')),
    "no type is a string": (f'{CALL}<|open|>argument key="s"{SEP}1{END_ARGUMENT}{END_CALL}', call('{"s": "1"}')),
    "no key": (
        f'{CALL}<|open|>argument type="string"{SEP}1{END_ARGUMENT}{END_CALL}',
        [
            CallStarted("text", "", "ls"),
            Notice("k3_argument_without_key", f'<|open|>argument type="string"{SEP}'),
            lost(f'<|open|>argument type="string"{SEP}'),
            *call('{"": "1"}')[1:],
        ],
    ),
    "two calls and white space between all tags": (
        f"{TOOLS}\n{CALL}\n {argument('a', 'x')}\n{END_CALL}\n{CALL} {END_CALL}\n{END_TOOLS}\nDone",
        [*call('{"a": "x"}'), *call("{}"), said("\nDone")],
    ),
    "white space after the last tag": (f"{TOOLS}{CALL}{END_CALL} \n", call("{}")),
    "text inside tools": (
        f"{TOOLS} one \n{CALL}{END_CALL} two{END_TOOLS}",
        [said(" one \n"), *call("{}"), said(" two")],
    ),
    "text between arguments": (
        CALL + argument("a", "x") + " so " + argument("b", "y") + END_CALL,
        [*call('{"a": "x"')[:-1], said(" so "), *call(', "b": "y"}')[1:]],
    ),
    "a call without a name": (f'<|open|>call index="1"{SEP}{END_CALL}', call("{}", name=None)),
    "a call with an empty name": (f'<|open|>call tool=" "{SEP}{END_CALL}', call("{}", name=None)),
    # Attributes.
    "attributes are decoded once": (
        f'<|open|>call tool="a&amp;b&quot;c&amp;quot;"{SEP}{argument("k&amp;q", "v")}{END_CALL}',
        call('{"k&q": "v"}', name='a&b"c&quot;'),
    ),
    "a key is escaped": (CALL + argument("a&quot;\\", "v") + END_CALL, call(r'{"a\"\\": "v"}')),
    "attributes in any order and quotes": (
        f"<|open|>call index='1' tool=ls{SEP}<|open|>argument type=number  key = 'n'{SEP}1{END_ARGUMENT}{END_CALL}",
        call('{"n": 1}'),
    ),
    "less-than in attributes": (
        f'<|open|>call tool="a<b<|c"{SEP}{argument("a<|", "x")}{END_CALL}',
        call('{"a<|": "x"}', name="a<b<|c"),
    ),
    "attributes that cannot be read": (f"<|open|>call me maybe{SEP}", call("", name=None, closed=False)),
    "a quote that never ends": (
        f'<|open|>call tool="ls{SEP}x"',
        [CallStarted("text", "", None), said('x"'), CallEnded(False)],
    ),
    # A `json` element.
    "json": (f'{CALL}{JSON}\n {{"a": 1}} \n{END_JSON}{END_CALL}', call('{"a": 1}')),
    "json that is none": (
        f'{CALL}{JSON}{{"a <|close|>argument{SEP}{END_JSON}{END_CALL}',
        call(f'{{"a <|close|>argument{SEP}'),
    ),
    "json with white space inside": (f"{CALL}{JSON}{{\n\n}}{END_JSON}{END_CALL}", call("{\n\n}")),
    "empty json": (f"{CALL}{JSON} {END_JSON}{END_CALL}", call("{}")),
    "json, never closed": (f"{CALL}{JSON}{{}}\n{END_CALL}Hi", [*call("{}"), said("Hi")]),
    "json, cut off": (f'{CALL}{JSON}{{"a', call('{"a', closed=False)),
    "json after arguments": (
        CALL + argument("a", "x") + f'{JSON}{{"b": 1}}{END_JSON}{END_CALL}',
        call('{"a": "x"}{"b": 1}'),
    ),
    "arguments after json": (
        f'{CALL}{JSON}{{"b": 1}}{END_JSON}{argument("a", "x")}{END_CALL}',
        call('{"b": 1}{"a": "x"}'),
    ),
    "json without its tag": (
        f'{CALL}\n{{"a": 1}}{END_CALL}',
        [CallStarted("text", "", "ls"), Notice("k3_untagged_json", "{"), CallDelta('{"a": 1}'), CallEnded(True)],
    ),
    # Values that are not what their type says.
    "an invalid number": (
        CALL + argument("n", " 1,5 ", "number") + END_CALL,
        doubtful("n", " 1,5 ", '" 1,5 "}'),
    ),
    "an empty number": (
        CALL + argument("n", "", "number") + END_CALL,
        doubtful("n", "", '""}'),
    ),
    "a boolean in another language": (
        CALL + argument("b", "True", "boolean") + END_CALL,
        doubtful("b", "True", '"True"}'),
    ),
    "an invalid object": (
        CALL + argument("o", "{not json", "object") + END_CALL,
        doubtful("o", "{not json", '"{not json"}'),
    ),
    "an object that is an array": (CALL + argument("o", "[1]", "object") + END_CALL, call('{"o": [1]}')),
    "an array that is a number": (CALL + argument("l", " 7 ", "array") + END_CALL, call('{"l": 7}')),
    "an object that does not end": (
        CALL + argument("o", '{"a": 1', "object") + argument("s", "x") + END_CALL,
        [*call('{"o": {"a": 1')[:-1], Notice("arguments_unfinished", "o"), *call(', "s": "x"}')[1:]],
    ),
    "more than an object": (
        CALL + argument("o", '{"a": 1} and <b>', "object") + END_CALL,
        [*call('{"o": {"a": 1}')[:-1], Notice("arguments_trailing", "and <b>"), *call("}")[1:]],
    ),
    "less-than in an object, outside of its strings": (
        CALL + argument("o", '{"a": <1 <|x|>}', "object") + END_CALL,
        call('{"o": {"a": <1 <|x|>}}'),
    ),
    "tags in the strings of an object": (
        CALL + argument("o", f'{{"a": "{END_ARGUMENT}\\"{END_CALL}"}}', "object") + END_CALL,
        call(f'{{"o": {{"a": "{END_ARGUMENT}\\"{END_CALL}"}}}}'),
    ),
    # What looks like a tag inside a string.
    "markers in a string": (
        CALL
        + argument("s", f"<|open|>foo{SEP}<|close|>{SEP}<|close|> <|open|>{THINK}{END_RESPONSE}{TOOLS}")
        + END_CALL,
        call(f'{{"s": "<|open|>foo{SEP}<|close|>{SEP}<|close|> <|open|>{THINK}{END_RESPONSE}{TOOLS}"}}'),
    ),
    "a closing tag that is not followed by a marker": (
        CALL + argument("s", "<|close|>argument is a tag <|close|>arguments") + END_CALL,
        call('{"s": "<|close|>argument is a tag <|close|>arguments"}'),
    ),
    "opening tags that lack what makes them one": (
        CALL + argument("s", f"<|open|>argument{SEP}<|open|>call index=1{SEP}<|open|>call tool=x<|open|>") + END_CALL,
        call(f'{{"s": "<|open|>argument{SEP}<|open|>call index=1{SEP}<|open|>call tool=x<|open|>"}}'),
    ),
    "half a closing tag before the closing tag": (
        CALL + argument("s", "<<|<|close|<|close|>arg") + END_CALL,
        call('{"s": "<<|<|close|<|close|>arg"}'),
    ),
    "a lost end of an argument, next argument": (
        CALL + opened("a") + "x" + argument("b", "y") + END_CALL,
        call('{"a": "x", "b": "y"}'),
    ),
    "a lost end of an argument, end of call": (CALL + opened("n", "number") + "1" + END_CALL, call('{"n": 1}')),
    "a lost end of an argument, next call": (
        CALL + opened("a") + "x" + CALL + END_CALL,
        [*call('{"a": "x"}'), *call("{}")],
    ),
    "a lost end of an argument, end of tools": (TOOLS + CALL + opened("a") + "x" + END_TOOLS, call('{"a": "x"}')),
    "a lost end of an argument, end of message": (
        CALL + opened("a") + "x" + END_MESSAGE + "Hi",
        [*call('{"a": "x"}'), stray(END_MESSAGE), said("Hi")],
    ),
    "a lost end of an argument, end of it all": (
        CALL + opened("a") + "x<|end_of_msg|>",
        [*call('{"a": "x"}'), stray("<|end_of_msg|>")],
    ),
    # Known faults.
    "spaced markers": (
        f"<|open|> think {SEP}hm<|close|> think {SEP}<|open|> response {SEP}Hi<|close|> response {SEP}",
        [thought("hm"), said("Hi")],
    ),
    "spaced calls": (
        '<|open|> tools <|sep|><|open|> call  tool = "ls" <|sep|><|open|> argument key="a" <|sep|>x<|close|> argument '
        + SEP
        + f"<|close|> call {SEP}<|close|> tools {SEP}",
        call('{"a": "x"}'),
    ),
    "no separator after think": (f"{THINK}hm<|close|>think{RESPONSE}Hi", [thought("hm"), said("Hi")]),
    "no separator before text": (f"{THINK}hm<|close|>think\n\nHi", [thought("hm"), said("\n\nHi")]),
    "no separator before a capital": (f"{THINK}hm<|close|>think<|open|>responseHi", [thought("hm"), said("Hi")]),
    "no separator before less-than": (f"{THINK}hm<|close|>think<b>", [thought("hm"), said("<b>")]),
    "no separator at the end": (f"{THINK}hm<|close|>think", [thought("hm")]),
    "half a separator at the end": (f"{RESPONSE}Hi<|close|>response <|se", [said("Hi")]),
    "no separator anywhere": (
        '<|open|>tools<|open|>call tool="ls"'
        + opened("a")
        + "x<|close|>argument<|close|>call<|close|>tools<|end_of_msg|>",
        [*call('{"a": "x"}'), stray("<|end_of_msg|>")],
    ),
    "no separator at the end of a call": (f"{CALL}<|close|>call", call("{}")),
    "think, never closed": (f"{THINK}hm{RESPONSE}Hi{END_RESPONSE}", [thought("hm"), said("Hi")]),
    "tools inside think": (
        f"{THINK}hm{TOOLS}{CALL}{END_CALL}{END_TOOLS} so{END_THINK}Hi",
        [thought("hm"), *call("{}", channel="reasoning"), thought(" so"), said("Hi")],
    ),
    "tools inside a response that is never closed": (f"{RESPONSE}Hi{TOOLS}{CALL}{END_CALL}", [said("Hi"), *call("{}")]),
    "an orphan end of a response, after think": (
        f"{THINK}hm{END_RESPONSE}{TOOLS}{CALL}{END_CALL}{END_TOOLS}",
        [thought("hm"), stray(END_RESPONSE), *call("{}")],
    ),
    "tools without an end, then a response": (
        f"{TOOLS}{CALL}{END_CALL}{RESPONSE} {END_RESPONSE}",
        [*call("{}"), said(" ")],
    ),
    "calls without tools": (f"{CALL}{END_CALL} {CALL}{END_CALL} Hi", [*call("{}"), *call("{}"), said(" Hi")]),
    "calls without an end": (
        TOOLS + CALL + argument("a", "x") + CALL + END_TOOLS,
        [*call('{"a": "x"}'), *call("{}")],
    ),
    "a call without an end, then a response": (f"{CALL}{RESPONSE}Hi", [*call("{}"), said("Hi")]),
    "orphans": (
        f"{END_THINK}b{END_RESPONSE}{END_TOOLS}{END_CALL}{END_ARGUMENT}c",
        [stray(END_THINK), said("b"), *map(stray, [END_RESPONSE, END_TOOLS, END_CALL, END_ARGUMENT]), said("c")],
    ),
    "an orphan end of a value behind text, which was the value": (
        f"b{END_ARGUMENT}c{END_JSON}d{END_CALL}",
        [
            *(said("b"), lost(f"b{END_ARGUMENT}")),
            *(said("c"), lost(f"c{END_JSON}")),
            *(said("d"), lost(f"d{END_CALL}")),
        ],
    ),
    "orphans inside a call": (
        f"{CALL}{END_ARGUMENT}{END_JSON}{END_CALL}",
        [CallStarted("text", "", "ls"), lost(END_ARGUMENT), lost(END_JSON), CallDelta("{}"), CallEnded(True)],
    ),
    "an argument without a call": (argument("a", "x"), call('{"a": "x"', name=None, closed=False)),
    "a separator inside a call": (
        f"{CALL}{SEP}{END_CALL}",
        [CallStarted("text", "", "ls"), lost(SEP), CallDelta("{}"), CallEnded(True)],
    ),
    "an end of an argument with another name": (
        f"{CALL}{opened('a')}x<|close|>parameter{SEP}{END_CALL}",
        call('{"a": "x"}'),
    ),
    "an end with another name that no tag follows": (
        f"{CALL}{opened('a')}x<|close|>value{SEP}y{END_ARGUMENT}{END_CALL}",
        call(f'{{"a": "x<|close|>value{SEP}y"}}'),
    ),
    # Text.
    "an unknown tag": (f"<|open|>foo{SEP}x<|close|>foo{SEP}", [said(f"<|open|>foo{SEP}x<|close|>foo{SEP}")]),
    "a name that goes on": (f"<|open|>thinking{SEP}", [said(f"<|open|>thinking{SEP}")]),
    "a lone separator": (f"a{SEP}b", [said(f"a{SEP}b")]),
    "an unknown token": ("<|im_end|><|opener|>", [said("<|im_end|><|opener|>")]),
    "a marker before a tag": (f"<|open|>{THINK}hm", [said("<|open|>"), thought("hm")]),
    "too many spaces": (f"<|open|>{' ' * 9}think{SEP}", [said(f"<|open|>{' ' * 9}think{SEP}")]),
    "a call that lacks its separator before text": ('<|open|>call tool="ls" Hi', [said('<|open|>call tool="ls" Hi')]),
    # The end comes too soon.
    "less-than at the end": ("a <", [said("a <")]),
    "half a marker at the end": (f"{THINK}hm<|clo", [thought("hm<|clo")]),
    "a marker at the end": ("Hi<|open|>", [said("Hi<|open|>")]),
    "half a name at the end": ("Hi<|close|>thi", [said("Hi<|close|>thi")]),
    "half a tag at the end": (f'{TOOLS} <|open|>call tool="ls" ind', [stray('<|open|>call tool="ls" ind')]),
    "a call and no more": (CALL, call("", closed=False)),
    "cut off between arguments": (CALL + argument("a", "x"), call('{"a": "x"', closed=False)),
    "cut off in a string": (CALL + opened("a") + 'say "h', call(r'{"a": "say \"h', closed=False)),
    "cut off in a number": (CALL + opened("n", "number") + " 12", call('{"n": 12', closed=False)),
    "cut off in a word": (CALL + opened("b", "boolean") + "tr", call('{"b": tr', closed=False)),
    "cut off before an object": (CALL + opened("o", "object") + " {", call('{"o": {', closed=False)),
    "cut off in an object": (CALL + opened("o", "object") + '{"a": "x', call('{"o": {"a": "x', closed=False)),
    "cut off after an object": (CALL + opened("o", "object") + "{} ", call('{"o": {}', closed=False)),
    "cut off in what is no number": (
        CALL + opened("n", "number") + "one",
        doubtful("n", "one", '"one', closed=False),
    ),
    "cut off in a closing tag": (
        CALL + opened("a") + "x<|close|>argu",
        [*call('{"a": "x')[:-1], stray("<|close|>argu"), CallEnded(False)],
    ),
    "cut off after a closing tag without a separator": (
        CALL + opened("a") + "x<|close|>argument",
        call('{"a": "x"', closed=False),
    ),
    "cut off at less-than": (CALL + opened("a") + "x <", call('{"a": "x <', closed=False)),
    "cut off in a tag between arguments": (
        CALL + argument("a", "x") + '<|open|>argument key="b',
        [*call('{"a": "x"')[:-1], stray('<|open|>argument key="b'), CallEnded(False)],
    ),
}

REASONING_CASES: dict[str, tuple[str, list[GrammarEvent]]] = {
    "the end of think leaks": (f"hm{END_THINK}", [thought("hm"), stray(END_THINK)]),
    "the response leaks": (
        f"hm<|close|>think{RESPONSE}Hi{END_RESPONSE}so",
        [thought("hm"), stray("<|close|>think"), said("Hi"), thought("so")],
    ),
    "tools leak": (
        f"hm{TOOLS}{CALL}{END_CALL}{END_TOOLS}{END_MESSAGE}",
        [thought("hm"), *call("{}", channel="reasoning"), stray(END_MESSAGE)],
    ),
}

NO_TOOLS_CASES: dict[str, tuple[str, list[GrammarEvent]]] = {
    "wrappers go, calls stay": (
        f"{THINK}hm{END_THINK}{RESPONSE}Hi{END_RESPONSE}{TOOLS}\n{CALL}{opened('a')}x{JSON}{END_CALL}<|close|>tools",
        [thought("hm"), said(f"Hi{TOOLS}\n{CALL}{opened('a')}x{JSON}{END_CALL}<|close|>tools")],
    ),
    "the message goes": (f"Hi{END_MESSAGE}<|end_of_msg|>", [said("Hi"), stray(END_MESSAGE), stray("<|end_of_msg|>")]),
}

SIZES = [1, 2, 3, 7, 100_000]


@looped("size", SIZES)
@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_content_at_every_chunk_size(text: str, expected: list[GrammarEvent], size: int) -> None:
    assert run(by_size(text, size)) == expected


@looped("size", SIZES)
@pytest.mark.parametrize(("text", "expected"), REASONING_CASES.values(), ids=REASONING_CASES.keys())
def test_reasoning_at_every_chunk_size(text: str, expected: list[GrammarEvent], size: int) -> None:
    assert run(by_size(text, size), "reasoning") == expected


@looped("size", SIZES)
@pytest.mark.parametrize(("text", "expected"), NO_TOOLS_CASES.values(), ids=NO_TOOLS_CASES.keys())
def test_without_calls_at_every_chunk_size(text: str, expected: list[GrammarEvent], size: int) -> None:
    assert run(by_size(text, size), calls=False) == expected


PROMPT: dict[str, tuple[str, list[GrammarEvent], str]] = {
    "text": ("Hi there", [said("Hi there")], ""),
    "less-than": ("Hi <", [said("Hi ")], "<"),
    "less-than and no bar": ("Hi <b", [said("Hi <b")], ""),
    "a marker that cannot be one": ("Hi <|ope!", [said("Hi <|ope!")], ""),
    "a name that cannot be one": ("Hi <|open|>thinks", [said("Hi <|open|>thinks")], ""),
    "attributes that cannot be read": ('Hi <|open|>call tool="x" !', [said("Hi ")], '<|open|>call tool="x" !'),
    "half a tag": ('Hi <|open|>call tool="x', [said("Hi ")], '<|open|>call tool="x'),
    "a name": (CALL, [CallStarted("text", "", "ls")], ""),
    "a key": (CALL + opened("a"), [CallStarted("text", "", "ls"), CallDelta('{"a": "')], ""),
    "half a string": (CALL + opened("a") + 'x"\n<', [CallStarted("text", "", "ls"), CallDelta(r'{"a": "x\"\n')], ""),
    "half an object": (
        CALL + opened("o", "object") + '{"a": [tr',
        [CallStarted("text", "", "ls"), CallDelta('{"o": {"a": [tr')],
        "",
    ),
    "half a raw object": (CALL + JSON + '{"a', [CallStarted("text", "", "ls"), CallDelta('{"a')], ""),
    "a string that is over": (
        CALL + argument("a", "x"),
        [CallStarted("text", "", "ls"), CallDelta('{"a": "x"')],
        "",
    ),
}


@looped("size", SIZES)
@pytest.mark.parametrize(("text", "expected", "held"), PROMPT.values(), ids=PROMPT.keys())
def test_what_is_decided_goes_out_at_once(text: str, expected: list[GrammarEvent], held: str, size: int) -> None:
    grammar = KimiK3Grammar("text")
    assert merged(one for piece in by_size(text, size) for one in grammar.feed(piece)) == expected
    assert grammar.held == held


def test_a_flush_in_the_middle_keeps_the_channel() -> None:
    grammar = KimiK3Grammar("text")
    assert grammar.feed(f"{THINK}a <") == [thought("a ")]
    assert grammar.flush() == [thought("<")]
    assert grammar.feed(f"b{END_THINK}Hi") == [thought("b"), said("Hi")]


@pytest.mark.parametrize("size", [5, 1000, 1_000_000])
class TestLimits:
    def test_a_tag_is_as_long_as_it_may_be(self, size: int) -> None:
        tag = f'<|open|>call tool="{"x" * (TAG_LIMIT - 27)}"{SEP}'
        assert len(tag) == TAG_LIMIT
        assert run(by_size(tag + END_CALL, size)) == call("{}", name="x" * (TAG_LIMIT - 27))

    def test_a_longer_tag_is_text(self, size: int) -> None:
        for end in (SEP, RESPONSE, f" {RESPONSE}"):
            tag = f'<|open|>call tool="{"x" * (TAG_LIMIT - 26)}"'
            expected = [said(tag + end.removesuffix(RESPONSE))]
            assert run(by_size(tag + end, size)) == expected

    def test_attributes_over_the_limit_still_name_the_call(self, size: int) -> None:
        for more in ('a="1" ' * ATTRIBUTE_LIMIT, "a=1 " * ATTRIBUTE_LIMIT):
            tag = f"<|open|>call {more}tool='ls'{SEP}"
            assert run(by_size(tag + END_CALL, size)) == call("{}")
            assert run(by_size(tag.replace(more, more[more.index(" ") + 1 :]) + END_CALL, size)) == call("{}")

    def test_a_value_that_is_held_too_long_is_a_string(self, size: int) -> None:
        value = "7" * (HOLD_LIMIT + 1)
        expected = doubtful("n", value[:HOLD_LIMIT], f'"{value}"}}')
        assert run(by_size(CALL + argument("n", value, "number") + END_CALL, size)) == expected
        assert run(by_size(CALL + argument("n", value[1:], "number") + END_CALL, size)) == call(f'{{"n": {value[1:]}}}')

    def test_nesting_without_end_is_no_error(self, size: int) -> None:
        value = "[" * 60_000
        found = run(by_size(CALL + argument("o", value, "object") + END_CALL, size))
        assert Notice("k3_value_as_string", value) in found

    def test_what_follows_a_value_is_reported_in_pieces(self, size: int) -> None:
        found = run(by_size(CALL + argument("o", "{}" + "x" * (HOLD_LIMIT + 3), "object") + END_CALL, size))
        assert [one.detail for one in found if isinstance(one, Notice)] == ["x" * HOLD_LIMIT, "xxx"]

    def test_too_much_white_space_is_text(self, size: int) -> None:
        space = " " * (SPACE_LIMIT + 1)
        assert run(by_size(f"{TOOLS}{space[1:]}{END_TOOLS}", size)) == []
        assert run(by_size(f"{TOOLS}{space}{END_TOOLS}", size)) == [said(space)]
        assert run(by_size(f"{CALL}{JSON}{{}}{space}{END_JSON}{END_CALL}", size)) == call("{} ")


# -- properties --------------------------------------------------------------------------

# No tag's name among them: what is made of these can never be a tag.
FRAGMENTS = ["<", "|", "<|", "<|open|>", "<|close|>", SEP, ">", " ", "\n", '"', "\\", "&quot;", "x", "é", "💥", "\x00"]
SPEECH = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=8).map("".join)
TAGS = [END_ARGUMENT, END_CALL, CALL, "<|end_of_msg|>", "\\", '"', "<|", "x"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS | SPEECH | st.lists(st.sampled_from(TAGS), max_size=4).map("".join),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SPEECH, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(SPEECH, SPEECH | VALUES.filter(lambda value: not isinstance(value, str)), max_size=4)
CALLS = st.lists(st.tuples(st.text(st.characters(categories=["L", "P"]), min_size=1), ARGUMENTS), max_size=3)
KINDS = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    dict: "object",
    list: "array",
}


def attribute(value: str) -> str:
    return value.replace("&", "&amp;").replace('"', "&quot;")


def rendered(name: str, arguments: dict[str, Any], index: int) -> str:
    inner = [
        f'<|open|>argument key="{attribute(key)}" type="{KINDS[type(value)]}"{SEP}'
        + (value if isinstance(value, str) else json.dumps(value, ensure_ascii=index % 2 == 0))
        + END_ARGUMENT
        for key, value in arguments.items()
    ]
    return f'<|open|>call tool="{attribute(name)}" index="{index}"{SEP}{"".join(inner)}{END_CALL}'


def marker_in(key: str) -> bool:
    """A marker in an attribute is the one thing that XTML has no way to write."""
    return any(marker in key for marker in ("<|open|>", "<|close|>", SEP))


@given(SPEECH, SPEECH, CALLS, CUTS)
def test_what_was_rendered_is_read_back(
    thinking: str, answer: str, calls: list[tuple[str, dict[str, Any]]], cuts: list[int]
) -> None:
    calls = [(name, {k: v for k, v in arguments.items() if not marker_in(k)}) for name, arguments in calls]
    text = f"{THINK}{thinking}{END_THINK}{RESPONSE}{answer}{END_RESPONSE}"
    if calls:
        text += TOOLS + "".join(rendered(*one, at) for at, one in enumerate(calls, 1)) + END_TOOLS
    found = run(by_cuts(text, cuts))
    assert [one for one in found if isinstance(one, Notice)] == []
    speech = [thought(thinking)] * bool(thinking) + [said(answer)] * bool(answer)
    assert found[: len(speech)] == speech
    read = found[len(speech) :]
    assert [type(one) for one in read] == [CallStarted, CallDelta, CallEnded] * len(calls)
    assert [one.name for one in read if isinstance(one, CallStarted)] == [name for name, _ in calls]
    assert [json.loads(one.text) for one in read if isinstance(one, CallDelta)] == [arguments for _, arguments in calls]
    assert all(one.closed for one in read if isinstance(one, CallEnded))


SOUP = [
    *FRAGMENTS,
    *("Q", "Q Q", "{", "}", "[", '{"Q": ', "1", "true"),
    *(THINK, END_THINK, RESPONSE, END_RESPONSE, TOOLS, END_TOOLS, CALL, END_CALL, END_ARGUMENT, JSON, END_JSON),
    *(END_MESSAGE, "<|end_of_msg|>", MESSAGE, '<|open|>call tool="', f'"{SEP}'),
    *(opened("k"), opened("n", "number"), opened("o", "object"), opened("l", "array"), opened("b", "boolean")),
    *("</think>", "<think>", "</thi", "nk>"),
    *("think", "response", "call", "argument", "json", ' tool="', "='"),
]


@settings(max_examples=examples(2000))
@given(
    st.lists(st.sampled_from(SOUP), max_size=24).map("".join),
    CUTS,
    st.sampled_from(["text", "reasoning"]),
    st.booleans(),
)
def test_marker_soup_loses_no_letter_at_any_chunking(text: str, cuts: list[int], channel: Channel, calls: bool) -> None:
    assert_laws(lambda: KimiK3Grammar(channel, calls=calls), text, cuts)


@given(st.text(), CUTS)
def test_ordinary_text_is_said_as_it_is(text: str, cuts: list[int]) -> None:
    assert run(by_cuts(text, cuts)) == [said(text)] * bool(text)
