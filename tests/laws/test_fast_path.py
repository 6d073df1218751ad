"""The fast path: it is really taken, and what leaves by it is what leaves by the slow path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moonshim.engine.response.fast_path import FastPath
from tests.laws.scripts import Call, Cut, Outcome, Run, Script, Setting, mend, pieces
from tests.laws.strategies import cuts, scripts
from tests.laws.test_chunking import same

_ARGUMENTS = '{"path": "src/a_long_name_of_a_file.py", "text": "two words\\nand \\u00e9 more"}'
_SECTION = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
    f"{_ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>"
)
_WORDS = "It is a fine day to read a long text with many words and few surprises in it. "
TYPICAL: dict[str, tuple[str, Run | Call]] = {
    "plain text": ("kimi-k2.5", Run(_WORDS)),
    "reasoning": ("kimi-k2.5", Run(_WORDS, ("reasoning_content",))),
    "text of K3": ("kimi-k3", Run(_WORDS)),
    "a call in markers": ("kimi-k2.5", Run(_WORDS + _SECTION)),
    "a native call": ("kimi-k2.5", Call("read_file", _ARGUMENTS, "functions.read_file:0")),
    "another model": ("gpt-4o", Run(_WORDS)),
}


def long_way(script: Script, frames: list[bytes]) -> Outcome:
    """The same frames, with a mender that never takes the fast path."""

    def never(self: FastPath, *, is_idle: bool) -> None:
        self.template = None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastPath, "settle", never)
        patch.setattr(FastPath, "take", _must_not)
        return mend(script.setting, frames, script.choices)


def _must_not(*_: Any) -> None:
    raise AssertionError("the short way was taken")


def counted(take: Callable[..., Any], taken: list[int]) -> Callable[..., Any]:
    def counting(self: FastPath, *arguments: Any) -> Any:
        result = take(self, *arguments)
        taken[0] += result is not None
        return result

    return counting


@pytest.mark.parametrize("name", TYPICAL)
def test_typical_streams_go_the_short_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, part = TYPICAL[name]
    script = Script((part,), finish="stop", setting=Setting(model))
    frames = script.frames(pieces([4]))
    taken = [0]
    monkeypatch.setattr(FastPath, "take", counted(FastPath.take, taken))
    outcome = mend(script.setting, frames)
    monkeypatch.undo()
    assert taken[0] >= 0.6 * len(frames), f"{taken[0]} of {len(frames)}"
    same(outcome, long_way(script, frames))


@given(scripts, cuts)
def test_both_ways_give_the_same_bytes(script: Script, cut: Cut) -> None:
    frames = script.frames(cut)
    same(mend(script.setting, frames, script.choices), long_way(script, frames))


_scraps = (
    "<",
    "<|",
    "<|t",
    "|",
    "ool_call_begin|>",
    "<|tool_call_begin|>",
    "</think>",
    "<think>",
    "<|open|>",
    "open|>",
)
_ordinary = (
    "a",
    " ",
    "re",
    "ad",
    "read",
    ":",
    "0",
    "functions.",
    "functions",
    ".",
    "search_files:12",
    "é",
    '"',
    "\\",
    "\n",
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from((*_scraps, *_scraps, *_ordinary)), max_size=14),
    st.sampled_from(("kimi-k2.5", "kimi-k3", "kimi-for-coding")),
    st.sampled_from(("all", "unknown", "none")),
    st.sampled_from(("content", "reasoning_content", "reasoning")),
    st.sampled_from(((10_000,), (1,), (2,), (1, 3))),
)
def test_both_ways_agree_where_almost_markers_are_dense(
    scraps: list[str], model: str, tools: str, field: str, sizes: tuple[int, ...]
) -> None:
    parts = tuple(Run(text, (field,)) for text in ("Once", " more ", *scraps, " end"))
    script = Script(parts, setting=Setting(model, tools))
    frames = script.frames(pieces(sizes))
    same(mend(script.setting, frames), long_way(script, frames))


_native = (
    "{",
    "}",
    "{}",
    '{"',
    'a": "',
    "b",
    "\\",
    "n",
    "u00",
    "e9",
    "\\ud83d",
    "\\ude00",
    '"',
    '"}',
    " ",
    "\n",
    "null",
    "1",
)


@given(
    st.lists(st.sampled_from(_native), min_size=1, max_size=14),
    st.sampled_from((0, 1, "0", None)),
    st.sampled_from(("kimi-k2.5", "gpt-4o")),
)
def test_both_ways_agree_on_the_arguments_of_native_calls(
    scraps: list[str], index: int | str | None, model: str
) -> None:
    text = "".join(scraps)
    sizes = [len(scrap) for scrap in scraps]
    script = Script((Call("search_files", text, "functions.search_files:0", index),), setting=Setting(model))
    frames = script.frames(pieces(sizes))
    same(mend(script.setting, frames), long_way(script, frames))


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path": "a", "lines": [1, 2, {"b": "c", "d": null}], "e": true}',
        '{"path": "a", "lines": [1, 2,], }',
        '{"path": "a",,}',
        '{"path": "a", }"',
        '{"path": "a", "b": None, \'c\': \'d\'}',
        '{"path": "a",\n\n\n    "b": ]',
        '{"path": "a", "b": ',
    ],
)
def test_commas_that_wait_leave_by_the_short_way_as_by_the_long_one(arguments: str) -> None:
    script = Script((Run("Look."), Call("read", arguments, "functions.read:0")), "tool_calls")
    for size in (1, 2, 3, 5, 40):
        frames = script.frames(pieces([size]))
        same(mend(script.setting, frames), long_way(script, frames))
