"""What a client sees that turned thinking off: the same end, whatever the chunking."""

from __future__ import annotations

import pytest

from moonshim.engine.response.visible_output import VisibleOutput
from moonshim.engine.tokens import mean_tokens
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Finished, Repaired

TEXTS = (
    "The quick brown fox jumps over the lazy dog, and then it writes a report about it. " * 40,
    "月落乌啼霜满天江枫渔火对愁眠" * 60,
    '{"command": "find . -name \\"*.py\\" | xargs grep -n 42", "timeout": 120000}\n' * 40,
)


def shown(text: str, limit: int | None, size: int) -> tuple[str, list[Event]]:
    output = VisibleOutput(limit)
    events: list[Event] = [BlockOpened(0, "text")]
    events += [BlockDelta(0, text[at : at + size]) for at in range(0, len(text), size)]
    events += [BlockClosed(0), Finished("stop")]
    out = [one for event in events for one in output.feed(event)]
    return "".join(one.text for one in out if isinstance(one, BlockDelta)), out


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("limit", [1, 5, 64, 300])
def test_the_end_is_near_the_limit_whatever_the_chunking(text: str, limit: int) -> None:
    for size in (1, 7, 100, len(text)):
        seen, events = shown(text, limit, size)
        assert text.startswith(seen)
        assert mean_tokens(seen) <= limit * 1.15 + 1, size
        assert mean_tokens(seen) >= limit * 0.85 - 4, size
        assert events[-1] == Finished("length")
        assert [event.rule for event in events if isinstance(event, Repaired)] == ["output_limit"]
        assert [event for event in events if isinstance(event, BlockClosed)] == [BlockClosed(0, complete=False)]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("limit", [None, 100_000])
def test_what_fits_passes_unchanged(text: str, limit: int | None) -> None:
    for size in (1, 100, len(text)):
        seen, events = shown(text, limit, size)
        assert seen == text
        assert events[-1] == Finished("stop")


def test_reasoning_is_left_out_and_reported_once() -> None:
    output = VisibleOutput(64)
    events: list[Event] = []
    for index in (0, 1):
        for event in (BlockOpened(index, "reasoning"), BlockDelta(index, "Hm."), BlockClosed(index)):
            events += output.feed(event)
    assert [event.rule for event in events if isinstance(event, Repaired)] == ["reasoning_hidden"]
    assert len(events) == 1


def test_a_block_that_begins_after_the_end_is_left_out() -> None:
    output = VisibleOutput(1)
    events: list[Event] = [BlockOpened(0, "text"), BlockDelta(0, TEXTS[0]), BlockOpened(1, "call", "c", "ls")]
    events += [BlockDelta(1, "{}"), BlockClosed(1), BlockClosed(0), Finished("tool_calls")]
    out = [one for event in events for one in output.feed(event)]
    assert [event.index for event in out if isinstance(event, BlockOpened)] == [0]
    assert out[-1] == Finished("length")
