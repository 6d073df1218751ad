"""Arguments of native calls that are not JSON, or repeat themselves: the same for every client, streamed or whole."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from typing import Any, Final

import pytest

from moonshim import Failed, Finished, Mender, ToolCall, mend_response, prepare_request
from tests.support.streams import chunk, parse_payloads, read_chunks, read_sse, sse

MODEL: Final = "kimi-k2.5"
CLIENTS: Final = ("openai_chat", "anthropic", "openai_responses")
PARAMETERS: Final = {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}
CHAT_TOOL: Final = {"type": "function", "function": {"name": "ls", "parameters": PARAMETERS}}
_TOOLS: Final[dict[str, dict[str, Any]]] = {
    "openai_chat": CHAT_TOOL,
    "anthropic": {"name": "ls", "input_schema": PARAMETERS},
    "openai_responses": {"type": "function", "name": "ls", "parameters": PARAMETERS},
}


def entry(index: int, arguments: str, *, header: bool) -> dict[str, Any]:
    if not header:
        return {"index": index, "function": {"arguments": arguments}}
    function = {"name": "ls", "arguments": arguments}
    return {"index": index, "id": f"functions.ls:{index}", "type": "function", "function": function}


def native(*calls: Iterable[str], finish: str = "tool_calls") -> bytes:
    """A stream of native calls, each as the deltas of its arguments."""
    chunks = [chunk({"role": "assistant"})]
    for index, deltas in enumerate(calls):
        for place, text in enumerate(deltas):
            chunks.append(chunk({"tool_calls": [entry(index, text, header=not place)]}))
    return sse([*chunks, chunk({}, finish)])


def body(*calls: str, finish: str = "tool_calls") -> dict[str, Any]:
    """The same calls as a response that does not stream."""
    entries = [entry(index, text, header=True) for index, text in enumerate(calls)]
    message = {"role": "assistant", "content": None, "tool_calls": entries}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "chatcmpl-7", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}


def plan_for(client: str, upstream: str = "openai_chat") -> Any:
    asked: dict[str, Any] = {"model": MODEL, "tools": [_TOOLS[client]], "stream": True, "max_tokens": 100}
    if client == "openai_responses":
        asked = {key: value for key, value in asked.items() if key != "max_tokens"} | {"input": "List it."}
    else:
        asked["messages"] = [{"role": "user", "content": "List it."}]
    return prepare_request(asked, dialect=client, upstream=upstream, host="generic", secret=b"test").plan


class Answer:
    """What a client of this dialect has in the end."""

    def __init__(self, result: Any, out: bytes | dict[str, Any]) -> None:
        self.calls = [(part.name, part.arguments) for part in result.message.parts if isinstance(part, ToolCall)]
        self.ending: Finished | Failed = result.ending
        self.rules = [repair.rule for repair in result.repairs]
        self.out = out


def streamed(client: str, data: bytes) -> Answer:
    mender = Mender(plan=plan_for(client))
    out = mender.feed(data) + mender.flush()
    return Answer(mender, out)


def whole(client: str, response: dict[str, Any]) -> Answer:
    mended = mend_response(response, plan=plan_for(client))
    return Answer(mended, mended.body)


def partial_inputs(out: bytes) -> list[str]:
    """Each tool input of a Messages stream, as its deltas say it."""
    inputs: dict[int, str] = {}
    for event in parse_payloads(read_sse(out)):
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            inputs[event["index"]] = inputs.get(event["index"], "") + event["delta"]["partial_json"]
    return list(inputs.values())


ONE_READING: Final = {
    '{"a": "x",}': ('{"a": "x"}', "arguments_trailing_comma"),
    "{'a': 'x'}": ('{"a": "x"}', "arguments_single_quotes"),
    '{"a": None}': ('{"a": null}', "arguments_python_literal"),
    '{"a": "x", "n": 1 , }': ('{"a": "x", "n": 1  }', "arguments_trailing_comma"),
}
INVALID: Final = ("{]", "{a: 1}", '{"a": undefined}', '{"a": "x" "n": 1}', '{"a": 1,,}', "ls the folder", '{"a": [1}}')


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("text", ONE_READING)
def test_what_has_one_reading_is_repaired_for_every_client_streamed_or_whole(client: str, text: str) -> None:
    arguments, rule = ONE_READING[text]
    answers = [streamed(client, native([text])), streamed(client, native(text)), whole(client, body(text))]
    for answer in answers:
        assert answer.calls == [("ls", arguments)]
        assert isinstance(answer.ending, Finished)
        assert answer.ending.reason == "tool_calls"
        assert answer.rules == [rule]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("text", INVALID)
def test_other_arguments_that_are_not_json_fail_for_every_client_streamed_or_whole(client: str, text: str) -> None:
    answers = [streamed(client, native([text])), streamed(client, native(text)), whole(client, body(text))]
    for answer in answers:
        assert answer.ending == answers[0].ending
        assert isinstance(answer.ending, Failed)
        assert answer.ending.code == "arguments_invalid"
        assert answer.calls == answers[0].calls
        assert answer.rules == ["arguments_invalid", "failed"]
        assert b"raw_arguments" not in json.dumps(answer.out, default=bytes.decode).encode()


@pytest.mark.parametrize("text", [*ONE_READING, *INVALID])
def test_a_messages_client_never_has_input_that_it_cannot_parse_while_it_streams(text: str) -> None:
    jiter = pytest.importorskip("jiter")
    out = streamed("anthropic", native(text)).out
    assert isinstance(out, bytes)
    for given in partial_inputs(out):
        for end in range(1, len(given) + 1):
            jiter.from_json(given[:end].encode(), partial_mode=True)


def test_a_call_in_markers_is_judged_like_a_native_one() -> None:
    for text in (*ONE_READING, *INVALID):
        said = f"<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{text}<|tool_call_end|>"
        for pieces in ([said], list(said)):
            mender = Mender(model=MODEL, tools=[CHAT_TOOL])
            chunks = [chunk({"content": piece}) for piece in pieces]
            heard = read_chunks(
                parse_payloads(read_sse(mender.feed(sse([*chunks, chunk({}, "stop")])) + mender.flush()))
            )[0]
            other = Answer(mender, b"")
            native_one = whole("openai_chat", body(text))
            assert other.calls == native_one.calls
            assert other.ending in (native_one.ending, Finished("tool_calls", "stop"))
            assert (heard.error is None) == (text in ONE_READING)


def test_a_single_quoted_string_may_hold_brackets_and_markers() -> None:
    text = """{'a': 'one } "two <|tool_call_end|>'}"""
    said = f"<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{text}<|tool_call_end|>Done."
    for pieces in ([said], list(said)):
        mender = Mender(model=MODEL, tools=[CHAT_TOOL])
        out = mender.feed(sse([*[chunk({"content": piece}) for piece in pieces], chunk({}, "stop")])) + mender.flush()
        (call,) = read_chunks(parse_payloads(read_sse(out)))[0].calls
        assert json.loads(call.arguments) == {"a": 'one } "two <|tool_call_end|>'}


# -- deltas that repeat all before them --------------------------------------------------------------------------

_STRINGS: Final = (
    "",
    "x",
    "{",
    '{"',
    "}",
    ": 1}",
    ",",
    '"',
    "\\",
    "a b",
    "é 😀",
    "<|tool_call_end|>",
    "[",
    "'",
    ":",
    "null",
)


def random_value(dice: random.Random, depth: int = 0) -> Any:
    kinds = ["text", "text", "number", "word"] + (["list", "object"] if depth < 3 else [])
    match dice.choice(kinds):
        case "text":
            return "".join(dice.choices(_STRINGS, k=dice.randint(0, 3)))
        case "number":
            return dice.choice((0, -1, 12, 1.5, 1e30, 123456))
        case "word":
            return dice.choice((None, True, False))
        case "list":
            return [random_value(dice, depth + 1) for _ in range(dice.randint(0, 3))]
        case _:
            return random_object(dice, depth + 1)


def random_object(dice: random.Random, depth: int = 0) -> dict[str, Any]:
    return {"".join(dice.choices(_STRINGS, k=2)): random_value(dice, depth) for _ in range(dice.randint(0, 3))}


def random_cuts(dice: random.Random, text: str) -> list[int]:
    count = dice.choice((1, 2, 3, 5, len(text)))
    return sorted({dice.randint(1, len(text)) for _ in range(count)} | {len(text)})


def random_call(dice: random.Random) -> str:
    return json.dumps(random_object(dice), ensure_ascii=dice.random() < 0.5, indent=dice.choice((None, None, 1)))


def mend(stream: bytes) -> tuple[Mender, bytes]:
    """Mended for a tool that takes anything."""
    mender = Mender(model=MODEL, tools=[{"type": "function", "function": {"name": "ls"}}])
    return mender, mender.feed(stream) + mender.flush()


def arguments_in(mender: Mender) -> list[str]:
    return [part.arguments for part in mender.message.parts if isinstance(part, ToolCall)]


@pytest.mark.parametrize("seed", range(8))
def test_cumulative_deltas_never_make_invalid_or_wrong_arguments(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(300):
        calls = [random_call(dice) for _ in range(dice.randint(1, 2))]
        deltas = [["", *(text[:cut] for cut in random_cuts(dice, text))] for text in calls]
        mender, _ = mend(native(*deltas))
        assert isinstance(mender.ending, Finished), deltas
        assert list(map(json.loads, arguments_in(mender))) == list(map(json.loads, calls)), deltas


@pytest.mark.parametrize("seed", range(4))
def test_deltas_that_only_bring_what_is_new_are_never_taken_for_cumulative_ones(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(300):
        text = random_call(dice)
        cuts = [0, *random_cuts(dice, text)]
        deltas = [text[start:end] for start, end in itertools.pairwise(cuts)]
        mender, _ = mend(native(deltas))
        assert arguments_in(mender) == [text], deltas
        assert not mender.repairs


@pytest.mark.parametrize("client", CLIENTS)
def test_cumulative_deltas_are_repaired_and_reported_for_every_client(client: str) -> None:
    answer = streamed(client, native(['{"', '{"a":', '{"a":"xy', '{"a":"xyz"}']))
    assert answer.calls == [("ls", '{"a":"xyz"}')]
    assert answer.rules == ["arguments_cumulative"]


def test_an_object_whose_first_key_looks_like_a_repetition_passes_byte_for_byte() -> None:
    stream = native(["", '{"', '{"', ": 1}"])
    mender, out = mend(stream)
    assert out == stream
    assert not mender.repairs


def test_cumulative_deltas_that_break_off_are_not_completed() -> None:
    mender, _ = mend(native(['{"a":', '{"a":"xy'], finish="tool_calls"))
    assert isinstance(mender.ending, Failed)
    assert arguments_in(mender) == ['{"a":"xy']


# Deltas whose readings differ -> what was meant.
REPEATED: Final[dict[str, tuple[list[str], str]]] = {
    "a long value": (['{"a":', '{"a":"' + "x" * 5000 + '"}'], '{"a":"' + "x" * 5000 + '"}'),
    "an empty object first": (["{}", '{"a":', '{"a":"x"}'], '{"a":"x"}'),
    "two empty objects first": (["{}", "{}", '{"a":', '{"a":"x"}'], '{"a":"x"}'),
    "null first": (["null", '{"a":', '{"a":"x"}'], '{"a":"x"}'),
    "only what is new at the end": (['{"a":', '{"a":"x', 'y"}'], '{"a":"xy"}'),
    "only what is new in between": (['{"a":', '{"a":"x', "y", '{"a":"xyz', '"}'], '{"a":"xyz"}'),
    "the last piece once more": (['{"a":', '{"a":', '"x"}'], '{"a":"x"}'),
    "everything once more": (['{"a":', '{"a":"x"}', '{"a":"x"}'], '{"a":"x"}'),
    "a long list": (
        ['{"l":[1,', '{"l":[1,' + "2," * 600, '{"l":[1,' + "2," * 600 + "3]}"],
        '{"l":[1,' + "2," * 600 + "3]}",
    ),
    "a list by the number": (
        ['{"l":[', *('{"l":[' + "1," * count for count in range(1, 200)), '{"l":[' + "1," * 199 + "1]}"],
        '{"l":[' + "1," * 199 + "1]}",
    ),
}
# Nobody can tell what was meant, or too much would have to be kept.
UNDECIDABLE: Final[dict[str, list[str]]] = {
    "brackets missing": ['{"o":', '{"o":{"a":1}'],
    "a list over the limit": ['{"l":[' + "1," * 200_000, '{"l":[' + "1," * 600_000 + "3]}"],
    "a value over the limit": ['{"a":"', '{"a":"x', '{"a":"' + "x" * 1_100_000 + '"}'],
    "a repetition after new pieces": ['{"a', '":', '{"a":"x"}'],
    "a repetition after new pieces, longer than what is remembered": [
        '{"a":"' + "x" * 9000,
        '","o":',
        '{"a":"' + "x" * 9000 + '","o":{"n":1}}',
    ],
    "a repetition after an empty object in pieces": ["{", "}", '{"a":', '{"a":"x"}'],
    "a repetition of what was repaired": ["{'a'", ":", "{'a':'x'}"],
}


def messages(*calls: Iterable[str]) -> bytes:
    """The same as `native`, from a host of Messages."""
    start: dict[str, Any] = {
        "id": "msg_7",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**start, "usage": {"input_tokens": 1}}}]
    for index, deltas in enumerate(calls):
        block = {"type": "tool_use", "id": f"functions.ls:{index}", "name": "ls", "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        for text in deltas:
            delta = {"type": "input_json_delta", "partial_json": text}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}})
    events.append({"type": "message_stop"})
    return b"".join(b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in events)


def in_chunks(client: str, data: bytes, dice: random.Random, upstream: str = "openai_chat") -> Answer:
    mender = Mender(plan=plan_for(client, upstream))
    cuts = sorted(dice.randint(0, len(data)) for _ in range(dice.randint(0, 40)))
    out = b"".join(mender.feed(data[start:end]) for start, end in itertools.pairwise([0, *cuts, len(data)]))
    return Answer(mender, out + mender.flush())


def answers_to(client: str, *calls: list[str]) -> list[Answer]:
    """From hosts of Chat and of Messages, in chunks of any size."""
    dice = random.Random(repr(calls))
    streams = [("openai_chat", native(*calls)), ("anthropic", messages(*calls))]
    return [in_chunks(client, data, dice, upstream) for upstream, data in streams for _ in range(2)]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", REPEATED)
def test_what_deltas_repeat_is_never_nested_into_itself(client: str, case: str) -> None:
    deltas, intended = REPEATED[case]
    for answer in answers_to(client, deltas):
        assert answer.calls == [("ls", intended)]
        assert isinstance(answer.ending, Finished)
        assert answer.ending.reason == "tool_calls"
        assert "arguments_cumulative" in answer.rules
        assert "arguments_unclosed" not in answer.rules


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", UNDECIDABLE)
def test_a_call_whose_deltas_repeat_themselves_without_one_whole_reading_fails(client: str, case: str) -> None:
    for answer in answers_to(client, UNDECIDABLE[case]):
        assert isinstance(answer.ending, Failed)
        assert answer.ending.code in ("arguments_cut_off", "arguments_invalid")
        assert "arguments_unclosed" not in answer.rules


def test_brackets_are_still_added_where_nothing_was_repeated() -> None:
    for deltas in (['{"o":{"a":1}'], ['{"o":', '{"a":1}'], ['{"l":[', '{"a":1}', ',{"a":2}']):
        mender, _ = mend(native(deltas))
        assert isinstance(mender.ending, Finished)
        assert [repair.rule for repair in mender.repairs] == ["arguments_unclosed"]


def test_a_list_in_a_list_is_no_repetition() -> None:
    for deltas in (["[", "[", "1],[2]]"], ["[", "[1]", "]"]):
        mender, _ = mend(native(deltas))
        assert [repair.rule for repair in mender.repairs] == ["arguments_invalid", "failed"]


def random_deltas(dice: random.Random, text: str) -> list[str]:
    """Each delta has everything so far, or only what is new; now and then one comes twice, or a placeholder first."""
    deltas, before = list(dice.choice(((), (), ("",), ("{}",), ("null",), ("{}", "{}")))), 0
    for end in random_cuts(dice, text)[-200:]:
        deltas.append(text[:end] if not before or dice.random() < 0.7 else text[before:end])
        if dice.random() < 0.2 and deltas[-1] == text[:end]:
            deltas.append(deltas[-1])
        before = end
    return deltas


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("seed", range(3))
def test_mixed_deltas_never_finish_as_another_call(client: str, seed: int) -> None:
    dice = random.Random(seed)
    finished = 0
    for _ in range(40):
        intended = random_object(dice)
        if dice.random() < 0.3:
            intended["long"] = dice.choice(("x" * 1100, [1] * 600, {"y": "z" * 3000}))
        text = json.dumps(intended, indent=dice.choice((None, None, 1)))
        deltas = random_deltas(dice, text)
        for upstream, data in (("openai_chat", native(deltas)), ("anthropic", messages(deltas))):
            answer = in_chunks(client, data, dice, upstream)
            if isinstance(answer.ending, Finished):
                finished += 1
                assert [json.loads(arguments) for _, arguments in answer.calls] == [intended], deltas
            else:
                assert isinstance(answer.ending, Failed)
                assert answer.ending.code in ("arguments_cut_off", "arguments_invalid"), deltas
    assert finished > 50


# -- placeholders of parallel calls ------------------------------------------------------------------------------


def interleaved(*deltas: list[tuple[int, str]]) -> bytes:
    """Each list is one chunk: of which call, and what."""
    begun: set[int] = set()
    chunks = [chunk({"role": "assistant"})]
    for one in deltas:
        entries = []
        for index, text in one:
            entries.append(entry(index, text, header=index not in begun))
            begun.add(index)
        chunks.append(chunk({"tool_calls": entries}))
    return sse([*chunks, chunk({}, "tool_calls")])


PARALLEL: Final[dict[str, list[list[tuple[int, str]]]]] = {
    "in one chunk": [[(0, "{}"), (1, "{}")], [(0, '{"a":"x"}')], [(1, '{"a":"y"}')]],
    "the second first": [[(0, "{}"), (1, "{}")], [(1, '{"a":"y"}')], [(0, '{"a":"x"}')]],
    "in pieces": [[(0, "{}"), (1, "{}")], [(0, '{"a"')], [(0, ':"x"}')], [(1, '{"a":')], [(1, '"y"}')]],
    "all at once": [[(0, "{}"), (1, "{}")], [(0, '{"a":"x"}'), (1, '{"a":"y"}')]],
    "cumulative": [[(0, "{}"), (1, "{}")], [(0, '{"a":')], [(0, '{"a":"x"}')], [(1, '{"a":')], [(1, '{"a":"y"}')]],
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", PARALLEL)
def test_placeholders_of_parallel_calls_are_replaced_by_the_real_arguments(client: str, case: str) -> None:
    dice = random.Random(case)
    for _ in range(3):
        answer = in_chunks(client, interleaved(*PARALLEL[case]), dice)
        assert answer.calls == [("ls", '{"a":"x"}'), ("ls", '{"a":"y"}')]
        assert isinstance(answer.ending, Finished)
        assert answer.rules.count("arguments_leading_empty") == 2
        assert "arguments_trailing" not in answer.rules


@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_fails_where_real_arguments_come_after_an_empty_object_went_out(client: str) -> None:
    for second in ('{"a":"y"}', "{}"):
        stream = interleaved([(0, "{}")], [(1, second)], [(0, '{"a":"x"}')])
        answer = in_chunks(client, stream, random.Random(1))
        assert isinstance(answer.ending, Failed)
        assert answer.ending.code == "arguments_invalid"


def test_parallel_calls_without_arguments_pass_byte_for_byte() -> None:
    for deltas in (
        [[(0, "{}"), (1, "{}")]],
        [[(0, "{}")], [(1, "{}")]],
        [[(0, "{}")], [(1, "{}")], [(2, '{"a":')], [(2, '"x"}')]],
    ):
        stream = interleaved(*deltas)
        mender, out = mend(stream)
        assert out == stream
        assert not mender.repairs


def test_a_call_without_arguments_does_not_hold_back_the_next_one() -> None:
    mender = Mender(model=MODEL, tools=[CHAT_TOOL])
    stream = interleaved([(0, "{}")], [(1, '{"a":"x')])
    assert mender.feed(stream[: stream.index(b'"finish_reason": "tool_calls"')]).count(b'"arguments"') == 2


# -- more calls after the arguments ------------------------------------------------------------------------------

BEGIN, ARGUMENTS, END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
FOLLOWED: Final = {
    "the next call": f'{{"a":"x"}}{BEGIN}functions.ls:1{ARGUMENTS}{{"a":"y"}}',
    "the next call, ended": f'{{"a":"x"}}{BEGIN}functions.ls:1{ARGUMENTS}{{"a":"y"}}{END}',
    "an end, and the next call": f'{{"a":"x"}}{END}\n{BEGIN}functions.ls:1{ARGUMENTS}{{"a":"y"}}{END}',
    "a quote, and the next call": f'{{"a":"x"}}"{BEGIN}functions.ls:1{ARGUMENTS}{{"a":"y"}}',
    "the next call in a section": (
        f'{{"a":"x"}}<|tool_calls_section_begin|>{BEGIN}functions.ls:1{ARGUMENTS}{{"a":"y"}}{END}'
        "<|tool_calls_section_end|>"
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", FOLLOWED)
def test_calls_inside_native_arguments_are_calls_of_their_own(client: str, case: str) -> None:
    text = FOLLOWED[case]
    for answer in (streamed(client, native([text])), streamed(client, native(["", *text])), whole(client, body(text))):
        assert answer.calls == [("ls", '{"a":"x"}'), ("ls", '{"a":"y"}')]
        assert isinstance(answer.ending, Finished)
        assert answer.ending.reason == "tool_calls"
        assert "marker_call" in answer.rules


def test_several_calls_inside_native_arguments_come_before_the_next_native_call() -> None:
    inside = "".join(f'{BEGIN}functions.ls:{n}{ARGUMENTS}{{"n":{n}}}' for n in (1, 2, 3))
    for first in (['{"n":0}' + inside], ["", *('{"n":0}' + inside)]):
        _, out = mend(native(first, ['{"n":4}']))
        heard = read_chunks(parse_payloads(read_sse(out)))[0]
        assert [json.loads(call.arguments)["n"] for call in heard.calls] == [0, 1, 2, 3, 4]
        assert len({call.id for call in heard.calls}) == 5


def test_a_marker_in_a_string_of_native_arguments_is_no_call() -> None:
    text = json.dumps({"a": f"{BEGIN}functions.ls:1{ARGUMENTS}{{}}{END}"})
    for given in ([text], [text + text], [text, text]):
        mender, _ = mend(native(given))
        assert arguments_in(mender) == [text]


def test_a_call_inside_native_arguments_that_breaks_off_is_not_run() -> None:
    mender, _ = mend(native([f'{{"a":"x"}}{BEGIN}functions.ls:1{ARGUMENTS}{{"a":"y'], finish="stop"))
    assert isinstance(mender.ending, Failed)
    assert arguments_in(mender) == ['{"a":"x"}', '{"a":"y']


@pytest.mark.parametrize("odd", ['"', '" ', ' "', '"}', '"\n'])
def test_an_odd_quote_after_arguments_in_markers_does_not_swallow_the_next_call(odd: str) -> None:
    first = f'{BEGIN}functions.ls:0{ARGUMENTS}{{"a":"x"}}{odd}{END}'
    said = f'{first}{BEGIN}functions.ls:1{ARGUMENTS}{{"a":"y"}}{END}Done.'
    for pieces in ([said], list(said)):
        mender = Mender(model=MODEL, tools=[CHAT_TOOL])
        out = mender.feed(sse([*[chunk({"content": piece}) for piece in pieces], chunk({}, "stop")])) + mender.flush()
        heard = read_chunks(parse_payloads(read_sse(out)))[0]
        assert [json.loads(call.arguments) for call in heard.calls] == [{"a": "x"}, {"a": "y"}]
        assert heard.finish == "tool_calls"
        assert "arguments_trailing" in [repair.rule for repair in mender.repairs]
