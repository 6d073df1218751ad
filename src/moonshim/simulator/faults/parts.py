"""Payloads of a stream -> the parts that faults change, found by content rather than by position."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.engine.wire.json_codec import decode_object
from moonshim.simulator.request import Json

__all__ = [
    "REASONING_FIELDS",
    "BlockEdits",
    "Spot",
    "carrier",
    "choice_of",
    "contents_of",
    "delta_of",
    "each_entry",
    "entries_of",
    "finish_of",
    "object_of",
    "of_block",
    "read_blocks",
    "reasoning_of",
    "spots_of",
    "text_of",
    "usage_of",
    "with_choice",
    "with_delta",
]

REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details")
Content: TypeAlias = Literal["reasoning", "text", "calls", "finish"]


# -- Chat ------------------------------------------------------------------------------------------------------


def choice_of(chunk: Json) -> Json | None:
    """The first choice; a usage chunk has none."""
    choices = chunk.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def delta_of(chunk: Json) -> Json:
    """The delta of this chunk; of a whole response, its message."""
    choice = choice_of(chunk) or {}
    delta = choice.get("delta", choice.get("message"))
    return delta if isinstance(delta, dict) else {}


def with_choice(chunk: Json, **fields: Any) -> Json:
    """The same chunk with these fields in its choice."""
    choice = choice_of(chunk)
    return chunk if choice is None else {**chunk, "choices": [{**choice, **fields}]}


def with_delta(chunk: Json, delta: Json) -> Json:
    """The same chunk, or whole response, with this delta or message instead."""
    choice = choice_of(chunk) or {}
    return with_choice(chunk, **{"message" if "message" in choice else "delta": delta})


def carrier(chunks: list[Json], delta: Json) -> Json:
    """A chunk of this stream with this delta only: identity as in the others, no finish, no usage."""
    model = next((chunk for chunk in chunks if choice_of(chunk) is not None), {"choices": [{"index": 0}]})
    shell = {key: value for key, value in model.items() if key != "usage"}
    choice = {key: value for key, value in (choice_of(model) or {}).items() if key != "usage"}
    return {**shell, "choices": [{**choice, "delta": delta, "finish_reason": None}]}


def entries_of(chunk: Json) -> list[Json]:
    """The entries of `tool_calls`."""
    entries = delta_of(chunk).get("tool_calls")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def reasoning_of(delta: Json) -> str:
    """The reasoning in this delta, in whatever field; duplicates count once."""
    for field in REASONING_FIELDS:
        value = delta.get(field)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list):
            return "".join(str(part.get("text", part.get("summary", ""))) for part in value)
    return ""


def text_of(delta: Json) -> str:
    value = delta.get("content")
    return value if isinstance(value, str) else ""


def finish_of(chunk: Json) -> str | None:
    finish = (choice_of(chunk) or {}).get("finish_reason")
    return finish if isinstance(finish, str) and finish else None


def contents_of(chunk: Json) -> set[Content]:
    """The content of a chunk; empty for the one that only names the role, and for the usage chunk."""
    delta = delta_of(chunk)
    sent: dict[Content, Any] = {
        "reasoning": reasoning_of(delta),
        "text": text_of(delta),
        "calls": entries_of(chunk),
        "finish": finish_of(chunk),
    }
    return {what for what, value in sent.items() if value}


def usage_of(chunks: list[Json]) -> Json | None:
    """The usage, wherever it is reported."""
    for chunk in chunks:
        for place in (chunk, choice_of(chunk) or {}):
            if isinstance(place.get("usage"), dict):
                return dict(place["usage"])
    return None


class Spot(Struct, frozen=True):
    """One entry of a native call, with its position among the entries of that call."""

    entry: Json
    call: int
    """Number of the call in the response, from 0."""
    first: bool
    last: bool
    sent: int
    """Number of characters of the arguments in earlier entries."""
    id: str
    name: str
    arguments: str
    """Identity and arguments of the whole call."""


def spots_of(chunks: list[Json]) -> list[list[Spot]]:
    """The entries of each chunk, each with what is known of its call."""
    calls: list[list[Json]] = []
    ids: list[str] = []
    owners: list[list[int]] = []
    for chunk in chunks:
        owners.append([])
        for entry in entries_of(chunk):
            owner = _owner(entry, calls, ids)
            if owner == len(calls):
                calls.append([])
                ids.append("")
            calls[owner].append(entry)
            ids[owner] = ids[owner] or str(entry.get("id") or "")
            owners[-1].append(owner)
    # Once per call: a response may have hundreds of thousands of entries.
    names = ["".join(str((one.get("function") or {}).get("name") or "") for one in mine) for mine in calls]
    arguments = ["".join(map(_arguments, mine)) for mine in calls]
    seen, sent = [0] * len(calls), [0] * len(calls)
    out: list[list[Spot]] = []
    for chunk, owned in zip(chunks, owners, strict=True):
        out.append([])
        for owner, entry in zip(owned, entries_of(chunk), strict=True):
            seen[owner] += 1
            out[-1].append(
                Spot(
                    entry=entry,
                    call=owner,
                    first=seen[owner] == 1,
                    last=seen[owner] == len(calls[owner]),
                    sent=sent[owner],
                    id=ids[owner],
                    name=names[owner],
                    arguments=arguments[owner],
                )
            )
            sent[owner] += len(_arguments(entry))
    return out


def _owner(entry: Json, calls: list[list[Json]], ids: list[str]) -> int:
    """Which call an entry belongs to: the one with its id, else the last with its index, else the last."""
    if entry.get("id"):
        return ids.index(entry["id"]) if entry["id"] in ids else len(calls)
    if "index" in entry:
        same = [at for at, mine in enumerate(calls) if mine[0].get("index") == entry["index"]]
        return same[-1] if same else len(calls)
    return max(len(calls) - 1, 0)


def _arguments(entry: Json) -> str:
    value = (entry.get("function") or {}).get("arguments")
    return value if isinstance(value, str) else ""


def each_entry(chunks: list[Json], change: Callable[[Spot], list[Json]]) -> list[Json]:
    """Replace every entry of a native call by the result of `change`.

    If the number of entries stays the same, they stay in their chunk; otherwise each gets its own chunk. The other
    content of the chunk stays with the first, its finish with the last.
    """
    out: list[Json] = []
    for chunk, spots in zip(chunks, spots_of(chunks), strict=True):
        made = [change(spot) for spot in spots]
        flat = [entry for entries in made for entry in entries]
        if len(flat) == len(spots):
            delta = delta_of(chunk)
            out.append(with_delta(chunk, {**delta, "tool_calls": flat}) if spots else chunk)
            continue
        rest = {key: value for key, value in delta_of(chunk).items() if key != "tool_calls"}
        ends = finish_of(chunk) is not None or usage_of([chunk]) is not None
        parts = [carrier([chunk], {**(rest if at == 0 else {}), "tool_calls": [one]}) for at, one in enumerate(flat)]
        if ends:
            parts = [*parts[:-1], with_delta(chunk, delta_of(parts[-1]) if parts else rest)]
        elif not parts and rest:
            parts = [with_delta(chunk, rest)]
        out += parts
    return out


def object_of(text: str) -> Json | None:
    """Arguments as an object; None if they are not one."""
    return decode_object(text.encode("utf-8", "surrogatepass"))


# -- Messages --------------------------------------------------------------------------------------------------


class BlockEdits(Struct, frozen=True):
    """The events of a response: what comes before its blocks, the blocks, and what ends it."""

    head: list[Json]
    blocks: list[list[Json]]
    tail: list[Json]

    def events(self) -> list[Json]:
        """All of them, with indexes that match the current order."""
        numbered = [{**event, "index": at} for at, block in enumerate(self.blocks) for event in block]
        return [*self.head, *numbered, *self.tail]


def read_blocks(events: Iterable[Json]) -> BlockEdits:
    head: list[Json] = []
    tail: list[Json] = []
    inside: list[Json] = []
    for event in events:
        if "index" in event:
            inside.append(event)
        elif inside or tail:
            tail.append(event)
        else:
            head.append(event)
    return BlockEdits(head, [list(block) for _, block in groupby(inside, lambda event: event["index"])], tail)


def of_block(block: list[Json]) -> str:
    """`thinking`, `text` or `tool_use`."""
    return next((str(event["content_block"]["type"]) for event in block if "content_block" in event), "")
