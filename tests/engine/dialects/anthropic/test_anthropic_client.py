"""What is encoded, served on a real socket and read by the official anthropic package."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from anthropic import Anthropic, APIStatusError, BadRequestError
from anthropic.types import Message as Answer

from moonshim.engine.assemble import replay
from moonshim.engine.dialects.anthropic.dialect import ANTHROPIC
from moonshim.engine.dialects.protocol import ResponseContext
from moonshim.engine.signing import Signer, is_signed
from moonshim.engine.values.conversation import Message, Reasoning, Text, ToolCall, Usage
from moonshim.engine.values.events import BlockDelta, BlockOpened, Event, Failed, Finished, Started
from moonshim.engine.wire.json_codec import encode
from moonshim.errors import Problem

Json = dict[str, Any]
REPLY: Final = ResponseContext(model="kimi-k3", signer=Signer(b"secret"))
ANSWER: Final = Message(
    "assistant",
    (
        Reasoning("Let me see.", field="reasoning_content"),
        Text("I look, 北京 🙂."),
        ToolCall("", "ls", '{"path": "src", "all": true}', "functions.ls:0"),
        ToolCall("", "now", "", "functions.now:1"),
    ),
)
USAGE: Final = Usage(input_tokens=100, output_tokens=20, cached_tokens=60, reasoning_tokens=5)
ENDED: Final = Finished("tool_calls", "tool_calls", None, USAGE)


def sse(payloads: list[Json]) -> bytes:
    """A stream as the gateway frames it for a dialect that names its events."""
    return b"".join(f"event: {one['type']}\ndata: ".encode() + encode(one) + b"\n\n" for one in payloads)


def stream(*events: Event) -> bytes:
    encoder = ANTHROPIC.encoder(REPLY)
    return sse([payload for event in events for payload in encoder.feed(event)])


class Host:
    """Serves these bytes to whoever asks for a message, and keeps what was asked."""

    def __init__(self) -> None:
        host = self
        self.status, self.kind, self.body = 200, "", b""
        self.asked: Json = {}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                host.asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(host.status)
                self.send_header("content-type", host.kind)
                self.send_header("content-length", str(len(host.body)))
                self.end_headers()
                self.wfile.write(host.body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.client = Anthropic(base_url=f"http://127.0.0.1:{self._server.server_port}", api_key="none", max_retries=0)

    def close(self) -> None:
        self.client.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def serve(self, body: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.body, self.kind, self.status = body, kind, status

    def final(self, body: bytes) -> Answer:
        """The message that the package puts together from a stream."""
        self.serve(body, "text/event-stream")
        with self.client.messages.stream(model="kimi-k3", max_tokens=9, messages=[]) as events:
            return events.get_final_message()


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    served = Host()
    yield served
    served.close()


def check(answer: Answer) -> None:
    thinking, text, ls, now = answer.content
    assert thinking.type == "thinking"
    assert thinking.thinking == "Let me see."
    assert is_signed(thinking.signature)
    assert text.type == "text"
    assert text.text == "I look, 北京 🙂."
    assert ls.type == now.type == "tool_use"
    assert (ls.id, ls.name, ls.input) == ("toolu_functions-ls-0", "ls", {"path": "src", "all": True})
    assert (now.id, now.name, now.input) == ("toolu_functions-now-1", "now", {})
    assert (answer.id, answer.model, answer.stop_reason) == ("msg_chatcmpl-1", "kimi-k3", "tool_use")
    usage = answer.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (40, 60, 20)


def test_the_package_reads_the_stream(host: Host) -> None:
    check(host.final(stream(Started("chatcmpl-1"), *replay(ANSWER), ENDED)))


def test_the_package_reads_arguments_character_by_character(host: Host) -> None:
    events: list[Event] = []
    for event in replay(ANSWER):
        if isinstance(event, BlockDelta):
            events += [BlockDelta(event.index, letter) for letter in event.text]
        else:
            events.append(event)
    check(host.final(stream(Started("chatcmpl-1"), *events, ENDED)))


def test_the_package_reads_the_whole_message(host: Host) -> None:
    host.serve(encode(ANTHROPIC.encode_response([Started("chatcmpl-1"), *replay(ANSWER), ENDED], REPLY)))
    check(host.client.messages.create(model="kimi-k3", max_tokens=9, messages=[]))


def test_the_package_reads_an_answer_of_nothing(host: Host) -> None:
    answer = host.final(stream(Finished("stop")))
    assert (answer.content, answer.stop_reason) == ([], "end_turn")


def test_the_package_raises_what_breaks_off(host: Host) -> None:
    with pytest.raises(APIStatusError) as caught:
        host.final(stream(BlockOpened(0, "text"), BlockDelta(0, "Hi"), Failed("engine_overloaded", "busy")))
    assert caught.value.body == {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}


def test_the_package_raises_a_problem(host: Host) -> None:
    problem = Problem(status=400, kind="context_overflow", message="too long", tokens=11, limit=10)
    host.serve(encode(ANTHROPIC.render_problem(problem)), status=400)
    with pytest.raises(BadRequestError, match="prompt is too long: 11 tokens > 10 maximum"):
        host.client.messages.create(model="kimi-k3", max_tokens=9, messages=[])


def test_what_the_package_sends_back_is_what_was_said(host: Host) -> None:
    answer = host.final(stream(Started("chatcmpl-1"), *replay(ANSWER), ENDED))
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "ok"}
        for block in answer.content
        if block.type == "tool_use"
    ]
    history: list[Any] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": results},
    ]
    host.serve(encode(ANTHROPIC.encode_response([Finished("stop")], REPLY)))
    host.client.messages.create(model="kimi-k3", max_tokens=9, messages=history)
    request, changes = ANTHROPIC.parse_request(host.asked, REPLY.signer)
    assert changes == []
    assert request.messages[1].parts[:2] == ANSWER.parts[:2]
    calls = [part for part in request.messages[1].parts if isinstance(part, ToolCall)]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [
        ("ls", {"path": "src", "all": True}),
        ("now", {}),
    ]
    assert "moonshim1." not in str(ANTHROPIC.render_request(request)[0])
