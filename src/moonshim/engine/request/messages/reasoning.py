"""Reasoning of earlier turns, also in `<think>` text -> in the field that the host reads; lost reasoning is restored.

The replacement for lost reasoning is the mildest value that the host accepts: nothing, an empty string or a space.
Never words, which the model would read as its own reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.extras import has_legacy_call, reasoning_fields
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.located import ChangeCounter, LocatedMessage
from moonshim.engine.signing import is_signed
from moonshim.engine.values.conversation import Change, Message, Part, Reasoning, Request, Text, ToolCall

__all__ = ["adapt_reasoning", "read_think_text", "restore_reasoning"]

_REDACTED: Final = "redacted_thinking"
_ROUTED: Final = "reasoning."
"""Type prefix of OpenRouter's entries, which carry an index."""
_TOKENS: Final = ("signature", "encrypted", "encrypted_content", "data")
_STREAMED_FIELDS: Final = ("text", "summary", "encrypted", "data")


def restore_reasoning(
    request: Request, profile: HostProfile, recalled: Mapping[int, Reasoning]
) -> tuple[Request, list[Change]]:
    """Insert cached reasoning into its message, as if the client had sent it, where the host accepts it.

    Reasoning from the client takes precedence, unless the host cannot use it.
    """
    messages, adapter, counter = list(request.messages), _ReasoningAdapter(profile), ChangeCounter()
    for index in sorted(recalled):
        message = messages[index] if 0 <= index < len(messages) else None
        if message is None or not _accepts_reasoning(message, profile) or adapter.has_usable_reasoning(message):
            continue
        before = messages[index - 1] if index else message
        if _is_reasoning_only(before) and adapter.has_usable_reasoning(before):
            continue  # A reasoning-only message is merged with the next one.
        others = (part for part in message.parts if not isinstance(part, Reasoning))
        messages[index] = replace(message, parts=(recalled[index], *others))
        place = request.locations[index] if index < len(request.locations) else None
        counter.add("reasoning_recalled", "reasoning restored from the cache: the client did not send it", place)
    changes = list(counter.changes())
    return (replace(request, messages=tuple(messages)), changes) if changes else (request, [])


def _accepts_reasoning(message: Message, profile: HostProfile) -> bool:
    """Whether the host accepts reasoning with this message."""
    # In the 2023 protocol a call is a field.
    calling = any(isinstance(part, ToolCall) for part in message.parts) or has_legacy_call(message)
    keeps = profile.keeps_reasoning == "all" or (profile.keeps_reasoning == "calls" and calling)
    return message.role == "assistant" and profile.reasoning_in is not None and keeps


def _is_reasoning_only(message: Message) -> bool:
    others = (part for part in message.parts if not isinstance(part, Reasoning))
    return message.role == "assistant" and all(part == Text("") for part in others)


def adapt_reasoning(
    messages: list[LocatedMessage], profile: HostProfile, changes: list[Change]
) -> list[LocatedMessage]:
    """Adapt the reasoning of each message, independently of the others."""
    adapter = _ReasoningAdapter(profile)
    out = [
        located.with_message(adapter.adapt_message(located)) if located.message.role == "assistant" else located
        for located in messages
    ]
    changes.extend(adapter.counter.changes())
    return out


class _ReasoningAdapter:
    def __init__(self, profile: HostProfile) -> None:
        self._profile = profile
        self._signed = re.compile(profile.signature_pattern or ".*", re.DOTALL)
        self.counter = ChangeCounter()

    def adapt_message(self, located: LocatedMessage) -> Message:
        message, profile = located.message, self._profile
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        calling = any(isinstance(part, ToolCall) for part in message.parts)
        if profile.reasoning_in is None or profile.keeps_reasoning == "none":
            return (
                self._drop(located, "the model does not accept reasoning from earlier turns") if thoughts else message
            )
        if profile.keeps_reasoning == "calls" and not calling:
            return self._drop(located, "the model reads it only in messages with tool calls") if thoughts else message
        # Reasoning that the host does not accept counts as lost.
        thoughts = [self.keep_accepted(reasoning, located.place) for reasoning in self._merge(thoughts, located.place)]
        if profile.signed_reasoning:
            thoughts = [reasoning for reasoning in thoughts if reasoning.signature or reasoning.details]
        if calling and not any(map(_has_content, thoughts)):
            thoughts = self._add_placeholder(located, thoughts)
        if not thoughts:
            unsigned = any(isinstance(part, Reasoning) for part in message.parts)
            return (
                self._drop(located, "the model accepts only reasoning with its own signature") if unsigned else message
            )
        named = [self._set_field(reasoning, message, located.place) for reasoning in thoughts]
        return self._insert(message, named, first=calling and profile.lost_reasoning is not None, place=located.place)

    def has_usable_reasoning(self, message: Message) -> bool:
        """Whether a message has reasoning that this host can use."""
        accepted = (self.keep_accepted(part, None) for part in message.parts if isinstance(part, Reasoning))
        return any(reasoning.text.strip() or reasoning.signature or reasoning.details for reasoning in accepted)

    def _drop(self, located: LocatedMessage, why: str) -> Message:
        self.counter.add("reasoning_dropped", f"reasoning dropped: {why}", located.place)
        return replace(located.message, parts=tuple(p for p in located.message.parts if not isinstance(p, Reasoning)))

    def _add_placeholder(self, located: LocatedMessage, thoughts: list[Reasoning]) -> list[Reasoning]:
        """The reasoning before these calls is lost: use the host's placeholder."""
        lost = self._profile.lost_reasoning
        if lost is None or (thoughts and (thoughts[0].text == lost or not lost)):
            return thoughts
        shown = {"": "empty string", " ": "space"}[lost]
        self.counter.add(
            "reasoning_lost",
            f"{shown} sent as reasoning: the host requires reasoning with tool calls, and it is missing",
            located.place,
        )
        return [Reasoning(lost)]

    def _merge(self, thoughts: list[Reasoning], place: str | None) -> list[Reasoning]:
        """Chat has one string for all reasoning of a message; blocks stay separate, since each may be signed."""
        if len(thoughts) < 2 or self._profile.reasoning_in == "thinking":
            return thoughts
        self.counter.add("reasoning_joined", "several reasoning parts of a message merged", place)
        text = "\n".join(reasoning.text for reasoning in thoughts if reasoning.text)
        details = tuple(entry for reasoning in thoughts for entry in reasoning.details)
        return [replace(thoughts[0], text=text, details=details)]

    def keep_accepted(self, reasoning: Reasoning, place: str | None) -> Reasoning:
        """Keep what the host accepts of a reasoning part."""
        details = tuple(map(self._drop_index, self._merge_fragments(filter(self._accepts_entry, reasoning.details))))
        if details != reasoning.details:
            self.counter.add(
                "reasoning_details",
                "reasoning_details, or parts of them, dropped: the host does not accept them",
                place,
            )
        signature = reasoning.signature
        if signature is not None and not self._accepts_signature(signature, detailed=bool(details)):
            self.counter.add("reasoning_signature", "signature dropped: the host does not accept it", place)
            signature = None
        if (details, signature) == (reasoning.details, reasoning.signature):
            return reasoning
        return replace(reasoning, details=details, signature=signature)

    def _accepts_signature(self, signature: str, *, detailed: bool) -> bool:
        """Whether the host has a field for the signature and knows its form; in Chat that field is
        `reasoning_details`."""
        placed = detailed or self._profile.reasoning_in == "thinking"
        return placed and not is_signed(signature) and self._signed.fullmatch(signature) is not None

    def _set_field(self, reasoning: Reasoning, message: Message, place: str | None) -> Reasoning:
        """The reasoning under the field name that the host reads."""
        field = self._field_for(reasoning, bool(reasoning.details), message)
        if field == reasoning.field:
            return reasoning
        self.counter.add("reasoning_field", f"reasoning sent as {field}, the field that this host reads", place)
        return replace(reasoning, field=field)

    def _accepts_entry(self, entry: dict[str, Any]) -> bool:
        """Whether the host can use an entry of the details; tokens signed by Moonshim are not sent."""
        if any(is_signed(entry.get(key)) for key in _TOKENS):
            return False
        if self._profile.reasoning_in == "thinking":
            return entry.get("type") == _REDACTED
        return self._profile.reasoning_in in ("reasoning_details", "echo") and entry.get("type") != _REDACTED

    def _merge_fragments(self, entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Merge fragments of an entry: a client may have stored each streamed fragment under the same index."""
        out: list[dict[str, Any]] = []
        if self._profile.indexed_details:
            return list(entries)
        for entry in entries:
            last = out[-1] if out else None
            if last is None or entry.get("index") is None or _entry_key(entry) != _entry_key(last):
                out.append(entry)
                continue
            grown = {
                key: last[key] + entry[key]
                for key in _STREAMED_FIELDS
                if _has_string(last, key) and _has_string(entry, key)
            }
            out[-1] = {**last, **entry, **grown}
        return out

    def _drop_index(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Drop the stream index, which Kimi refuses in requests."""
        routed = str(entry.get("type", "")).startswith(_ROUTED)
        if "index" not in entry or (routed and self._profile.indexed_details):
            return entry
        return {key: value for key, value in entry.items() if key != "index"}

    def _field_for(self, reasoning: Reasoning, detailed: bool, message: Message) -> str | None:
        """The field name to use; the original one where that is right."""
        names = (reasoning.field,) if reasoning.field is not None else reasoning_fields(message)
        match self._profile.reasoning_in:
            case "reasoning_content" | "reasoning" as wanted:
                return reasoning.field if names == (wanted,) else wanted
            case "reasoning_details":
                if names == ("reasoning",) or (detailed and names in ((), ("reasoning_details",))):
                    return reasoning.field
                return "reasoning_details" if detailed else "reasoning"
            case "echo" if detailed and names and self._profile.reasoning_out == "reasoning_details":
                # The host wrote the same text next to its entries for the client only.
                is_repeated = any(
                    entry.get(key) == reasoning.text for entry in reasoning.details for key in ("text", "summary")
                )
                return "reasoning_details" if is_repeated else reasoning.field
            case "echo" if not detailed and "reasoning_content" not in names:
                # The name that the host itself uses. However, a host that requires reasoning with calls looks for a
                # placeholder in `reasoning_content`, and one that replies with details never sends `reasoning`.
                wants = self._profile.lost_reasoning is not None
                foreign = wants and (not reasoning.text or self._profile.reasoning_out == "reasoning_details")
                return reasoning.field if "reasoning" in names and not foreign else "reasoning_content"
        return reasoning.field

    def _insert(self, message: Message, thoughts: list[Reasoning], *, first: bool, place: str | None) -> Message:
        """Put the reasoning where reasoning was, or before everything else."""
        received = [part for part in message.parts if isinstance(part, Reasoning)]
        blocks = self._profile.reasoning_in == "thinking"
        out_of_place = blocks and first and bool(received) and not isinstance(message.parts[0], Reasoning)
        if out_of_place:
            self.counter.add("reasoning_first", "reasoning moved to the start of a message with tool calls", place)
        if len(received) == len(thoughts) and not out_of_place:
            left = iter(thoughts)
            parts = tuple(next(left) if isinstance(part, Reasoning) else part for part in message.parts)
        else:
            others: tuple[Part, ...] = tuple(part for part in message.parts if not isinstance(part, Reasoning))
            parts = (*thoughts, *others)
        if all(new is old for new, old in zip(parts, message.parts, strict=False)) and len(parts) == len(message.parts):
            return message
        return replace(message, parts=parts)


def _entry_key(entry: dict[str, Any]) -> tuple[Any, Any]:
    return entry.get("index"), entry.get("type")


def _has_string(entry: dict[str, Any], key: str) -> bool:
    return isinstance(entry.get(key), str)


def _has_content(reasoning: Reasoning) -> bool:
    return bool(reasoning.text or reasoning.signature or reasoning.details)


# --- reasoning in text ------------------------------------------------------------------------------------------------


_THINK_TEXT: Final = re.compile(r"\s*<think>(.*?)</think>\s*(.*)", re.DOTALL)


def read_think_text(request: Request) -> tuple[Request, list[Change]]:
    """Convert a leading, complete `<think>…</think>` of an assistant message without reasoning into reasoning.

    Clients without a reasoning field (pydantic-ai over Responses) return it that way. A model that sees its reasoning
    as content starts to write its reasoning into the content.
    """
    messages, changes = list[Message](), list[Change]()
    for number, message in enumerate(request.messages):
        converted = _split_reasoning(message) if message.role == "assistant" else None
        messages.append(message if converted is None else converted)
        if converted is not None:
            place = request.locations[number] if number < len(request.locations) else None
            changes.append(Change("think_text", "<think> text sent as reasoning", place))
    return (replace(request, messages=tuple(messages)), changes) if changes else (request, [])


def _split_reasoning(message: Message) -> Message | None:
    parts = message.parts
    if not parts or not isinstance(parts[0], Text) or "<think>" not in parts[0].text:
        return None
    match = _THINK_TEXT.fullmatch(parts[0].text)
    if match is None or any(isinstance(part, Reasoning) for part in parts):
        return None
    rest: tuple[Part, ...] = (Text(match[2]),) if match[2] else ()
    return replace(message, parts=(Reasoning(match[1].strip("\n")), *rest, *parts[1:]))
