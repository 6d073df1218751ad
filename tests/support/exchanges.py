"""A conversation, and the response of a host to it -> what a client of each dialect reads after Moonshim.

The conversation is written once and rendered for Chat, Messages and Responses clients. The host speaks Chat. Only the
public API of Moonshim is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import moonshim

Json: TypeAlias = dict[str, Any]

CLIENTS: Final = ("openai_chat", "anthropic", "openai_responses")

# --- conversations --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    text: str


@dataclass(frozen=True)
class User:
    """What the user writes, and the documents or search results that come with it."""

    text: str
    documents: tuple[str, ...] = ()
    as_search_result: bool = False


@dataclass(frozen=True)
class Calls:
    """A turn of the assistant with calls: (id, name, arguments)."""

    calls: tuple[tuple[str, str, Json], ...]
    text: str = ""
    reasoning: str = ""


@dataclass(frozen=True)
class Result:
    call_id: str
    text: str
    as_search_result: bool = False
    """As blocks of the type `search_result`, for the clients that have it."""


Turn: TypeAlias = System | User | Calls | Result


@dataclass(frozen=True)
class Conversation:
    turns: tuple[Turn, ...]
    tools: Mapping[str, Json] = field(default_factory=dict)
    """The declared tools: the schema by name."""


def request(conversation: Conversation, client: str, model: str, *, stream: bool = True) -> Json:
    """The body that this client sends."""
    match client:
        case "openai_chat":
            return _chat_request(conversation, model, stream=stream)
        case "anthropic":
            return _messages_request(conversation, model, stream=stream)
        case "openai_responses":
            return _responses_request(conversation, model, stream=stream)
        case _:
            raise ValueError(client)


def _chat_request(conversation: Conversation, model: str, *, stream: bool) -> Json:
    messages: list[Json] = []
    for turn in conversation.turns:
        match turn:
            case System(text):
                messages.append({"role": "system", "content": text})
            case User(text, documents):
                parts = [{"type": "text", "text": one} for one in (*documents, text)]
                messages.append({"role": "user", "content": parts if documents else text})
            case Calls(calls, text, reasoning):
                entries = [
                    {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                    for id_, name, arguments in calls
                ]
                messages.append({"role": "assistant", "content": text or None, "tool_calls": entries})
                messages[-1]["reasoning_content"] = reasoning or "I use a tool."
            case Result(call_id, text):
                messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
    body: Json = {"model": model, "stream": stream, "messages": messages}
    if conversation.tools:
        body["tools"] = [
            {"type": "function", "function": {"name": name, "description": f"Tool {name}", "parameters": schema}}
            for name, schema in conversation.tools.items()
        ]
    return body


def _messages_request(conversation: Conversation, model: str, *, stream: bool) -> Json:
    messages: list[Json] = []
    body: Json = {"model": model, "stream": stream, "max_tokens": 8192, "messages": messages}

    def add(role: str, blocks: list[Json]) -> None:
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})

    for turn in conversation.turns:
        match turn:
            case System(text):
                body["system"] = f"{body['system']}\n\n{text}" if "system" in body else text
            case User(text, documents, as_search_result):
                read = _search_result if as_search_result else _document
                add("user", [*(read(one) for one in documents), {"type": "text", "text": text}])
            case Calls(calls, text, reasoning):
                blocks: list[Json] = [
                    {"type": "thinking", "thinking": reasoning or "I use a tool.", "signature": "c2ln"}
                ]
                blocks += [{"type": "text", "text": text}] if text else []
                blocks += [
                    {"type": "tool_use", "id": id_, "name": name, "input": arguments} for id_, name, arguments in calls
                ]
                add("assistant", blocks)
            case Result(call_id, text, as_search_result):
                content: str | list[Json] = [_search_result(text)] if as_search_result else text
                add("user", [{"type": "tool_result", "tool_use_id": call_id, "content": content}])
    if conversation.tools:
        body["tools"] = [
            {"name": name, "description": f"Tool {name}", "input_schema": schema}
            for name, schema in conversation.tools.items()
        ]
    return body


def _document(text: str) -> Json:
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, "title": "a.pdf"}


def _search_result(text: str) -> Json:
    content = [{"type": "text", "text": text}]
    return {"type": "search_result", "source": "https://example.com/a", "title": "A page", "content": content}


def _responses_request(conversation: Conversation, model: str, *, stream: bool) -> Json:
    items: list[Json] = []
    for turn in conversation.turns:
        match turn:
            case System(text):
                items.append({"type": "message", "role": "developer", "content": text})
            case User(text, documents):
                parts = [{"type": "input_text", "text": one} for one in (*documents, text)]
                items.append({"type": "message", "role": "user", "content": parts})
            case Calls(calls, text, _):
                if text:
                    content = [{"type": "output_text", "text": text}]
                    items.append({"type": "message", "role": "assistant", "content": content})
                items += [
                    {"type": "function_call", "call_id": id_, "name": name, "arguments": json.dumps(arguments)}
                    for id_, name, arguments in calls
                ]
            case Result(call_id, text):
                items.append({"type": "function_call_output", "call_id": call_id, "output": text})
    body: Json = {"model": model, "stream": stream, "input": items}
    if conversation.tools:
        body["tools"] = [
            {"type": "function", "name": name, "description": f"Tool {name}", "parameters": schema, "strict": False}
            for name, schema in conversation.tools.items()
        ]
    return body


# --- responses of hosts ---------------------------------------------------------------------------------------------

Part: TypeAlias = tuple[str, str]
"""A field of a delta (`content`, `reasoning_content`) and its text."""

WHOLE: Final = 0
"""The size of chunks of a response that is one JSON body."""


@dataclass(frozen=True)
class Response:
    """What a host sends: text in its fields, in this order, and a finish reason."""

    parts: tuple[Part, ...]
    finish: str = "stop"

    def text(self, name: str) -> str:
        return "".join(text for field_, text in self.parts if field_ == name)


def stream_of(response: Response, model: str, size: int | None) -> Iterator[bytes]:
    """The frames of an event stream, with this many characters in each; None: a frame for every word."""
    head = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1700000000, "model": model}

    def frame(delta: Json, finish: str | None = None) -> bytes:
        chunk = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"

    yield frame({"role": "assistant", "content": ""})
    for name, text in response.parts:
        for piece in _pieces(text, size):
            yield frame({name: piece})
    yield frame({}, response.finish)
    yield b"data: [DONE]\n\n"


def _pieces(text: str, size: int | None) -> Iterator[str]:
    if size is None:
        words = text.split(" ")
        yield from (word + " " for word in words[:-1])
        if words[-1]:
            yield words[-1]
    else:
        yield from (text[at : at + size] for at in range(0, len(text), size))


def body_of(response: Response, model: str) -> Json:
    message: Json = {"role": "assistant", "content": response.text("content")}
    if reasoning := response.text("reasoning_content"):
        message["reasoning_content"] = reasoning
    choice = {"index": 0, "message": message, "finish_reason": response.finish}
    return {
        "id": "chatcmpl-7",
        "object": "chat.completion",
        "created": 1700000000,
        "model": model,
        "choices": [choice],
    }


# --- what a client reads --------------------------------------------------------------------------------------------


@dataclass
class Received:
    """A response as a client has it at the end, and what Moonshim reports."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    """Name and arguments; arguments that are not JSON stay a string."""
    finish: str | None = None
    """The finish reason, as Chat spells it."""
    error: str | None = None
    usage: Json | None = None
    repairs: list[str] = field(default_factory=list)


def receive(response: Response, plan: moonshim.Plan, client: str, model: str, size: int | None) -> Received:
    """Send the response through Moonshim, in chunks of this size or as one body, and read it as this client."""
    if size == WHOLE:
        mended = moonshim.mend_response(body_of(response, model), plan=plan)
        received = read_body(mended.body, client)
        received.repairs = [repaired.rule for repaired in mended.repairs]
        return received
    mender = moonshim.Mender(plan=plan)
    data = b"".join([mender.feed(frame) for frame in stream_of(response, model, size)]) + mender.flush()
    received = read_stream(data, client)
    received.repairs = [repaired.rule for repaired in mender.repairs]
    return received


def read_stream(data: bytes, client: str) -> Received:
    payloads = [
        json.loads(line[6:])
        for line in data.decode().split("\n")
        if line.startswith("data: ") and line != "data: [DONE]"
    ]
    read = {"openai_chat": _read_chat, "anthropic": _read_messages, "openai_responses": _read_responses}[client]
    return read(payloads)


def read_body(body: Json, client: str) -> Received:
    if client == "openai_chat":
        return _read_chat_body(body)
    if client == "anthropic":
        return _read_messages_body(body)
    return _read_output(body)


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read_chat(payloads: Sequence[Json]) -> Received:
    received = Received()
    calls: dict[int, list[str]] = {}
    for payload in payloads:
        received.error = received.error or _error(payload)
        received.usage = payload.get("usage") or received.usage
        for choice in payload.get("choices") or ():
            received.finish = choice.get("finish_reason") or received.finish
            delta = choice["delta"]
            received.text += delta.get("content") or ""
            received.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
            for entry in delta.get("tool_calls") or ():
                call = calls.setdefault(entry["index"], ["", ""])
                function = entry.get("function") or {}
                call[0] += function.get("name") or ""
                call[1] += function.get("arguments") or ""
    received.calls = [(name, _arguments(text)) for name, text in calls.values()]
    return received


def _read_chat_body(body: Json) -> Received:
    choice = (body.get("choices") or [{}])[0]
    message = choice.get("message") or {}
    return Received(
        text=message.get("content") or "",
        reasoning=message.get("reasoning_content") or message.get("reasoning") or "",
        calls=[
            (call["function"]["name"], _arguments(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        ],
        finish=choice.get("finish_reason"),
        error=_error(body),
        usage=body.get("usage"),
    )


_STOP_REASONS: Final = {
    "tool_use": "tool_calls",
    "end_turn": "stop",
    "max_tokens": "length",
    "refusal": "content_filter",
}


def _read_messages(payloads: Sequence[Json]) -> Received:
    received = Received()
    calls: dict[int, list[str]] = {}
    for payload in payloads:
        match payload["type"]:
            case "error":
                received.error = _error(payload)
            case "message_start":
                received.usage = payload["message"]["usage"]
            case "content_block_start" if payload["content_block"]["type"] == "tool_use":
                calls[payload["index"]] = [payload["content_block"]["name"], ""]
            case "content_block_delta":
                delta = payload["delta"]
                received.text += delta.get("text") or ""
                received.reasoning += delta.get("thinking") or ""
                if delta["type"] == "input_json_delta":
                    calls[payload["index"]][1] += delta["partial_json"]
            case "message_delta":
                reason = payload["delta"].get("stop_reason")
                received.finish = _STOP_REASONS.get(reason, reason)
                received.usage = (received.usage or {}) | (payload.get("usage") or {})
    received.calls = [(name, _arguments(text or "{}")) for name, text in calls.values()]
    return received


def _read_messages_body(body: Json) -> Received:
    reason = body.get("stop_reason")
    blocks = body.get("content") or ()
    return Received(
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        reasoning="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        calls=[(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
        finish=_STOP_REASONS.get(str(reason), reason),
        error=_error(body),
        usage=body.get("usage"),
    )


def _read_responses(payloads: Sequence[Json]) -> Received:
    for payload in reversed(payloads):
        if payload["type"] in ("response.completed", "response.incomplete", "response.failed"):
            received = _read_output(payload["response"])
            break
    else:
        received = Received()
    deltas = {"response.output_text.delta": "", "response.reasoning_summary_text.delta": ""}
    for payload in payloads:
        if payload["type"] in deltas:
            deltas[payload["type"]] += payload["delta"]
        elif payload["type"] == "error":
            received.error = received.error or _error(payload) or json.dumps(payload)
    # A client shows the deltas; what it stores is the output at the end.
    text, reasoning = deltas.values()
    assert received.error or (text, reasoning) == (received.text, received.reasoning), "the deltas are not the output"
    received.text, received.reasoning = text, reasoning
    return received


def _read_output(body: Json) -> Received:
    received = Received(error=_error(body), usage=body.get("usage"))
    for item in body.get("output") or ():
        match item["type"]:
            case "message":
                received.text += "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])
            case "reasoning":
                received.reasoning += "".join(part["text"] for part in item.get("summary") or ())
            case "function_call":
                received.calls.append((item["name"], _arguments(item["arguments"])))
    match body.get("status"):
        case "completed":
            received.finish = "tool_calls" if received.calls else "stop"
        case "incomplete":
            received.finish = {"max_output_tokens": "length"}.get(
                body["incomplete_details"]["reason"], "content_filter"
            )
    return received


def _error(payload: Json) -> str | None:
    found = payload.get("error")
    return json.dumps(found, ensure_ascii=False) if found else None
