"""Formats that mark the start of a call and write it as one value: text with such markers -> text and calls.

A family consists of its markers, their meaning outside of calls (`_handle_marker`), and its states. A state is a method
that reads from a position and returns where it stopped; two are shared by all families: outside of calls, and inside a
call that has started.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from moonshim.engine.grammar.protocol import CallDelta, CallStarted, Channel, GrammarEvent, Notice
from moonshim.engine.grammar.shared.declared import call_without_arguments, names_of
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.grammar.shared.text_buffer import TextBuffer
from moonshim.engine.values.conversation import Tool

__all__ = ["IN_CALL", "OUTSIDE", "THINK_TAGS", "CallReader", "MarkedGrammar", "State"]

THINK_TAGS: Final = {"<think>": "think", "</think>": "/think"}
State: TypeAlias = Callable[[Any, str, int, list[GrammarEvent]], int]

_NOT_SPACE: Final = re.compile(r"\S")


class CallReader(Protocol):
    """Reads one call to its end and reports that end. If it turns out not to be a call, it is `failed`."""

    @property
    def in_string(self) -> bool:
        """Whether the next text, up to a quote or a backslash, is the next piece of the arguments."""

    @property
    def done(self) -> bool: ...

    @property
    def failed(self) -> bool: ...

    @property
    def raw(self) -> str:
        """Everything read so far, while it is not certain to be a call."""

    def read(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Continue; return where reading stopped. Before the end while not `done`: more text is needed."""

    def cut(self, rest: str, out: list[GrammarEvent]) -> str:
        """End of input: end the call, given the unread rest; return the part of the rest that is only text."""


class MarkedGrammar(ABC):
    """Parses one text field. At most a marker less one character, or a possible call without a marker, is held back
    as text."""

    __slots__ = (
        "_behind_call",
        "_call",
        "_held",
        "_is_bare",
        "_markers",
        "_names",
        "_opener",
        "_raw",
        "_state",
        "_tag",
        "_tags",
        "_text_buffer",
        "tags_are_text",
    )

    def __init__(
        self,
        channel: Channel,
        markers: Iterable[str],
        tools: Sequence[Tool] | None,
        *,
        tags: Mapping[str, str] = THINK_TAGS,
        opener: str | None = None,
        behind_call: State | None = None,
    ) -> None:
        self._text_buffer = TextBuffer(channel)
        self._names = names_of(tools)
        self._tags = tags
        self._markers = marker_set(*tags, *markers)
        self._opener = re.compile(re.escape(opener)) if opener is not None and channel == "text" else None
        """A marker only at the start of the response."""
        self._state: State = OUTSIDE
        self._behind_call: State = behind_call or OUTSIDE
        self._call: CallReader | None = None
        self._is_bare = False
        """There was no marker before the possible call: if it is not a call, it is ordinary text."""
        self._tag = ""
        """The marker before the possible call."""
        self._raw = ""
        """Text read after it, while it may not be a call."""
        self._held = ""
        self.tags_are_text = False
        """Set when the host sends reasoning in its own field: `<think>` in the text is then ordinary text."""

    @property
    def held(self) -> str:
        """Text that may still become (part of) a marker, or a call without one."""
        if self._state is OUTSIDE:
            return self._held
        if not self._is_bare:
            return ""
        return self._raw + (self._call.raw if self._state is IN_CALL and self._call is not None else "")

    def feed(self, text: str) -> list[GrammarEvent]:
        out: list[GrammarEvent] = []
        if self._state is IN_CALL:
            # Most of a long call is the inside of strings, which takes the fast path.
            if '"' not in text and "\\" not in text and self._call is not None and self._call.in_string:
                return [CallDelta(text)] if text else []
        elif self._state is OUTSIDE and self._is_plain(text):
            self._text_buffer.emit(text, out)
            return out
        text, self._held = self._held + text, ""
        pos = 0
        while pos < len(text):
            pos = self._state(self, text, pos, out)
        return out

    def flush(self) -> list[GrammarEvent]:
        """End of input: the start of a marker was only text; an open call is cut off."""
        out: list[GrammarEvent] = []
        held, self._held = self._held, ""
        if self._state is IN_CALL and self._call is not None:
            held = self._call.cut(held, out)
            if self._call.raw:
                self._give_up(out, self._call.raw)
            else:
                self._text_buffer.drop_gap()
        elif self._tag or self._raw:
            self._give_up(out)
        self._text_buffer.emit(held, out)
        self._text_buffer.last = ""
        self._state, self._tag, self._raw = OUTSIDE, "", ""
        return out

    # -- outside of calls --------------------------------------------------------------

    @abstractmethod
    def _handle_marker(self, marker: re.Match[str], out: list[GrammarEvent]) -> int:
        """A marker outside of any call decides what comes next; return where to continue."""

    def _is_plain(self, text: str) -> bool:
        """Whether this text can be emitted unchanged."""
        speech = self._text_buffer
        if self._held or speech.quiet or (speech.fresh and self._opener is not None):
            return False
        # A loop, since `any` over a generator costs more than everything else here.
        for start in self._markers.starts:  # noqa: SIM110
            if start in text:
                return False
        return True

    def _outside(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        speech = self._text_buffer
        if speech.quiet:
            pos = speech.skip_space(text, pos, out)
            if pos == len(text):
                return pos
        if self._opener is not None and speech.fresh:
            # White space before the response is emitted, but does not start it.
            found = _NOT_SPACE.search(text, pos)
            stop = found.start() if found else len(text)
            speech.emit(text[pos:stop], out)
            pos = stop
            if (opening := self._opener.match(text, pos)) is not None:
                return self._handle_marker(opening, out)
        stop, marker = self._markers.until_next(text, pos)
        if stop > pos:
            speech.emit(text[pos:stop], out)
        if marker is None:
            return self._hold(text, stop)
        if (kind := self._tags.get(marker.group())) is None:
            return self._handle_marker(marker, out)
        speech.think(kind, marker.group(), out, as_words=self.tags_are_text)
        return marker.end()

    # -- what may be a call ------------------------------------------------------------

    def _hold(self, text: str, pos: int) -> int:
        """More text is needed to decide what this is."""
        self._held = text[pos:]
        return len(text)

    def _keep(self, text: str, pos: int, stop: int, limit: int, out: list[GrammarEvent]) -> int:
        """Read on what may not be a call; above the limit it is none (the state is then `OUTSIDE`).

        Never past the limit in one step, so that the result does not depend on the chunking.
        """
        stop = max(pos, min(stop, pos + limit + 1 - len(self._raw)))
        self._raw += text[pos:stop]
        if len(self._raw) > limit:
            self._give_up(out)
        return stop

    def _keep_space(self, text: str, pos: int, limit: int, out: list[GrammarEvent]) -> tuple[int, str]:
        """Read white space; return its end and the character there. None: the text is over, or this is not a call."""
        found = _NOT_SPACE.search(text, pos)
        stop = self._keep(text, pos, found.start() if found else len(text), limit, out)
        return stop, found.group() if found is not None and self._state is not OUTSIDE else ""

    def _give_up(self, out: list[GrammarEvent], text: str = "") -> None:
        """What was read, and this text, is not a call: it is kept as text."""
        text = self._raw + text
        if not self._is_bare and (raw := self._tag + text):
            out.append(Notice("unreadable_call", raw))
        self._state, self._tag, self._raw = OUTSIDE, "", ""
        self._text_buffer.emit(text, out)

    # -- a call ------------------------------------------------------------------------

    def _read_with(self, reader: CallReader) -> None:
        self._state, self._call = IN_CALL, reader

    def _begin(self, header: str, name: str | None, reader: CallReader, out: list[GrammarEvent]) -> None:
        """This is a call, and its arguments come next."""
        out.append(CallStarted(self._text_buffer.channel, header, name))
        self._tag = self._raw = ""
        self._read_with(reader)

    def _begin_without_arguments(self, header: str, name: str, out: list[GrammarEvent]) -> None:
        """A marker follows the name: still a call, unless no tool has that name."""
        if found := call_without_arguments(name, header, self._names, self._text_buffer.channel):
            out += found
            self._end()
        else:
            self._give_up(out)

    def _in_call(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        assert self._call is not None
        stop = self._call.read(text, pos, out)
        if not self._call.done:
            return self._hold(text, stop)
        if self._call.failed:
            self._give_up(out, self._call.raw)
        else:
            self._end()
        return stop

    def _end(self) -> None:
        self._state, self._tag, self._raw = self._behind_call, "", ""
        self._text_buffer.pause()

    def _skip(self, text: str, pos: int, not_between: re.Pattern[str], out: list[GrammarEvent]) -> int:
        """After a call: hold what may separate it from the next one; return where that ends."""
        found = not_between.search(text, pos)
        stop = self._text_buffer.skip(text, pos, found.start() if found else len(text), out)
        if not self._text_buffer.quiet:
            self._state = OUTSIDE
        return stop


OUTSIDE: Final[State] = MarkedGrammar._outside
IN_CALL: Final[State] = MarkedGrammar._in_call
