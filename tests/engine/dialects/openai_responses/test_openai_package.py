"""Answers, served on a real socket and read by the official openai package."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from openai import BadRequestError, OpenAI
from openai.types.responses import Response

from moonshim.engine.dialects.openai_responses import OPENAI_RESPONSES
from moonshim.engine.dialects.protocol import ResponseContext
from moonshim.engine.signing import Signer
from moonshim.engine.values.conversation import Reasoning, Text, ToolCall, ToolResult, Usage
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    Event,
    Failed,
    Finished,
    Started,
)
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.errors import Problem

Json = dict[str, Any]

SEALER: Final = Signer(b"k")
TOOLS: Final[list[Any]] = [
    {"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}, "strict": False},
    {"type": "custom", "name": "apply_patch", "description": "Edit."},
    {
        "type": "namespace",
        "name": "github",
        "description": "Hub.",
        "tools": [{"type": "function", "name": "search", "parameters": {"type": "object"}}],
    },
]
USAGE: Final = Usage(10, 5, 8, 3)
ANSWER: Final[list[Event]] = [
    Started("chatcmpl-1", "host", 1_700_000_000),
    BlockOpened(0, "reasoning"),
    BlockDelta(0, "Let me "),
    BlockDelta(0, "see."),
    BlockSigned(0, "sig"),
    BlockClosed(0),
    BlockOpened(1, "text"),
    BlockDelta(1, "Look"),
    BlockDelta(1, "ing."),
    BlockClosed(1),
    BlockOpened(2, "call", "functions.ls:0", "ls"),
    BlockOpened(3, "call", "functions.github__search:1", "github__search"),
    BlockDelta(3, "{}"),
    BlockDelta(2, '{"path": '),
    BlockDelta(2, '"."}'),
    BlockClosed(2),
    BlockClosed(3),
    BlockOpened(4, "call", "functions.apply_patch:2", "apply_patch"),
    BlockDelta(4, '{"input": "*** Begin'),
    BlockDelta(4, '\\n*** End"}'),
    BlockClosed(4),
    Finished("tool_calls", "tool_calls", usage=USAGE),
]


class Host:
    """Reads each request, and answers it with these events, as a stream or whole."""

    def __init__(self) -> None:
        host = self
        self.events: list[Event] = []
        self.problem: Problem | None = None
        self.bodies: list[Json] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = decode_object(self.rfile.read(int(self.headers["content-length"])))
                assert body is not None
                host.bodies.append(body)
                status, kind, data = host.answer(body)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.client = OpenAI(base_url=f"http://127.0.0.1:{self._server.server_port}/v1", api_key="none", max_retries=0)

    def answer(self, body: Json) -> tuple[int, str, bytes]:
        if self.problem is not None:
            return self.problem.status, "application/json", encode(OPENAI_RESPONSES.render_problem(self.problem))
        request, _ = OPENAI_RESPONSES.parse_request(body, SEALER)
        tools = {tool.name: tool for tool in request.tools or ()}
        reply = ResponseContext(model=request.model, request=request, tools=tools, signer=SEALER)
        if not request.stream:
            return 200, "application/json", encode(OPENAI_RESPONSES.encode_response(self.events, reply))
        encoder = OPENAI_RESPONSES.encoder(reply)
        payloads = [payload for event in self.events for payload in encoder.feed(event)]
        frames = [b"event: " + one["type"].encode() + b"\ndata: " + encode(one) + b"\n\n" for one in payloads]
        return 200, "text/event-stream", b"".join(frames)

    def close(self) -> None:
        self.client.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    served = Host()
    yield served
    served.close()


def check(response: Response) -> None:
    reasoning, message, ls, search, patch = response.output
    assert reasoning.type == "reasoning"
    assert reasoning.summary[0].text == "Let me see."
    assert message.type == "message"
    assert response.output_text == "Looking."
    assert ls.type == "function_call"
    assert (ls.call_id, ls.name, ls.arguments) == ("functions.ls:0", "ls", '{"path": "."}')
    assert search.type == "function_call"
    assert (search.name, search.namespace) == ("search", "github")
    assert patch.type == "custom_tool_call"
    assert (patch.name, patch.input) == ("apply_patch", "*** Begin\n*** End")
    assert response.usage is not None
    assert (response.usage.total_tokens, response.usage.input_tokens_details.cached_tokens) == (15, 8)
    assert (response.status, response.model, response.id) == ("completed", "kimi", "resp_chatcmpl-1")


def test_a_stream_is_read_event_by_event(host: Host) -> None:
    host.events, host.problem = ANSWER, None
    with host.client.responses.create(model="kimi", input="go", tools=TOOLS, stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    check(events[-1].response)
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    free = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert (texts, free) == (["Look", "ing."], ["*** Begin", "\n*** End"])


def test_the_stream_helper_puts_it_together(host: Host) -> None:
    host.events, host.problem = ANSWER, None
    with host.client.responses.stream(model="kimi", input="go", tools=TOOLS) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"]
        check(stream.get_final_response())
    assert snapshots == ['{"path": ', '{"path": "."}', "{}"]


def test_a_whole_response_is_read(host: Host) -> None:
    host.events, host.problem = ANSWER, None
    check(host.client.responses.create(model="kimi", input="go", tools=TOOLS))


def test_everything_we_send_is_what_the_package_declares(host: Host) -> None:
    host.events, host.problem = ANSWER, None
    with host.client.responses.create(model="kimi", input="go", tools=TOOLS, stream=True) as stream:
        for event in stream:
            type(event).model_validate(event.model_dump(by_alias=True, exclude_unset=True))


def test_what_a_client_hands_back_is_what_was_said(host: Host) -> None:
    host.events, host.problem = ANSWER, None
    response = host.client.responses.create(model="kimi", input="go", tools=TOOLS)
    results: list[Any] = [{"type": "function_call_output", "call_id": "functions.ls:0", "output": "a.py"}]
    results.append({"type": "custom_tool_call_output", "call_id": "functions.apply_patch:2", "output": "done"})
    history: Any = [{"role": "user", "content": "go"}, *response.output, *results]
    host.client.responses.create(model="kimi", input=history, tools=TOOLS)
    request, changes = OPENAI_RESPONSES.parse_request(host.bodies[-1], SEALER)
    assert changes == []
    assert request.messages[1].parts == (
        Reasoning("Let me see.", "sig"),
        Text("Looking."),
        ToolCall("hist_tool_functionsls0", "ls", '{"path": "."}', "functions.ls:0"),
        ToolCall("hist_tool_functionsgithub__search1", "github__search", "{}", "functions.github__search:1"),
        ToolCall(
            "hist_tool_functionsapply_patch2",
            "apply_patch",
            '{"input":"*** Begin\\n*** End"}',
            "functions.apply_patch:2",
        ),
    )
    assert request.messages[3].parts == (
        ToolResult(
            "hist_tool_functionsapply_patch2", "apply_patch", (Text("done"),), wire_id="functions.apply_patch:2"
        ),
    )


@pytest.mark.parametrize(
    ("ending", "type"),
    [
        (Finished("length", "length", usage=USAGE), "response.incomplete"),
        (Failed("stream_ended", "It broke."), "response.failed"),
    ],
    ids=["the limit", "a failure"],
)
def test_an_answer_that_breaks_off_is_read(host: Host, ending: Event, type: str) -> None:
    host.events, host.problem = [BlockOpened(0, "text"), BlockDelta(0, "Hal"), ending], None
    with host.client.responses.stream(model="kimi", input="go") as stream:
        last = list(stream)[-1]
    assert last.type == type
    response = last.response  # type: ignore[union-attr]
    assert response.output_text == "Hal"
    assert (response.error is None) == (type == "response.incomplete")


def test_an_error_is_raised_with_its_code(host: Host) -> None:
    host.problem = Problem(status=400, kind="context_overflow", message="too long", param="input")
    with pytest.raises(BadRequestError) as raised:
        host.client.responses.create(model="kimi", input="go")
    assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "input")
