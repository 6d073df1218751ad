"""Hypothesis strategies for everything a Kimi host has been seen to send: speech, marker soup, calls, whole scripts."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st

from moonshim import KimiOptions
from tests.laws.scripts import SHAPES, TOOLS, Call, Cut, Run, Script, Setting, pieces
from tests.support.streams import K2_MARKERS, K3_MARKERS

__all__ = ["byte_splits", "cuts", "k2_sections", "k3_sections", "scripts", "settings", "soup", "speech", "words_of"]

_WORD: Final = "\x00"
"""Stands for a word that no other place of the script has; numbered when the script is whole."""

_NUMBERED: Final = re.compile(r"zq\d+k")

NAMES: Final = tuple(tool["function"]["name"] for tool in TOOLS)
_K2_TAGS: Final = K2_MARKERS[:7]
_K3_TAGS: Final = (
    "<|open|>think<|sep|>",
    "<|close|>think<|sep|>",
    "<|open|>response<|sep|>",
    "<|close|>response<|sep|>",
    "<|open|>tools<|sep|>",
    "<|close|>tools<|sep|>",
    '<|open|>call tool="read" index="1"<|sep|>',
    "<|close|>call<|sep|>",
    '<|open|>argument key="path" type="string"<|sep|>',
    '<|open|>argument key="limit" type="number"<|sep|>',
    '<|open|>argument key="options" type="object"<|sep|>',
    "<|close|>argument<|sep|>",
    '<|open|>json type="object"<|sep|>',
    "<|close|>json<|sep|>",
    "<|close|>message<|sep|>",
    "<|close|> think",
)
_PUNCTUATION: Final = ("<", "<|", "|>", "</", "◁", ":", ".", "{", "}", '"', "\\", "[", "]", ",", '{"a": ', "{}", "null")
_LETTERS: Final = ("é", "ß", "你好", "工具", "🙂", "👩‍💻", "\u2028", "\u00a0")
_SPACE: Final = (" ", "\n", "  ", "\t", "\r\n", "\n\n")

words: Final = st.just(_WORD)
spaces: Final = st.sampled_from(_SPACE)
digits: Final = st.sampled_from(("0", "7", "12", "003"))
headers: Final = st.one_of(
    st.builds("functions.{}:{}".format, st.sampled_from(NAMES), digits),
    st.builds("{}:{}".format, st.sampled_from(NAMES), digits),
    st.builds("functions_{}_{}".format, st.sampled_from(NAMES), digits),
    st.just(f"functions.{_WORD}:4"),
    st.sampled_from(
        ("call00003", "3", "Bash_0", "functionsread5", "functions read:0", "functions.read\n:1", "", "???")
    ),
)
_cut_markers: Final = st.builds(
    lambda marker, size: marker[: 1 + size % (len(marker) - 1)],
    st.sampled_from((*K2_MARKERS, *K3_MARKERS, *_K3_TAGS)),
    st.integers(0, 60),
)

plain: Final = st.one_of(words, words, spaces, st.sampled_from(_LETTERS), digits, st.sampled_from(_PUNCTUATION))
"""What people and models write: nothing in it is a marker or could become one with its neighbours."""
_careful: Final = st.one_of(
    words, words, words, spaces, spaces, st.sampled_from(_LETTERS), st.sampled_from(_PUNCTUATION[5:])
)

speech: Final = st.lists(_careful, max_size=12).map("".join)
"""Ordinary text: no marker is in it, whatever stands beside it."""


def _json_text(value: Any, style: int) -> str:
    text = json.dumps(value, ensure_ascii=bool(style & 1), indent=2 if style & 2 else None)
    if style & 4:
        text = text.replace("\\n", "\n").replace("\\t", "\t")
    return text.replace(json.dumps(_WORD)[1:-1], _WORD)


_strings: Final = st.lists(
    st.one_of(words, spaces, st.sampled_from((*_LETTERS, *_PUNCTUATION, *K2_MARKERS, *_K3_TAGS, "\b"))), max_size=4
).map("".join)
json_values: Final = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 999), st.sampled_from((0.5, 1e30)), _strings),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_strings, inner, max_size=3)),
    max_leaves=6,
)
json_objects: Final = st.dictionaries(
    st.sampled_from(("path", "file", "query", "lines", "limit", "options", "a")), json_values, max_size=3
)
arguments: Final = st.builds(_json_text, json_objects, st.integers(0, 7))
odd_arguments: Final = st.one_of(
    arguments,
    arguments.map(lambda text: text[: len(text) // 2]),
    st.sampled_from(
        ("", "null", '{"a": "\\q"}', '{"a": "\\ud83d"}', f'{_WORD} {{"a": 1}} {_WORD}', f'{{"a": 1}}{_WORD}')
    ),
    arguments.map(json.dumps),
    st.builds("{}{}".format, arguments, arguments),
)

# -- calls in the text -----------------------------------------------------------------------------------------


def _k2_call(header: str, gap: str, body: str) -> str:
    return f"<|tool_call_begin|>{gap}{header}{gap}<|tool_call_argument_begin|>{gap}{body}{gap}<|tool_call_end|>"


_good_headers: Final = st.builds("functions.{}:{}".format, st.sampled_from(NAMES), digits)
_gaps: Final = st.sampled_from(("", "", " ", "\n"))
k2_sections: Final = st.builds(
    lambda calls, gap: "<|tool_calls_section_begin|>" + gap + gap.join(calls) + gap + "<|tool_calls_section_end|>",
    st.lists(st.builds(_k2_call, st.one_of(_good_headers, headers), _gaps, arguments), min_size=1, max_size=3),
    _gaps,
)


def _k3_argument(item: tuple[str, Any]) -> str:
    key, value = item
    kind = {str: "string", bool: "boolean", type(None): "null", dict: "object", list: "array"}.get(
        type(value), "number"
    )
    text = value if isinstance(value, str) else _json_text(value, 0)
    return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{text}<|close|>argument<|sep|>'


def _k3_call(name: str, index: int, value: dict[str, Any], gap: str) -> str:
    inner = gap.join(map(_k3_argument, value.items()))
    return f'<|open|>call tool="{name}" index="{index}"<|sep|>{gap}{inner}{gap}<|close|>call<|sep|>'


k3_sections: Final = st.builds(
    lambda calls, gap: "<|open|>tools<|sep|>" + gap + gap.join(calls) + gap + "<|close|>tools<|sep|>",
    st.lists(
        st.builds(_k3_call, st.sampled_from((*NAMES, "other")), st.integers(1, 3), json_objects, _gaps),
        min_size=1,
        max_size=3,
    ),
    _gaps,
)

fragments: Final = st.one_of(
    plain,
    plain,
    st.sampled_from((*K2_MARKERS, *K3_MARKERS)),
    st.sampled_from((*_K2_TAGS, *_K3_TAGS)),
    _cut_markers,
    headers,
    st.sampled_from((*NAMES, "functions", "functions.")),
    odd_arguments,
)
soup: Final = st.lists(fragments, max_size=12).map("".join)
"""Anything at all, in any order."""
texts: Final = st.one_of(speech, soup, k2_sections, k3_sections, st.builds("{}{}{}".format, speech, k2_sections, soup))

# -- scripts ---------------------------------------------------------------------------------------------------

fields: Final = st.sampled_from(
    (
        ("content",),
        ("content",),
        ("reasoning_content",),
        ("reasoning",),
        ("reasoning_details",),
        ("reasoning", "reasoning_details"),
        ("reasoning_content", "reasoning", "reasoning_details"),
    )
)
choices: Final = st.sampled_from((0, 0, 0, 0, 1, 2))
runs: Final = st.builds(Run, texts, fields, choices)
ids: Final = st.one_of(
    st.none(),
    st.builds("functions.{}:{}".format, st.sampled_from(NAMES), digits),
    st.sampled_from(("call_1", "call_2", "3", "Bash_0", "")),
)


def told_apart(call: Call) -> Call:
    """A name on every delta and no identifier anywhere: where one call ends and the next begins is then a guess."""
    return replace(call, id="call_9") if call.shape == "name_always" and not call.id else call


calls: Final = st.builds(
    Call,
    st.sampled_from((*NAMES, "other", "functions.read")),
    odd_arguments,
    ids,
    st.sampled_from((0, 0, 0, 1, 2, "0", None)),
    st.sampled_from(SHAPES),
    choices,
).map(told_apart)

options: Final = st.sampled_from(
    (
        None,
        None,
        None,
        None,
        KimiOptions(),
        KimiOptions.mending(repair_arguments="schema"),
        KimiOptions.mending(tool_call_streaming="assembled"),
        KimiOptions.mending(assemble_tool_deltas=True),
        KimiOptions.mending(id_policy="unique"),
        KimiOptions.mending(id_policy="keep"),
        KimiOptions.mending(id_normalization=True, repair_arguments="off"),
        KimiOptions(manual_tool_parsing=True),
    )
)
settings: Final = st.builds(
    Setting,
    st.sampled_from(("kimi-k2.5", "kimi-k2.5", "kimi-k3", "kimi-k3", "kimi-for-coding", "gpt-4o")),
    st.sampled_from(("all", "all", "unknown", "none")),
    st.sampled_from((None, None, None, "none")),
    options,
)


def numbered(script: Script) -> Script:
    """Every word gets its number, in the order of the script."""
    count = 0

    def filled(text: str) -> str:
        nonlocal count
        first, *rest = text.split(_WORD)
        out = [first]
        for piece in rest:
            out += [f"zq{count}k", piece]
            count += 1
        return "".join(out)

    parts: list[Run | Call] = []
    for part in script.parts:
        if isinstance(part, Run):
            parts.append(replace(part, text=filled(part.text)))
        else:
            parts.append(replace(part, arguments=filled(part.arguments)))
    return replace(script, parts=tuple(parts))


finishes: Final = st.sampled_from(("stop", "stop", "tool_calls", "length", "content_filter", "engine_overloaded", None))
scripts: Final = st.builds(
    Script,
    st.lists(st.one_of(runs, runs, calls), max_size=5).map(tuple),
    finishes,
    st.booleans(),
    st.sampled_from((None, "top", "choice", "last")),
    st.booleans(),
    settings,
).map(numbered)


def words_of(text: str) -> list[str]:
    """The numbered words in a text, in order."""
    return _NUMBERED.findall(text)


# -- how things are cut ----------------------------------------------------------------------------------------

cuts: Final[st.SearchStrategy[Cut]] = st.one_of(
    st.sampled_from(((1,), (2,), (3,), (7,), (10_000,))),
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
).map(pieces)


def byte_splits(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """The same bytes, cut anywhere."""

    def split(places: list[int]) -> list[bytes]:
        edges = [0, *sorted(places), len(data)]
        return [data[start:stop] for start, stop in itertools.pairwise(edges)]

    return st.lists(st.integers(0, len(data)), max_size=12).map(split)
