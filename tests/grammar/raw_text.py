"""What the tests of the families with raw values share: their vectors, ways to cut a text, and the laws."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

from hypothesis import strategies as st

from moonshim.conversation import Tool
from moonshim.grammar.events import CallBegan, CallEnded, CallGrew, Channel, Found, Grammar, Noticed, Said
from moonshim.grammar.raw_values import escaped
from tests.properties.test_linear import assert_linear, calls_made

SIZES: Final = [1, 2, 3, 7, 1000]
CUTS: Final = st.lists(st.integers(0, 1 << 16), max_size=30)
FRAGMENTS: Final = [
    "<",
    "</",
    ">",
    "|",
    "=",
    " ",
    "\n",
    '"',
    "'",
    "\\",
    "{",
    "}",
    "[",
    ":",
    ",",
    "x",
    "é",
    "💥",
    "\x00",
]

_FOLDER: Final = Path(__file__).parent / "vectors"


class Family(Protocol):
    """The class of a grammar."""

    def __call__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> Grammar: ...


def tool(name: str, **properties: Any) -> Tool:
    """A tool whose arguments have these types, or these schemas."""
    schemas = {key: {"type": one} if isinstance(one, str | list) else one for key, one in properties.items()}
    return Tool(name, parameters={"type": "object", "properties": schemas})


TOOLS: Final = [
    tool("ls", dir="string", deep="boolean", most="integer"),
    tool("put", text="string", count="number", flag="boolean", none="null", box="object", list="array"),
    tool(
        "mixed",
        either=["string", "null"],
        size=["integer", "null"],
        many={"anyOf": [{"type": "string"}, {"type": "array"}]},
    ),
]


def found(steps: Iterable[Sequence[Any]]) -> list[Found]:
    """`said`, `thought`, `begin`, `grew`, `end` and `noticed` each are one; `call` is a whole call."""
    out: list[Found] = []
    for kind, *values in steps:
        match kind:
            case "said":
                out.append(Said("text", *values))
            case "thought":
                out.append(Said("reasoning", *values))
            case "begin" | "call" | "cut":
                out.append(CallBegan("text", "", values[0]))
                out += [CallGrew(one) for one in values[1:] if one]
                out += [CallEnded(kind == "call")] if kind != "begin" else []
            case "grew":
                out.append(CallGrew(*values))
            case "end":
                out.append(CallEnded(*values))
            case _:
                assert kind == "noticed"
                out.append(Noticed(*values))
    return out


def vectors(family: str) -> dict[str, tuple[str, list[Found], dict[str, Any]]]:
    """By name: the text, what must be found in it, and how the grammar is made."""
    loaded = json.loads((_FOLDER / f"{family}.json").read_text(encoding="utf-8"))
    read = {}
    for one in loaded["vectors"]:
        settings: dict[str, Any] = {"tools": None if one.get("unknown") else TOOLS, "calls": one.get("calls", True)}
        assert one["name"] not in read
        read[one["name"]] = one["text"], found(one["found"]), settings
    return read


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


def run(family: Family, pieces: Iterable[str], channel: Channel = "text", **settings: Any) -> list[Found]:
    grammar = family(channel, **({"tools": TOOLS} | settings))
    found = [one for piece in pieces for one in grammar.feed(piece)]
    return merged(found + grammar.flush())


def by_size(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def by_cuts(text: str, cuts: Sequence[int]) -> list[str]:
    at = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(at)]


def soups(*pieces: str) -> st.SearchStrategy[str]:
    """Tags and text in any order; `Q` is the letter that is counted."""
    return st.lists(st.sampled_from(["Q", "Q Q", "1", "true", *FRAGMENTS, *pieces]), max_size=24).map("".join)


def letters(found: Iterable[Found]) -> int:
    """How many of the letter came out: as text, in a name or in arguments, or in a report of what was left out."""
    count = 0
    for one in found:
        match one:
            case Said(text=text) | CallGrew(text=text):
                count += text.count("Q")
            case CallBegan(name=name):
                count += (name or "").count("Q")
            case Noticed(rule="stray_marker" | "arguments_trailing", detail=detail):
                count += detail.count("Q")
            case _:
                pass
    return count


def assert_laws(family: Family, text: str, cuts: Sequence[int], channel: Channel, **settings: Any) -> None:
    """Chunking is invisible, no letter is lost, calls are balanced."""
    found = run(family, [text], channel, **settings)
    assert run(family, by_cuts(text, cuts), channel, **settings) == found
    assert run(family, text, channel, **settings) == found
    assert letters(found) == text.count("Q")
    began = [type(one) for one in found if isinstance(one, CallBegan | CallEnded)]
    assert began == [CallBegan, CallEnded] * (len(began) // 2)


def assert_prompt(family: Family, text: str, longest: int, **settings: Any) -> None:
    """Of text that is only text, at most so many characters are kept back, and they are the end of it."""
    grammar = family("text", **({"tools": TOOLS} | settings))
    said = ""
    for at, char in enumerate(text, 1):
        for one in grammar.feed(char):
            assert isinstance(one, Said)
            said += one.text
        assert said + grammar.held == text[:at]
        assert len(grammar.held) <= longest


def assert_streams(family: Family, opening: str, value: str) -> None:
    """A string is passed on as it arrives, but for what may be the beginning of its end."""
    grammar = family("text", tools=TOOLS)
    grammar.feed(opening)
    written = ""
    for at, char in enumerate(value, 1):
        written += "".join(one.text for one in grammar.feed(char) if isinstance(one, CallGrew))
        # The first line break may be the format's.
        assert any(
            written == escaped(text[:stop])
            for text in (value, value.removeprefix("\n"))
            for stop in range(max(0, at - 4), at + 1)
        )
        assert not grammar.held


def assert_linear_work(family: Family, text: Callable[[int], str], size: int) -> None:
    """How often anything is called grows like the text, at one character at a time and at seven."""
    for step in (1, 7):

        def measure(count: int, step: int = step) -> int:
            pieces = by_size(text(count), step)
            return calls_made(lambda: run(family, pieces))

        assert_linear(measure, size)
