"""A client of raw sockets for every dialect: requests, scripted responses, and strict readers of responses."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

from msgspec import Struct

from tests.engine.dialects.anthropic.reading import MessagesReader, ResponsesReader, frames_of
from tests.support.gateway.hosts import Script, chunked_head, chunks, whole
from tests.support.playing import Answer, Call, Thought, chat_answer, messages_answer
from tests.support.streams import parse_payloads, read_chunks, read_sse

__all__ = [
    "CLIENTS",
    "PATHS",
    "UPSTREAMS",
    "Connection",
    "Ended",
    "Reply",
    "answer_of",
    "ask",
    "body_of",
    "connected",
    "content_of",
    "error_of",
    "read_stream",
    "sending",
    "short_stream",
    "text_answer",
]

Json: TypeAlias = dict[str, Any]

CLIENTS: Final = ("openai_chat", "anthropic", "openai_responses")
UPSTREAMS: Final = ("openai_chat", "anthropic")
PATHS: Final = {"openai_chat": "/v1/chat/completions", "anthropic": "/v1/messages", "openai_responses": "/v1/responses"}
_SCHEMA: Final = {"type": "object", "properties": {"n": {"type": "integer"}}}
_TOOLS: Final[dict[str, Json]] = {
    "openai_chat": {"type": "function", "function": {"name": "ls", "parameters": _SCHEMA}},
    "anthropic": {"name": "ls", "input_schema": _SCHEMA},
    "openai_responses": {"type": "function", "name": "ls", "parameters": _SCHEMA, "strict": False},
}


# --- client requests ------------------------------------------------------------------------------------------------


def body_of(client: str, prompt: str = "hi", *, stream: bool = True, model: str = "kimi-k2.5", **more: Any) -> Json:
    """One prompt, with a tool that may be called."""
    body: Json = {"model": model, "stream": stream, "tools": [_TOOLS[client]]}
    if client == "openai_responses":
        body |= {"input": prompt, "store": False}
    else:
        body |= {"messages": [{"role": "user", "content": prompt}]}
        body |= {"max_tokens": 99} if client == "anthropic" else {}
    return body | more


class Reply(Struct, frozen=True):
    """The whole response. `ended`: it ended properly in HTTP terms; otherwise its connection was cut."""

    status: int
    headers: dict[str, str]
    body: bytes
    ended: bool

    @property
    def json(self) -> Json:
        value: Json = json.loads(self.body)
        return value


class Connection:
    """A client of one request. It reads as much as told, and disconnects on demand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        """What has arrived so far."""
        self.ended = False

    def send(self, client: str, body: Json, *, headers: str = "") -> None:
        data = json.dumps(body).encode()
        head = f"POST {PATHS[client]} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n{headers}\r\n"
        self.writer.write(head.encode() + data)

    async def head(self) -> None:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}

    async def piece(self) -> bytes:
        """The next piece of the body; empty if there is none."""
        try:
            if self.headers.get("transfer-encoding") == "chunked":
                size = int((await self._reader.readuntil(b"\r\n")).strip(), 16)
                data = (await self._reader.readexactly(size + 2))[:-2]
                self.ended = size == 0
            else:
                data = b"" if self.ended else await self._reader.readexactly(int(self.headers["content-length"]))
                self.ended = True
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        self.body += data
        return data

    async def rest(self) -> Reply:
        """Read to the end."""
        while await self.piece():
            pass
        return Reply(self.status, self.headers, self.body, self.ended)

    async def until(self, holds: Callable[[bytes], bool]) -> None:
        """Read until the data satisfies a condition."""
        while not holds(self.body):
            assert await self.piece(), f"the answer ended before: {self.body!r}"

    def hang_up(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def connected(port: int, *, room: int = 0) -> AsyncIterator[Connection]:
    """`room`: the client's receive buffer in bytes; the system's default, if none."""
    if room:
        bare = socket.socket()
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        bare.setblocking(False)
        await asyncio.get_running_loop().sock_connect(bare, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=bare, limit=room)
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()


async def ask(port: int, client: str, body: Json, *, headers: str = "") -> Reply:
    """One request on its own connection, and the whole response."""
    async with connected(port) as connection:
        connection.send(client, body, headers=headers)
        await connection.head()
        return await connection.rest()


# --- host responses -------------------------------------------------------------------------------------------------


def answer_of(upstream: str, text: str = "Hi.", *, calls: int = 2, thought: str = "Hm.") -> Answer:
    """Reasoning, text and calls, short."""
    called = [Call(f"functions.ls:{n}", "ls", f'{{"n":{n}}}') for n in range(calls)]
    if upstream == "anthropic":
        blocks = ({"type": "thinking", "thinking": thought, "signature": "s"},) if thought else ()
        return messages_answer(Thought(blocks=blocks), text, called)
    return chat_answer(Thought(fields={"reasoning_content": thought} if thought else {}), text, called)


def text_answer(upstream: str, text: str) -> Answer:
    return answer_of(upstream, text, calls=0, thought="")


def short_stream(upstream: str) -> bytes:
    """Reasoning, text and two calls at once, in as few bytes as possible."""
    if upstream == "anthropic":
        return b"".join(b"data: %b\n\n" % json.dumps(one, separators=(",", ":")).encode() for one in _SHORT_MESSAGES)
    entry = {"index": 0, "id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": '{"n":'}}
    second = {
        "index": 1,
        "id": "functions.ls:1",
        "type": "function",
        "function": {"name": "ls", "arguments": '{"n":1}'},
    }
    deltas: list[Json] = [
        {"role": "assistant", "reasoning_content": "Hm."},
        {"content": "Hi."},
        {"tool_calls": [entry]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "0}"}}]},
        {"tool_calls": [second]},
        {},
    ]
    chunks_ = [{"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks_[-1]["choices"][0]["finish_reason"] = "tool_calls"  # type: ignore[index]
    frames = [b"data: %b\n\n" % json.dumps(one, separators=(",", ":")).encode() for one in chunks_]
    return b"".join(frames) + b"data: [DONE]\n\n"


def _block(index: int, start: Json, *deltas: Json) -> list[Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


_SHORT_MESSAGES: Final[list[Json]] = [
    {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 3}}},
    *_block(0, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "Hm."}),
    *_block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi."}),
    *_block(
        2,
        {"type": "tool_use", "id": "a", "name": "ls", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"n":'},
        {"type": "input_json_delta", "partial_json": "0}"},
    ),
    *_block(
        3,
        {"type": "tool_use", "id": "b", "name": "ls", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"n":1}'},
    ),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}},
    {"type": "message_stop"},
]


def sending(answer: Answer, *, keeps: bool = False) -> Script:
    """A host that sends this, streamed or not, as requested. It closes the connection afterwards."""
    closing = () if keeps else ("connection: close",)

    async def script(peer: Any, asked: Any) -> None:
        if json.loads(asked.body).get("stream"):
            head = chunked_head(headers=("content-type: text/event-stream", *closing))
            await peer.send(head + chunks(answer.stream))
        else:
            body = json.dumps(answer.whole).encode()
            await peer.send(whole(body, headers=("content-type: application/json", *closing)))
        if not keeps:
            peer.writer.close()

    return script


# --- reading responses ----------------------------------------------------------------------------------------------


class Ended(Struct, frozen=True):
    """A stream as its client has it: its content, and how it ended."""

    text: str
    calls: list[tuple[str, str]]
    """Names and arguments."""
    reason: str | None
    error: Json | None


def read_stream(client: str, data: bytes) -> Ended:
    """Read a stream as strictly as any client does; anything that could confuse one fails the test."""
    return _READERS[client](data)


def _read_chat(data: bytes) -> Ended:
    listener = read_chunks(parse_payloads(read_sse(data)))
    one = listener[0]
    assert (one.finish is not None) == listener.done
    assert (one.finish is None) == (one.error is not None), "either it finished, or it failed"
    if one.error is not None:
        assert parse_payloads(read_sse(data))[-1].get("error") is not None, "the error is the last word"
    return Ended(one.content, [(call.name, call.arguments) for call in one.calls], one.finish, one.error)


def _read_messages(data: bytes) -> Ended:
    reader = MessagesReader(data)
    error = frames_of(data)[-1][1]["error"] if reader.error is not None else None
    assert (reader.stop_reason is None) == (error is not None), "either it finished, or it failed"
    calls = [(block["name"], block["partial_json"]) for block in reader.content if block["type"] == "tool_use"]
    text = "".join(block["text"] for block in reader.content if block["type"] == "text")
    return Ended(text, calls, reader.stop_reason, error)


def _read_responses(data: bytes) -> Ended:
    reader = ResponsesReader(data)
    failed = reader.ending == "response.failed"
    assert failed or reader.ending == "response.completed"
    assert (reader.response["error"] is not None) == failed
    calls = [(name, arguments) for _, name, arguments in reader.calls]
    reason = None if failed else "tool_calls" if calls else "stop"
    return Ended(reader.text, calls, reason, reader.response["error"])


_READERS: Final = {"openai_chat": _read_chat, "anthropic": _read_messages, "openai_responses": _read_responses}


def error_of(client: str, body: Json) -> Json:
    """The error in the body of a response, in the client's own form."""
    error: Json = body["error"]
    assert error["message"]
    if client == "anthropic":
        assert body["type"] == "error"
        assert error["type"]
    else:
        assert {"message", "type", "param", "code"} <= error.keys()
    return error


def content_of(client: str, reply: Reply) -> Ended:
    """What a client has in the end, whether it requested a stream or not."""
    assert reply.ended
    if reply.headers["content-type"].startswith("text/event-stream"):
        return read_stream(client, reply.body)
    if reply.status != 200:
        return Ended("", [], None, error_of(client, reply.json))
    return _WHOLE[client](reply.json)


def _chat(body: Json) -> Ended:
    message = body["choices"][0]["message"]
    calls = [(one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls") or ()]
    return Ended(message["content"] or "", calls, body["choices"][0]["finish_reason"], None)


def _messages(body: Json) -> Ended:
    text = "".join(one["text"] for one in body["content"] if one["type"] == "text")
    calls = [(one["name"], json.dumps(one["input"])) for one in body["content"] if one["type"] == "tool_use"]
    return Ended(text, calls, body["stop_reason"], None)


def _responses(body: Json) -> Ended:
    assert body["status"] == "completed"
    parts = [part for one in body["output"] if one["type"] == "message" for part in one["content"]]
    calls = [(one["name"], one["arguments"]) for one in body["output"] if one["type"] == "function_call"]
    return Ended("".join(part["text"] for part in parts), calls, "tool_calls" if calls else "stop", None)


_WHOLE: Final = {"openai_chat": _chat, "anthropic": _messages, "openai_responses": _responses}
