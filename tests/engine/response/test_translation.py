"""The official packages as clients, on a real socket: each dialect over each upstream, streaming and not.

The upstream leaks its calls as markers, or sends the input of a call twice. The client
must see an ordinary answer, and what it sends back must be what the host wants.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from anthropic import Anthropic
from openai import OpenAI

from moonshim import Mender, mend_response, prepare_request
from moonshim.engine.prepare import Prepared
from tests.support.streams import chunk, sse

PATHS: Final = {
    "/v1/chat/completions": "openai_chat",
    "/v1/messages": "anthropic",
    "/v1/responses": "openai_responses",
}
SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
MARKED: Final = (
    "Look.<|tool_calls_section_begin|>"
    '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>'
    '<|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{"city": "北京"}<|tool_call_end|>'
    "<|tool_calls_section_end|>"
)
CITIES: Final = [{"city": "Paris"}, {"city": "北京"}]
USAGE: Final = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "cached_tokens": 4}


def chat_stream() -> bytes:
    chunks = [chunk({"role": "assistant"}), chunk({"reasoning": "Which "}), chunk({"reasoning": "city?"})]
    chunks += [chunk({"content": MARKED[at : at + 5]}) for at in range(0, len(MARKED), 5)]
    chunks += [chunk({}, finish="stop"), {**chunk({}), "choices": [], "usage": USAGE}]
    return sse(chunks)


def chat_body() -> dict[str, Any]:
    message = {"role": "assistant", "reasoning": "Which city?", "content": MARKED}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 7,
        "model": "k",
        "choices": [choice],
        "usage": USAGE,
    }


def _event(**payload: Any) -> bytes:
    return f"event: {payload['type']}\ndata: {json.dumps(payload)}\n\n".encode()


def messages_stream() -> bytes:
    start: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "k",
        "content": [],
        "stop_reason": None,
    }
    usage = {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 1}
    out = _event(type="message_start", message={**start, "usage": usage})
    out += _event(type="content_block_start", index=0, content_block={"type": "thinking", "thinking": ""})
    out += _event(type="content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Which city?"})
    out += _event(
        type="content_block_delta", index=0, delta={"type": "signature_delta", "signature": "b3duLXNpZ25hdHVyZQ"}
    )
    out += _event(type="content_block_stop", index=0)
    out += _event(type="content_block_start", index=1, content_block={"type": "text", "text": ""})
    out += _event(type="content_block_delta", index=1, delta={"type": "text_delta", "text": "Look."})
    out += _event(type="content_block_stop", index=1)
    for place, city in enumerate(CITIES, 2):
        use = {"type": "tool_use", "id": f"toolu_{place}", "name": "get_weather", "input": city}
        out += _event(type="content_block_start", index=place, content_block=use)
        part = {"type": "input_json_delta", "partial_json": json.dumps(city)}
        out += _event(type="content_block_delta", index=place, delta=part)
        out += _event(type="content_block_stop", index=place) * 2
    out += _event(type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5})
    return out + _event(type="message_stop")


def messages_body() -> dict[str, Any]:
    uses = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": "get_weather", "input": city}
        for n, city in enumerate(CITIES, 2)
    ]
    thought = {"type": "thinking", "thinking": "Which city?", "signature": "b3duLXNpZ25hdHVyZQ"}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "k",
        "content": [thought, {"type": "text", "text": "Look."}, *uses],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 5},
    }


STREAMS: Final = {"openai_chat": chat_stream, "anthropic": messages_stream}
BODIES: Final = {"openai_chat": chat_body, "anthropic": messages_body}


class Gateway:
    """The least that a gateway is: prepare, ask, mend. The host is a script."""

    def __init__(self) -> None:
        gateway = self
        self.upstream = "openai_chat"
        self.asked: list[Prepared] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                kind, data = gateway.answer(PATHS[self.path.partition("?")[0]], body)
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        address = f"http://127.0.0.1:{self._server.server_port}"
        self.openai = OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        self.anthropic = Anthropic(base_url=address, api_key="none", max_retries=0)

    def answer(self, dialect: str, body: dict[str, Any]) -> tuple[str, bytes]:
        prepared = prepare_request(
            body, dialect=dialect, upstream=self.upstream, host="generic", model="kimi-k2.5", secret=b"test", created=7
        )
        self.asked.append(prepared)
        if not body.get("stream"):
            mended = mend_response(BODIES[self.upstream](), plan=prepared.plan)
            return "application/json", json.dumps(mended.body).encode()
        mender, came = Mender(plan=prepared.plan), STREAMS[self.upstream]()
        out = b"".join(mender.feed(came[at : at + 7]) for at in range(0, len(came), 7)) + mender.flush()
        return "text/event-stream", out

    def close(self) -> None:
        self.openai.close()
        self.anthropic.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    served = Gateway()
    yield served
    served.close()


upstreams = pytest.mark.parametrize("upstream", STREAMS)
streaming = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@upstreams
@streaming
def test_the_openai_package_speaks_chat(gateway: Gateway, upstream: str, stream: bool) -> None:
    gateway.upstream = upstream
    tools: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "user", "content": "Weather?"}]
    create = gateway.openai.chat.completions
    if stream:
        options: Any = {"include_usage": True}
        with create.stream(model="claude-x", messages=messages, tools=tools, stream_options=options) as events:
            answer: Any = events.until_done().get_final_completion()
    else:
        answer = create.create(model="claude-x", messages=messages, tools=tools)
    (choice,) = answer.choices
    assert answer.model == "claude-x" or upstream == "openai_chat"
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Look."
    assert [json.loads(call.function.arguments) for call in choice.message.tool_calls] == CITIES
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 5)
    said: Any = choice.message.to_dict()
    assert said.get("reasoning_content", said.get("reasoning")) == "Which city?"
    results: list[Any] = [
        {"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in choice.message.tool_calls
    ]
    create.create(model="claude-x", messages=[*messages, said, *results], tools=tools)
    _check_second_round(gateway, upstream)


@upstreams
@streaming
def test_the_anthropic_package_speaks_messages(gateway: Gateway, upstream: str, stream: bool) -> None:
    gateway.upstream = upstream
    tools: Any = [{"name": "get_weather", "input_schema": SCHEMA}]
    asked: dict[str, Any] = {"model": "claude-x", "max_tokens": 99, "tools": tools}
    messages: list[Any] = [{"role": "user", "content": "Weather?"}]
    if stream:
        with gateway.anthropic.messages.stream(messages=messages, **asked) as events:
            answer: Any = events.get_final_message()
    else:
        answer = gateway.anthropic.messages.create(messages=messages, **asked)
    assert answer.model == "claude-x"
    assert answer.stop_reason == "tool_use"
    thought, text, *uses = answer.content
    assert (thought.type, thought.thinking, text.text) == ("thinking", "Which city?", "Look.")
    assert thought.signature
    assert [use.input for use in uses] == CITIES
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens, answer.usage.output_tokens) == (6, 4, 5)
    results = [{"type": "tool_result", "tool_use_id": use.id, "content": "sun"} for use in uses]
    said = [block.to_dict() for block in answer.content]
    again = [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": results}]
    gateway.anthropic.messages.create(messages=again, **asked)
    _check_second_round(gateway, upstream)


@upstreams
@streaming
def test_the_openai_package_speaks_responses(gateway: Gateway, upstream: str, stream: bool) -> None:
    gateway.upstream = upstream
    tools: Any = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}]
    asked: dict[str, Any] = {"model": "claude-x", "tools": tools, "store": False}
    create = gateway.openai.responses
    items: list[Any] = [{"role": "user", "content": "Weather?"}]
    if stream:
        with create.stream(input=items, include=["reasoning.encrypted_content"], **asked) as events:
            answer: Any = events.until_done().get_final_response()
    else:
        answer = create.create(input=items, include=["reasoning.encrypted_content"], **asked)
    assert (answer.model, answer.status) == ("claude-x", "completed")
    thought, message, *calls = answer.output
    assert thought.summary[0].text == "Which city?"
    assert thought.encrypted_content.startswith("moonshim1.")
    assert message.content[0].text == "Look."
    assert [json.loads(call.arguments) for call in calls] == CITIES
    assert (answer.usage.input_tokens, answer.usage.input_tokens_details.cached_tokens) == (10, 4)
    said: list[Any] = [item.to_dict() for item in answer.output]
    # Codex echoes the item with what it may not read; the summary alone would do, too.
    said[0]["summary"] = []
    results: list[Any] = [{"type": "function_call_output", "call_id": call.call_id, "output": "sun"} for call in calls]
    create.create(input=[*items, *said, *results], **asked)
    _check_second_round(gateway, upstream)


def _check_second_round(gateway: Gateway, upstream: str) -> None:
    """The host gets its own words back: identifiers, reasoning under its own name, its own signature."""
    sent = gateway.asked[-1].body["messages"]
    if upstream == "openai_chat":
        ai = next(message for message in sent if message["role"] == "assistant")
        assert [call["id"] for call in ai["tool_calls"]] == ["functions.get_weather:0", "functions.get_weather:1"]
        assert ai["reasoning"] == "Which city?"
        assert ai["content"] == "Look."
        assert [one["tool_call_id"] for one in sent if one["role"] == "tool"] == [
            call["id"] for call in ai["tool_calls"]
        ]
    else:
        thought, text, *uses = sent[1]["content"]
        assert thought == {"type": "thinking", "thinking": "Which city?", "signature": "b3duLXNpZ25hdHVyZQ"}
        assert text["text"] == "Look."
        assert [use["input"] for use in uses] == CITIES
        assert [one["tool_use_id"] for one in sent[2]["content"]] == [use["id"] for use in uses]
    assert "moonshim1." not in json.dumps(sent)


def test_clean_messages_leave_byte_for_byte() -> None:
    came = messages_stream().replace(b"end_turn", b"tool_use")
    stop = b'event: content_block_stop\ndata: {"type": "content_block_stop", "index": %d}\n\n'
    for place in (2, 3):
        came = came.replace(stop % place * 2, stop % place)
    # Without the copies in the starts.
    for city in CITIES:
        came = came.replace(b'"input": ' + json.dumps(city).encode(), b'"input": {}')
    body = {"model": "k", "max_tokens": 9, "messages": [{"role": "user", "content": "Weather?"}]}
    body["tools"] = [{"name": "get_weather", "input_schema": SCHEMA}]
    prepared = prepare_request(body, dialect="anthropic", upstream="anthropic", host="generic")
    for size in (1, 7, 100, len(came)):
        mender = Mender(plan=prepared.plan)
        out = b"".join(mender.feed(came[at : at + size]) for at in range(0, len(came), size)) + mender.flush()
        assert out == came
