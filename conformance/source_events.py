"""Rows about events, deltas and whole streams -> what the mended stream is."""

from __future__ import annotations

import json
from typing import Any

import moonshim
from conformance.checked import Checked, plain_arguments
from conformance.replies import Json, Reply, Request, events_of, read_body, read_stream, sent

__all__ = ["check_assembled", "check_delta", "check_events", "check_finish", "check_interleaved", "check_shape"]


def check_events(row: Json) -> Checked:
    """Chunks, or the data of one event, and what becomes of them."""
    given, expect = row["input"], row["expect"]
    if "raw_data" in given:
        # One event among others: a stream of nothing else would also need an end.
        mender = Request().mender()
        for event in sent([{"content": "x"}])[:-1]:
            mender.feed(event)
        return Checked({"sse": mender.feed(f"data: {given['raw_data']}\n\n".encode()).decode()}, expect)
    events = [f"data: {json.dumps(event)}\n\n".encode() for event in given["events"]]
    mender = Request().mender()
    out = b"".join(mender.feed(event) for event in events)
    if "unchanged" in expect:
        return Checked({"unchanged": out == b"".join(events)}, expect)
    choices = [choice for event in events_of(out) for choice in event["choices"]]
    got: Json = {
        "delta_reasoning": "".join(choice["delta"].get("reasoning", "") for choice in choices),
        "choice_finish_reason": choices[-1].get("finish_reason") if choices else None,
        "delta_has_finish_reason": any("finish_reason" in (choice.get("delta") or {}) for choice in choices),
        "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in read_stream(out).calls],
    }
    return Checked({key: got[key] for key in expect}, expect)


def check_shape(row: Json) -> Checked:
    """The delta in which a call's header goes out, and that of its arguments. The identifier is ours."""
    given = row["input"]
    name, arguments = given.get("call", {}).get("name", "bash"), given.get("args", "{}")
    text = f"<|tool_call_begin|>{name}:0<|tool_call_argument_begin|>"
    out = Request().stream(sent([{"content": text}, {"content": arguments}, {"content": "<|tool_call_end|>"}]))
    deltas = [event["choices"][0]["delta"] for event in events_of(out)]
    calling = [{"tool_calls": delta["tool_calls"]} for delta in deltas if delta.get("tool_calls")]
    return Checked(
        {"delta": _without_id(calling[1 if "args" in given else 0])}, {"delta": _without_id(row["expect"]["delta"])}
    )


def _without_id(delta: Json) -> Json:
    calls = [dict.fromkeys(call, "id") | {k: v for k, v in call.items() if k != "id"} for call in delta["tool_calls"]]
    return {"tool_calls": calls}


def check_delta(row: Json) -> Checked:
    """One delta: its thought, the field of the thought, and the calls in it."""
    delta, expect = row["input"]["delta"], row["expect"]
    out = Request().stream(sent([delta]))
    reply = read_stream(out)
    calls = [{"name": call.name, "arguments": plain_arguments(call.arguments)} for call in reply.calls]
    fields = {field for event in events_of(out) for field in event["choices"][0].get("delta") or {}}
    got: Json = {
        "thought": reply.reasoning or None,
        "tool_calls": len(calls) if isinstance(expect.get("tool_calls"), int) else calls,
        "source_field": next((field for field in ("reasoning_content", "reasoning") if field in fields), None),
        "ideal": "ordinary text" if reply == Reply(delta.get("content") if delta else "", finish="stop") else "changed",
    }
    claims = {key: value for key, value in expect.items() if key in got}
    return Checked({key: got[key] for key in claims}, claims, ideal="ideal" in claims)


def check_interleaved(row: Json) -> Checked:
    """Parallel calls whose deltas come in turns; their identifiers stay, for the row names them by these."""
    request = Request(options=moonshim.KimiOptions.mending(id_policy="keep"))
    reply = read_stream(request.stream(sent(row["input"]["deltas"], "tool_calls")))
    return Checked({call.id: call.arguments for call in reply.calls}, row["expect"]["ideal"], ideal=True)


def check_assembled(row: Json) -> Checked:
    """A whole stream under the options of the row, and the summary of its calls."""
    given, expect = row["input"], row["expect"]
    ndjson = given["content_type"] == "application/x-ndjson"
    request = Request(options=moonshim.KimiOptions.from_json(given["options"]), history=given["messages"])
    raw = [chunk.encode() for chunk in given["chunks"]]
    out = request.stream(raw, "ndjson" if ndjson else "sse")
    events, lines = events_of(out), out.decode().splitlines()
    summaries = [
        (place, choice["message"]["tool_calls"])
        for place, event in enumerate(events)
        for choice in event.get("choices", ())
        if "tool_calls" in choice.get("message", {})
    ]
    place, synth = summaries[0] if summaries else (-1, None)
    ids = None if synth is None else [call["id"] for call in synth]
    wanted = [expect["forwarded_line"]] if "forwarded_line" in expect else expect.get("forwarded_lines", [])
    passed = [line for line in wanted if line in lines]
    got: dict[str, Any] = {
        "original_events_forwarded": len(events),
        "synth_position": _position(place, events, "data: [DONE]" in lines, expect.get("synth_position", "")),
        "synth": _as_chunk(synth, events[place]) if synth else None,
        "ends_with": "data: [DONE]\n\n" if out.endswith(b"data: [DONE]\n\n") else lines[-1:],
        "synth_ids": ids,
        "ideal_synth_ids": ids,
        "events": len(events),
        "forwarded_line": "".join(passed),
        "forwarded_lines": passed,
        "ideal": "forwarded" if out.startswith(raw[0]) else "changed",
    }
    claims = {key: value for key, value in expect.items() if key in got}
    return Checked({key: got[key] for key in claims}, claims, ideal=any(key.startswith("ideal") for key in claims))


def _finish(event: Json) -> str | None:
    return next((choice.get("finish_reason") for choice in event.get("choices", ())), None)


def _position(place: int, events: list[Json], done: bool, claim: str) -> str | None:
    """Where the summary stands, in the words of the row."""
    if place < 0:
        return None
    if "finish_reason" in claim and _finish(events[place]):
        return "in the finish chunk"
    return ("before [DONE]" if done else "end") if place == len(events) - 1 else f"event {place}"


def _as_chunk(synth: list[Json], event: Json) -> Json:
    """The summary in the shape of the row: as a chunk of its own."""
    calls = [{key: call[key] for key in ("id", "type", "function")} for call in synth]
    choice = {"delta": {"tool_calls": calls}, "finish_reason": _finish(event)}
    return {"object": event.get("object", "chat.completion.chunk"), "choices": [choice]}


def check_finish(row: Json) -> Checked:
    """A whole response with native calls, and its finish reason."""
    options = moonshim.KimiOptions.from_json(row["input"].get("options", {}))
    reply = read_body(Request(options=options).response(row["input"]["response"]))
    return Checked({"finish_reason": reply.finish}, row["expect"])
