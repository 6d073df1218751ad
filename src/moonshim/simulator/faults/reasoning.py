"""Reasoning in the field, the order and the shape of each host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from moonshim.simulator.fault import Chunks, Fault, Speech, Whole
from moonshim.simulator.faults.parts import (
    REASONING_FIELDS,
    BlockEdits,
    carrier,
    contents_of,
    delta_of,
    of_block,
    read_blocks,
    reasoning_of,
    text_of,
    with_delta,
)
from moonshim.simulator.request import Json
from moonshim.simulator.response import HostResponse

__all__ = ["FAULTS"]

_SIGNATURE: Final = "a2ltaS1zaW11bGF0b3I" * 9
"""Opaque base64url, as Kimi Code's are."""
_FOREIGN: Final = "The user asked for the opening hours of the museum in Basel. "


def _use_field(field: str) -> Speech:
    return lambda answer: replace(answer, reasoning_field=field)


def _summarize(answer: HostResponse) -> HostResponse:
    return replace(answer, reasoning_field="reasoning_summary", signature=answer.signature or _SIGNATURE)


# -- one delta or message ----------------------------------------------------------------------------------------


def _change_deltas(change: Callable[[Json], Json]) -> Chunks:
    return lambda chunks, answer: [with_delta(chunk, change(delta_of(chunk))) for chunk in chunks]


def _change_message(change: Callable[[Json], Json]) -> Whole:
    return lambda payload, answer: with_delta(payload, change(delta_of(payload)))


def _copy_reasoning(delta: Json) -> Json:
    reasoning = reasoning_of(delta)
    return {**delta, "reasoning_content": reasoning, "reasoning": reasoning} if reasoning else delta


def _add_nulls(delta: Json) -> Json:
    return {**dict.fromkeys(REASONING_FIELDS), **delta}


def _empty_fields(delta: Json) -> Json:
    return {key: _empty(value) if key in REASONING_FIELDS else value for key, value in delta.items()}


def _empty(value: Any) -> Any:
    return [] if isinstance(value, list) else "" if value else value


# -- order -----------------------------------------------------------------------------------------------------------


def _send_after_text(chunks: list[Json], answer: HostResponse) -> list[Json]:
    if answer.request.wire == "anthropic":
        return _send_thinking_later(read_blocks(chunks)).events()
    thoughts = [chunk for chunk in chunks if contents_of(chunk) == {"reasoning"}]
    last = max((at for at, chunk in enumerate(chunks) if contents_of(chunk) == {"text"}), default=None)
    if last is None:
        return chunks
    rest = [chunk for chunk in chunks[: last + 1] if chunk not in thoughts]
    return [*rest, *thoughts, *(chunk for chunk in chunks[last + 1 :] if chunk not in thoughts)]


def _send_thinking_later(parts: BlockEdits) -> BlockEdits:
    order = {"text": 0, "thinking": 1}
    return BlockEdits(parts.head, sorted(parts.blocks, key=lambda block: order.get(of_block(block), 2)), parts.tail)


def _join_with_text(chunks: list[Json], answer: HostResponse) -> list[Json]:
    """The last reasoning and the first text in one delta, at the transition between them."""
    last = max((at for at, chunk in enumerate(chunks) if contents_of(chunk) == {"reasoning"}), default=None)
    first = next((at for at, chunk in enumerate(chunks) if contents_of(chunk) == {"text"}), None)
    if last is None or first != last + 1:
        return chunks
    both = carrier(chunks, {**delta_of(chunks[last]), "content": text_of(delta_of(chunks[first]))})
    return [*chunks[:last], both, *chunks[first + 1 :]]


def _add_blank_thinking(chunks: list[Json], answer: HostResponse) -> list[Json]:
    """An empty thinking block, or an empty field."""
    if answer.request.wire == "anthropic":
        remaining = (event for event in chunks if (event.get("delta") or {}).get("type") != "thinking_delta")
        return list(remaining)
    return _change_deltas(_empty_fields)(chunks, answer)


def _add_blank_thinking_whole(payload: Json, answer: HostResponse) -> Json:
    if answer.request.wire == "anthropic":
        blocks = [{**one, "thinking": ""} if one.get("type") == "thinking" else one for one in payload["content"]]
        return {**payload, "content": blocks}
    return _change_message(_empty_fields)(payload, answer)


# -- content ---------------------------------------------------------------------------------------------------------


def _think_only(answer: HostResponse) -> HostResponse:
    return replace(answer, text="", calls=(), finish="stop") if answer.reasoning else answer


def _think_too_long(answer: HostResponse) -> HostResponse:
    return replace(answer, text="", calls=(), finish="length") if answer.reasoning else answer


def _write_foreign(answer: HostResponse) -> HostResponse:
    return replace(answer, reasoning=_FOREIGN + answer.reasoning) if answer.reasoning else answer


def _row(name: str, about: str, seen: str, **more: Any) -> Fault:
    more = {"wires": ("openai_chat",), "needs": "reasoning", **more}
    return Fault(name=name, group="reasoning", about=about, seen=seen, **more)


_BOTH_WIRES: Final = ("openai_chat", "anthropic")

FAULTS: Final[tuple[Fault, ...]] = (
    _row(
        "reasoning-content",
        "The reasoning is in `reasoning_content`, whatever the emulated host uses",
        "Moonshot, SGLang, older vLLM",
        speech=_use_field("reasoning_content"),
    ),
    _row("reasoning", "The reasoning is in `reasoning`", "vLLM, Together", speech=_use_field("reasoning")),
    _row(
        "reasoning-details",
        "The reasoning is in `reasoning` and, as a list, in `reasoning_details`",
        "OpenRouter",
        speech=_use_field("reasoning_details"),
    ),
    _row(
        "reasoning-summary",
        "The reasoning is a summary and an encrypted entry in `reasoning_details`, with an `index` while streaming",
        "Kimi Code, for K3",
        families=("k3",),
        speech=_summarize,
    ),
    _row(
        "reasoning-copies",
        "The reasoning is in both `reasoning_content` and `reasoning`",
        "kimi-code#3928",
        chunks=_change_deltas(_copy_reasoning),
        whole=_change_message(_copy_reasoning),
    ),
    _row(
        "null-reasoning",
        "The reasoning fields are null wherever there is no reasoning",
        "agent-zero#887",
        needs="",
        chunks=_change_deltas(_add_nulls),
        whole=_change_message(_add_nulls),
    ),
    _row(
        "empty-reasoning",
        "The model reasons, but its reasoning arrives as an empty string",
        "kimi-cli#2498",
        wires=_BOTH_WIRES,
        chunks=_add_blank_thinking,
        whole=_add_blank_thinking_whole,
    ),
    _row(
        "reasoning-with-text",
        "The end of the reasoning and the start of the text share a delta",
        "OmniRoute#771, future-os#46",
        ways=("stream",),
        chunks=_join_with_text,
    ),
    _row(
        "reasoning-after-text",
        "The reasoning arrives after the text",
        "goai#119",
        wires=_BOTH_WIRES,
        ways=("stream",),
        chunks=_send_after_text,
    ),
    _row(
        "foreign-reasoning",
        "The reasoning starts with that of another request",
        "sglang#34259",
        wires=_BOTH_WIRES,
        speech=_write_foreign,
    ),
    _row(
        "stops-after-thinking",
        "The model reasons, then stops without text or tool calls",
        "kimi-code#520, goose#11975, qwen-code#7034",
        wires=_BOTH_WIRES,
        lost=True,
        speech=_think_only,
    ),
    _row(
        "limit-spent-thinking",
        "The reasoning uses up the token limit, so there is no text and no tool call",
        "Moonshot: reasoning and text share `max_tokens`",
        wires=_BOTH_WIRES,
        lost=True,
        speech=_think_too_long,
    ),
)
