"""Text between tags -> speech in its channel; white space there waits, until it is known to be text."""

from __future__ import annotations

import re
from typing import Final

from moonshim.grammar.events import Channel, Found, Noticed, Said
from moonshim.grammar.raw_values import SPACE_LIMIT

__all__ = ["BetweenTags"]

_NOT_SPACE: Final = re.compile(r"\S")


class BetweenTags:
    """Knows the channel, and what white space means: before text it is text, before a tag it is nobody's."""

    __slots__ = ("_base", "_gap", "_size", "_words_open", "channel", "last", "quiet", "tags_are_text")

    def __init__(self, channel: Channel) -> None:
        self._base: Channel = channel
        self.channel: Channel = channel
        self.quiet = False
        """Whether nothing but white space came since the last tag."""
        self.last = ""
        """The last character that was said since the last tag."""
        self.tags_are_text = False
        """Set when the host sends reasoning in a field of its own: `<think>` in the text is then only text."""
        self._gap: list[str] = []
        self._size = 0
        self._words_open = 0

    def pause(self) -> None:
        """A tag came: the white space before it is gone, and what comes now waits."""
        self.quiet = True
        self.last = ""
        self._gap.clear()
        self._size = 0

    def skip(self, text: str, pos: int, out: list[Found]) -> int:
        """Keep white space for later; return where something else begins."""
        found = _NOT_SPACE.search(text, pos)
        stop = found.start() if found else len(text)
        if stop > pos:
            self._gap.append(text[pos:stop])
            self._size += stop - pos
            if self._size > SPACE_LIMIT:
                self.say("", out)
        return stop

    def say(self, text: str, out: list[Found]) -> None:
        """The white space before text is text, too."""
        if self._gap:
            text = "".join(self._gap) + text
            self._gap.clear()
            self._size = 0
        self.quiet = False
        if text:
            self.last = text[-1]
            out.append(Said(self.channel, text))

    def enter_reasoning(self, out: list[Found]) -> None:
        self.say("", out)
        self.channel = "reasoning"

    def leave_reasoning(self, tag: str, out: list[Found]) -> None:
        self.say("", out)
        if self.channel == self._base:
            out.append(Noticed("stray_marker", tag))
        self.channel = self._base

    def think(self, tag: str, out: list[Found]) -> None:
        """`<think>` moves what follows to the reasoning; where that has its own field, the tags are only words."""
        if tag == "<think>":
            if not self.tags_are_text:
                self.enter_reasoning(out)
                return
            self._words_open += 1
        elif not self._words_open:
            self.leave_reasoning(tag, out)
            return
        else:
            self._words_open -= 1
        self.say(tag, out)
