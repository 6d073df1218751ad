"""The fast path of answers that are written anew: whatever is not just the next piece of a text takes the slow path."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from moonshim import Mender
from moonshim.engine.dialects.protocol import NUMBER, TEXT, Encoder, ResponseContext
from moonshim.engine.dialects.registry import CLIENT_DIALECTS, dialect_named
from moonshim.engine.response.fast_path import TranslatingFastPath
from moonshim.engine.response.pipeline import EventCollector
from moonshim.engine.response.reply import read_reply
from moonshim.engine.upstream_events import OnlyText
from moonshim.engine.values.conversation import Request, Tool
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Finished, Opaque, Started
from moonshim.engine.wire.json_codec import encode
from moonshim.engine.wire.sse import render_sse
from moonshim.errors import Problem
from tests.engine.response.test_fast_path import CALL, STREAMS, told
from tests.laws.scripts import Setting
from tests.laws.test_fast_path import counted
from tests.laws.test_fast_path_translation import Telling, events, long_way, plan_of, same
from tests.support.streams import chunk, dump_json, split_bytes, split_text

CLIENTS: Final = ("anthropic", "openai_responses")
PLAIN: Final = Setting(tools="unknown")


def framed(chunks: Sequence[dict[str, Any]], *, done: bool = True) -> list[bytes]:
    return [render_sse(dump_json(one)) for one in chunks] + ([b"data: [DONE]\n\n"] if done else [])


def taken(run: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many frames take the fast path while this runs."""
    count = [0]
    with monkeypatch.context() as patch:
        patch.setattr(TranslatingFastPath, "take", counted(TranslatingFastPath.take, count))
        run()
    return count[0]


def _delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def details(text: str) -> list[dict[str, Any]]:
    return [{"type": "reasoning.encrypted", "index": 0, "data": text}]


ODD: Final[dict[str, list[Any]]] = {
    "text beside entries that are put together": [
        chunk({"content": piece, "reasoning_details": details("same")}) for piece in "abcd"
    ],
    "reasoning beside a refusal": [chunk({"reasoning": piece, "refusal": "No."}) for piece in "abcd"],
    "text beside a refusal": [chunk({"content": piece, "refusal": "No."}) for piece in "abcd"],
    "reasoning in a field to remember, around text that is none": [
        *told("H", "m", " so", field="reasoning"),
        *told("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        *told(" it", " is", " so", field="reasoning"),
        *told("Yes", " it", " is"),
    ],
    "reasoning in a field to remember, around text that is none and tells more": [
        *told("H", "m", " so", field="reasoning"),
        {**told("<|tool_calls_section_begin|>")[0], "usage": {"total_tokens": 3}},
        {**told("<|tool_calls_section_end|>")[0], "usage": {"total_tokens": 4}},
        *told(" it", " is", " so", field="reasoning"),
        *told("Yes", " it", " is"),
    ],
    "another choice": [
        {"choices": [{"index": 1, "delta": {"content": piece}, "finish_reason": None}]} for piece in "abcd"
    ],
    "text behind the end": [*told("a", "b"), chunk({}, "stop"), *told("c", "d", "e")],
    "an error of another shape in every chunk": [{**one, "error": {"message": "no"}} for one in told("a", "b", "c")],
    "usage that comes late": [*told("a", "b"), {**told("c")[0], "usage": {"total_tokens": 3}}, *told("d", "e")],
    "texts in turn": [
        *(one for pair in zip(told(*"abcd"), told(*"efgh", field="reasoning"), strict=True) for one in pair)
    ],
    "a call within a thought, and its like once more": [
        *told("I", " think", *split_text(CALL, 5), " so", " far", field="reasoning_content"),
        *told("I", " run", *split_text(CALL, 5), " now"),
    ],
    "two native calls in turn": [
        chunk({"tool_calls": [{"index": at, "id": f"c{at}", "type": "function", "function": {"name": "ls"}}]})
        for at in (0, 1)
    ]
    + [
        chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
        for piece in ('{"a"', ": ", '"b', "c", 'd"')
        for at in (0, 0, 1, 1)
    ],
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", [*STREAMS, *ODD])
def test_both_ways_tell_the_same_however_the_bytes_come(case: str, client: str) -> None:
    frames = framed(STREAMS.get(case) or [*ODD[case], chunk({}, "stop")])
    plan = plan_of(Setting(), client, "openai_chat")
    expected = long_way(plan, frames)
    same(plan, frames)
    for pieces in ([b"".join(frames)], split_bytes(b"".join(frames), 7), split_bytes(b"".join(frames), 600)):
        told = Telling(plan, pieces)
        assert (told.events, told.known) == (expected.events, expected.known)


BETWEEN: Final = (
    b"\\ud83d",
    b"\\ude00",
    b"\\q",
    b"\n",
    b"\x01",
    b"\xff",
    b'x", "content": "y',
    b"",
    b"\\u00e9 \\/ \\u0000",
)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("between", BETWEEN)
def test_what_stands_in_the_place_of_a_text_may_be_anything(between: bytes, client: str) -> None:
    frames = framed(told(*"abcd"), done=False)
    odd = frames[0].replace(b'"a"', b'"%b"' % between)
    same(plan_of(PLAIN, client, "openai_chat"), [*frames, odd, *frames, odd, odd, *frames])


def test_the_text_leaves_in_the_bytes_of_its_host() -> None:
    mender = Mender(plan=plan_of(PLAIN, "anthropic", "openai_chat"))
    frames = framed(told(*"ab"), done=False)
    for frame in frames:
        mender.feed(frame)
    out = mender.feed(frames[0].replace(b'"a"', b'"\\u00e9 \\/ \xc3\xa9"'))
    assert out == (
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"\\u00e9 \\/ \xc3\xa9"}}\n\n'
    )


def test_what_is_held_back_leaves_with_the_text_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ("a", "b <", "|", "c", " <", "d")
    frames, plan = framed(told(*texts), done=False), plan_of(PLAIN, "anthropic", "openai_chat")
    assert taken(lambda: Telling(plan, frames), monkeypatch) == len(texts) - 1
    steps = Telling(plan, frames).steps
    pieces = ["".join(payload["delta"].get("text", "") for _, payload in step if "delta" in payload) for step in steps]
    assert pieces[:-1] == ["a", "b ", "", "<|c", " ", "<d"]


def test_a_comment_does_not_close_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = framed(told(*"abcd"), done=False)
    plan = plan_of(PLAIN, "anthropic", "openai_chat")
    frames[2:2] = [b": still here\n\n"]
    assert taken(lambda: mended(plan, frames), monkeypatch) == 3


def mended(plan: Any, frames: list[bytes]) -> bytes:
    mender = Mender(plan=plan)
    return b"".join([*map(mender.feed, frames), mender.flush()])


def test_a_stream_with_stages_goes_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loud:
        def feed(self, event: Event) -> list[Event]:
            return [BlockDelta(event.index, event.text.upper())] if isinstance(event, BlockDelta) else [event]

        def flush(self) -> list[Event]:
            return []

    class Shouting:
        def prepare(self, request: Request) -> Request:
            return request

        def stages(self, plan: Any) -> list[Any]:
            return [Loud()]

    plan = plan_of(PLAIN, "anthropic", "openai_chat")
    plan._transformers = (Shouting(),)
    out: list[bytes] = []
    frames = framed([*told(*"abcd"), chunk({}, "stop")])
    assert taken(lambda: out.append(mended(plan, frames)), monkeypatch) == 0
    assert "".join(payload["delta"]["text"] for _, payload in events(out[0]) if "text" in payload.get("delta", {})) == (
        "ABCD"
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_a_second_answer_goes_on_behind_the_first(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    thought = framed([*told("H", "m", ".", field="reasoning_content"), chunk({}, "stop")])
    answer = framed([*told("H", "m", "!", field="reasoning_content"), *told("Y", "e", "s <"), chunk({}, "stop")])

    def told_twice() -> tuple[list[Any], Any, Any]:
        mender = Mender(plan=plan_of(PLAIN, client, "openai_chat"), hold_empty=True)
        out = b"".join(map(mender.feed, thought))
        mender.start_retry()
        out += b"".join([*map(mender.feed, answer), mender.flush()])
        return events(out), mender.message, mender.ending

    assert taken(told_twice, monkeypatch) == 6
    short = told_twice()
    monkeypatch.setattr(TranslatingFastPath, "settle", lambda self, *, is_idle: None)
    assert told_twice() == short


@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_that_is_put_together_is_the_same_by_both_ways(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = framed(
        [*told("H", "m", field="reasoning_content"), *told("I", " run", *split_text(CALL, 4)), chunk({}, "stop")]
    )

    def whole() -> tuple[bytes, Any]:
        reading = read_reply(plan_of(Setting(), client, "openai_chat"), input_format="sse", output_format="json")
        assert b"".join(map(reading.feed, frames)) == b""
        return reading.flush(), reading.message

    assert taken(whole, monkeypatch) > 10
    short = whole()
    monkeypatch.setattr(TranslatingFastPath, "settle", lambda self, *, is_idle: None)
    assert whole() == short


def test_a_broken_off_answer_ends_behind_what_was_read_at_a_glance() -> None:
    mender = Mender(plan=plan_of(PLAIN, "openai_responses", "openai_chat"))
    out = b"".join(map(mender.feed, framed(told("a", "b", "c <"), done=False)))
    out += mender.fail(Problem(status=502, kind="server", message="gone"))
    numbers = [payload["sequence_number"] for _, payload in events(out)]
    assert numbers == list(range(len(numbers)))
    (done,) = [payload["text"] for _, payload in events(out) if payload["type"] == "response.output_text.done"]
    assert done == "abc <"
    assert mender.feed(framed(told("d"))[0]) == b""


BETWEEN_BLOCKS: Final[dict[str, list[dict[str, Any]]]] = {
    "a marker that goes on over the end of a block": [
        _start(0, type="text", text=""),
        *(_delta(0, type="text_delta", text=text) for text in ("a", "b", "c", " <|tool_calls")),
        {"type": "content_block_stop", "index": 0},
        _start(1, type="text", text=""),
        *(_delta(1, type="text_delta", text=text) for text in ("_section_begin|>", "<|tool_calls_section_end|>", "d")),
        *(_delta(1, type="text_delta", text=text) for text in "efg"),
        {"type": "content_block_stop", "index": 1},
    ],
    "a block that begins anew as one that nobody knows": [
        _start(0, type="text", text=""),
        *(_delta(0, type="text_delta", text=text) for text in "abc"),
        _start(0, type="server_tool_use", id="s", name="x"),
        *(_delta(0, type="text_delta", text=text) for text in "def"),
        {"type": "content_block_stop", "index": 0},
    ],
}


@pytest.mark.parametrize("client", CLIENT_DIALECTS)
@pytest.mark.parametrize("case", BETWEEN_BLOCKS)
def test_both_ways_tell_the_same_of_blocks_that_belong_together_or_do_not(case: str, client: str) -> None:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "k", "content": []}
    ending: list[dict[str, Any]] = [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    payloads: list[dict[str, Any]] = [{"type": "message_start", "message": message}, *BETWEEN_BLOCKS[case], *ending]
    frames = [render_sse(dump_json(one), b"event: %b\n" % one["type"].encode()) for one in payloads]
    same(plan_of(PLAIN, client, "anthropic"), frames)


# -- what dialects promise ---------------------------------------------------------------------------------------


def _filled(value: Any, text: str, number: int) -> Any:
    return json.loads(encode(value).replace(encode(TEXT), encode(text)).replace(encode(NUMBER), encode(number)))


BLOCKS: Final[dict[str, BlockOpened]] = {
    "text": BlockOpened(0, "text"),
    "reasoning": BlockOpened(0, "reasoning"),
    "call": BlockOpened(0, "call", "c1", "ls"),
}


@pytest.mark.parametrize("client", CLIENT_DIALECTS)
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_template_says_what_feed_would_say(kind: str, client: str) -> None:
    encoders: list[Encoder] = [dialect_named(client).encoder(ResponseContext(model="m")) for _ in range(2)]
    for encoder in encoders:
        for event in (Started("chatcmpl-1"), BLOCKS[kind], BlockDelta(0, '{"a')):
            encoder.feed(event)
    one, other = encoders
    template = one.template(0)
    assert template is not None
    for text in ('": "', "é\n", '"}'):
        number = 0 if template.count is None else template.count(text)
        assert [_filled(template.payload, text, number)] == other.feed(BlockDelta(0, text))
    for ending in (BlockClosed(0), Finished("stop")):
        assert one.feed(ending) == other.feed(ending)


CUSTOM: Final = ResponseContext(model="m", tools={"ls": Tool("ls", kind="custom")})


@pytest.mark.parametrize(
    ("client", "reply", "before"),
    [
        ("anthropic", ResponseContext(model="m"), [BLOCKS["text"]]),
        ("anthropic", ResponseContext(model="m"), [BLOCKS["call"], BlockDelta(0, " ")]),
        (
            "anthropic",
            ResponseContext(model="m"),
            [BlockOpened(1, "call", "c2", "ls"), BlockDelta(1, "{"), BLOCKS["call"], BlockDelta(0, "{")],
        ),
        (
            "anthropic",
            ResponseContext(model="m"),
            [
                BLOCKS["text"],
                BlockDelta(0, "a"),
                Opaque({"type": "content_block_start", "index": 3, "content_block": {"type": "x"}}),
            ],
        ),
        ("openai_responses", ResponseContext(model="m"), [BLOCKS["reasoning"]]),
        ("openai_responses", CUSTOM, [BLOCKS["call"], BlockDelta(0, '{"input": "a')]),
        ("openai_chat", CUSTOM, [BLOCKS["call"], BlockDelta(0, '{"input": "a')]),
    ],
)
def test_where_the_next_piece_takes_more_there_is_no_template(
    client: str, reply: ResponseContext, before: list[Event]
) -> None:
    encoder = dialect_named(client).encoder(reply)
    for event in before:
        encoder.feed(event)
    assert encoder.template(0) is None


def test_who_collects_events_wants_them_all() -> None:
    assert EventCollector().template(0) is None


CALLED: Final = _start(0, type="tool_use", id="t", name="ls", input={})
INPUT: Final = _delta(0, type="input_json_delta", partial_json='{"a')
ONLY: Final[list[tuple[str, list[dict[str, Any]], OnlyText | None]]] = [
    ("anthropic", [_delta(0, type="text_delta", text="a")], OnlyText(("delta", "text"), "text")),
    ("anthropic", [_delta(0, type="thinking_delta", thinking="a")], OnlyText(("delta", "thinking"), "reasoning")),
    ("anthropic", [CALLED, INPUT], OnlyText(("delta", "partial_json"), None, 0)),
    ("anthropic", [CALLED, _delta(0, type="input_json_delta", partial_json=" ")], None),
    ("anthropic", [_start(0, type="tool_use", id="t", name="ls", input={"b": 1}), _delta(0, partial_json="{")], None),
    ("anthropic", [_delta(0, text="a")], None),
    ("anthropic", [_delta(0, type="text_delta", text="")], None),
    ("anthropic", [_delta(0, type="signature_delta", signature="a")], None),
    ("anthropic", [_start(0, type="server_tool_use"), _delta(0, type="text_delta", text="a")], None),
    ("anthropic", [{"type": "ping"}], None),
    ("openai_responses", [{"type": "response.output_text.delta", "delta": "a"}], None),
    ("openai_chat", told("a"), OnlyText(("choices", 0, "delta", "content"), "text")),
]


@pytest.mark.parametrize(("upstream", "payloads", "only"), ONLY)
def test_a_decoder_knows_where_the_only_text_of_a_payload_stands(
    upstream: str, payloads: list[dict[str, Any]], only: OnlyText | None
) -> None:
    decoder = dialect_named(upstream).decoder()
    for payload in payloads:
        decoder.feed(payload)
    assert decoder.only_text(payloads[-1]) == only
