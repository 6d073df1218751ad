"""The arguments of a call after its name: optional words, then one JSON value, passed on unchanged."""

from __future__ import annotations

import re
from typing import Final

from moonshim.engine.grammar.protocol import CallDelta, CallEnded, GrammarEvent, Notice
from moonshim.engine.grammar.shared.markers import MarkerSet
from moonshim.engine.wire.json_scanner import ValueScanner

__all__ = ["JsonArguments"]

_NOT_SPACE: Final = re.compile(r"\S")
_VALUE_STARTS: Final = re.compile(r'["{\[<]')
_FENCE_OPENS: Final = re.compile(r"```(?:json)?(?=[\s{\[\"])")
_FENCE_MAY_OPEN: Final = re.compile(r"(?:`{1,2}|```(?:j(?:s(?:on?)?)?)?)\Z")


class JsonArguments:
    """Passes on one call's arguments as they arrive; they end with their value, or at a marker.

    A marker in `strays` ends nothing: it is reported and dropped. With `fenced`, a code fence may open before the
    value.

    >>> arguments, out = JsonArguments(MarkerSet(["<end>"])), []
    >>> arguments.read('{"dir": "/tmp"} and', 0, out), arguments.done
    (15, True)
    >>> out
    [CallDelta(text='{"dir": "/tmp"}'), CallEnded(closed=True)]
    """

    __slots__ = ("_fenced", "_in_value", "_markers", "_paused", "_scanner", "_strays", "_words", "done")

    failed: Final = False
    raw: Final = ""

    def __init__(self, markers: MarkerSet, *, strays: frozenset[str] = frozenset(), fenced: bool = False) -> None:
        self.done = False
        self._markers = markers
        self._strays = strays
        self._fenced = fenced
        self._scanner = ValueScanner()
        self._in_value = False
        self._words = False
        """Words before the value: white space between them belongs to them."""
        self._paused = False
        """More text is needed to decide what this is."""

    @property
    def in_string(self) -> bool:
        return self._scanner.in_string and not self._scanner.escaped

    def read(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        while pos < len(text) and not self.done and not self._paused:
            pos = self._value(text, pos, out) if self._in_value else self._before(text, pos, out)
        self._paused = False
        if self.done:
            out.append(CallEnded(closed=True))
        return pos

    def cut(self, rest: str, out: list[GrammarEvent]) -> str:
        out.append(CallEnded(closed=False))
        return rest

    def _before(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        if not self._words:
            found = _NOT_SPACE.search(text, pos)
            if found is None:
                return len(text)
            pos = found.start()
            if self._fenced and text[pos] == "`":
                if (fence := _FENCE_OPENS.match(text, pos)) is not None:
                    return fence.end()
                if _FENCE_MAY_OPEN.match(text, pos):
                    self._paused = True
                    return pos
        start = _VALUE_STARTS.search(text, pos)
        stop = start.start() if start else len(text)
        if stop > pos:
            # Words before the value are left to the argument repair.
            self._words = True
            out.append(CallDelta(text[pos:stop]))
        if start is None:
            return stop
        if (past := self._past_marker(text, stop, out)) is not None:
            return past
        if start.group() == "<":
            self._words = True
            out.append(CallDelta("<"))
            return stop + 1
        self._in_value = True
        return stop

    def _value(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        stop = self._scanner.scan(text, pos)
        if stop > pos:
            out.append(CallDelta(text[pos:stop]))
        self.done = not self._scanner.inside
        if self.done or stop == len(text):
            return stop
        # At a `<` outside of strings.
        if (past := self._past_marker(text, stop, out)) is not None:
            return past
        out.append(CallDelta("<"))
        return stop + 1

    def _past_marker(self, text: str, pos: int, out: list[GrammarEvent]) -> int | None:
        """Where to continue if a marker is here, or may be; None if this is part of the arguments."""
        marker = self._markers.match(text, pos)
        if marker is not None and marker.group() in self._strays:
            out.append(Notice("stray_marker", marker.group()))
            return marker.end()
        self.done = marker is not None
        self._paused = marker is None and self._markers.may_grow(text, pos)
        return pos if self.done or self._paused else None
