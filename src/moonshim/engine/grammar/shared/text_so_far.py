"""The text of one field so far -> what it says about a marker that follows: code that is open, the last line, its size.

Theory of operation. Reading every character in Python would double the cost of a stream, so the hot path only appends
to `pieces`. To ask a question, call `settle` first, which folds the pieces into the state below; it is also called when
there are `MAX_PIECES`.

    code   fence   a line of three or more backticks or tildes opened a block, and no such line has closed it
           span    a run of backticks opened inline code in this paragraph, and no equal run has closed it
    tail   the end of the text since the last marker, up to `TAIL` characters
    sample evenly spaced pieces of all text, from which its tokens are estimated

Only `_read_code` changes what is open. A blank line ends a span, and a marker ends the tail.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["LARGE", "MAX_PIECES", "OpenCode", "TextSample", "TextSoFar"]

MAX_PIECES: Final = 128
LARGE: Final = 128
"""A piece of this many characters is looked at at once, so that little text waits."""
TAIL: Final = 320
"""Longest text before a marker that is looked at: a name of 256 characters with its prefix and its index."""
_BLOCK: Final = 512
_MAX_BLOCKS: Final = 24
"""How much text is kept for the estimate: at most so many blocks of this many characters."""

_CODE: Final = re.compile(r"`+|~+|\n|[^`~\n]+")
_LINE_PREFIX: Final = re.compile(r"[ \t]*(?:>[ \t]*)*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(?:>[ \t]*)*")
"""What may precede a fence in its line: white space, the signs of quotes, and that of a list item."""


class OpenCode:
    """Follows Markdown code through text that arrives in pieces: fences, and backticks in a paragraph.

    >>> code = OpenCode()
    >>> code.read("Use `ls"), code.is_open
    (None, True)
    """

    __slots__ = ("_fence", "_line", "_opening", "_run", "_span", "fresh_fence", "was_abandoned")

    def __init__(self) -> None:
        self._fence = ""
        """The run that opened a block; empty outside of one."""
        self._span = 0
        """The length of the run that opened inline code; 0 outside."""
        self._opening = ""
        """A run at the start of this line: a fence, if nothing in the line speaks against it."""
        self._line = ""
        """The beginning of this line, as far as it can still precede a fence; `x` when it cannot."""
        self._run = ""
        """A run that the next character may continue."""
        self.fresh_fence = False
        """Whether there was only white space since the line that opened the block."""
        self.was_abandoned = False
        """Whether a blank line ended inline code that no run of backticks had closed."""

    @property
    def is_open(self) -> bool:
        """Whether a marker at this point is inside code that has not been closed yet."""
        return bool(self._fence or self._span or self._opening or self._run)

    @property
    def in_fence(self) -> bool:
        return bool(self._fence)

    def copy(self) -> OpenCode:
        other = OpenCode()
        other._fence, other._span, other._opening = self._fence, self._span, self._opening
        other._line, other._run, other.fresh_fence = self._line, self._run, self.fresh_fence
        return other

    def read(self, text: str) -> None:
        """Follow more text."""
        if not self.is_open and "`" not in text and "~" not in text:
            last = text.rfind("\n") + 1
            if last:
                self._line = ""
            self._words(text[last:])
            return
        for token in _CODE.findall(text):
            first = token[0]
            if first in "`~":
                if self._run and self._run[0] != first:
                    self._end_run()
                self._run += token
            else:
                if self._run:
                    self._end_run()
                if first == "\n":
                    self._end_line()
                else:
                    self._words(token)

    def end_run(self) -> None:
        """Something that is no text follows: a run of backticks is as long as it is."""
        if self._run:
            self._end_run()

    def end(self) -> None:
        """No more text follows: the last line is whole."""
        self.end_run()
        if self._opening and self._fence:
            self._end_line()

    def _words(self, text: str) -> None:
        if self._opening and self._fence and text.strip():
            self._opening = ""  # words behind it: it does not close the block
        if self._line != "x":
            self._line += text[:TAIL]
            if _LINE_PREFIX.fullmatch(self._line) is None:
                self._line = "x"
        if self._fence and self.fresh_fence and not self._opening and text.strip():
            self.fresh_fence = False

    def _end_run(self) -> None:
        run, self._run = self._run, ""
        starts_line, self._line = self._line != "x", "x"
        if self._fence:
            closes = starts_line and run[0] == self._fence[0] and len(run) >= len(self._fence)
            self._opening = run if closes else ""
            self.fresh_fence = self.fresh_fence and closes
        elif starts_line and len(run) >= 3 and not self._span:
            self._opening = run
        elif run[0] == "`":
            if self._opening:
                # A second run in the line of what looked like a fence: both are inline code.
                self._span = len(self._opening) if self._opening[0] == "`" else 0
                self._opening = ""
            if not self._span:
                self._span = len(run)
            elif self._span == len(run):
                self._span = 0

    def _end_line(self) -> None:
        if self._opening:
            self._fence, self.fresh_fence = ("", False) if self._fence else (self._opening, True)
            self._opening, self._span = "", 0
        elif self._line != "x" and not self._line.strip(" \t>"):
            self.was_abandoned = self.was_abandoned or self._span > 0
            self._span = 0  # a blank line ends the paragraph
        self._line = ""


class TextSample:
    """Evenly spaced blocks of a text of any length, from which the tokens of all of it are estimated."""

    __slots__ = ("_blocks", "_rest", "_stride", "size")

    def __init__(self) -> None:
        self.size = 0
        self._blocks: list[str] = []
        self._stride = 1
        """One in so many blocks is kept."""
        self._rest = ""

    def add(self, text: str) -> None:
        done = self.size // _BLOCK
        self.size += len(text)
        text = self._rest + text
        count = len(text) // _BLOCK
        for place in range(-done % self._stride, count, self._stride):
            if (done + place) % self._stride:
                continue  # the stride has grown meanwhile
            self._blocks.append(text[place * _BLOCK : (place + 1) * _BLOCK])
            if len(self._blocks) >= _MAX_BLOCKS:
                self._blocks, self._stride = self._blocks[::2], 2 * self._stride
        self._rest = text[count * _BLOCK :]

    def sampled(self) -> tuple[str, float]:
        """What was kept of the text, and how many times longer all of it is."""
        kept = "".join([*self._blocks, self._rest])
        return kept, self.size / len(kept) if kept else 1


class TextSoFar:
    """What was said in one field, outside of calls. See the theory of operation above."""

    __slots__ = ("code", "pieces", "sample", "tail")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        """Text that was not looked at yet; the hot path appends here and settles when there are `MAX_PIECES`."""
        self.code = OpenCode()
        self.tail = ""
        self.sample = TextSample()

    def add(self, text: str) -> None:
        """More text was said."""
        self.pieces.append(text)
        if len(self.pieces) >= MAX_PIECES or len(text) >= LARGE:
            self.settle()

    def settle(self) -> None:
        """Look at what came since the last time."""
        if not self.pieces:
            return
        text = "".join(self.pieces)
        self.pieces.clear()
        self.code.read(text)
        self.tail = (self.tail + text)[-TAIL:] if len(text) < TAIL else text[-TAIL:]
        self.sample.add(text)

    def end_line(self) -> None:
        """A marker: what comes next has nothing to do with the text before."""
        self.settle()
        self.tail = ""

    def begin_block(self) -> None:
        """Reasoning ends, or the answer begins: no code goes on over that."""
        self.end_line()
        self.code = OpenCode()
