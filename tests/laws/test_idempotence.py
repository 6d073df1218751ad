"""Law 8: a clean stream passes unchanged, byte for byte, and so does a mended one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from moonshim import Failed, Finished, KimiOptions
from moonshim.types import Message, Reasoning
from tests.laws.scripts import TOOLS, Call, Cut, Run, Script, Setting, mend, pieces
from tests.laws.strategies import NAMES, cuts, json_values, scripts

_SCRAPS = (
    "<",
    "<|",
    "<|tool",
    "<|tool_call_beg",
    "</",
    "</thin",
    "<thi",
    "<|op",
    "<b>",
    "|>",
    "a < b",
    "functions.",
    "read:",
)
_WORDS = ("one ", "two", " ", "\n", "你好", "🙂", "é", '{"a": 1}', "read", "search_files", "12", ". ", "\\", '"', "://")
clean_texts = st.lists(st.sampled_from((*_WORDS, *_WORDS, *_SCRAPS)), min_size=1, max_size=12).map("".join)
# Frames wait while they have 27 characters of text in all: of these, the longest scrap has 15.
short_cuts = st.lists(st.integers(1, 12), min_size=1, max_size=8).map(pieces)
_FIELDS: st.SearchStrategy[tuple[str, ...]] = st.sampled_from(
    (("content",), ("content",), ("reasoning_content",), ("reasoning",), ("reasoning_content", "reasoning_details"))
)
_HALF_AT_THE_END = re.compile(r"<\|\w+\Z")
_objects = st.dictionaries(st.text(max_size=5), json_values, max_size=3)


def _is_clean(text: str) -> bool:
    """Whole markers are no part of a clean stream; and half a one is waited for where another field interrupts it."""
    return not _HALF_AT_THE_END.search(text) and all(
        marker not in text for marker in ("<think>", "</think>", "<|tool_call_begin|>", "<|open|>")
    )


def _script(
    said: list[tuple[str, tuple[str, ...]]],
    called: list[tuple[str, dict[str, Any], bool]],
    model: str,
    tools: str,
    usage: str | None,
) -> Script:
    parts: list[Run | Call] = [Run(text, fields) for text, fields in said]
    for number, (name, value, escaped) in enumerate(called):
        arguments = json.dumps(value, ensure_ascii=escaped)
        parts.append(Call(name, arguments, f"functions.{name}:{number}", number))
    return Script(tuple(parts), "tool_calls" if called else "stop", False, usage, True, Setting(model, tools))


def _is_answer(script: Script) -> bool:
    """Whether there is a call, or text; with tools, anything else is asked for again."""
    if any(isinstance(part, Call) and '"": ' in part.arguments for part in script.parts):
        return False  # with declared arguments, a server lost the key
    return any(isinstance(part, Call) or ("content" in part.fields and part.text.strip()) for part in script.parts)


clean_scripts = st.builds(
    _script,
    st.lists(st.tuples(clean_texts.filter(_is_clean), _FIELDS), max_size=4),
    st.lists(st.tuples(st.sampled_from(NAMES), _objects, st.booleans()), max_size=3),
    st.sampled_from(("kimi-k2.5", "kimi-k3", "kimi-for-coding", "gpt-4o")),
    st.sampled_from(("all", "unknown")),
    st.sampled_from((None, "top", "last")),
).filter(lambda script: _is_answer(script))


@given(clean_scripts, short_cuts)
def test_a_clean_stream_leaves_as_it_came(script: Script, cut: Cut) -> None:
    frames = script.frames(cut)
    outcome = mend(script.setting, frames)
    assert outcome.data == b"".join(frames)
    assert [repair for repair in outcome.repairs if repair.rule != "empty_answer"] == []


@given(clean_scripts, short_cuts, st.data())
def test_a_clean_stream_leaves_as_it_came_however_it_is_split(script: Script, cut: Cut, data: st.DataObject) -> None:
    whole = b"".join(script.frames(cut))
    size = data.draw(st.integers(1, 400))
    assert mend(script.setting, [whole[at : at + size] for at in range(0, len(whole), size)]).data == whole


@given(clean_scripts, cuts)
def test_long_frames_that_end_in_half_a_marker_say_the_same(script: Script, cut: Cut) -> None:
    """A frame that says more than a marker's length does not wait for its last characters: it is split."""
    heard = mend(script.setting, script.frames(cut)).heard()[0]
    runs = [part for part in script.parts if isinstance(part, Run)]
    assert heard.content == "".join(run.text for run in runs if run.fields == ("content",))
    for name in ("reasoning_content", "reasoning", "reasoning_details"):
        assert heard.fields.get(name, "") == "".join(run.text for run in runs if name in run.fields)
    if script.setting.mends_deltas:
        calls = [part for part in script.parts if isinstance(part, Call)]
        assert [(one.id, one.name, one.arguments) for one in heard.calls] == [
            (one.id, one.name, one.arguments) for one in calls
        ]


def test_a_clean_stream_of_every_option_leaves_as_it_came() -> None:
    parts = (
        Run("Let me look.", ("reasoning_content",)),
        Run("Reading."),
        Call("read", '{"path": "a"}', "functions.read:0"),
    )
    for options in (
        KimiOptions(),
        KimiOptions.mending(),
        KimiOptions.mending(repair_arguments="schema"),
        KimiOptions.mending(id_policy="unique"),
        KimiOptions.mending(id_policy="keep"),
        KimiOptions.mending(id_normalization=True),
    ):
        script = Script(parts, "tool_calls", setting=Setting(options=options))
        frames = script.frames(pieces([3]))
        assert mend(script.setting, frames).data == b"".join(frames)
    assert TOOLS


def is_told_apart(script: Script) -> bool:
    """Whether one pass leaves nothing that a second pass could read in another way.

    Known limits: markers of both generations in one stream, when the first one decides which are read; answers that
    were cut off, of which half a value or half a marker may stay; several choices, whose frames wait for each other;
    calls without a name, which go out as the text that they are, markers in it included.
    """
    said = "".join(part.text for part in script.parts if isinstance(part, Run))
    one_generation = not ("<|tool" in said and any(tag in said for tag in ("<|open|>", "<|close|>", "<|end_of_msg|>")))
    named = all(
        part.shape != "nameless" or "<" not in part.arguments for part in script.parts if isinstance(part, Call)
    )
    return one_generation and named and script.finish in (None, "stop", "tool_calls") and len(script.choices) == 1


def how(ending: Finished | Failed | None) -> str | None:
    """The end as a client sees it; what the host had said is not the same the second time."""
    if isinstance(ending, Finished):
        return ending.reason
    return ending.code if ending is not None else None


def without_fields(message: Message) -> Message:
    """The message without the name of the field that its reasoning came in."""
    parts = (changed(part, field=None) if isinstance(part, Reasoning) else part for part in message.parts)
    return changed(message, parts=tuple(parts))


@given(scripts.filter(is_told_apart), cuts)
def test_what_was_mended_frame_by_frame_says_the_same_frame_by_frame(script: Script, cut: Cut) -> None:
    setting = replace(script.setting, options=None)
    mender, again = setting.mender(), setting.mender()
    out = [mender.feed(frame) for frame in script.frames(cut)]
    out.append(mender.flush())
    for piece in out:
        again.feed(piece)
    again.flush()
    # A field of which nothing but a call came is not there the second time.
    assert without_fields(again.message) == without_fields(mender.message)
    assert how(again.ending) == how(mender.ending)
