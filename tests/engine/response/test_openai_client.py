"""Mended streams, served on a real socket and read by the official openai package."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from openai import APIError, OpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from moonshim import KimiOptions, Mender, mend_response, prepare_request
from tests.support.looped import looped
from tests.support.streams import ReceivedCall, chunk, split_text, sse
from tests.support.vector_checks import Run, check_calls, same
from tests.support.vector_files import Vector, fields_of, name_of, vectors

SECTION: Final = (
    "Look.<|tool_calls_section_begin|>"
    '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>'
    '<|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{"city": "北京"}<|tool_call_end|>'
    "<|tool_calls_section_end|>"
)
USAGE: Final = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
WANTED: Final = [
    ReceivedCall("functions.get_weather:0", "get_weather", '{"city": "Paris"}'),
    ReceivedCall("functions.get_weather:1", "get_weather", '{"city": "北京"}'),
]


class Host:
    """Serves these bytes to whoever asks for a completion."""

    def __init__(self) -> None:
        host = self
        self.body = b""

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("content-length", str(len(host.body)))
                self.end_headers()
                self.wfile.write(host.body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.client = OpenAI(base_url=f"http://127.0.0.1:{self._server.server_port}/v1", api_key="none", max_retries=0)

    def close(self) -> None:
        self.client.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def stream(self, body: bytes) -> Iterator[ChatCompletionChunk]:
        """The chunks as the package parses them."""
        self.body = body
        with self.client.chat.completions.create(model="kimi-k2.5", messages=[], stream=True) as stream:
            yield from stream


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    served = Host()
    yield served
    served.close()


class Answer:
    """What somebody has who concatenates the deltas, as the package's own examples do."""

    def __init__(self, chunks: list[ChatCompletionChunk]) -> None:
        self.content = ""
        self.calls: list[ReceivedCall] = []
        self.usage: dict[str, Any] | None = None
        self.finish: str | None = None
        self.finish_chunk: ChatCompletionChunk | None = None
        for one in chunks:
            if one.usage is not None:
                self.usage = one.usage.model_dump(exclude_none=True)
            for choice in one.choices:
                self.content += choice.delta.content or ""
                for entry in choice.delta.tool_calls or ():
                    if entry.index == len(self.calls):
                        self.calls.append(ReceivedCall("", "", ""))
                    call, function = self.calls[entry.index], entry.function
                    call.id += entry.id or ""
                    if function is not None:
                        call.name += function.name or ""
                        call.arguments += function.arguments or ""
                if choice.finish_reason is not None:
                    self.finish, self.finish_chunk = choice.finish_reason, one


def marker_stream(size: int) -> bytes:
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in split_text(SECTION, size))]
    usage = {"choices": [], "usage": USAGE}
    return sse([*(chunk(delta) for delta in deltas), chunk({}, "stop"), {**chunk({}), **usage}])


def native_stream() -> bytes:
    entries = [
        {"index": place, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        for place, call in enumerate(WANTED)
    ]
    grown = [
        {"index": place, "function": {"arguments": piece}}
        for place, call in enumerate(WANTED)
        for piece in split_text(call.arguments, 4)
    ]
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": "Look."},
        *({"tool_calls": [entry]} for entry in entries + grown),
    ]
    return sse([*(chunk(delta) for delta in deltas), chunk({}, "tool_calls", usage=USAGE)])


def mended(data: bytes, options: KimiOptions | None = None) -> bytes:
    mender = Mender(model="kimi-k2.5", options=options)
    return mender.feed(data) + mender.flush()


@looped("size", [1, 5, 1000])
def test_calls_from_markers_arrive_once_with_their_usage(host: Host, size: int) -> None:
    answer = Answer(list(host.stream(mended(marker_stream(size)))))
    assert (answer.content, answer.calls, answer.finish) == ("Look.", WANTED, "tool_calls")
    assert answer.usage == USAGE


@pytest.mark.parametrize(
    "options", [KimiOptions(assemble_tool_deltas=True), KimiOptions.mending(assemble_tool_deltas=True)]
)
def test_the_assembled_summary_doubles_nothing(host: Host, options: KimiOptions) -> None:
    answer = Answer(list(host.stream(mended(native_stream(), options))))
    assert (answer.content, answer.calls, answer.finish) == ("Look.", WANTED, "tool_calls")
    assert answer.usage == USAGE
    assert answer.finish_chunk is not None
    choice = answer.finish_chunk.choices[0]
    assert not choice.delta.tool_calls
    told = (choice.model_extra or {})["message"]["tool_calls"]
    assert [ReceivedCall(one["id"], **one["function"]) for one in told] == WANTED


def test_the_assembled_summary_of_calls_from_markers_doubles_nothing(host: Host) -> None:
    answer = Answer(list(host.stream(mended(marker_stream(5), KimiOptions.mending(assemble_tool_deltas=True)))))
    assert (answer.calls, answer.usage) == (WANTED, USAGE)
    assert answer.finish_chunk is not None
    assert (answer.finish_chunk.choices[0].model_extra or {})["message"]["tool_calls"]


@pytest.mark.parametrize("assemble", [False, True])
def test_the_package_s_own_accumulator_has_each_argument_once(host: Host, assemble: bool) -> None:
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for one in host.stream(mended(marker_stream(5), KimiOptions.mending(assemble_tool_deltas=assemble))):
        state.handle_chunk(one)
    whole = state.get_final_completion()
    calls = whole.choices[0].message.tool_calls or []
    assert [ReceivedCall(call.id, call.function.name, call.function.arguments) for call in calls] == WANTED
    assert whole.usage is not None
    assert whole.usage.model_dump(exclude_none=True) == USAGE


def test_an_error_event_is_an_exception(host: Host) -> None:
    with pytest.raises(APIError, match="broke off"):
        list(host.stream(mended(sse([chunk({"content": "Hi"}), chunk({}, "engine_overloaded")]))))


def readable_fields(vector: Vector) -> list[str]:
    """Where the text can be for the package to read it: in one choice, in a field that it knows."""
    if vector.framing != "sse" or not vector.expect.balanced or vector.expect.others or vector.row == "r34":
        return []
    return [field for field in fields_of(vector) if field in ("content", "reasoning_content", "")]


@pytest.mark.parametrize("vector", [one for one in vectors() if readable_fields(one)], ids=name_of)
@looped("field", readable_fields)
def test_the_package_reads_every_mended_vector(host: Host, vector: Vector, field: str) -> None:
    expect, body = vector.expected_in(field), Run(vector, [vector.stream(field, 3)]).out
    if expect.error is not None:
        with pytest.raises(APIError):
            list(host.stream(body))
        return
    answer = Answer(list(host.stream(body)))
    same("content", answer.content, expect.content + (expect.text if field in ("content", "") else ""))
    check_calls(expect.calls, answer.calls)
    same("finish", answer.finish, expect.finish)
    if expect.usage is not None:
        same("usage", answer.usage, expect.usage)


# -- frames that the package fails on ------------------------------------------------------------------------------


def prepared_mender() -> Mender:
    body = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    return Mender(plan=prepare_request(body).plan)


def for_client(*frames: bytes) -> bytes:
    mender = prepared_mender()
    return b"".join(map(mender.feed, frames)) + mender.flush()


def without(field: str, one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "choices": [{key: value for key, value in one["choices"][0].items() if key != field}]}


def with_field(field: str, value: Any, one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "choices": [{**one["choices"][0], field: value}]}


HELLO: Final = [chunk({"role": "assistant", "content": "Hel"}), chunk({"content": "l"}), chunk({"content": "o"})]
END: Final = sse([chunk({}, "stop")])


@pytest.mark.parametrize(
    "chunks",
    [
        [*HELLO, with_field("delta", None, chunk({}))],
        [*HELLO, without("delta", chunk({}))],
        [without("index", one) for one in HELLO],
        [with_field("index", None, one) for one in HELLO],
        [with_field("index", "0", one) for one in HELLO],
    ],
    ids=["delta null", "no delta", "no index", "index null", "index as text"],
)
def test_every_choice_has_an_index_and_a_delta(host: Host, chunks: list[dict[str, Any]]) -> None:
    frames = [sse([one], done=False) for one in chunks]
    parsed_chunks = list(host.stream(for_client(*frames, END)))
    choices = [choice for one in parsed_chunks for choice in one.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "Hello"
    assert {choice.index for choice in choices} == {0}


def test_the_finish_of_a_choice_without_a_delta_arrives(host: Host) -> None:
    last = with_field("delta", None, chunk({}, "stop"))
    *_, end = host.stream(for_client(sse(HELLO, done=False), sse([last])))
    assert end.choices[0].finish_reason == "stop"


def test_comments_after_an_event_with_an_id_do_not_break_the_package(host: Host) -> None:
    frames = [b"id: 7\n" + sse([one], done=False) + b": still here\n\n" for one in HELLO]
    answer = Answer(list(host.stream(for_client(*frames, b": beat\nid: 9\n\n", b": beat\n\n", END))))
    assert answer.content == "Hello"


def test_done_reaches_the_client_once() -> None:
    assert for_client(sse(HELLO, done=False), END, b"data: [DONE]\n\n").count(b"[DONE]") == 1
    assert Mender(model="kimi-k2.5").feed(sse(HELLO) + b"data: [DONE]\n\n").count(b"[DONE]") == 1


def test_an_error_that_is_a_bare_string_is_raised_with_its_words(host: Host) -> None:
    body = for_client(sse(HELLO, done=False), b'data: {"error": "the engine is overloaded"}\n\n')
    with pytest.raises(APIError, match="the engine is overloaded"):
        list(host.stream(body))


MOONSHOT_USAGE: Final = {**USAGE, "cached_tokens": 8}


def test_cached_tokens_of_moonshot_are_where_the_package_has_them(host: Host) -> None:
    body = for_client(sse(HELLO, done=False), sse([chunk({}, "stop", usage=MOONSHOT_USAGE)]))
    usage = next(one.usage for one in host.stream(body) if one.usage is not None)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 8
    assert usage.model_extra == {"cached_tokens": 8}


def test_cached_tokens_of_a_whole_answer_are_there_too() -> None:
    message = {"role": "assistant", "content": "Hello"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    plan = prepare_request({"model": "kimi-k2.5", "messages": [{"role": "user", "content": "Hi"}]}).plan
    whole = mend_response({"id": "a", "choices": [choice], "usage": MOONSHOT_USAGE}, plan=plan)
    assert whole.body["usage"] == {**MOONSHOT_USAGE, "prompt_tokens_details": {"cached_tokens": 8}}
