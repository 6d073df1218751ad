"""Law 3: blocks are balanced, and exactly one `Finished` or `Failed` comes, last."""

from __future__ import annotations

from hypothesis import given

from moonshim.engine.dialects.openai_chat.delta import read_content, read_pieces
from moonshim.engine.dialects.openai_chat.reasoning import reasoning_copies
from moonshim.engine.frames import FrameOutput
from moonshim.engine.plan import plan_for
from moonshim.engine.values.events import CallPiece, Event
from tests.laws.checks import assert_balanced, assert_one_end
from tests.laws.scripts import Cut, Script, mend
from tests.laws.strategies import cuts, scripts


def events_of(script: Script, cut: Cut, choice: int) -> list[Event]:
    """What one answer tells of one choice, without frames around it."""
    answer, output = plan_for(**script.setting.told).new_repairer(), FrameOutput()
    for part in script.parts:
        if part.choice != choice:
            continue
        for delta in part.deltas(cut):
            if copies := reasoning_copies(delta):
                answer.feed_text("reasoning", copies[0][1], output)
            if content := read_content(delta.get("content")):
                answer.feed_text("text", content, output)
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
    return output.events


@given(scripts, cuts)
def test_blocks_are_balanced_and_one_end_comes_last(script: Script, cut: Cut) -> None:
    for choice in script.choices:
        assert_balanced(events_of(script, cut, choice))


@given(scripts, cuts)
def test_every_choice_on_the_wire_ends_once(script: Script, cut: Cut) -> None:
    assert_one_end(script, mend(script.setting, script.frames(cut), script.choices))
