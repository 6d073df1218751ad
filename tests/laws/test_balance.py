"""Law 3: blocks are balanced, and exactly one `Finished` or `Failed` comes, last."""

from __future__ import annotations

from hypothesis import given

from moonshim.engine.dialects.openai_chat.delta import read_pieces, read_speech
from moonshim.engine.plan import plan_for
from moonshim.engine.repair.frame_output import FrameOutput
from moonshim.engine.values.events import CallPiece, Event
from tests.laws.checks import assert_balanced, assert_one_end
from tests.laws.scripts import Cut, Script, mend
from tests.laws.strategies import cuts, scripts


def events_of(script: Script, cut: Cut, choice: int) -> list[Event]:
    """What one answer tells of one choice, without frames around it."""
    seen: list[Event] = []
    answer = plan_for(**script.setting.told).new_repairer(seen.append)
    output = FrameOutput(seen.append)
    for part in script.parts:
        if part.choice != choice:
            continue
        for delta in part.deltas(cut):
            said = read_speech(delta)
            if said.reasoning:
                answer.feed_text("reasoning", said.reasoning, output)
            if said.content:
                answer.feed_text("text", said.content, output)
            for piece in read_pieces(delta.get("tool_calls")):
                native = CallPiece(piece.index, piece.id, piece.name, piece.arguments, piece.extras)
                if answer.watch is not None:
                    answer.watch.feed(native, output)
                else:
                    answer.feed_call(native, output)
    if script.finish is None and not script.done:
        answer.break_off(output)
    else:
        answer.finish(script.finish, output)
    return seen


@given(scripts, cuts)
def test_blocks_are_balanced_and_one_end_comes_last(script: Script, cut: Cut) -> None:
    for choice in script.choices:
        assert_balanced(events_of(script, cut, choice))


@given(scripts, cuts)
def test_every_choice_on_the_wire_ends_once(script: Script, cut: Cut) -> None:
    assert_one_end(script, mend(script.setting, script.frames(cut), script.choices))
