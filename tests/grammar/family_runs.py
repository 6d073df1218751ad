"""Runs a marker family over text in pieces, and reads the vectors of a family from its file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from moonshim.conversation import Tool
from moonshim.grammar.events import CallBegan, CallEnded, CallGrew, Channel, Found, Grammar, Noticed, Said
from moonshim.grammar.families import grammar_for

__all__ = ["SIZES", "TOOLS", "Vector", "grammar_of", "merged", "run", "vectors", "written"]

SIZES: Final = (1, 2, 3, 7, 1000)
TOOLS: Final = ("ls", "read_file")
_FOLDER: Final = Path(__file__).parent / "vectors"


class Vector(Struct, frozen=True, forbid_unknown_fields=True):
    """A text, and what a grammar finds in it. `tools` None: nobody knows which there are."""

    name: str
    text: str
    found: list[dict[str, Any]]
    tools: tuple[str, ...] | None = TOOLS
    channel: Channel = "text"
    calls: bool = True


def vectors(family: str) -> dict[str, Vector]:
    rows = json.loads((_FOLDER / f"{family}.json").read_text("utf-8"))
    found = [Vector(**row) for row in rows]
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}


def grammar_of(family: str, vector: Vector | None = None) -> Grammar:
    vector = vector or Vector("", "", [])
    tools = None if vector.tools is None else [Tool(name) for name in vector.tools]
    return grammar_for(family, vector.channel, tools=tools, calls=vector.calls)


def merged(found: Iterable[Found]) -> list[Found]:
    """Chunking shows only in how often one thing is said in pieces."""
    out: list[Found] = []
    for one in found:
        last = out[-1] if out else None
        if isinstance(one, Said) and isinstance(last, Said) and one.channel == last.channel:
            out[-1] = Said(one.channel, last.text + one.text)
        elif isinstance(one, CallGrew) and isinstance(last, CallGrew):
            out[-1] = CallGrew(last.text + one.text)
        else:
            out.append(one)
    return out


def run(grammar: Grammar, text: str, sizes: Sequence[int] = (1_000_000,)) -> list[Found]:
    """What is found in the text when it comes in pieces of these sizes, over and over."""
    out: list[Found] = []
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        out += grammar.feed(text[at : at + size])
        at, turn = at + size, turn + 1
    return merged(out + grammar.flush())


def written(found: Iterable[Found]) -> list[dict[str, Any]]:
    """As the files of vectors write it."""
    return [_written(one) for one in found]


def _written(one: Found) -> dict[str, Any]:
    match one:
        case Said():
            return {"say" if one.channel == "text" else "think": one.text}
        case CallBegan():
            told: dict[str, Any] = {"begin": one.name}
            if one.header:
                told["id"] = one.header
            if one.channel != "text":
                told["in"] = one.channel
            return told
        case CallGrew():
            return {"grow": one.text}
        case CallEnded():
            return {"end": one.closed}
        case Noticed():
            return {"notice": [one.rule, one.detail]}
