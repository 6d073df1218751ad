"""Law 1: chunking is invisible, of bytes and of text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.scripts import Cut, Outcome, Script, mend
from tests.properties.strategies import byte_splits, cuts, scripts
from tests.streams import Heard


def same(one: Outcome, other: Outcome) -> None:
    assert one.data == other.data
    assert one.repairs == other.repairs
    assert one.messages == other.messages
    assert one.ending == other.ending


@given(scripts, cuts, st.data())
def test_any_split_of_the_bytes_gives_the_same_bytes(script: Script, cut: Cut, data: st.DataObject) -> None:
    frames = script.frames(cut)
    whole = b"".join(frames)
    reference = mend(script.setting, frames, script.choices)
    same(reference, mend(script.setting, [whole], script.choices))
    same(reference, mend(script.setting, data.draw(byte_splits(whole)), script.choices))


@given(scripts, cuts)
def test_byte_by_byte_gives_the_same_bytes(script: Script, cut: Cut) -> None:
    frames = script.frames(cut)
    whole = b"".join(frames)
    single = [whole[at : at + 1] for at in range(len(whole))]
    same(mend(script.setting, frames, script.choices), mend(script.setting, single, script.choices))


def told(heard: Heard) -> dict[str, object]:
    """What a client has after the last delta, whatever the deltas were."""
    return {
        "content": heard.content,
        "reasoning": heard.fields,
        "calls": heard.calls,
        "order": heard.order,
        "finish": heard.finish,
        "error": heard.error,
        "summary": heard.summary,
    }


@given(scripts, cuts, cuts)
def test_any_cut_of_the_text_over_events_says_the_same(script: Script, one_cut: Cut, other_cut: Cut) -> None:
    one = mend(script.setting, script.frames(one_cut), script.choices)
    other = mend(script.setting, script.frames(other_cut), script.choices)
    assert one.messages == other.messages
    assert one.ending == other.ending
    heard, again = one.heard(), other.heard()
    for choice in script.choices:
        assert told(heard[choice]) == told(again[choice])
