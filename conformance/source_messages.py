"""Rows about the streams of Messages hosts -> the reply of a client, by every way that the stream can come."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias

import moonshim
from conformance.checked import Checked, plain_arguments
from conformance.replies import Call, Json, Reply, events_of, read_events
from moonshim.engine.plan import Plan
from moonshim.engine.values.conversation import Reasoning, ToolCall

__all__ = ["check_leak", "check_limits", "check_stream"]

Client: TypeAlias = Literal["openai_chat", "anthropic"]

_BYTES: Final = (1, 2, 3, 7, 64, 1000)
_HELLO: Final = {"role": "user", "content": "hi"}
_WITH_INPUT: Final[list[Json]] = [
    {"index": 0, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {"command": "ls"}}},
    {"index": 0},
    {"stop_reason": "end_turn"},
    {},
]
_TYPES: Final = ("content_block_start", "content_block_stop", "message_delta", "message_stop")
_FINISH: Final = {"tool_use": "tool_calls", "end_turn": "stop", "max_tokens": "length"}


def check_stream(row: Json) -> Checked:
    """What a Chat client and the assembled message have of the events; one row only describes its events."""
    given, expect = row["input"], row["expect"]
    sent = given.get("events") or [
        {"event": kind, "data": data} for kind, data in zip(_TYPES, _WITH_INPUT, strict=True)
    ]
    ways, mender = _ways(sent, "openai_chat")
    reply = ways["as given"]
    call = reply.calls[0] if reply.calls else Call("", "", "")
    arguments = plain_arguments(call.arguments)
    assembled = [part.wire_id for part in mender.message.parts if isinstance(part, ToolCall)]
    thoughts = [part for part in mender.message.parts if isinstance(part, Reasoning)]
    got: Json = {
        "arguments": arguments,
        "ideal_arguments": arguments,
        "valid_json": not isinstance(arguments, str),
        "id": call.id,
        "name": call.name,
        "ids_stable": [one.id for one in reply.calls] == assembled,
        "finish_reason": reply.finish,
        "ideal_finish": reply.finish,
        "thinking": reply.reasoning,
        "signature": thoughts[0].signature if thoughts else None,
        "tool_calls": [
            {"id": one.id, "name": one.name, "arguments": plain_arguments(one.arguments)} for one in reply.calls
        ],
    }
    claims = {key: value for key, value in expect.items() if key in got}
    return Checked({key: got[key] for key in claims}, claims, ways, any(key.startswith("ideal") for key in claims))


def check_leak(row: Json) -> Checked:
    """Markers in a thinking block, for a client that speaks Messages itself."""
    ways, _ = _ways(row["input"]["events"], "anthropic")
    reply, raw = ways["as given"], {finish: raw for raw, finish in _FINISH.items()}
    got = {
        "contains_block": {"type": "tool_use", "name": "".join(call.name for call in reply.calls)},
        "input_json_delta": "".join(call.arguments for call in reply.calls),
        "stop_reason": raw.get(reply.finish or ""),
    }
    return Checked(got, row["expect"], ways)


def check_limits(row: Json) -> Checked:
    """The limit of output tokens that is sent for each that the client gave, and whether a stream is asked for."""
    bodies = [_prepared("openai_chat", max_tokens=limit).body for limit in row["input"]["max_tokens"]]
    got = {
        "max_tokens": [body["max_tokens"] for body in bodies],
        "force_stream": all(body.get("stream") for body in bodies),
    }
    return Checked(got, row["expect"])


def _prepared(client: Client, **fields: Any) -> moonshim.Prepared:
    body = {"model": "kimi-k2.5", "messages": [_HELLO], "max_tokens": 9} | fields
    return moonshim.prepare_request(
        body, dialect=client, upstream="anthropic", host="generic", model="kimi-k2.5", secret=b"conformance"
    )


def _ways(events: list[Json], client: Client) -> tuple[dict[str, Reply], moonshim.Mender]:
    """Event by event, in pieces of several sizes, and as parsed payloads."""
    plan = _prepared(client).plan
    payloads = [_payload(event) for event in events]
    frames = [_frame(event) for event in events]
    whole = b"".join(frames)
    read = read_events if client == "openai_chat" else _read_messages
    out, mender = _mended(plan, frames)
    ways = {"as given": read(events_of(out))}
    for size in _BYTES:
        pieces = (whole[at : at + size] for at in range(0, len(whole), size))
        ways[f"{size} bytes at a time"] = read(events_of(_mended(plan, pieces)[0]))
    ways["as payloads"] = read(list(moonshim.mend_chunks(payloads, plan=plan)))
    return ways, mender


def _mended(plan: Plan, pieces: Iterable[bytes]) -> tuple[bytes, moonshim.Mender]:
    mender = moonshim.Mender(plan=plan)
    out = b"".join([mender.feed(piece) for piece in pieces])
    return out + mender.flush(), mender


def _payload(event: Json) -> Json:
    """The data of an event with its type, which some rows tell only beside it."""
    return {"type": event["event"], **event["data"]} if "event" in event else event


def _frame(event: Json) -> bytes:
    name, data = event.get("event", event.get("type")), event.get("data", event)
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _read_messages(events: Iterable[Json]) -> Reply:
    """Puts the deltas of each block together, as the official client does."""
    text = thought = ""
    calls: dict[int, list[str]] = {}
    finish = error = None
    for event in events:
        match event["type"]:
            case "content_block_start" if event["content_block"]["type"] == "tool_use":
                block = event["content_block"]
                calls[event["index"]] = [block["name"], "", block["id"]]
            case "content_block_delta":
                delta = event["delta"]
                text += delta.get("text", "")
                thought += delta.get("thinking", "")
                if "partial_json" in delta:
                    calls[event["index"]][1] += delta["partial_json"]
            case "message_delta":
                raw = event["delta"]["stop_reason"]
                finish = _FINISH.get(raw, raw)
            case "error":
                error = event["error"]["type"]
            case _:
                pass
    return Reply(text, thought, tuple(Call(*calls[key]) for key in sorted(calls)), finish, error)
