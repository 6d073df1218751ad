"""One canonical part -> content blocks; what the dialect cannot express is reported as a change.

`BlockRenderer.render_like` keeps a message as it was: an unchanged part is written as the block it was parsed from, a
changed one is written from scratch, with the unknown fields of its block.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, assert_never

from moonshim.engine.dialects.anthropic.extras import Json, media_extras
from moonshim.engine.dialects.anthropic.parts import parse_block
from moonshim.engine.ids.spelling import UniqueIds, anthropic_id
from moonshim.engine.signing import is_signed
from moonshim.engine.values.conversation import Change, Media, Part, Reasoning, Text, ToolCall, ToolResult
from moonshim.engine.wire.json_codec import decode_object
from moonshim.errors import CannotExpress

__all__ = ["LEGAL_ID", "REDACTED", "BlockRenderer", "is_unchanged_part", "parse_input"]

REDACTED: Final = "redacted_thinking"
LEGAL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")

_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
_IMAGE_STARTS: Final = {"/9j/": "image/jpeg", "iVBOR": "image/png", "R0lGOD": "image/gif", "UklGR": "image/webp"}
_TEXTUAL: Final = re.compile(r"text/.*|application/(json|xml|yaml|x-yaml|toml|javascript)(;.*)?")

_PART_FIELDS: Final[dict[str, frozenset[str]]] = {
    "text": frozenset({"type", "text"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    REDACTED: frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
    "image": frozenset({"type", "source"}),
    "document": frozenset({"type", "source"}),
}
"""The fields of a block that its part determines."""


def is_unchanged_part(old: Part, new: Part) -> bool:
    """Whether a part still equals what its block was parsed as, including wire ids."""
    match old, new:
        case ToolCall(), ToolCall():
            return old.wire_id == new.wire_id and _has_same_content(old, new)
        case ToolResult(), ToolResult():
            return old.wire_id == new.wire_id and _has_same_content(old, new)
    return old == new


def _has_same_content(old: Part, new: Part) -> bool:
    match old, new:
        case ToolCall(), ToolCall():
            return (old.name, old.arguments) == (new.name, new.arguments)
        case ToolResult(), ToolResult():
            return (old.parts, old.is_error) == (new.parts, new.is_error)
    return old == new


def parse_input(arguments: str) -> Json | None:
    """The `input` object of these arguments; None if they are not a JSON object."""
    if not arguments.strip():
        return {}
    return decode_object(arguments.encode("utf-8", "surrogatepass"))


class BlockRenderer:
    """Writes the parts of one conversation. `changes` lists what could not be expressed."""

    def __init__(self, calls: Mapping[str, str | None], *, for_client: bool) -> None:
        """`calls`: wire ids by canonical id.

        Output for a client may contain our own signatures, and ids of other dialects are converted to valid Messages
        ids; for a host, earlier steps have handled both.
        """
        self.changes: list[Change] = []
        self.place = "messages"
        self._calls = calls
        self._for_client = for_client
        self._new_ids: dict[str, str] = {}
        self._ids = UniqueIds()
        self._ids.taken.update(wire_id for wire_id in calls.values() if wire_id and LEGAL_ID.fullmatch(wire_id))

    def render(self, parts: Sequence[Part]) -> list[Json]:
        """The blocks for these parts."""
        return [block for part in parts for block in self._blocks(part)]

    def render_like(self, parts: Sequence[Part], entries: Sequence[Json]) -> list[Json]:
        """The blocks for these parts, as close as possible to the blocks they were parsed from."""
        old, out = [parse_block(entry) for entry in entries], list[Json]()
        for part, found in zip(parts, _match_blocks(parts, old), strict=True):
            out += self._blocks(part) if found is None else self._render_again(part, old[found], entries[found])
        return out

    def can_pass(self, block: Json) -> bool:
        """Whether a block may be sent unchanged: one with our own token goes to clients only."""
        return self._for_client or not (is_signed(block.get("signature")) or is_signed(block.get("data")))

    def report(self, detail: str) -> None:
        """Report what was left out."""
        self.changes.append(Change("cannot_say", detail, self.place))

    def _render_again(self, part: Part, old: Part, entry: Json) -> list[Json]:
        if _has_same_content(old, part) and self.can_pass(entry):
            if isinstance(part, ToolCall) and part.wire_id is not None:
                return [entry if entry.get("id") == part.wire_id else entry | {"id": part.wire_id}]
            if isinstance(part, ToolResult) and part.wire_id is not None:
                return [entry if entry.get("tool_use_id") == part.wire_id else entry | {"tool_use_id": part.wire_id}]
            return [entry]
        blocks = self._blocks(part)
        if blocks and blocks[0]["type"] == entry["type"]:
            part_fields = _PART_FIELDS.get(entry["type"], entry.keys())
            blocks[0] |= {key: value for key, value in entry.items() if key not in part_fields and key not in blocks[0]}
        return blocks

    def _blocks(self, part: Part) -> list[Json]:
        match part:
            case Text(text=text):
                # Hosts refuse an empty text block.
                return [{"type": "text", "text": text}] if text else []
            case Reasoning():
                return self._thinking(part)
            case ToolCall():
                return [self._tool_use(part)]
            case ToolResult():
                return [self._tool_result(part)]
            case Media():
                return [self._media(part)]
            case _:
                assert_never(part)

    def _thinking(self, part: Reasoning) -> list[Json]:
        redacted = [{"type": REDACTED, "data": one.get("data")} for one in part.details if one.get("type") == REDACTED]
        if not all(one.get("type") == REDACTED or _is_repeated(one, part) for one in part.details):
            self.report("reasoning_details dropped: a thinking block holds only text and a signature")
        signature = part.signature if self._for_client or not is_signed(part.signature) else None
        if redacted and not part.text and not signature:
            return redacted
        block = {"type": "thinking", "thinking": part.text}
        return [block | ({"signature": signature} if signature else {}), *redacted]

    def _tool_use(self, call: ToolCall) -> Json:
        input = parse_input(call.arguments)
        if input is None:
            self.report(f"arguments of a {call.name} call replaced with {{}}: they are not a JSON object")
        wire_id = self._wire_id(call.id, call.wire_id)
        return {"type": "tool_use", "id": wire_id, "name": call.name, "input": input or {}}

    def _wire_id(self, canonical: str, wire_id: str | None) -> str:
        if wire_id is None:
            wire_id = self._calls.get(canonical) or anthropic_id(canonical)
        if not self._for_client or LEGAL_ID.fullmatch(wire_id):
            return wire_id
        if wire_id not in self._new_ids:
            self._new_ids[wire_id] = self._ids.take(partial(anthropic_id, wire_id))
        return self._new_ids[wire_id]

    def _tool_result(self, result: ToolResult) -> Json:
        wire_id = self._wire_id(result.call_id, result.wire_id)
        blocks = self.render(result.parts)
        content: str | list[Json] = blocks
        if len(blocks) < 2 and all(block.keys() == {"type", "text"} for block in blocks):
            content = "".join(block["text"] for block in blocks)
        out: Json = {"type": "tool_result", "tool_use_id": wire_id, "content": content}
        return out | {"is_error": True} if result.is_error else out

    def _media(self, media: Media) -> Json:
        extras = media_extras(media)
        if extras.block is not None and parse_block(extras.block) == media:
            return extras.block
        if media.detail not in (None, "auto"):
            self.report("image detail dropped: Messages does not support it")
        data, media_type = media.data, media.media_type
        if data is None and (found := _DATA_URL.fullmatch(media.url or "")) is not None:
            media_type, data = found[1], found[2]
        fields = dict(extras.fields)
        match media.kind:
            case "image":
                out: Json = {"type": "image", "source": _source(data, media_type or _image_type(data or ""), media.url)}
            case "file":
                out = {"type": "document", "source": _document_source(data, media_type, media.url)}
                fields |= {} if media.name is None else {"title": media.name}
            case _:
                raise CannotExpress(f"Messages has no block type for {media.kind}", field=self.place)
        return out | fields


def _is_repeated(detail: Json, part: Reasoning) -> bool:
    """Whether a detail only repeats the text and signature, which have their own fields."""
    text, signature = detail.get("text") or part.text, detail.get("signature") or part.signature
    return detail.get("type") == "reasoning.text" and (text, signature) == (part.text, part.signature)


def _source(data: str | None, media_type: str, url: str | None) -> Json:
    if data is None:
        return {"type": "url", "url": url or ""}
    return {"type": "base64", "media_type": media_type, "data": data}


def _document_source(data: str | None, media_type: str | None, url: str | None) -> Json:
    text = _decode_text(data) if data is not None and _TEXTUAL.fullmatch(media_type or "") else None
    if text is not None:
        # Base64 is for PDF only.
        return {"type": "text", "media_type": "text/plain", "data": text}
    return _source(data, media_type or "application/pdf", url)


def _image_type(data: str) -> str:
    return next((kind for start, kind in _IMAGE_STARTS.items() if data.startswith(start)), "image/png")


def _decode_text(data: str) -> str | None:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _match_blocks(parts: Sequence[Part], old: Sequence[Part]) -> list[int | None]:
    """For each part the block it came from, in ascending order: equal ones first, then changed ones between them.

    Linear: a block is compared a bounded number of times, however the parts were reordered.
    """
    places: dict[Any, list[int]] = {}
    next_of = {kind: [len(old)] * (len(old) + 1) for kind in (Text, Reasoning, ToolCall, ToolResult, Media)}
    for index in range(len(old) - 1, -1, -1):
        part = old[index]
        for kind, following in next_of.items():
            following[index] = index if isinstance(part, kind) else following[index + 1]
        places.setdefault(_key(part), []).append(index)
    found, last = list[int | None](), -1
    for part in parts:
        waiting = places.get(_key(part), [])
        while waiting and waiting[-1] <= last:
            waiting.pop()
        if waiting:
            last = waiting.pop()
            found.append(last)
        else:
            found.append(None)
    ends, end = list[int](), len(old)
    for taken in reversed(found):
        end = end if taken is None else taken
        ends.append(end)
    at = 0
    for n, (part, end) in enumerate(zip(parts, reversed(ends), strict=True)):
        taken = found[n]
        if taken is None:
            candidate = next_of[type(part)][at]
            if candidate >= end:
                continue
            found[n] = taken = candidate
        at = taken + 1
    return found


def _key(part: Part) -> Any:
    match part:
        case Text(text=text):
            return "text", text
        case Reasoning(text=text, signature=signature):
            return "reasoning", text, signature
        case ToolCall(name=name, arguments=arguments):
            return "call", name, arguments
        case ToolResult(parts=parts):
            return "result", tuple(_key(one) for one in parts)
        case Media(kind=kind, url=url, data=data):
            return "media", kind, url, data
