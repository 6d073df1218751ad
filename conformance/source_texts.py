"""Rows about markers in whole texts and in pieces of a stream -> what we read from them."""

from __future__ import annotations

from typing import Any

import moonshim
from conformance.checked import Checked, plain_arguments
from conformance.replies import Call, Json, Reply, Request, events_of, read_stream, replies, sent

__all__ = ["check_pieces", "check_text", "check_transformed"]


def check_text(row: Json) -> Checked:
    """A whole text, the calls in it, and what is left of it."""
    ways = replies([row["input"]["text"]], Request())
    reply, expect = ways["as given"], row["expect"]
    got = {"tool_calls": _alike(reply.calls, expect["tool_calls"]), "clean_text": reply.content}
    return Checked(got, {key: expect[key] for key in got}, ways)


def check_transformed(row: Json) -> Checked:
    """A whole response, by the options of the row."""
    given, expect = row["input"], row["expect"]
    options = moonshim.KimiOptions.from_json(given["options"])
    request = Request(options=options, history=given["messages"])
    ways = replies([given["content"]], request)
    message = {"role": "assistant", "content": given["content"]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": None}]}
    mended = request.response(body)
    choice = mended["choices"][0]
    if "unchanged" in expect:
        return Checked({"unchanged": choice["message"] == message}, expect, ways)
    if "ideal_calls" in expect:
        ids = [call["id"] for call in choice["message"].get("tool_calls", ())]
        return Checked(ids, expect["ideal_calls"], ways, ideal=True)
    told = {key: value for key, value in choice["message"].items() if key != "role"}
    return Checked({"message": told, "finish_reason": choice["finish_reason"]}, expect, ways)


def check_pieces(row: Json) -> Checked:
    """Pieces of a stream in one field, and the steps or the facts that follow from them."""
    given, expect = row["input"], row["expect"]
    field, pieces, request = given["field"], given["pieces"], _request(given, expect)
    if "no_crash" in expect:
        return _cut_off(request, field, pieces, expect)
    ways = replies(pieces, request, field=field)
    if isinstance(expect, list):
        stream = request.stream(sent({field: piece} for piece in pieces))
        return Checked({"steps": _steps(stream, field)}, {"steps": _expected_steps(expect)}, ways)
    claims, facts = _claims(expect), _facts(ways["as given"])
    if "id_prefixes" in claims:
        given_ids = zip(facts["ids"], claims["id_prefixes"], strict=False)
        facts["id_prefixes"] = [prefix if id.startswith(prefix) else id for id, prefix in given_ids]
    return Checked({key: facts[key] for key in claims}, claims, ways)


def _request(given: Json, expect: Any) -> Request:
    options = moonshim.KimiOptions.mending()
    if "tokens" in given:
        options = moonshim.KimiOptions.mending(tool_tokens=moonshim.ToolTokens(**given["tokens"]))
    elif any("raw_id" in call for call in _called(expect)):
        # The row asks for the identifier as the model wrote it.
        options = moonshim.KimiOptions.mending(id_policy="keep")
    return Request(options=options)


def _cut_off(request: Request, field: str, pieces: list[str], expect: Json) -> Checked:
    reply = read_stream(request.stream(sent(({field: piece} for piece in pieces), finish=None)))
    call = reply.calls[0] if reply.calls else Call("", "", "")
    got = {"tool_call_started": call.name, "arguments_so_far": call.arguments, "no_crash": True}
    return Checked(got, expect)


def _steps(stream: bytes, field: str) -> list[Json]:
    """What happened, in order; neighbours of the same kind are one step, since chunking says nothing."""
    steps: list[Json] = []
    for event in events_of(stream):
        delta = event["choices"][0]["delta"]
        if delta.get(field):
            _grow(steps, "text", {"text": delta[field]})
        for piece in delta.get("tool_calls") or ():
            if piece["function"].get("name"):
                steps.append({"start": {"index": piece["index"], "name": piece["function"]["name"]}})
            if piece["function"].get("arguments"):
                _grow(steps, "args", {"args": piece["function"]["arguments"], "index": piece["index"]})
    return steps


def _grow(steps: list[Json], key: str, step: Json) -> None:
    if steps and key in steps[-1]:
        steps[-1][key] += step[key]
    else:
        steps.append(step)


def _expected_steps(expect: list[Json]) -> list[Json]:
    steps: list[Json] = []
    for step in expect:
        key = next((key for key in ("text", "args") if key in step), "")
        if key:
            _grow(steps, key, dict(step))
        elif "start" in step:
            steps.append(step)
    return steps


def _called(expect: Any) -> list[Json]:
    """The calls that a row describes, one or several."""
    if not isinstance(expect, dict):
        return []
    calls = expect.get("tool_calls", [expect["tool_call"]] if "tool_call" in expect else [])
    return calls if isinstance(calls, list) else []


def _claims(expect: Json) -> Json:
    """What the row says of the result, in the terms of `_facts`."""
    claims: Json = {
        key: expect[key] for key in ("content", "visible_text_stripped", "no_marker_text_in_output") if key in expect
    }
    if "content_before" in expect:
        claims["content"] = expect["content_before"] + expect["content_after"]
    count = expect.get("tool_calls")
    calls = _called(expect)
    claims["calls"] = count if isinstance(count, int) else len(calls)
    if calls:
        claims["names"] = [call["name"] for call in calls]
    for claim, key in (("arguments", "arguments"), ("arguments", "arguments_json"), ("ids", "raw_id")):
        if calls and all(key in call for call in calls):
            claims[claim] = [call[key] if claim == "ids" else plain_arguments(call[key]) for call in calls]
    if calls and all("id_prefix" in call for call in calls):
        claims["id_prefixes"] = [call["id_prefix"] for call in calls]
    return claims


def _facts(reply: Reply) -> Json:
    said = reply.content + reply.reasoning
    return {
        "content": said,
        "visible_text_stripped": said.strip(),
        "no_marker_text_in_output": "<|" not in said + "".join(call.arguments for call in reply.calls),
        "calls": len(reply.calls),
        "names": [call.name for call in reply.calls],
        "arguments": [plain_arguments(call.arguments) for call in reply.calls],
        "ids": [call.id for call in reply.calls],
    }


def _alike(calls: tuple[Call, ...], claims: list[Json]) -> list[Json]:
    out = []
    for place, call in enumerate(calls):
        told: dict[str, Any] = {"name": call.name, "arguments": plain_arguments(call.arguments)}
        if place < len(claims) and "raw_id" in claims[place]:
            told["raw_id"] = call.id
        out.append(told)
    return out
