"""What is said outside of calls: text up to the next marker -> speech in its channel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from moonshim.grammar.events import Channel, Found, Noticed, Said
from moonshim.grammar.markers import marker_set

__all__ = ["GAP_LIMIT", "THINK_TAGS", "Speech"]

GAP_LIMIT: Final = 1024
"""How much white space may be between two markers."""
THINK_TAGS: Final = {"<think>": "think", "</think>": "/think"}

_NOT_SPACE: Final = re.compile(r"\S")


class Speech:
    """The part that is the same in every family: which channel, what is held, what white space means.

    `held` is at most the longest marker less one character. White space behind a call
    waits (`quiet`) until it is known whether another call follows, in which case it is
    nobody's. Tags move what follows to the reasoning, unless that has a field of its own.
    """

    __slots__ = (
        "_base",
        "_gap",
        "_gap_size",
        "_markers",
        "_opener",
        "_starts",
        "_tags",
        "_words_open",
        "channel",
        "fresh",
        "held",
        "last",
        "quiet",
        "tags_are_text",
    )

    def __init__(
        self, channel: Channel, *markers: str, tags: Mapping[str, str] = THINK_TAGS, opener: str | None = None
    ) -> None:
        self._base: Channel = channel
        self.channel: Channel = channel
        self._tags = tags
        self._markers = marker_set(*tags, *markers)
        self._starts = self._markers.starts
        self._opener = re.compile(re.escape(opener)) if opener is not None and channel == "text" else None
        """What is a marker only where the answer begins."""
        self.fresh = self._opener is not None
        """Nothing but white space has been said of the answer, so that an opener may come."""
        self.held = ""
        self.last = ""
        """The last character that was said, or nothing since the last marker."""
        self.quiet = False
        self._gap: list[str] = []
        self._gap_size = 0
        self.tags_are_text = False
        self._words_open = 0

    def is_plain(self, text: str) -> bool:
        """Whether this text, coming now, is said as it is."""
        if self.quiet or self.fresh or self.held:
            return False
        return not any(start in text for start in self._starts)

    def read(self, text: str, pos: int, out: list[Found]) -> re.Match[str] | None:
        """Say everything up to the next marker that is not a tag, and return it.

        None: the text is over, and what may still become a marker is in `held`.
        """
        while pos < len(text):
            if self.quiet:
                pos = self._wait(text, pos, out)
                if pos == len(text):
                    return None
            if self.fresh and self._opener is not None:
                pos = self._begin(text, pos, out)
                if (found := self._opener.match(text, pos)) is not None:
                    return found
            marker = self._markers.find(text, pos)
            cut = marker.start() if marker else len(text) - self._markers.unfinished(text, pos)
            if cut > pos:
                self.say(text[pos:cut], out)
            if marker is None:
                self.held = text[cut:]
                return None
            if (kind := self._tags.get(marker.group())) is None:
                return marker
            self.break_gap(out)
            self._tag(kind, marker.group(), out)
            pos = marker.end()
        return None

    def say(self, text: str, out: list[Found]) -> None:
        """White space before text is text after all."""
        self.break_gap(out)
        if text:
            out.append(Said(self.channel, text))
            self.last = text[-1]
            self.fresh = self.fresh and text.isspace()

    def pause(self) -> None:
        """A call is over: white space from here on waits for what follows."""
        self.quiet = True
        self.fresh = False
        self.last = ""
        self.drop_gap()

    def skip(self, text: str, pos: int, stop: int, out: list[Found]) -> int:
        """White space, or a separator, that is only text if no call follows; how much of it was read.

        No more than the limit at once, so that what is said does not depend on the chunking.
        """
        stop = min(stop, pos + GAP_LIMIT + 1 - self._gap_size)
        if stop > pos:
            self._gap.append(text[pos:stop])
            self._gap_size += stop - pos
            if self._gap_size > GAP_LIMIT:
                self.break_gap(out)
        return stop

    def drop_gap(self) -> None:
        """A marker follows: the white space before it is nobody's."""
        self._gap.clear()
        self._gap_size = 0

    def break_gap(self, out: list[Found]) -> None:
        """White space before text, or more of it than can be between markers, is text."""
        self.quiet = False
        if self._gap:
            text = "".join(self._gap)
            self.drop_gap()
            out.append(Said(self.channel, text))
            self.last = text[-1]

    def flush(self, out: list[Found]) -> None:
        """End of input: what looked like the start of a marker was only text."""
        held, self.held = self.held, ""
        self.say(held, out)
        self.last = ""

    def _wait(self, text: str, pos: int, out: list[Found]) -> int:
        found = _NOT_SPACE.search(text, pos)
        return self.skip(text, pos, found.start() if found else len(text), out)

    def _begin(self, text: str, pos: int, out: list[Found]) -> int:
        """White space before the answer is said, and does not begin it."""
        found = _NOT_SPACE.search(text, pos)
        stop = found.start() if found else len(text)
        if stop > pos:
            self.say(text[pos:stop], out)
        return stop

    def _tag(self, kind: str, tag: str, out: list[Found]) -> None:
        if kind == "think" and self.tags_are_text:
            self._words_open += 1
            self.say(tag, out)
        elif kind == "think":
            self.channel = "reasoning"
            self.fresh = False
        elif self._words_open:
            self._words_open -= 1
            self.say(tag, out)
        elif self.channel != self._base:
            self.channel = self._base
            self.fresh = self._opener is not None
        else:
            out.append(Noticed("stray_marker", tag))
        self.last = ""
