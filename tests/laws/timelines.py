"""What a host sends, step by step, and what each step decides: the measure of how late an engine may be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from moonshim.engine.grammar.kimi.k3_arguments import escape
from tests.laws.scripts import Call, Cut, Run
from tests.laws.strategies import NAMES
from tests.support.streams import MARKERS

__all__ = ["Passage", "Sink", "Step", "k2_passages", "k3_passages", "native_passages", "text_passages", "undecided"]

Sink: TypeAlias = tuple[str, int]
"""Where output is heard: ("text", 0), ("reasoning", 0), ("header", which call), ("arguments", which call)."""

_TAGS: Final = (*MARKERS, "◁think▷", "◁/think▷")


@dataclass(frozen=True)
class Step:
    """Once all of `source` has come, `gives` is decided. A step without source is decided with the one before."""

    source: str
    sink: Sink = ("", 0)
    gives: str = ""


@dataclass(frozen=True)
class Passage:
    """One run of text in a field, or one native call."""

    steps: tuple[Step, ...]
    field: str = "content"
    call: Call | None = None

    @property
    def source(self) -> str:
        return "".join(step.source for step in self.steps)

    def deltas(self, cut: Cut) -> Iterator[tuple[dict[str, Any], int]]:
        """Each delta, and how many characters of the source it brings."""
        if self.call is not None:
            for delta in self.call.deltas(cut):
                yield delta, len(delta["tool_calls"][0]["function"].get("arguments") or "")
            return
        pieces = cut(self.source)
        for delta, piece in zip(Run(self.source, (self.field,)).deltas(cut), pieces, strict=True):
            yield delta, len(piece)


def continued_call(text: str, sink: Sink) -> tuple[Step, ...]:
    """Every character is decided as it comes."""
    return tuple(Step(char, sink, char) for char in text)


# -- what may still be undecided -------------------------------------------------------------------------------

_HEADS: Final = tuple(head for name in NAMES for head in (name, f"functions.{name}"))
_BEGINNINGS: Final = frozenset(head[:size] for head in _HEADS for size in range(1, len(head) + 1))
_BARE: Final = re.compile(r"([A-Za-z0-9_.\-]+)(:[0-9]{0,9}(?:(?<=[0-9])\s{0,8})?)?\Z")


def undecided(source: str) -> tuple[int, int]:
    """How many characters at the end may become a marker; and how many before them a bare header."""
    marker = max((size for tag in _TAGS for size in range(1, len(tag)) if source.endswith(tag[:size])), default=0)
    bare = _BARE.search(source[max(0, len(source) - marker - 80) : len(source) - marker])
    if bare is None or (bare[1] not in _HEADS if bare[2] else bare[1] not in _BEGINNINGS):
        return marker, 0
    return marker, len(bare[0])


# -- text ------------------------------------------------------------------------------------------------------

_WORDS: Final = (
    "some words ",
    "and more, ",
    "x",
    " ",
    "\n",
    "你好",
    "🙂",
    "é",
    "1 < 2",
    "<b>",
    "|>",
    "://",
    '{"a": 1}',
    "12",
)
_ALMOST: Final = tuple(tag[:size] for tag in _TAGS for size in (1, 2, 4, len(tag) - 1))
_NAMED: Final = (*NAMES, "functions", "functions.", ":", ":0", "functions.read_file:12 ", "search:")
texts: Final = (
    st.lists(st.sampled_from(_WORDS * 12 + _ALMOST + _NAMED * 3), max_size=14)
    .map("".join)
    .filter(lambda text: not text[:1].isspace() and not any(tag in text for tag in _TAGS))
)
"""No marker is in it, and no white space comes first: between markers that has a hold of its own."""

fields: Final = st.sampled_from(("content", "reasoning_content", "reasoning", "reasoning_details"))


def _channel(field: str) -> Sink:
    return ("text" if field == "content" else "reasoning", 0)


def _speech(said: Sequence[tuple[str, bool]], field: str) -> list[Passage]:
    names = [field if inside else "content" for _, inside in said]
    return [Passage(continued_call(text, _channel(name)), name) for (text, _), name in zip(said, names, strict=True)]


text_passages: Final = st.builds(_speech, st.lists(st.tuples(texts, st.booleans()), min_size=1, max_size=4), fields)

# -- calls -----------------------------------------------------------------------------------------------------

_strings: Final = st.lists(
    st.sampled_from((*_WORDS, '"', "\\", "\n", "\t", "\x07", "\\u", "😀😀", "{}", "}{", "<|tool_call_end|>", "<|")),
    max_size=8,
).map("".join)
_values: Final = st.dictionaries(
    st.sampled_from(("path", "file", "a", "b")),
    st.one_of(_strings, st.lists(_strings, max_size=2), st.integers()),
    max_size=3,
)
arguments: Final = st.builds(lambda value, ascii_: json.dumps(value, ensure_ascii=ascii_), _values, st.booleans())
_called: Final = st.tuples(st.sampled_from(NAMES), arguments, texts)


def _k2(field: str, before: str, calls: Sequence[tuple[str, str, str]], gap: str, after: str) -> list[Passage]:
    sink = _channel(field)
    steps = [*continued_call(before, sink), Step("<|tool_calls_section_begin|>" + gap)]
    for number, (name, text, between) in enumerate(calls):
        steps += [
            Step(
                f"<|tool_call_begin|>functions.{name}:{number}{gap}<|tool_call_argument_begin|>",
                ("header", number),
                name,
            ),
            Step(gap),
            *continued_call(text, ("arguments", number)),
            Step(gap + "<|tool_call_end|>" + gap * (not between)),
            *continued_call(between, sink),
        ]
    steps += [Step("<|tool_calls_section_end|>"), *continued_call(after, sink)]
    return [Passage(tuple(steps), field)]


k2_passages: Final = st.builds(
    _k2, fields, texts, st.lists(_called, min_size=1, max_size=3), st.sampled_from(("", "", " ", "\n")), texts
)


def _tag(name: str, **attributes: str) -> str:
    return f"<|open|>{name}" + "".join(f' {key}="{value}"' for key, value in attributes.items()) + "<|sep|>"


def _k3(
    thought: str, before: str, calls: Sequence[tuple[str, dict[str, str], str]], wrapped: bool, after: str
) -> list[Passage]:
    steps: list[Step] = []
    for name, text, sink in (("think", thought, ("reasoning", 0)), ("response", before, ("text", 0))):
        if wrapped:
            steps += [Step(_tag(name)), *continued_call(text, sink), Step(f"<|close|>{name}<|sep|>")]
    if not wrapped:
        steps += continued_call(before, ("text", 0))
    steps.append(Step(_tag("tools")))
    for number, (name, values, between) in enumerate(calls):
        steps.append(Step(_tag("call", tool=name, index=str(number + 1)), ("header", number), name))
        sink, lead = ("arguments", number), "{"
        for key, value in values.items():
            steps.append(Step(_tag("argument", key=key, type="string"), sink, f'{lead}"{key}": "'))
            steps += [Step(char, sink, escape(char)) for char in value]
            steps.append(Step("<|close|>argument<|sep|>", sink, '"'))
            lead = ", "
        steps.append(Step("<|close|>call<|sep|>", sink, "}" if values else "{}"))
        steps += continued_call(between, ("text", 0))
    steps += [Step("<|close|>tools<|sep|>"), *continued_call(after, ("text", 0))]
    return [Passage(tuple(steps), "content")]


_k3_strings: Final = st.lists(
    st.sampled_from((*_WORDS, '"', "\\", "\n", "<", "<|", "<|clo", "<|close|>arg ", "<|open|>x", "<|sep|>", "\x07")),
    max_size=8,
).map("".join)
k3_passages: Final = st.builds(
    _k3,
    texts,
    texts,
    st.lists(
        st.tuples(
            st.sampled_from(NAMES), st.dictionaries(st.sampled_from(("path", "a", "b")), _k3_strings, max_size=3), texts
        ),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
    texts,
)


def _native(field: str, before: str, calls: Sequence[tuple[str, str, str, str]]) -> list[Passage]:
    passages = [Passage(continued_call(before, _channel(field)), field)] if before else []
    for number, (name, text, shape, after) in enumerate(calls):
        grows = any(other != name and other.startswith(name) for other in NAMES)
        header = Step("", ("header", number), name)
        first, *rest = continued_call(text, ("arguments", number))
        steps = (first, header, *rest) if grows else (header, first, *rest)
        passages.append(Passage(steps, "native", Call(name, text, f"functions.{name}:{number}", number, shape)))
        if after:
            passages.append(Passage(continued_call(after, ("text", 0))))
    return passages


native_passages: Final = st.builds(
    _native,
    fields,
    texts,
    st.lists(
        st.tuples(st.sampled_from(NAMES), arguments, st.sampled_from(("clean", "clean", "whole", "id_always")), texts),
        min_size=1,
        max_size=3,
    ),
)
