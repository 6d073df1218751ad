"""What every dialect promises to the fast path: templates of the next payload, and where the only text of one is."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from moonshim.engine.dialects.protocol import NUMBER, TEXT, Encoder, ResponseContext
from moonshim.engine.dialects.registry import CLIENT_DIALECTS, dialect_named
from moonshim.engine.upstream_events import OnlyText
from moonshim.engine.values.conversation import Tool
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Finished, Opaque, Started
from moonshim.engine.wire.json_codec import encode
from tests.support.streams import chunk


def _delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _filled(value: Any, text: str, number: int) -> Any:
    return json.loads(encode(value).replace(encode(TEXT), encode(text)).replace(encode(NUMBER), encode(number)))


BLOCKS: Final[dict[str, BlockOpened]] = {
    "text": BlockOpened(0, "text"),
    "reasoning": BlockOpened(0, "reasoning"),
    "call": BlockOpened(0, "call", "c1", "ls"),
}


@pytest.mark.parametrize("client", CLIENT_DIALECTS)
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_template_gives_what_feed_would_give(kind: str, client: str) -> None:
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
]


@pytest.mark.parametrize(("upstream", "payloads", "only"), ONLY)
def test_a_decoder_knows_where_the_only_text_of_a_payload_is(
    upstream: str, payloads: list[dict[str, Any]], only: OnlyText | None
) -> None:
    decoder = dialect_named(upstream).decoder()
    for payload in payloads:
        decoder.feed(payload)
    assert decoder.only_text(payloads[-1]) == only


# -- Chat --------------------------------------------------------------------------------------------------------------


def arguments(text: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 1, "function": {"arguments": text}, **more}]}


CONTENT: Final = OnlyText(("choices", 0, "delta", "content"), "text")
ONLY_IN_CHUNK: Final[dict[str, tuple[dict[str, Any], OnlyText]]] = {
    "content": ({"content": "a"}, CONTENT),
    "content beside empty fields": ({"content": "a", "reasoning": None, "refusal": "", "tool_calls": []}, CONTENT),
    "content beside a field that was reported": ({"content": "a", "invented": 1}, CONTENT),
    "reasoning_content": (
        {"reasoning_content": "a"},
        OnlyText(("choices", 0, "delta", "reasoning_content"), "reasoning"),
    ),
    "reasoning": ({"reasoning": "a"}, OnlyText(("choices", 0, "delta", "reasoning"), "reasoning")),
    "arguments": (
        arguments('{"a'),
        OnlyText(("choices", 0, "delta", "tool_calls", 0, "function", "arguments"), None, 1),
    ),
}


@pytest.mark.parametrize("case", ONLY_IN_CHUNK)
def test_a_chunk_of_one_text_has_it_in_one_place(case: str) -> None:
    delta, only = ONLY_IN_CHUNK[case]
    decoder = dialect_named("openai_chat").decoder()
    decoder.feed(chunk(delta))
    assert decoder.only_text(chunk(delta)) == only


MORE_IN_CHUNK: Final[dict[str, dict[str, Any]]] = {
    "no text": chunk({}),
    "a role": chunk({"role": "assistant"}),
    "a role beside the text": chunk({"role": "assistant", "content": "a"}),
    "an empty text": chunk({"content": ""}),
    "two texts": chunk({"content": "a", "reasoning": "b"}),
    "two copies of the reasoning": chunk({"reasoning": "a", "reasoning_content": "a"}),
    "reasoning in details": chunk({"reasoning_details": [{"text": "a"}]}),
    "text beside details": chunk({"content": "a", "reasoning_details": [{"data": "a"}]}),
    "a refusal": chunk({"refusal": "No."}),
    "content as a list": chunk({"content": [{"type": "text", "text": "a"}]}),
    "the old form of a call": chunk({"function_call": {"arguments": "{"}}),
    "a finish reason": chunk({"content": "a"}, "stop"),
    "a finish reason in the delta": chunk({"content": "a", "finish_reason": "stop"}),
    "usage": chunk({"content": "a"}, usage={"total_tokens": 1}),
    "usage in the choice": {"choices": [{"index": 0, "delta": {"content": "a"}, "usage": {"total_tokens": 1}}]},
    "an error": chunk({"content": "a"}, error={"message": "no"}),
    "another choice": {"choices": [{"index": 1, "delta": {"content": "a"}}]},
    "no index": {"choices": [{"delta": {"content": "a"}}]},
    "two choices": {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]},
    "no choices": {"choices": []},
    "choices of another type": {"choices": "x"},
    "a choice of another type": {"choices": [7]},
    "a delta of another type": {"choices": [{"index": 0, "delta": None}]},
    "a header of a call": chunk(arguments("{", id="x")),
    "a call with a name": chunk({"tool_calls": [{"index": 0, "function": {"name": "ls", "arguments": "{"}}]}),
    "a call with other fields": chunk(arguments("{", cache=1)),
    "a call without an index": chunk({"tool_calls": [{"function": {"arguments": "{"}}]}),
    "two calls": chunk({"tool_calls": [*arguments("{")["tool_calls"], *arguments("}")["tool_calls"]]}),
    "a call beside text": chunk({"content": "a", **arguments("{")}),
}


@pytest.mark.parametrize("case", MORE_IN_CHUNK)
def test_a_chunk_that_may_say_more_is_parsed(case: str) -> None:
    decoder = dialect_named("openai_chat").decoder()
    decoder.feed(MORE_IN_CHUNK[case])
    assert decoder.only_text(MORE_IN_CHUNK[case]) is None
