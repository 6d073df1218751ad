"""A row of `kimi.jsonl` (a text of a K2 or K3 model, and what another project reads from it) -> what we read."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from conformance.checked import Checked, plain_arguments
from conformance.replies import Json, Reply, Request, replies

__all__ = ["area_of", "check", "key_of"]

_K2_ID: Final = re.compile(r"functions\.[\w.\-]+:[0-9]+")
_LONG: Final = 12
"""A parameter longer than this is the text of the case, not a name for it."""


def key_of(row: Json) -> str:
    """A short name: file and test without folders, and a digest in place of a text among the parameters."""
    path, _, test = row["name"].rpartition("::")
    name, bracket, parameters = test.partition("[")
    if bracket and len(parameters) > _LONG:
        parameters = f"{hashlib.sha256(parameters.encode()).hexdigest()[:6]}]"
    stem = path.rpartition("/")[2].removesuffix(".py")
    return f"{stem}/{name}{bracket}{parameters}" if stem else f"{name}{bracket}{parameters}"


def area_of(row: Json) -> str:
    """Which model, and which part of reading it."""
    family = "kimi_k3" if row["family"] == "kimi_k3" else "kimi_k2"
    return f"{family} {row['stage']}"


def check(row: Json) -> Checked:
    """Both sides with the same claims: what the row does not claim is left out of ours."""
    finish = row.get("finish_reason") or "stop"
    ways = replies(_pieces(row), _request(row), finish=finish)
    reply = ways["as given"]
    expect = row["expect"]
    expected: Json = {
        "content": expect["content"] or "",
        "reasoning": expect["reasoning"] or "",
        "calls": [_claimed(call) for call in expect["tool_calls"] or ()],
    }
    return Checked(_told(reply, expected["calls"]), expected, ways=ways)


def _request(row: Json) -> Request:
    choice = row.get("tool_choice")
    if choice == "named":
        choice = {"type": "function", "function": {"name": row["tools"][0]["function"]["name"]}}
    model = "kimi-k3" if row["family"] == "kimi_k3" else "kimi-k2.5"
    return Request(model=model, tools=row["tools"], tool_choice=choice)


def _pieces(row: Json) -> list[str]:
    """The text as the model wrote it, after the tag with which the prompt had ended."""
    pieces: list[str] = row["chunks"]
    text = "".join(pieces)
    if row["family"] == "kimi_k3":
        if row["stage"] != "reasoning" or text.startswith("<|open|>"):
            return pieces
        answering = text.find("<|close|>response"), text.find("<|close|>think")
        opened = "response" if answering[0] >= 0 > answering[1] else "think"
        return [f"<|open|>{opened}<|sep|>", *pieces]
    forced = (row.get("init") or {}).get("force_reasoning")
    return ["<think>", *pieces] if forced and not text.startswith("<think>") else pieces


def _claimed(call: Json) -> Json:
    claimed = {"name": call["name"], "arguments": plain_arguments(call["arguments"])}
    if call["id"] is not None and _K2_ID.fullmatch(call["id"]):
        claimed["id"] = call["id"]
    return claimed


def _told(reply: Reply, claims: list[Json]) -> Json:
    calls: list[dict[str, Any]] = []
    for place, call in enumerate(reply.calls):
        told = {"name": call.name, "arguments": plain_arguments(call.arguments)}
        if place < len(claims) and "id" in claims[place]:
            told["id"] = call.id
        calls.append(told)
    return {"content": reply.content, "reasoning": reply.reasoning, "calls": calls}
