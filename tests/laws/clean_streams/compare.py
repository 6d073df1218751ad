"""A clean response, sent through Moonshim -> what differs for the client, or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import moonshim
from tests.laws.clean_streams.streams import Choice, CleanCase
from tests.support.exchanges import Received, read_body, read_stream

Json: TypeAlias = dict[str, Any]

TIDIED: Final = ("usage_moved", "usage_repeated", "role_repeated", "not_said")
"""Rules that put something where a client looks for it, or have no words for it in a dialect: no repairs of faults."""


def differences(case: CleanCase) -> list[str]:
    """What is not as it came: text, reasoning, calls, finish, usage, unknown fields; an error; a repair."""
    prepared = moonshim.prepare_request(case.request, dialect=case.client, host=case.host, model=case.model)
    if case.body is not None:
        mended = moonshim.mend_response(case.body, plan=prepared.plan)
        found = _repairs(mended.repairs)
        if case.client == "openai_chat":
            return found if mended.body == case.body else [*found, f"the body: {json.dumps(mended.body)[:400]}"]
        return found + list(_compare(case, read_body(mended.body, case.client)))
    mender = moonshim.Mender(plan=prepared.plan)
    data = b"".join([mender.feed(piece) for piece in case.pieces]) + mender.flush()
    found = _repairs(mender.repairs)
    if case.client == "openai_chat":
        return found + list(_compare_chat(case, data))
    return found + list(_compare(case, read_stream(data, case.client)))


def _repairs(repairs: list[moonshim.Repaired]) -> list[str]:
    return [f"repair: {repaired}" for repaired in repairs if repaired.rule not in TIDIED]


def _calls(choice: Choice) -> list[tuple[str, Any]]:
    return [(call.name, call.written) for call in choice.calls]


def _compare(case: CleanCase, received: Received) -> Iterator[str]:
    """A client of another dialect."""
    (choice,) = case.choices
    finish = choice.finish
    if case.client == "openai_responses" and finish == "tool_calls" and not choice.calls:
        finish = "stop"
    expected = {
        "error": None,
        "text": choice.content + choice.after,
        "reasoning": choice.reasoning,
        "calls": _calls(choice),
        "finish": finish,
    }
    for name, one in expected.items():
        if getattr(received, name) != one:
            yield f"{name}: {getattr(received, name)!r}, not {one!r}"
    if case.usage is not None:
        output = (received.usage or {}).get("output_tokens")
        if output != case.usage["completion_tokens"]:
            yield f"usage: {output} output tokens, not {case.usage['completion_tokens']}"


# --- Chat -----------------------------------------------------------------------------------------------------------


@dataclass
class _ChatChoice:
    content: str = ""
    reasoning: dict[str, str] = field(default_factory=dict)
    """By field."""
    calls: dict[int, list[str]] = field(default_factory=dict)
    """Id, name and arguments."""
    finishes: list[str] = field(default_factory=list)


_KNOWN: Final = {
    "chunk": {"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier", "provider"},
    "choice": {"index", "delta", "finish_reason", "usage"},
    "delta": {"role", "content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls"},
}


def _compare_chat(case: CleanCase, data: bytes) -> Iterator[str]:
    events = data.decode().split("\n\n")
    if events[-2:] != ["data: [DONE]", ""]:
        yield f"the end: {events[-2:]!r}"
    comments = sum(event.startswith(":") for event in events)
    if comments != case.comments:
        yield f"comments: {comments}, not {case.comments}"
    choices = [_ChatChoice() for _ in case.choices]
    unknown: set[tuple[str, str, str]] = set()
    usage: Json | None = None
    for event in events:
        if not event.startswith("data: {"):
            continue
        chunk = json.loads(event[6:])
        if chunk.get("error"):
            yield f"an error: {chunk['error']}"
        usage = chunk.get("usage") or usage
        unknown |= _unknown("chunk", chunk)
        for choice in chunk.get("choices") or ():
            usage = choice.get("usage") or usage
            unknown |= _unknown("choice", choice) | _unknown("delta", choice["delta"])
            _read(choices[choice["index"]], choice)
    if usage != case.usage:
        yield f"usage: {usage}, not {case.usage}"
    if unknown != case.unknown:
        yield f"unknown fields: missing {case.unknown - unknown}, new {unknown - case.unknown}"
    for place, (choice, found) in enumerate(zip(case.choices, choices, strict=True)):
        yield from (f"choice {place}: {wrong}" for wrong in _compare_choice(case, choice, found))


def _unknown(place: str, holder: Json) -> set[tuple[str, str, str]]:
    return {(place, key, json.dumps(one)) for key, one in holder.items() if key not in _KNOWN[place]}


def _read(found: _ChatChoice, choice: Json) -> None:
    delta = choice["delta"]
    found.content += delta.get("content") or ""
    for name in ("reasoning_content", "reasoning"):
        if delta.get(name):
            found.reasoning[name] = found.reasoning.get(name, "") + delta[name]
    for detail in delta.get("reasoning_details") or ():
        found.reasoning["reasoning_details"] = found.reasoning.get("reasoning_details", "") + detail.get("text", "")
    for entry in delta.get("tool_calls") or ():
        call = found.calls.setdefault(entry["index"], ["", "", ""])
        call[0] += entry.get("id") or ""
        call[1] += entry["function"].get("name") or ""
        call[2] += entry["function"].get("arguments") or ""
    if choice.get("finish_reason"):
        found.finishes.append(choice["finish_reason"])


def _compare_choice(case: CleanCase, choice: Choice, found: _ChatChoice) -> Iterator[str]:
    fields = ("reasoning", "reasoning_details") if case.reasoning_field == "both" else (case.reasoning_field,)
    reasoning = dict.fromkeys(fields, choice.reasoning) if choice.reasoning else {}
    if case.reasoning_field == "encrypted":
        reasoning = {"reasoning_details": ""}
    expected = {
        "content": choice.content + choice.after,
        "reasoning": reasoning,
        "calls": {place: [call.id, call.name, call.arguments] for place, call in enumerate(choice.calls)},
        "finishes": [choice.finish],
    }
    for name, one in expected.items():
        if getattr(found, name) != one:
            yield f"{name}: {getattr(found, name)!r}, not {one!r}"
