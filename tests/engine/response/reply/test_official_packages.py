"""What becomes a stream, and what breaks off, served on a real socket and read by the official packages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from anthropic import Anthropic, APIStatusError
from openai import APIError, OpenAI

from moonshim.engine.response.reply import read_reply
from moonshim.errors import Problem
from tests.engine.response.reply.asking import NAME, UPSTREAMS, answer_of, as_form, plan_for_pair, read
from tests.engine.response.reply.test_again import asked_again

STALLED: Final = Problem(status=504, kind="timeout", message="nothing came for 120 s", code="upstream_stalled")
MESSAGES: Final[list[Any]] = [{"role": "user", "content": "hi"}]


class Server:
    """Answers every request with these bytes."""

    def __init__(self) -> None:
        server = self
        self.body, self.kind = b"", "text/event-stream"

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-type", server.kind)
                self.send_header("content-length", str(len(server.body)))
                self.end_headers()
                self.wfile.write(server.body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        address = f"http://127.0.0.1:{self._server.server_port}"
        self.openai = OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        self.anthropic = Anthropic(base_url=address, api_key="none", max_retries=0)

    def close(self) -> None:
        self.openai.close()
        self.anthropic.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


def served(client: str, upstream: str, way: str) -> bytes:
    if way == "asked again":
        return asked_again(client, upstream, "sse", "sse")[0]
    data = as_form(answer_of(upstream, calls=2), "json")
    return read(plan_for_pair(client, upstream), data, "json", "sse")[0]


@pytest.mark.parametrize("way", ["from a whole answer", "asked again"])
@pytest.mark.parametrize("upstream", UPSTREAMS)
class TestStreams:
    def test_openai_reads_chat(self, server: Server, upstream: str, way: str) -> None:
        server.body = served("openai_chat", upstream, way)
        with server.openai.chat.completions.stream(model=NAME, messages=MESSAGES) as stream:
            completion = stream.get_final_completion()
        (choice,) = completion.choices
        assert (completion.model, choice.finish_reason, choice.message.content) == (NAME, "tool_calls", "Look.")
        called = [json.loads(call.function.arguments) for call in choice.message.tool_calls or ()]
        assert called[0] == {"n": 0}
        assert completion.usage is not None
        assert completion.usage.prompt_tokens == 3

    def test_openai_reads_responses(self, server: Server, upstream: str, way: str) -> None:
        server.body = served("openai_responses", upstream, way)
        with server.openai.responses.stream(model=NAME, input="hi") as stream:
            response = stream.get_final_response()
        assert (response.model, response.status, response.output_text) == (NAME, "completed", "Look.")
        assert [item.type for item in response.output].count("function_call") >= 1

    def test_anthropic_reads_messages(self, server: Server, upstream: str, way: str) -> None:
        server.body = served("anthropic", upstream, way)
        with server.anthropic.messages.stream(model=NAME, messages=MESSAGES, max_tokens=9) as stream:
            message = stream.get_final_message()
        assert (message.model, message.stop_reason) == (NAME, "tool_use")
        called = [block.input for block in message.content if block.type == "tool_use"]
        assert called[0] == {"n": 0}
        assert "Look." in [block.text for block in message.content if block.type == "text"]


def broken(client: str) -> bytes:
    reading = read_reply(plan_for_pair(client), input_format="sse", output_format="sse")
    data = answer_of("openai_chat").stream
    return reading.feed(data[: len(data) // 2]) + reading.fail(STALLED)


def test_openai_raises_what_broke_off_in_chat(server: Server) -> None:
    server.body = broken("openai_chat")
    with pytest.raises(APIError, match="nothing came") as caught:
        list(server.openai.chat.completions.create(model=NAME, messages=MESSAGES, stream=True))
    assert caught.value.code == "upstream_stalled"
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["status"] == 504


def test_openai_sees_a_response_that_failed(server: Server) -> None:
    server.body = broken("openai_responses")
    *_, last = server.openai.responses.create(model=NAME, input="hi", stream=True)
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert (last.response.error.code, last.response.error.message) == ("server_error", STALLED.message)


def test_anthropic_raises_what_broke_off_in_messages(server: Server) -> None:
    server.body = broken("anthropic")
    with pytest.raises(APIStatusError, match="nothing came") as caught:
        list(server.anthropic.messages.create(model=NAME, messages=MESSAGES, max_tokens=9, stream=True))
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"]["type"] == "timeout_error"


def test_gathered_answers_are_read_as_whole_ones(server: Server) -> None:
    server.kind = "application/json"
    try:
        for upstream in UPSTREAMS:
            stream = answer_of(upstream).stream
            server.body = read(plan_for_pair("openai_chat", upstream), stream, "sse", "json")[0]
            completion = server.openai.chat.completions.create(model=NAME, messages=MESSAGES)
            assert (completion.model, completion.choices[0].message.content) == (NAME, "Look.")
            server.body = read(plan_for_pair("anthropic", upstream), stream, "sse", "json")[0]
            message = server.anthropic.messages.create(model=NAME, messages=MESSAGES, max_tokens=9)
            assert (message.model, message.stop_reason) == (NAME, "tool_use")
            server.body = read(plan_for_pair("openai_responses", upstream), stream, "sse", "json")[0]
            response = server.openai.responses.create(model=NAME, input="hi")
            assert (response.model, response.output_text) == (NAME, "Look.")
    finally:
        server.kind = "text/event-stream"
