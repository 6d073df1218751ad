"""What a host sends, as a stream or as one response -> the reply that a client of the mended side reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

import moonshim

__all__ = [
    "Call",
    "Json",
    "Reply",
    "Request",
    "events_of",
    "read_body",
    "read_events",
    "read_stream",
    "replies",
    "sent",
]

Json: TypeAlias = dict[str, Any]

_FIELDS: Final = {"content": "text", "reasoning_content": "reasoning", "reasoning": "reasoning"}


class Call(Struct, frozen=True):
    """A call as the client has it once the answer is over."""

    name: str
    arguments: str
    id: str


class Reply(Struct, frozen=True):
    """What a client that concatenates deltas has in the end. `error` is the code of an error event."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish: str | None = None
    error: str | None = None


class Request(Struct, frozen=True, kw_only=True):
    """What the mender is told of the request; the defaults are those of a recorded stream."""

    model: str = "kimi-k2.5"
    tools: list[Json] | None = None
    tool_choice: Any = None
    history: list[Json] | None = None
    options: moonshim.KimiOptions | None = None

    def mender(self, framing: Literal["sse", "ndjson"] = "sse") -> moonshim.Mender:
        return moonshim.Mender(
            model=self.model,
            tools=self.tools,
            tool_choice=self.tool_choice,
            history=self.history,
            options=self.options,
            framing=framing,
        )

    def stream(self, pieces: Iterable[bytes], framing: Literal["sse", "ndjson"] = "sse") -> bytes:
        """The mended bytes of a stream that came in these pieces."""
        mender = self.mender(framing)
        return b"".join([mender.feed(piece) for piece in pieces]) + mender.flush()

    def response(self, body: Json) -> Json:
        """The mended body of a whole response."""
        return moonshim.mend_response(
            body,
            model=self.model,
            tools=self.tools,
            tool_choice=self.tool_choice,
            history=self.history,
            options=self.options,
        ).body


def sent(deltas: Iterable[Any], finish: str | None = "stop") -> list[bytes]:
    """The events of a stream with these deltas; with `finish` None it just ends."""
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if finish is not None:
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    data = [json.dumps(frame | chunk, ensure_ascii=False) for chunk in chunks]
    return [f"data: {one}\n\n".encode() for one in data + (["[DONE]"] if finish is not None else [])]


def replies(
    pieces: Sequence[str], request: Request, *, field: str = "content", finish: str = "stop"
) -> dict[str, Reply]:
    """The same text by every way that it can come; the ways must agree."""
    given = sent(({field: piece} for piece in pieces), finish)
    text = "".join(pieces)
    letters = sent(({field: letter} for letter in text), finish)
    body = {"choices": [{"index": 0, "message": {"role": "assistant", field: text}, "finish_reason": finish}]}
    return {
        "as given": read_stream(request.stream(given)),
        "byte by byte": read_stream(request.stream(bytes([byte]) for byte in b"".join(given))),
        "character by character": read_stream(request.stream(letters)),
        "whole response": read_body(request.response(body)),
    }


def events_of(stream: bytes) -> list[Json]:
    """The chunks of a mended stream, in either framing, without `[DONE]`."""
    lines = [line.removeprefix(b"data:").strip() for line in stream.split(b"\n")]
    return [event for event in map(_decoded, lines) if isinstance(event, dict)]


def _decoded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def read_stream(stream: bytes) -> Reply:
    """What a client has of a mended stream."""
    return read_events(events_of(stream))


def read_events(events: Iterable[Json]) -> Reply:
    """Concatenates the deltas of the first choice, as the official client does."""
    said = {"text": "", "reasoning": ""}
    calls: dict[int, list[str]] = {}
    finish = error = None
    for event in events:
        if "error" in event:
            error = str(event["error"].get("code") or event["error"].get("type"))
        for choice in event.get("choices", ()):
            delta = choice.get("delta") or {}
            finish = choice.get("finish_reason") or finish
            for field in _read_fields(delta):
                said[_FIELDS[field]] += delta[field]
            for piece in delta.get("tool_calls") or ():
                call = calls.setdefault(piece["index"], ["", "", ""])
                function = piece.get("function") or {}
                for place, text in enumerate((function.get("name"), function.get("arguments"), piece.get("id"))):
                    call[place] += text or ""
    return Reply(said["text"], said["reasoning"], tuple(Call(*calls[key]) for key in sorted(calls)), finish, error)


def read_body(body: Json) -> Reply:
    """The first choice of a whole response."""
    choice: Mapping[str, Any] = body["choices"][0]
    message = choice["message"]
    said = {"text": "", "reasoning": ""}
    for field in _read_fields(message):
        said[_FIELDS[field]] += message[field]
    calls = [
        Call(call["function"]["name"], call["function"]["arguments"], call["id"])
        for call in message.get("tool_calls") or ()
    ]
    error = body.get("error")
    code = None if error is None else str(error.get("code") or error.get("type"))
    return Reply(said["text"], said["reasoning"], tuple(calls), choice.get("finish_reason"), code)


def _read_fields(delta: Mapping[str, Any]) -> list[str]:
    """Which fields to read: a second field of reasoning is a copy of the first."""
    found = [field for field in _FIELDS if isinstance(delta.get(field), str)]
    return found[:-1] if found[-2:] == ["reasoning_content", "reasoning"] else found
