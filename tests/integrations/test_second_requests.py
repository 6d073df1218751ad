"""A call that the program demands and that is missing is asked for once more, by the HTTP client, in the official SDKs.

Every host is a simulator, or a host with recorded responses, on a real socket. A fault in the model's name makes the
model answer without the forced call, or with nothing but reasoning; those with `-first` end when it is asked again.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from threading import Thread
from typing import Any, Final

import anthropic
import openai
import pytest
from pydantic import BaseModel

from moonshim.integrations import (
    anthropic_http_client,
    async_anthropic_http_client,
    async_openai_http_client,
    openai_http_client,
)
from moonshim.simulator import Simulator
from moonshim.testing import RecordedHost, RecordedResponse
from tests.integrations.programs import KEY

ASKED: Final = "The forecast for Beijing."
MESSAGES: Final[Any] = [{"role": "user", "content": ASKED}]
MISSING: Final = "forced_call_missing=1"


class Pick(BaseModel):
    """What a call has to be."""

    city: str
    days: int


PICK: Final = Pick.model_json_schema()
CHAT_TOOL: Final[Any] = {"type": "function", "function": {"name": "Pick", "parameters": PICK}}
CHAT_CHOICE: Final[Any] = {"type": "function", "function": {"name": "Pick"}}
RESPONSES_TOOL: Final[Any] = {"type": "function", "name": "Pick", "parameters": PICK, "strict": False}
RESPONSES_CHOICE: Final[Any] = {"type": "function", "name": "Pick"}
MESSAGES_TOOL: Final[Any] = {"name": "Pick", "input_schema": PICK}
MESSAGES_CHOICE: Final[Any] = {"type": "tool", "name": "Pick"}


# --- the packages -----------------------------------------------------------------------------------------------


@contextmanager
def openai_at(url: str, host: str) -> Iterator[openai.OpenAI]:
    http_client = openai_http_client(host=host)
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, http_client=http_client) as client:
        yield client


@asynccontextmanager
async def async_openai_at(url: str, host: str) -> AsyncIterator[openai.AsyncOpenAI]:
    http_client = async_openai_http_client(host=host)
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, http_client=http_client) as client:
        yield client


@contextmanager
def anthropic_at(url: str, host: str) -> Iterator[anthropic.Anthropic]:
    http_client = anthropic_http_client(host=host)
    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0, http_client=http_client) as client:
        yield client


@asynccontextmanager
async def async_anthropic_at(url: str, host: str) -> AsyncIterator[anthropic.AsyncAnthropic]:
    http_client = async_anthropic_http_client(host=host)
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0, http_client=http_client) as client:
        yield client


# --- one answer, in each way that a package has -----------------------------------------------------------------


class Answer(BaseModel):
    """What a program has in the end."""

    text: str
    arguments: str | None
    """Of the call, if there is one."""
    tokens: int
    """Of the output."""
    ending: str | None
    repairs: str | None = None
    """The header; of a stream it says nothing yet."""


def chat(url: str, host: str, model: str) -> Answer:
    with openai_at(url, host) as client:
        raw = client.chat.completions.with_raw_response.create(
            model=model, messages=MESSAGES, tools=[CHAT_TOOL], tool_choice=CHAT_CHOICE
        )
        return _of_completion(raw.parse(), raw.headers["x-moonshim-repairs"])


def chat_stream(url: str, host: str, model: str) -> Answer:
    with (
        openai_at(url, host) as client,
        client.chat.completions.stream(
            model=model,
            messages=MESSAGES,
            tools=[CHAT_TOOL],
            tool_choice=CHAT_CHOICE,
            stream_options={"include_usage": True},
        ) as stream,
    ):
        return _of_completion(stream.get_final_completion())


async def chat_async(url: str, host: str, model: str) -> Answer:
    async with async_openai_at(url, host) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=model, messages=MESSAGES, tools=[CHAT_TOOL], tool_choice=CHAT_CHOICE
        )
        return _of_completion(raw.parse(), raw.headers["x-moonshim-repairs"])


async def chat_async_stream(url: str, host: str, model: str) -> Answer:
    async with (
        async_openai_at(url, host) as client,
        client.chat.completions.stream(
            model=model,
            messages=MESSAGES,
            tools=[CHAT_TOOL],
            tool_choice=CHAT_CHOICE,
            stream_options={"include_usage": True},
        ) as stream,
    ):
        return _of_completion(await stream.get_final_completion())


def _of_completion(completion: Any, repairs: str | None = None) -> Answer:
    (choice,) = completion.choices
    calls = choice.message.tool_calls
    return Answer(
        text=choice.message.content or "",
        arguments=calls[0].function.arguments if calls else None,
        tokens=completion.usage.completion_tokens,
        ending=choice.finish_reason,
        repairs=repairs,
    )


def responses(url: str, host: str, model: str) -> Answer:
    with openai_at(url, host) as client:
        raw = client.responses.with_raw_response.create(
            model=model, input=ASKED, tools=[RESPONSES_TOOL], tool_choice=RESPONSES_CHOICE
        )
        return _of_response(raw.parse(), raw.headers["x-moonshim-repairs"])


async def responses_async_stream(url: str, host: str, model: str) -> Answer:
    async with (
        async_openai_at(url, host) as client,
        client.responses.stream(
            model=model, input=ASKED, tools=[RESPONSES_TOOL], tool_choice=RESPONSES_CHOICE
        ) as stream,
    ):
        return _of_response(await stream.get_final_response())


def _of_response(response: Any, repairs: str | None = None) -> Answer:
    ending = {"completed": "stop"}.get(response.status, response.status)
    calls = [item.arguments for item in response.output if item.type == "function_call"]
    return Answer(
        text=response.output_text,
        arguments=calls[0] if calls else None,
        tokens=response.usage.output_tokens,
        ending=ending,
        repairs=repairs,
    )


def messages(url: str, host: str, model: str) -> Answer:
    with anthropic_at(url, host) as client:
        raw = client.messages.with_raw_response.create(
            model=model, max_tokens=4000, messages=MESSAGES, tools=[MESSAGES_TOOL], tool_choice=MESSAGES_CHOICE
        )
        return _of_message(raw.parse(), raw.headers["x-moonshim-repairs"])


def messages_stream(url: str, host: str, model: str) -> Answer:
    with (
        anthropic_at(url, host) as client,
        client.messages.stream(
            model=model, max_tokens=4000, messages=MESSAGES, tools=[MESSAGES_TOOL], tool_choice=MESSAGES_CHOICE
        ) as stream,
    ):
        return _of_message(stream.get_final_message())


async def messages_async(url: str, host: str, model: str) -> Answer:
    async with async_anthropic_at(url, host) as client:
        raw = await client.messages.with_raw_response.create(
            model=model, max_tokens=4000, messages=MESSAGES, tools=[MESSAGES_TOOL], tool_choice=MESSAGES_CHOICE
        )
        return _of_message(await raw.parse(), raw.headers["x-moonshim-repairs"])


async def messages_async_stream(url: str, host: str, model: str) -> Answer:
    async with (
        async_anthropic_at(url, host) as client,
        client.messages.stream(
            model=model, max_tokens=4000, messages=MESSAGES, tools=[MESSAGES_TOOL], tool_choice=MESSAGES_CHOICE
        ) as stream,
    ):
        return _of_message(await stream.get_final_message())


def _of_message(message: Any, repairs: str | None = None) -> Answer:
    text = "".join(block.text for block in message.content if block.type == "text")
    ending = {"end_turn": "stop"}.get(message.stop_reason, message.stop_reason)
    calls = [json.dumps(block.input) for block in message.content if block.type == "tool_use"]
    return Answer(
        text=text,
        arguments=calls[0] if calls else None,
        tokens=message.usage.output_tokens,
        ending=ending,
        repairs=repairs,
    )


Way = Callable[[str, str, str], Answer | Awaitable[Answer]]
WAYS: Final[dict[str, Way]] = {
    one.__name__: one
    for one in (
        chat,
        chat_stream,
        chat_async,
        chat_async_stream,
        responses,
        responses_async_stream,
        messages,
        messages_stream,
        messages_async,
        messages_async_stream,
    )
}


def ask(way: str, url: str, host: str, model: str) -> Any:
    """What the program gets; it runs in a loop of its own, if it is async."""

    async def wait(answer: Awaitable[Any]) -> Any:
        return await answer

    answer = WAYS[way](url, host, model)
    return asyncio.run(wait(answer)) if isinstance(answer, Awaitable) else answer


# --- hosts ------------------------------------------------------------------------------------------------------

CHAT_HOSTS: Final = ("together", "siliconflow")
"""Hosts that are not known to enforce a choice."""
PLACES: Final = [(way, host) for way in WAYS for host in (("moonshot",) if way.startswith("messages") else CHAT_HOSTS)]


class Hosts:
    """Simulators for all tests of this file, each in a thread: starting one takes a while."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[str, Simulator] = {}

    def of(self, behaviour: str) -> Simulator:
        if behaviour not in self._running:
            host = Simulator(behaviour=behaviour, log=lambda seen: None)
            self._running[behaviour] = self._stack.enter_context(host.running())
        self._running[behaviour].requests.clear()
        return self._running[behaviour]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(stack)


def is_call(answer: Answer) -> bool:
    return answer.arguments is not None and bool(Pick.model_validate_json(answer.arguments))


@pytest.mark.parametrize(("way", "host"), PLACES)
def test_a_forced_call_that_is_missing_is_asked_for_once_more(hosts: Hosts, way: str, host: str) -> None:
    server = hosts.of(host)
    plain = ask(way, server.url, host, "kimi-k3")
    assert is_call(plain)
    assert len(server.requests) == 1, "a right answer costs one request"
    answer = ask(way, server.url, host, "kimi-k3+choice-ignored-first")
    assert is_call(answer)
    assert answer.text == ""
    assert answer.ending == plain.ending
    first, second = list(server.requests)[1:]
    assert (first.status, second.status) == (200, 200), second.problem
    assert second.request is not None
    assert "cannot be used" in " ".join(turn.text for turn in second.request.turns)
    assert answer.tokens > plain.tokens, "the tokens of both requests are reported"
    if answer.repairs is not None:
        assert "answer_corrected=1" in answer.repairs


@pytest.mark.parametrize(("way", "host"), PLACES)
def test_an_answer_that_stays_wrong_is_delivered_once_and_reported(hosts: Hosts, way: str, host: str) -> None:
    server = hosts.of(host)
    answer = ask(way, server.url, host, "kimi-k3+choice-ignored")
    assert answer.text == "I would rather answer in words than call a tool."
    assert answer.ending == "stop"
    assert len(server.requests) == 2, "there is no third request"
    if answer.repairs is not None:
        assert MISSING in answer.repairs


@pytest.mark.parametrize("fault", ["json-in-fence", "json-prose"])
def test_an_answer_in_json_costs_one_request_and_has_no_fence(hosts: Hosts, fault: str) -> None:
    server = hosts.of("together")
    format: Any = {"type": "json_schema", "json_schema": {"name": "pick", "schema": PICK}}
    with openai_at(server.url, "together") as client:
        completion = client.chat.completions.create(model=f"kimi-k3+{fault}", messages=MESSAGES, response_format=format)
    text = completion.choices[0].message.content or ""
    assert text.startswith("Certainly!") if fault == "json-prose" else Pick.model_validate_json(text)
    assert len(server.requests) == 1


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_of_only_reasoning_is_asked_for_again(way: str) -> None:
    host = "moonshot" if way.startswith("messages") else "together"
    with Simulator(behaviour=host, log=lambda seen: None).running() as server:
        answer = ask(way, server.url, host, "kimi-k3+stops-after-thinking*1")
        assert is_call(answer)
        first, second = list(server.requests)
        assert (first.status, second.status) == (200, 200)
        assert first.body == second.body, "the same was asked"
        plain = ask(way, server.url, host, "kimi-k3")
        assert answer.tokens > plain.tokens, "the tokens of both requests are reported"


# --- a second request that fails --------------------------------------------------------------------------------

PROSE: Final = "It will rain."


def _chat_answer(content: str) -> bytes:
    message = {"role": "assistant", "content": content}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "kimi-k3"}
    return json.dumps({**head, "choices": [choice], "usage": usage}).encode()


def _chat_events(*deltas: dict[str, str], end: bool = True) -> bytes:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "kimi-k3"}
    chunks: list[Any] = [{**head, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if end:
        chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        chunks.append(
            {**head, "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}}
        )
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n" if end else ""]).encode()


def _message_answer(content: str) -> bytes:
    usage = {"input_tokens": 9, "output_tokens": 3}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "kimi-k3"}
    body = {**head, "content": [{"type": "text", "text": content}], "stop_reason": "end_turn", "usage": usage}
    return json.dumps(body).encode()


def _message_events(*pieces: tuple[str, str], end: bool = True) -> bytes:
    """`pieces`: the kind of a block, and its text."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "kimi-k3", "content": []}
    usage = {"input_tokens": 9, "output_tokens": 0}
    events: list[Any] = [{"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}]
    for index, (kind, text) in enumerate(pieces):
        field = "text" if kind == "text" else "thinking"
        events.append({"type": "content_block_start", "index": index, "content_block": {"type": kind, field: ""}})
        delta = {"type": f"{kind}_delta", field: text}
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        if end:
            events.append({"type": "content_block_stop", "index": index})
    if end:
        events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}})
        events.append({"type": "message_stop"})
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


OVERLOADED: Final = RecordedResponse(
    body=b'{"error":{"message":"The engine is overloaded","type":"engine_overloaded_error"}}', status=429
)
# way: the host, a first answer in prose, a second response that breaks off
FAILING: Final[dict[str, tuple[str, bytes, bytes]]] = {
    "chat": ("together", _chat_answer(PROSE), _chat_answer("{}")[:50]),
    "chat_async": ("together", _chat_answer(PROSE), b'{"error":{"message":"no"}}'),
    "chat_stream": (
        "together",
        _chat_events({"role": "assistant", "content": PROSE}),
        _chat_events({"reasoning_content": "Right."}, {"content": '{"city'}, end=False),
    ),
    "responses_async_stream": (
        "together",
        _chat_events({"role": "assistant", "reasoning_content": "Rain?"}, {"content": PROSE}),
        _chat_events({"reasoning_content": "Right."}, {"content": '{"city'}, end=False),
    ),
    "messages": ("moonshot", _message_answer(PROSE), _message_answer("{}")[:50]),
    "messages_async_stream": (
        "moonshot",
        _message_events(("thinking", "Rain?"), ("text", PROSE)),
        _message_events(("thinking", "Right."), ("text", '{"city'), end=False),
    ),
}


@pytest.mark.parametrize("breaks_off", [False, True], ids=["refused", "broken off"])
@pytest.mark.parametrize("way", FAILING)
def test_a_second_request_that_fails_leaves_the_first_answer(way: str, breaks_off: bool) -> None:
    host, first, broken = FAILING[way]
    with RecordedHost(first, broken if breaks_off else OVERLOADED).running() as server:
        answer = ask(way, server.url, host, "kimi-k3")
        assert len(server.requests) == 2
    assert answer.text == PROSE
    assert answer.ending == "stop"
    assert answer.tokens >= 3, "what was counted is reported"
    if answer.repairs is not None:
        assert MISSING in answer.repairs


@contextmanager
def answers_once(body: bytes, content_type: str) -> Iterator[str]:
    """A host that answers one request, and then does not listen any more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            listening.close()
            with connection, connection.makefile("rb") as lines:
                size = 0
                while (line := lines.readline()) != b"\r\n":
                    name, _, value = line.partition(b":")
                    size = int(value) if name.lower() == b"content-length" else size
                lines.read(size)
                head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
                connection.sendall(f"{head}connection: close\r\n\r\n".encode() + body)

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("way", FAILING)
def test_a_host_that_is_gone_by_the_second_request_leaves_the_first_answer(way: str) -> None:
    host, first, _ = FAILING[way]
    with answers_once(first, "application/json" if first.startswith(b"{") else "text/event-stream") as url:
        answer = ask(way, url, host, "kimi-k3")
    assert answer.text == PROSE
    assert answer.ending == "stop"
    assert answer.tokens == 3
