"""Law 7: doubling an answer at most doubles the lines of code that run (plus 10 %), whatever the answer is made of."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Final

import pytest

import moonshim
from moonshim.engine.grammar.kimi import quotations
from tests.support.streams import chunk, sse

Chunks = Iterator[dict[str, Any]]

_COUNT: Final = 100
_PARAMETERS: Final = {"type": "object", "properties": {"path": {"type": "string"}}}
_TOOLS: Final = {
    "openai_chat": {"type": "function", "function": {"name": "ls", "parameters": _PARAMETERS}},
    "anthropic": {"name": "ls", "input_schema": _PARAMETERS},
    "openai_responses": {"type": "function", "name": "ls", "parameters": _PARAMETERS},
}


def _lines_run(work: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def _mender(client: str, upstream: str, model: str) -> moonshim.Mender:
    said = {"input": "Go."} if client == "openai_responses" else {"messages": [{"role": "user", "content": "Go."}]}
    body = {"model": model, **said, "tools": [_TOOLS[client]], "stream": True, "max_tokens": 4096}
    if client == "openai_responses":
        del body["max_tokens"]
    prepared = moonshim.prepare_request(body, dialect=client, upstream=upstream, reply_id="reply")
    return moonshim.Mender(plan=prepared.plan, collect=False)


def _run(mender: moonshim.Mender, frames: Iterable[bytes]) -> None:
    for frame in frames:
        mender.feed(frame)
    mender.flush()


# -- what a Chat host sends ------------------------------------------------------------------------------------------


def _entry(number: int, arguments: str, name: str = "ls") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"index": number, "id": f"functions.{name}:{number}", "type": "function", "function": function}


def _native(number: int) -> dict[str, Any]:
    return chunk({"tool_calls": [_entry(number, f'{{"path": "n{number}"}}')]})


def _marked(number: int) -> dict[str, Any]:
    header = f"<|tool_call_begin|>functions.ls:{number}<|tool_call_argument_begin|>"
    return chunk({"content": f'{header}{{"path": "m{number}"}}<|tool_call_end|>'})


def _native_then_marked(count: int) -> Chunks:
    yield from map(_native, range(count))
    yield from map(_marked, range(count))


def _marked_then_native(count: int) -> Chunks:
    yield from map(_marked, range(count))
    yield from map(_native, range(count))


def _in_turns(count: int) -> Chunks:
    for number in range(count):
        yield _native(number)
        yield _marked(number)


def _calls_in_one_frame(count: int) -> Chunks:
    yield chunk({"tool_calls": [_entry(number, f'{{"path": "{number}"}}') for number in range(count)]})


def _nameless_calls_in_one_frame(count: int) -> Chunks:
    yield chunk(
        {"tool_calls": [{"index": at, "id": f"call_{at}", "function": {"arguments": "{}"}} for at in range(count)]}
    )


def _calls_in_two_frames(count: int) -> Chunks:
    yield chunk({"tool_calls": [_entry(number, '{"path": "') for number in range(count)]})
    yield chunk({"tool_calls": [{"index": number, "function": {"arguments": 'x"}'}} for number in range(count)]})


def _calls_with_long_hold(count: int) -> Chunks:
    yield from (chunk({"tool_calls": [_entry(number, '{"path": "\\')]}) for number in range(count))


def _calls_without_arguments(count: int) -> Chunks:
    yield from (chunk({"tool_calls": [_entry(number, "")]}) for number in range(count))


def _calls_of_unknown_tools(count: int) -> Chunks:
    yield from (chunk({"tool_calls": [_entry(number, "", "l")]}) for number in range(count))


def _open_tags(count: int) -> Chunks:
    yield chunk({"content": "<|open|>" * count})


def _open_tags_one_by_one(count: int) -> Chunks:
    yield from (chunk({"content": "<|open|>"}) for _ in range(count))


def _choices(count: int) -> Chunks:
    for number in range(count):
        yield {**chunk({}), "choices": [{"index": number, "delta": {"content": "some <"}, "finish_reason": None}]}


def _errors_of_choices(count: int) -> Chunks:
    yield from _choices(count)
    yield from ({"error": {"message": "no", "choice": number}} for number in range(count))


_STREAMS: Final[dict[str, tuple[str, Callable[[int], Chunks]]]] = {
    "native calls, then others in markers": ("kimi-k2.5", _native_then_marked),
    "calls in markers, then other native ones": ("kimi-k2.5", _marked_then_native),
    "native calls and calls in markers in turns": ("kimi-k2.5", _in_turns),
    "native calls in one frame": ("kimi-k2.5", _calls_in_one_frame),
    "native calls without names in one frame": ("kimi-k2.5", _nameless_calls_in_one_frame),
    "native calls that go on in a second frame": ("kimi-k2.5", _calls_in_two_frames),
    "native calls that break off in an escape": ("kimi-k2.5", _calls_with_long_hold),
    "native calls without arguments": ("kimi-k2.5", _calls_without_arguments),
    "native calls of unknown tools": ("kimi-k2.5", _calls_of_unknown_tools),
    "open tags in one frame": ("kimi-k3", _open_tags),
    "open tags in many frames": ("kimi-k3", _open_tags_one_by_one),
    "choices": ("kimi-k2.5", _choices),
    "errors of choices": ("kimi-k2.5", _errors_of_choices),
}


def _frames(chunks: Chunks) -> Iterator[bytes]:
    for one in chunks:
        yield sse([one], done=False)
        yield b": ping\n\n"
    yield sse([chunk({}, "tool_calls")])


# -- what a Messages host sends --------------------------------------------------------------------------------------


def _messages_frames(count: int) -> Iterator[bytes]:
    def event(**fields: Any) -> bytes:
        return f"event: {fields['type']}\ndata: {json.dumps(fields)}\n\n".encode()

    usage = {"input_tokens": 1, "output_tokens": 1}
    yield event(type="message_start", message={"id": "msg", "role": "assistant", "content": [], "usage": usage})
    for at in range(count):
        block = {"type": "tool_use", "id": f"toolu_{at}", "name": "ls", "input": {}}
        yield event(type="content_block_start", index=at, content_block=block)
        delta = {"type": "input_json_delta", "partial_json": f'{{"path": "{at}"}}'}
        yield event(type="content_block_delta", index=at, delta=delta)
        yield event(type="content_block_stop", index=at)
    yield event(type="message_delta", delta={"stop_reason": "tool_use"}, usage=usage)
    yield event(type="message_stop")


def _assert_linear(client: str, upstream: str, model: str, frames: Callable[[int], Iterable[bytes]]) -> None:
    def work(count: int) -> int:
        mender, sent = _mender(client, upstream, model), list(frames(count))
        return _lines_run(lambda: _run(mender, sent))

    work(_COUNT)
    once, twice = work(_COUNT), work(2 * _COUNT)
    assert twice <= 2.2 * once, f"{once} -> {twice} lines"


# name: the parameters of a tool, and the arguments of its call
_SCHEMAS: Final[dict[str, Callable[[int], tuple[Any, Any]]]] = {
    "choices": lambda count: ({"items": {"enum": list(range(count))}}, ["-1"] * count),
    "choices in a string": lambda count: ({"type": "array", "items": {"enum": list(range(count))}}, str([0] * count)),
    "required": lambda count: ({"type": "array", "items": {"required": ["k"] * count}}, json.dumps([{"k": 1}] * count)),
    "types": lambda count: ({"items": {"type": ["integer"] * count}}, ["1"] * count),
    "references": lambda count: (
        {"d": [{"type": "integer"}] * count, "prefixItems": [{"$ref": f"#/properties/a/d/{n}"} for n in range(count)]},
        ["1"] * count,
    ),
    "parts": lambda count: (
        {"items": {"allOf": [{"type": "integer", "minimum": n} for n in range(count)]}},
        ["-1"] * count,
    ),
    "alternatives": lambda count: ({"items": {"anyOf": [{"const": n} for n in range(count)]}}, ["-1"] * count),
}


@pytest.mark.parametrize("name", _SCHEMAS)
def test_twice_the_schema_and_the_arguments_is_at_most_twice_the_work(name: str) -> None:
    def work(count: int) -> int:
        schema, value = _SCHEMAS[name](count)
        parameters = {"type": "object", "properties": {"a": schema}}
        tool = {"type": "function", "function": {"name": "ls", "parameters": parameters}}
        entry = _entry(0, json.dumps({"a": value}))
        message = {"role": "assistant", "content": None, "tool_calls": [entry]}
        body = {"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
        return _lines_run(lambda: moonshim.mend_response(body, model="kimi-k2.5", tools=[tool]))

    work(4 * _COUNT)
    once, twice = work(4 * _COUNT), work(8 * _COUNT)
    assert twice <= 2.2 * once, f"{once} -> {twice} lines"


@pytest.mark.parametrize("client", _TOOLS)
@pytest.mark.parametrize("name", _STREAMS)
def test_twice_the_answer_of_a_chat_host_is_at_most_twice_the_work(name: str, client: str) -> None:
    model, chunks = _STREAMS[name]
    _assert_linear(client, "openai_chat", model, lambda count: _frames(chunks(count)))


@pytest.mark.parametrize("client", _TOOLS)
def test_twice_the_answer_of_a_messages_host_is_at_most_twice_the_work(client: str) -> None:
    _assert_linear(client, "anthropic", "kimi-k2.5", _messages_frames)


@pytest.mark.parametrize("model", ["kimi-k2.5", "kimi-k3"])
def test_twice_the_quoted_call_is_at_most_twice_the_work(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is in the comparison of strings, so what is counted are their characters."""
    normalize, read = quotations.normalize, list[int]()

    def counted(text: str) -> str:
        read.append(len(text))
        return normalize(text)

    monkeypatch.setattr(quotations, "normalize", counted)

    def work(count: int) -> int:
        value = "x y " * count
        begins = f'<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{{"path": "{value}'
        ends = '"}<|tool_call_end|>'
        if model == "kimi-k3":
            opened = '<|open|>tools<|sep|><|open|>call tool="ls" index="0"<|sep|>'
            begins = f'{opened}<|open|>argument key="path" type="string"<|sep|>{value}'
            ends = "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
        mender = moonshim.Mender(model=model, tools=[_TOOLS["openai_chat"]], quoted=[begins + ends])
        read.clear()
        for at in range(0, len(begins), 4):
            mender.feed(sse([chunk({"content": begins[at : at + 4]})], done=False))
        return sum(read)

    once, twice = work(1000), work(2000)
    assert twice <= 2.2 * once, f"{once} -> {twice} characters"
