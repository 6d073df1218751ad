"""Text outside of calls -> text in its channel; white space is held until it is known to be text."""

from __future__ import annotations

import re
from typing import Final

from moonshim.engine.grammar.protocol import Channel, GrammarEvent, Notice, TextFound

__all__ = ["GAP_LIMIT", "TextBuffer"]

GAP_LIMIT: Final = 1024
"""Maximum white space between two markers."""

_NOT_SPACE: Final = re.compile(r"\S")


class TextBuffer:
    """Tracks the channel and the meaning of white space: before text it is text, before a marker it is dropped.

    After a marker white space is held (`quiet`) until it is known what follows, up to `GAP_LIMIT`.
    """

    __slots__ = ("_base", "_gap", "_gap_size", "_words_open", "channel", "fresh", "last", "quiet")

    def __init__(self, channel: Channel) -> None:
        self._base: Channel = channel
        self.channel: Channel = channel
        self.quiet = False
        """Whether there was only white space since the last marker."""
        self.fresh = True
        """Whether the response has had only white space so far."""
        self.last = ""
        """The last character emitted since the last marker."""
        self._gap: list[str] = []
        self._gap_size = 0
        self._words_open = 0
        """Number of `<think>` emitted as text and not closed yet."""

    def emit(self, text: str, out: list[GrammarEvent]) -> None:
        """Emit text; held white space before it is text after all."""
        if self._gap:
            text = "".join(self._gap) + text
            self.drop_gap()
        self.quiet = False
        if text:
            out.append(TextFound(self.channel, text))
            self.last = text[-1]
            if self.fresh:
                self.fresh = text.isspace()

    def pause(self) -> None:
        """A marker: held white space is dropped, and new white space is held until it is known what follows."""
        self.quiet = True
        self.fresh = False
        self.last = ""
        self.drop_gap()

    def skip_space(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Hold white space; return how far it was read."""
        found = _NOT_SPACE.search(text, pos)
        return self.skip(text, pos, found.start() if found else len(text), out)

    def skip(self, text: str, pos: int, stop: int, out: list[GrammarEvent]) -> int:
        """Hold white space or a separator, which is text only if no call follows; return how far it was read.

        Never past the limit in one step, so that the result does not depend on the chunking.
        """
        stop = min(stop, pos + GAP_LIMIT + 1 - self._gap_size)
        if stop > pos:
            self._gap.append(text[pos:stop])
            self._gap_size += stop - pos
            if self._gap_size > GAP_LIMIT:
                self.emit("", out)
        return stop

    def drop_gap(self) -> None:
        """Drop the held white space."""
        self._gap.clear()
        self._gap_size = 0

    def enter_reasoning(self, out: list[GrammarEvent]) -> None:
        self.emit("", out)
        self.channel = "reasoning"
        self.fresh = False

    def leave_reasoning(self, tag: str, out: list[GrammarEvent]) -> None:
        self.emit("", out)
        if self.channel == self._base:
            out.append(Notice("stray_marker", tag))
        else:
            self.channel = self._base
            self.fresh = True

    def think(self, kind: str, tag: str, out: list[GrammarEvent], *, as_words: bool) -> None:
        """`<think>` moves what follows to the reasoning; if that has its own field, the tags are ordinary text."""
        if kind == "think" and as_words:
            self._words_open += 1
            self.emit(tag, out)
        elif kind == "think":
            self.enter_reasoning(out)
        elif self._words_open:
            self._words_open -= 1
            self.emit(tag, out)
        else:
            self.leave_reasoning(tag, out)
        self.last = ""
