"""Runs a grammar over text in pieces, reads the vectors of a family from its file, and holds the laws for all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st
from msgspec import Struct

from moonshim.engine.grammar.protocol import (
    CallDelta,
    CallEnded,
    CallStarted,
    Channel,
    Grammar,
    GrammarEvent,
    Notice,
    TextFound,
)
from moonshim.engine.grammar.registry import grammar_for
from moonshim.engine.values.conversation import Tool

SIZES: Final = (1, 2, 3, 7, 1000)
CUTS: Final = st.lists(st.integers(0, 1 << 16), max_size=30)
TOOLS: Final = ("ls", "read_file")
WHOLE: Final = 1_000_000
VECTORS: Final = Path(__file__).parent / "vectors"


# -- text in pieces ----------------------------------------------------------------------


def by_size(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def by_cuts(text: str, cuts: Sequence[int]) -> list[str]:
    at = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(at)]


def merged(found: Iterable[GrammarEvent]) -> list[GrammarEvent]:
    """Chunking shows only in how often one thing is said in pieces."""
    out: list[GrammarEvent] = []
    for one in found:
        last = out[-1] if out else None
        if isinstance(one, TextFound) and isinstance(last, TextFound) and one.channel == last.channel:
            out[-1] = TextFound(one.channel, last.text + one.text)
        elif isinstance(one, CallDelta) and isinstance(last, CallDelta):
            out[-1] = CallDelta(last.text + one.text)
        else:
            out.append(one)
    return out


def found_in(grammar: Grammar, pieces: Iterable[str]) -> list[GrammarEvent]:
    """What is found when the text comes in these pieces."""
    found = [one for piece in pieces for one in grammar.feed(piece)]
    return merged(found + grammar.flush())


def run(grammar: Grammar, text: str, sizes: int | Sequence[int] = WHOLE) -> list[GrammarEvent]:
    """What is found when the text comes in pieces of this size, or of these sizes, over and over."""
    if isinstance(sizes, int):
        return found_in(grammar, by_size(text, sizes))
    pieces: list[str] = []
    at = 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    return found_in(grammar, pieces)


# -- vectors -----------------------------------------------------------------------------


def tool(name: str, **properties: Any) -> Tool:
    """A tool whose arguments have these types, or these schemas."""
    schemas = {key: {"type": one} if isinstance(one, str | list) else one for key, one in properties.items()}
    return Tool(name, parameters={"type": "object", "properties": schemas})


DECLARED: Final = {
    one.name: one
    for one in (
        tool("ls", dir="string", deep="boolean", most="integer"),
        tool("put", text="string", count="number", flag="boolean", none="null", box="object", list="array"),
        tool(
            "mixed",
            either=["string", "null"],
            size=["integer", "null"],
            many={"anyOf": [{"type": "string"}, {"type": "array"}]},
        ),
    )
}
"""The tools of which more than the name is known."""


class Vector(Struct, frozen=True):
    """A text, and what a grammar finds in it. `tools` None: nobody knows which there are."""

    name: str
    text: str
    found: list[GrammarEvent]
    tools: tuple[str, ...] | None = TOOLS
    channel: Channel = "text"
    calls: bool = True


def vectors(family: str) -> dict[str, Vector]:
    """By name, from the file of the family, which also says which tools there are if a vector says nothing else."""
    loaded = json.loads((VECTORS / f"{family}.json").read_text("utf-8"))
    rows = [{"tools": loaded["tools"], **row, "found": merged(_found(row["found"]))} for row in loaded["vectors"]]
    by_name = {row["name"]: Vector(**row) for row in rows}
    assert len(by_name) == len(rows)
    return by_name


def _found(steps: Iterable[Sequence[Any]]) -> Iterable[GrammarEvent]:
    """`said`, `thought`, `begin`, `grew`, `end` and `noticed` each are one; `call` is a whole call, `cut` one that
    is not closed. What is not as usual at a call's beginning stands last: its `id`, and `in` which channel it is.
    """
    for kind, *values in steps:
        match kind:
            case "said":
                yield TextFound("text", *values)
            case "thought":
                yield TextFound("reasoning", *values)
            case "begin" | "call" | "cut":
                more = values.pop() if isinstance(values[-1], dict) else {}
                name, *grown = values
                yield CallStarted(more.get("in", "text"), more.get("id", ""), name)
                yield from (CallDelta(one) for one in grown if one)
                if kind != "begin":
                    yield CallEnded(kind == "call")
            case "grew":
                yield CallDelta(*values)
            case "end":
                yield CallEnded(*values)
            case _:
                assert kind == "noticed"
                yield Notice(*values)


def grammar_of(family: str, vector: Vector | None = None) -> Grammar:
    vector = vector or Vector("", "", [])
    tools = None if vector.tools is None else [DECLARED.get(name, Tool(name)) for name in vector.tools]
    return grammar_for(family, vector.channel, tools=tools, calls=vector.calls)


# -- laws --------------------------------------------------------------------------------


def letters(found: Iterable[GrammarEvent]) -> int:
    """How many of the letter came out: as text, in a name or in arguments, or in a report of what was left out."""
    count = 0
    for one in found:
        match one:
            case TextFound(text=text) | CallDelta(text=text):
                count += text.count("Q")
            case CallStarted(name=name):
                count += (name or "").count("Q")
            case Notice(rule="stray_marker" | "arguments_trailing", detail=detail):
                count += detail.count("Q")
            case _:
                pass
    return count


def assert_laws(make: Callable[[], Grammar], text: str, cuts: Sequence[int]) -> None:
    """Chunking is invisible, no letter is lost, calls are balanced."""
    found = found_in(make(), [text])
    assert found_in(make(), by_cuts(text, cuts)) == found
    assert found_in(make(), text) == found
    assert letters(found) == text.count("Q")
    began = [type(one) for one in found if isinstance(one, CallStarted | CallEnded)]
    assert began == [CallStarted, CallEnded] * (len(began) // 2)
