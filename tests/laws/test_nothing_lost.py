"""Law 2: no character of the upstream's text is lost, unless a `Repaired` says so."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from moonshim import KimiOptions
from tests.laws.checks import assert_nothing_lost
from tests.laws.scripts import Cut, Run, Script, Setting, mend
from tests.laws.strategies import cuts, fields, scripts, settings, speech
from tests.support.streams import K3_MARKERS


@given(scripts, cuts)
def test_no_word_is_lost_or_doubled_or_moved(script: Script, cut: Cut) -> None:
    assert_nothing_lost(script, mend(script.setting, script.frames(cut), script.choices))


@given(st.lists(st.tuples(speech, fields), max_size=6), settings, cuts)
def test_ordinary_text_comes_out_character_by_character(
    said: list[tuple[str, tuple[str, ...]]], setting: Setting, cut: Cut
) -> None:
    parts = tuple(Run(text, names) for text, names in said)
    script = Script(parts, setting=setting)
    heard = mend(setting, script.frames(cut)).heard()[0]
    assert heard.content == "".join(part.text for part in parts if part.fields == ("content",))
    for name in ("reasoning_content", "reasoning", "reasoning_details"):
        assert heard.fields.get(name, "") == "".join(part.text for part in parts if name in part.fields)


@given(scripts, cuts)
def test_without_reading_markers_the_text_stays_as_it_is(script: Script, cut: Cut) -> None:
    script = replace(script, setting=replace(script.setting, options=KimiOptions()))
    heard = mend(script.setting, script.frames(cut), script.choices).heard()
    for choice in script.choices:
        came = [part for part in script.parts if isinstance(part, Run) and part.choice == choice]
        assert heard[choice].content == "".join(part.text for part in came if part.fields == ("content",))


def test_what_is_half_a_marker_at_the_end_is_text_or_reported() -> None:
    for marker in ("<|tool_calls_section_begin|>", "</think>", *K3_MARKERS):
        for size in range(1, len(marker)):
            for model in ("kimi-k2.5", "kimi-k3", "kimi-for-coding"):
                script = Script((Run("A" + marker[:size]),), setting=Setting(model))
                outcome = mend(script.setting, script.frames())
                content = outcome.heard()[0].content
                reported = [repair.detail for repair in outcome.repairs if repair.rule == "unreadable_call"]
                assert content == "A" + marker[:size] or (content, reported) == ("A", [marker[:size]])
