"""Clients that store their history in their own dialect, and responses of scripted hosts in theirs.

A client stores what it received as the official package of its dialect does: deltas joined, nothing renamed, nothing
dropped.
"""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from msgspec import Struct

from moonshim import Mender, mend_response, prepare_request, translate_messages
from moonshim.engine.prepare import Prepared
from tests.support.streams import chunk, read_sse, sse

__all__ = ["Answer", "Call", "Client", "Thought", "chat_answer", "messages_answer"]

Json: TypeAlias = dict[str, Any]

SCHEMA: Final[Json] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Call(Struct, frozen=True):
    """A call as a host sends it."""

    id: str
    name: str
    arguments: str


# --- host responses -------------------------------------------------------------------------------------------------


class Thought(Struct, frozen=True):
    """How a host sends its reasoning: fields of a Chat message, or blocks of Messages."""

    fields: Json = {}
    blocks: tuple[Json, ...] = ()


class Answer(Struct, frozen=True):
    """One response, non-streaming and as a stream."""

    whole: Json
    stream: bytes


def chat_answer(
    thought: Thought, text: str, calls: list[Call], *, leaked: bool = False, reason: str | None = None
) -> Answer:
    """A response of a Chat host; `leaked`: the calls are markers in the text; `reason`: another finish reason."""
    entries: list[Json] = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    if leaked:
        marked = "".join(
            f"<|tool_call_begin|>{call.id}<|tool_call_argument_begin|>{call.arguments}<|tool_call_end|>"
            for call in calls
        )
        text, entries = f"{text}<|tool_calls_section_begin|>{marked}<|tool_calls_section_end|>", []
    message: Json = {"role": "assistant", **thought.fields, "content": text or None}
    message |= {"tool_calls": entries} if entries else {}
    reason = reason or ("tool_calls" if entries else "stop")
    whole = {"id": "chatcmpl-7", "object": "chat.completion", "created": 7, "model": "m"}
    whole |= {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}
    chunks = [chunk({"role": "assistant"})]
    told = [[{key: piece} for piece in _pieces(value)] for key, value in thought.fields.items()]
    # Fields with the same content are sent side by side.
    chunks += [
        chunk(dict(pair for one in deltas for pair in one.items())) for deltas in zip_longest(*told, fillvalue={})
    ]
    chunks += [chunk({"content": piece}) for piece in _pieces(text)]
    for index, entry in enumerate(entries):
        given = entry["function"]
        chunks.append(chunk({"tool_calls": [{**entry, "index": index, "function": {**given, "arguments": ""}}]}))
        for piece in _pieces(given["arguments"]):
            chunks.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    return Answer(whole, sse([*chunks, chunk({}, finish=reason)]))


def _pieces(value: Any) -> list[Any]:
    """Text comes in two halves; entries come one by one under their streaming index, their texts in halves."""
    if isinstance(value, str):
        half = (len(value) + 1) // 2
        return [piece for piece in (value[:half], value[half:]) if piece]
    out = []
    for index, entry in enumerate(value):
        key = next((key for key in ("text", "summary") if key in entry), None)
        first, *rest = _pieces(entry[key]) if key is not None and entry[key] else [None]
        begin = entry if key is None or first is None else {**entry, key: first}
        out.append([{**begin, "index": index}])
        out += [[{"type": entry["type"], key: piece, "index": index}] for piece in rest]
    return out


def messages_answer(thought: Thought, text: str, calls: list[Call]) -> Answer:
    """A response of a Messages host."""
    blocks = list(thought.blocks) + ([{"type": "text", "text": text}] if text else [])
    for call in calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)})
    reason = "tool_use" if calls else "end_turn"
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    usage = {"input_tokens": 3, "output_tokens": 4}
    whole = {**head, "content": blocks, "stop_reason": reason, "usage": usage}
    events: list[Json] = [{"type": "message_start", "message": {**head, "content": [], "usage": usage}}]
    for index, block in enumerate(blocks):
        start, deltas = _start_and_deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 4}})
    events.append({"type": "message_stop"})
    stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Answer(whole, stream.encode())


def _start_and_deltas(block: Json) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            if "signature" in block:
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": ""}, deltas
        case "tool_use":
            given = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            return {**block, "input": {}}, [given]
    return block, []


# --- client histories -----------------------------------------------------------------------------------------------


class Client:
    """A client with its history, in its own dialect."""

    def __init__(self, dialect: str, secret: bytes = b"secret") -> None:
        self.dialect = dialect
        self.secret = secret
        self.history: list[Json] = []

    def switch(self, dialect: str, *, through: str | None = None) -> None:
        """Continue in another dialect, with the history translated."""
        for to in (through, dialect):
            if to is not None and to != self.dialect:
                self.history = translate_messages(self.history, from_=self.dialect, to=to)
                self.dialect = to

    def ask(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def prepare(self, names: tuple[str, ...], *, stream: bool, **where: Any) -> Prepared:
        return prepare_request(
            self.body(names, stream=stream), dialect=self.dialect, secret=self.secret, created=7, **where
        )

    def body(self, names: tuple[str, ...], *, stream: bool) -> Json:
        body: Json = {"model": "m", "stream": stream}
        tools: list[Json]
        match self.dialect:
            case "openai_chat":
                tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in names]
                return body | {"messages": list(self.history), "tools": tools}
            case "anthropic":
                tools = [{"name": name, "input_schema": SCHEMA} for name in names]
                return body | {"max_tokens": 99, "messages": list(self.history), "tools": tools}
        tools = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in names]
        return body | {"input": list(self.history), "tools": tools, "store": False}

    def take(self, prepared: Prepared, answer: Answer, *, stream: bool) -> list[Call]:
        """Receive a response through Moonshim, and store it; return its calls."""
        if stream:
            mender = Mender(plan=prepared.plan)
            out = b"".join(mender.feed(answer.stream[at : at + 50]) for at in range(0, len(answer.stream), 50))
            events = [json.loads(event) for event in read_sse(out + mender.flush()) if event != "[DONE]"]
            said = _STREAMED[self.dialect](events)
        else:
            said = _WHOLE[self.dialect](mend_response(answer.whole, plan=prepared.plan).body)
        self.history += said
        return [call for message in said for call in _CALLS[self.dialect](message)]

    def give(self, results: list[tuple[Call, str]]) -> None:
        """Add the tools' results."""
        match self.dialect:
            case "openai_chat":
                self.history += [{"role": "tool", "tool_call_id": call.id, "content": text} for call, text in results]
            case "anthropic":
                blocks = [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call, text in results]
                self.history.append({"role": "user", "content": blocks})
            case _:
                self.history += [
                    {"type": "function_call_output", "call_id": call.id, "output": text} for call, text in results
                ]


def _chat_streamed(events: list[Json]) -> list[Json]:
    message: Json = {"role": "assistant", "content": None}
    calls: dict[int, Json] = {}
    for event in events:
        for choice in event["choices"]:
            for key, value in choice["delta"].items():
                if key == "tool_calls":
                    for entry in value:
                        _grow_call(calls.setdefault(entry["index"], {}), entry)
                elif key == "reasoning_details":
                    for entry in value:
                        _grow_entry(message.setdefault(key, []), entry)
                elif key != "role":
                    message[key] = (message.get(key) or "") + (value or "")
    return [message | ({"tool_calls": list(calls.values())} if calls else {})]


def _grow_entry(entries: list[Json], entry: Json) -> None:
    """As openai-python does it: entries of one index are one, and their texts grow."""
    known = next((one for one in entries if "index" in entry and one.get("index") == entry["index"]), None)
    if known is None:
        entries.append(dict(entry))
        return
    for key, value in entry.items():
        known[key] = known[key] + value if key not in ("index", "type") and key in known else value


def _grow_call(call: Json, entry: Json) -> None:
    given = entry.get("function", {})
    if not call:
        call |= {key: value for key, value in entry.items() if key != "index"}
        call["function"] = {"arguments": "", **given}
    else:
        call["function"]["arguments"] += given.get("arguments", "")


def _messages_streamed(events: list[Json]) -> list[Json]:
    blocks: list[Json] = []
    for event in events:
        match event:
            case {"type": "content_block_start", "content_block": block}:
                blocks.append({**block, "partial": ""} if block["type"] == "tool_use" else dict(block))
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                key = {"input_json_delta": "partial", "signature_delta": "signature"}.get(delta["type"])
                key = key or delta["type"].removesuffix("_delta")
                piece = delta.get("partial_json", delta.get(key, ""))
                blocks[index][key] = blocks[index].get(key, "") + piece
            case {"type": "content_block_stop", "index": index} if "partial" in blocks[index]:
                blocks[index]["input"] = json.loads(blocks[index].pop("partial") or "{}")
    return [{"role": "assistant", "content": blocks}]


def _responses_streamed(events: list[Json]) -> list[Json]:
    (done,) = (event for event in events if event["type"] == "response.completed")
    return list(done["response"]["output"])


_STREAMED: Final = {
    "openai_chat": _chat_streamed,
    "anthropic": _messages_streamed,
    "openai_responses": _responses_streamed,
}
_WHOLE: Final[dict[str, Any]] = {
    "openai_chat": lambda body: [body["choices"][0]["message"]],
    "anthropic": lambda body: [{"role": "assistant", "content": body["content"]}],
    "openai_responses": lambda body: body["output"],
}


def _chat_calls(message: Json) -> list[Call]:
    entries = message.get("tool_calls") or ()
    return [Call(entry["id"], entry["function"]["name"], entry["function"]["arguments"]) for entry in entries]


def _messages_calls(message: Json) -> list[Call]:
    uses = (block for block in message["content"] if block["type"] == "tool_use")
    return [Call(use["id"], use["name"], json.dumps(use["input"])) for use in uses]


def _responses_calls(item: Json) -> list[Call]:
    return [Call(item["call_id"], item["name"], item["arguments"])] if item["type"] == "function_call" else []


_CALLS: Final = {"openai_chat": _chat_calls, "anthropic": _messages_calls, "openai_responses": _responses_calls}
