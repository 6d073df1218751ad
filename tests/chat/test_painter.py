"""What the painter writes, as a terminal shows it."""

from __future__ import annotations

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.chat.terminal.painter import Painter

ROWS, COLUMNS = 12, 20


class Terminal:
    """A terminal, and everything that was printed for good."""

    def __init__(self) -> None:
        self.screen = pyte.HistoryScreen(COLUMNS, ROWS, history=1000)
        self.stream = pyte.Stream(self.screen)
        self.painter = Painter()

    def paint(self, above: list[str], lines: list[str]) -> str:
        written = self.painter.paint(above, lines)
        self.stream.feed(written)
        return written

    def is_hidden(self) -> bool:
        return bool(self.screen.cursor.hidden)

    @property
    def lines(self) -> list[str]:
        past = ["".join(row[at].data for at in range(COLUMNS)).rstrip() for row in self.screen.history.top]
        now = [line.rstrip() for line in self.screen.display]
        while now and not now[-1]:
            now.pop()
        return past + now


def test_what_is_done_stays_above_what_changes() -> None:
    terminal = Terminal()
    terminal.paint(["one"], ["growing", "status"])
    terminal.paint(["two"], ["more", "status 2"])
    assert terminal.lines == ["one", "two", "more", "status 2"]
    terminal.paint(["three"], [])
    assert terminal.lines == ["one", "two", "three"]


def test_only_what_differs_is_written() -> None:
    terminal = Terminal()
    terminal.paint([], ["the same", "one", "status"])
    written = terminal.paint([], ["the same", "two", "status"])
    assert "the same" not in written
    assert "two" in written
    assert terminal.paint([], ["the same", "two", "status"]) == ""


def test_the_cursor_is_hidden_while_something_changes() -> None:
    terminal = Terminal()
    terminal.paint([], ["growing"])
    assert terminal.is_hidden()
    terminal.paint([], [])
    assert not terminal.is_hidden()
    terminal.paint([], ["growing"])
    terminal.stream.feed(terminal.painter.clear())
    assert not terminal.is_hidden()
    assert terminal.lines == []


lines = st.lists(st.sampled_from(["", "a", "bb", "ccc", "d" * (COLUMNS - 1)]), max_size=ROWS - 1)


@given(st.lists(st.tuples(lines, lines), max_size=8))
@pytest.mark.filterwarnings("ignore")
def test_whatever_is_painted_everything_done_is_there_once_and_the_rest_below(
    frames: list[tuple[list[str], list[str]]],
) -> None:
    terminal, done = Terminal(), list[str]()
    for above, below in frames:
        terminal.paint(above, below)
        done += above
        shown = [*done, *below]
        while shown and not shown[-1]:
            shown.pop()
        assert terminal.lines == shown
