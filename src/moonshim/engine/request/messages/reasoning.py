"""Reasoning of earlier turns -> in the field that the host reads; lost reasoning is restored or replaced.

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

__all__ = ["condition_reasoning", "put_back"]

_REDACTED: Final = "redacted_thinking"
_ROUTED: Final = "reasoning."
"""Type prefix of OpenRouter's entries, which carry an index."""
_TOKENS: Final = ("signature", "encrypted", "encrypted_content", "data")
_GROWING: Final = ("text", "summary", "encrypted", "data")


def put_back(request: Request, profile: HostProfile, recalled: Mapping[int, Reasoning]) -> tuple[Request, list[Change]]:
    """Insert cached reasoning into its message, as if the client had sent it, where the host accepts it.

    Reasoning from the client takes precedence, unless the host cannot use it.
    """
    messages, adapter, tally = list(request.messages), _ReasoningAdapter(profile), ChangeCounter()
    for index in sorted(recalled):
        message = messages[index] if 0 <= index < len(messages) else None
        if message is None or not _wants(message, profile) or adapter.heard(message):
            continue
        before = messages[index - 1] if index else message
        if _only_thinks(before) and adapter.heard(before):
            continue  # A reasoning-only message is merged with the next one.
        said = (part for part in message.parts if not isinstance(part, Reasoning))
        messages[index] = replace(message, parts=(recalled[index], *said))
        place = request.locations[index] if index < len(request.locations) else None
        tally.add("reasoning_recalled", "the client has lost the reasoning: put back from memory", place)
    changes = list(tally.changes())
    return (replace(request, messages=tuple(messages)), changes) if changes else (request, [])


def _wants(message: Message, profile: HostProfile) -> bool:
    """Whether the host accepts reasoning with this message."""
    # In the 2023 protocol a call is a field.
    calling = any(isinstance(part, ToolCall) for part in message.parts) or has_legacy_call(message)
    keeps = profile.keeps_reasoning == "all" or (profile.keeps_reasoning == "calls" and calling)
    return message.role == "assistant" and profile.reasoning_in is not None and keeps


def _only_thinks(message: Message) -> bool:
    said = (part for part in message.parts if not isinstance(part, Reasoning))
    return message.role == "assistant" and all(part == Text("") for part in said)


def condition_reasoning(
    messages: list[LocatedMessage], profile: HostProfile, changes: list[Change]
) -> list[LocatedMessage]:
    """Adapt the reasoning of each message, independently of the others."""
    adapter = _ReasoningAdapter(profile)
    out = [one.as_message(adapter.made(one)) if one.message.role == "assistant" else one for one in messages]
    changes.extend(adapter.tally.changes())
    return out


class _ReasoningAdapter:
    def __init__(self, profile: HostProfile) -> None:
        self._profile = profile
        self._signed = re.compile(profile.signature_pattern or ".*", re.DOTALL)
        self.tally = ChangeCounter()

    def made(self, one: LocatedMessage) -> Message:
        message, profile = one.message, self._profile
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        calling = any(isinstance(part, ToolCall) for part in message.parts)
        if profile.reasoning_in is None or profile.keeps_reasoning == "none":
            return self._dropped(one, "the model takes no reasoning of former turns") if thoughts else message
        if profile.keeps_reasoning == "calls" and not calling:
            return self._dropped(one, "the model reads no reasoning of messages without calls") if thoughts else message
        # Reasoning that the host does not accept counts as lost.
        thoughts = [self.taken(thought, one.place) for thought in self._joined(thoughts, one.place)]
        if profile.signed_reasoning:
            thoughts = [thought for thought in thoughts if thought.signature or thought.details]
        if calling and not any(map(_says, thoughts)):
            thoughts = self._found(one, thoughts)
        if not thoughts:
            unsigned = any(isinstance(part, Reasoning) for part in message.parts)
            return self._dropped(one, "the model takes no reasoning but its own") if unsigned else message
        named = [self._named(thought, message, one.place) for thought in thoughts]
        return self._put(message, named, first=calling and profile.lost_reasoning is not None, place=one.place)

    def heard(self, message: Message) -> bool:
        """Whether a message has reasoning that this host can use."""
        taken = (self.taken(part, None) for part in message.parts if isinstance(part, Reasoning))
        return any(thought.text.strip() or thought.signature or thought.details for thought in taken)

    def _dropped(self, one: LocatedMessage, why: str) -> Message:
        self.tally.add("reasoning_dropped", f"{why}: not sent", one.place)
        return replace(one.message, parts=tuple(p for p in one.message.parts if not isinstance(p, Reasoning)))

    def _found(self, one: LocatedMessage, thoughts: list[Reasoning]) -> list[Reasoning]:
        """The reasoning before these calls is lost: use the host's placeholder."""
        lost = self._profile.lost_reasoning
        if lost is None or (thoughts and (thoughts[0].text == lost or not lost)):
            return thoughts
        shown = {"": "an empty text", " ": "a blank"}[lost]
        self.tally.add("reasoning_lost", f"the host wants reasoning beside calls, and it is lost: {shown}", one.place)
        return [Reasoning(lost)]

    def _joined(self, thoughts: list[Reasoning], place: str | None) -> list[Reasoning]:
        """Chat has one string for all reasoning of a message; blocks stay separate, since each may be signed."""
        if len(thoughts) < 2 or self._profile.reasoning_in == "thinking":
            return thoughts
        self.tally.add("reasoning_joined", "several pieces of reasoning in a message are sent as one", place)
        text = "\n".join(thought.text for thought in thoughts if thought.text)
        details = tuple(one for thought in thoughts for one in thought.details)
        return [replace(thoughts[0], text=text, details=details)]

    def taken(self, thought: Reasoning, place: str | None) -> Reasoning:
        """Keep what the host accepts of a reasoning part."""
        details = tuple(map(self._unnumbered, self._whole(filter(self._takes, thought.details))))
        if details != thought.details:
            self.tally.add("reasoning_details", "entries, or parts of them, that the host does not take back", place)
        signature = thought.signature
        if signature is not None and not self._reads(signature, detailed=bool(details)):
            self.tally.add("reasoning_signature", "a signature that says nothing to this host is not sent", place)
            signature = None
        if (details, signature) == (thought.details, thought.signature):
            return thought
        return replace(thought, details=details, signature=signature)

    def _reads(self, signature: str, *, detailed: bool) -> bool:
        """Whether the host has a field for the signature and knows its form; in Chat that field is
        `reasoning_details`."""
        placed = detailed or self._profile.reasoning_in == "thinking"
        return placed and not is_signed(signature) and self._signed.fullmatch(signature) is not None

    def _named(self, thought: Reasoning, message: Message, place: str | None) -> Reasoning:
        """The reasoning under the field name that the host reads."""
        field = self._field(thought, bool(thought.details), message)
        if field == thought.field:
            return thought
        self.tally.add("reasoning_field", f"reasoning is sent as {field}, which this host reads", place)
        return replace(thought, field=field)

    def _takes(self, entry: dict[str, Any]) -> bool:
        """Whether the host can use an entry of the details; tokens signed by Moonshim are not sent."""
        if any(is_signed(entry.get(key)) for key in _TOKENS):
            return False
        if self._profile.reasoning_in == "thinking":
            return entry.get("type") == _REDACTED
        return self._profile.reasoning_in in ("reasoning_details", "echo") and entry.get("type") != _REDACTED

    def _whole(self, entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Merge fragments of an entry: a client may have stored each streamed fragment under the same index."""
        out: list[dict[str, Any]] = []
        if self._profile.indexed_details:
            return list(entries)
        for entry in entries:
            last = out[-1] if out else None
            if last is None or entry.get("index") is None or _which(entry) != _which(last):
                out.append(entry)
                continue
            grown = {key: last[key] + entry[key] for key in _GROWING if _is_text(last, key) and _is_text(entry, key)}
            out[-1] = {**last, **entry, **grown}
        return out

    def _unnumbered(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Drop the stream index, which Kimi refuses in requests."""
        routed = str(entry.get("type", "")).startswith(_ROUTED)
        if "index" not in entry or (routed and self._profile.indexed_details):
            return entry
        return {key: value for key, value in entry.items() if key != "index"}

    def _field(self, thought: Reasoning, detailed: bool, message: Message) -> str | None:
        """The field name to use; the original one where that is right."""
        names = (thought.field,) if thought.field is not None else reasoning_fields(message)
        match self._profile.reasoning_in:
            case "reasoning_content" | "reasoning" as wanted:
                return thought.field if names == (wanted,) else wanted
            case "reasoning_details":
                if names == ("reasoning",) or (detailed and names in ((), ("reasoning_details",))):
                    return thought.field
                return "reasoning_details" if detailed else "reasoning"
            case "echo" if detailed and names and self._profile.reasoning_out == "reasoning_details":
                # The host wrote the same text next to its entries for the client only.
                told = any(one.get(key) == thought.text for one in thought.details for key in ("text", "summary"))
                return "reasoning_details" if told else thought.field
            case "echo" if not detailed and "reasoning_content" not in names:
                # The name that the host itself uses. However, a host that requires reasoning with calls looks for a
                # placeholder in `reasoning_content`, and one that replies with details never sends `reasoning`.
                wants = self._profile.lost_reasoning is not None
                foreign = wants and (not thought.text or self._profile.reasoning_out == "reasoning_details")
                return thought.field if "reasoning" in names and not foreign else "reasoning_content"
        return thought.field

    def _put(self, message: Message, thoughts: list[Reasoning], *, first: bool, place: str | None) -> Message:
        """Put the reasoning where reasoning was, or before everything else."""
        came = [part for part in message.parts if isinstance(part, Reasoning)]
        blocks = self._profile.reasoning_in == "thinking"
        out_of_place = blocks and first and bool(came) and not isinstance(message.parts[0], Reasoning)
        if out_of_place:
            self.tally.add("reasoning_first", "reasoning stands before everything else in a message with calls", place)
        if len(came) == len(thoughts) and not out_of_place:
            left = iter(thoughts)
            parts = tuple(next(left) if isinstance(part, Reasoning) else part for part in message.parts)
        else:
            others: tuple[Part, ...] = tuple(part for part in message.parts if not isinstance(part, Reasoning))
            parts = (*thoughts, *others)
        if all(new is old for new, old in zip(parts, message.parts, strict=False)) and len(parts) == len(message.parts):
            return message
        return replace(message, parts=parts)


def _which(entry: dict[str, Any]) -> tuple[Any, Any]:
    return entry.get("index"), entry.get("type")


def _is_text(entry: dict[str, Any], key: str) -> bool:
    return isinstance(entry.get(key), str)


def _says(thought: Reasoning) -> bool:
    return bool(thought.text or thought.signature or thought.details)
