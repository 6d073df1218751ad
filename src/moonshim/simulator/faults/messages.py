"""Events of Anthropic's Messages as Kimi's own endpoints, and proxies in front of them, have been seen to send them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from moonshim.simulator.fault import Chunks, Fault
from moonshim.simulator.faults.parts import BlockEdits, object_of, of_block, read_blocks
from moonshim.simulator.request import Json
from moonshim.simulator.response import HostResponse

__all__ = ["FAULTS"]

_STARTS: Final = 29
_SIGNATURE: Final = "a2ltaS1zaW11bGF0b3I" * 9
"""Opaque base64url, as Kimi Code's are."""


def _change_blocks(change: Callable[[list[Json]], list[Json]], *kinds: str) -> Chunks:
    """Change the blocks of these kinds, or all."""

    def change_events(events: list[Json], answer: HostResponse) -> list[Json]:
        parts = read_blocks(events)
        blocks = [change(block) if not kinds or of_block(block) in kinds else block for block in parts.blocks]
        return BlockEdits(parts.head, blocks, parts.tail).events()

    return change_events


def _is(event: Json, kind: str) -> bool:
    return bool(event.get("type") == kind)


def _without(kind: str) -> Chunks:
    return lambda events, answer: [event for event in events if not _is(event, kind)]


def _stop_twice(block: list[Json]) -> list[Json]:
    """The first stop carries a signature, and does not end the block."""
    signed = next((event["delta"]["signature"] for event in block if "signature" in event.get("delta", {})), _SIGNATURE)
    stops = [event for event in block if _is(event, "content_block_stop")]
    return [
        *(event for event in block if event not in stops),
        *({**stop, "signature": signed} for stop in stops),
        *stops,
    ]


def _repeat_start(events: list[Json], answer: HostResponse) -> list[Json]:
    starts = [event for event in events if _is(event, "message_start")]
    at = next((at for at, event in enumerate(events) if _is(event, "message_stop")), len(events))
    return [*events[:at], *(starts * _STARTS), *events[at:]]


def _send_pings(events: list[Json], answer: HostResponse) -> list[Json]:
    return [one for event in events for one in ({"type": "ping"}, {"type": "ping"}, event)]


# -- the input of a call -----------------------------------------------------------------------------------------


def _arguments(block: list[Json]) -> str:
    return "".join(event["delta"].get("partial_json", "") for event in block if _is(event, "content_block_delta"))


def _with_input(block: list[Json], value: Any) -> list[Json]:
    return [
        {**event, "content_block": {**event["content_block"], "input": value}}
        if _is(event, "content_block_start")
        else event
        for event in block
    ]


def _send_input_at_start(block: list[Json]) -> list[Json]:
    value = object_of(_arguments(block))
    if value is None:
        return block
    return [event for event in _with_input(block, value) if not _is(event, "content_block_delta")]


def _send_input_twice(block: list[Json]) -> list[Json]:
    value = object_of(_arguments(block))
    return block if value is None else _with_input(block, value)


def _send_input_as_string(block: list[Json]) -> list[Json]:
    return [event for event in _with_input(block, _arguments(block)) if not _is(event, "content_block_delta")]


def _send_input_as_string_whole(payload: Json, answer: HostResponse) -> Json:
    texts = iter(call.arguments for call in answer.calls)
    blocks = [{**one, "input": next(texts)} if one.get("type") == "tool_use" else one for one in payload["content"]]
    return {**payload, "content": blocks}


# -- how blocks follow one another -------------------------------------------------------------------------------


def _skip_indexes(events: list[Json], answer: HostResponse) -> list[Json]:
    return [{**event, "index": event["index"] * 2} if "index" in event else event for event in events]


def _overlap_blocks(events: list[Json], answer: HostResponse) -> list[Json]:
    """A block ends only after the first event of the next."""
    stops = [at for at, event in enumerate(events) if _is(event, "content_block_stop")]
    out = list(events)
    for at in stops:
        if at + 1 < len(out) and _is(out[at + 1], "content_block_start"):
            out[at], out[at + 1] = out[at + 1], out[at]
    return out


def _sign(answer: HostResponse) -> HostResponse:
    return replace(answer, signature=answer.signature or _SIGNATURE)


def _drop_signature(answer: HostResponse) -> HostResponse:
    return replace(answer, signature="")


def _omit_signature_field(block: list[Json]) -> list[Json]:
    """Neither an empty one at the start nor one before the stop."""
    out: list[Json] = []
    for event in block:
        if _is(event, "content_block_start"):
            inner = {key: value for key, value in event["content_block"].items() if key != "signature"}
            out.append({**event, "content_block": inner})
        elif event.get("delta", {}).get("type") != "signature_delta":
            out.append(event)
    return out


def _omit_signature_whole(payload: Json, answer: HostResponse) -> Json:
    blocks = [{key: value for key, value in one.items() if key != "signature"} for one in payload["content"]]
    return {**payload, "content": blocks}


def _send_empty_signature_delta(block: list[Json]) -> list[Json]:
    index = block[0]["index"]
    empty = {"type": "content_block_delta", "index": index, "delta": {"type": "signature_delta", "signature": ""}}
    remaining = _omit_signature_field(block)
    at = next((at for at, event in enumerate(remaining) if _is(event, "content_block_stop")), len(remaining))
    return [*remaining[:at], empty, *remaining[at:]]


# -- tokens ------------------------------------------------------------------------------------------------------


def _omit_usage_in(kind: str) -> Chunks:
    def change_events(events: list[Json], answer: HostResponse) -> list[Json]:
        return [_drop_usage(event) if _is(event, kind) else event for event in events]

    return change_events


def _drop_usage(event: Json) -> Json:
    remaining = {key: value for key, value in event.items() if key != "usage"}
    if "message" in remaining:
        remaining["message"] = {key: value for key, value in remaining["message"].items() if key != "usage"}
    return remaining


def _row(name: str, about: str, seen: str, chunks: Chunks | None = None, **more: Any) -> Fault:
    more = {"wires": ("anthropic",), "ways": ("stream",), **more}
    return Fault(name=name, group="messages", about=about, seen=seen, chunks=chunks, **more)


_BOTH_WAYS: Final = ("stream", "whole")

FAULTS: Final[tuple[Fault, ...]] = (
    _row(
        "block-stopped-twice",
        "Every block is stopped twice, the first time with a signature",
        "kimi-cli#305",
        _change_blocks(_stop_twice),
    ),
    _row(
        "block-not-stopped",
        "No block gets a `content_block_stop`",
        "anthropic-sdk-kotlin#147",
        _without("content_block_stop"),
    ),
    _row(
        "message-started-again", "`message_start` is sent 29 more times before the end", "Kimi-K2.5#33", _repeat_start
    ),
    _row("ping-flood", "Two pings come before every event", "Anthropic", _send_pings),
    _row(
        "input-at-start",
        "The `input` of a call is complete in `content_block_start`, and no deltas follow",
        "opencode#20650",
        _change_blocks(_send_input_at_start, "tool_use"),
        needs="calls",
    ),
    _row(
        "input-twice",
        "The `input` of a call arrives twice: complete in `content_block_start`, then streamed",
        "proxies in front of Kimi; opencode#20650",
        _change_blocks(_send_input_twice, "tool_use"),
        needs="calls",
    ),
    _row(
        "input-as-text",
        "The `input` of a call is a JSON string instead of an object",
        "anthropic-sdk-python#804",
        _change_blocks(_send_input_as_string, "tool_use"),
        whole=_send_input_as_string_whole,
        ways=_BOTH_WAYS,
        needs="calls",
    ),
    _row("index-gaps", "Block indexes have gaps: 0, 2, 4", "claudish#127, omlx#1353", _skip_indexes),
    _row(
        "overlapping-blocks", "A block is stopped only after the next one has started", "bifrost#3441", _overlap_blocks
    ),
    _row(
        "signed",
        "Thinking blocks have an opaque signature",
        "Kimi Code",
        speech=_sign,
        ways=_BOTH_WAYS,
        needs="reasoning",
    ),
    _row(
        "unsigned",
        "Thinking blocks are not signed: `signature` is an empty string",
        "Moonshot",
        speech=_drop_signature,
        ways=_BOTH_WAYS,
        needs="reasoning",
    ),
    _row(
        "no-signature",
        "Thinking blocks have no `signature` field",
        "Moonshot",
        _change_blocks(_omit_signature_field, "thinking"),
        whole=_omit_signature_whole,
        ways=_BOTH_WAYS,
        needs="reasoning",
    ),
    _row(
        "empty-signature",
        "Thinking blocks end with an empty `signature_delta`",
        "Kimi Code",
        _change_blocks(_send_empty_signature_delta, "thinking"),
        needs="reasoning",
    ),
    _row(
        "no-start-usage",
        "`message_start` has no `usage`",
        "CLIProxyAPI#1279",
        _omit_usage_in("message_start"),
    ),
    _row(
        "no-delta-usage",
        "`message_delta` has no `usage`",
        "CLIProxyAPI#1279",
        _omit_usage_in("message_delta"),
    ),
    _row(
        "no-message-delta",
        "There is no `message_delta`, so the stop reason is missing",
        "Kimi-K2.5#33",
        _without("message_delta"),
    ),
    _row("no-message-stop", "The stream ends without `message_stop`", "new-api#5870", _without("message_stop")),
    _row(
        "no-message-start",
        "The stream starts without `message_start`",
        "proxies in front of Kimi",
        _without("message_start"),
    ),
)
