"""The raw bytes of a host's response -> the same bytes for a log, with any echoed keys masked."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, TypeAlias

from moonshim.engine.hosts.errors.body import FREE_VALUE, could_be_protocol
from moonshim.engine.hosts.errors.secret_spellings import spellings

__all__ = ["EchoMasker"]

MOST_HELD: Final = 64 * 1024
"""Bytes held back while waiting for the rest of a line or of a key. Beyond this, only keys in one piece are found."""

Span: TypeAlias = tuple[int, int]


class EchoMasker:
    """Masks keys in any encoding, even when they are split across reads or across events.

    A mask has the length of the key it replaces. Without secrets, bytes pass through at once; otherwise a line is
    released when it is complete and no field in it ends with a possible prefix of a key.
    """

    def __init__(self, secrets: Collection[str]) -> None:
        texts = spellings(secrets)
        self._all = [text.encode("utf-8", "replace") for text in texts]
        self._anywhere = [text.encode("utf-8", "replace") for text in texts if not could_be_protocol(text)]
        self._shortest = min(map(len, self._all), default=0)
        self._longest = max(map(len, self._all), default=0)
        self._by_first = {byte: [key for key in self._all if key[0] == byte] for byte in {key[0] for key in self._all}}
        self._first = re.compile(b"|".join(re.escape(bytes([byte])) for byte in self._by_first))
        self._held = bytearray()
        self._searched = 0
        """How much of the held bytes has been searched for keys in one piece."""
        self._read = 0
        """How much of the held bytes has been read as lines."""
        self._open: dict[bytes, tuple[bytes, list[Span]]] = {}
        """By field name: the end of its text that could be a prefix of a key, and its position."""

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        """Add bytes; return those that can be written now."""
        if not self._all:
            return data
        self._held += data
        for key in self._anywhere:
            at = max(0, self._searched - len(key) + 1)
            while (at := self._held.find(key, at)) >= 0:
                self._mask((at, at + len(key)))
        self._searched = len(self._held)
        self._read_lines(len(self._held) if last else self._held.rfind(b"\n") + 1)
        return self._take_safe(last)

    def _read_lines(self, end: int) -> None:
        for found in FREE_VALUE.finditer(self._held, self._read, max(end, self._read)):
            started, spans = self._open.pop(found[2], (b"", []))
            text = bytearray(started + found[3])
            spans.append(found.span(3))
            for key in self._all if len(text) >= self._shortest else ():
                at = 0
                while (at := text.find(key, at)) >= 0:
                    for span in _part(spans, at, at + len(key)):
                        self._mask(span)
                    text[at : at + len(key)] = b"*" * len(key)
            if left := self._partial_key_length(text):
                cut = len(text) - left
                self._open[found[2]] = bytes(text[cut:]), _part(spans, cut, len(text)) if cut else spans
        self._read = max(end, self._read)

    def _partial_key_length(self, text: bytes | bytearray) -> int:
        """Length of the longest suffix that could be a prefix of a key."""
        for found in self._first.finditer(text, max(0, len(text) - self._longest + 1)):
            rest = bytes(text[found.start() :])
            for key in self._by_first[rest[0]]:
                if key.startswith(rest) and len(key) > len(rest):
                    return len(rest)
        return 0

    def _take_safe(self, last: bool) -> bytes:
        end = len(self._held)
        if not last:
            whole = end - self._partial_key_length(self._held)
            end = min([self._read, whole, *(spans[0][0] for _, spans in self._open.values())])
            if len(self._held) - end > MOST_HELD:
                end, self._open = whole, {}
        out = bytes(self._held[:end])
        del self._held[:end]
        self._searched -= end
        self._read = max(0, self._read - end)
        for _, spans in self._open.values() if end else ():
            spans[:] = [(start - end, stop - end) for start, stop in spans]
        return out

    def _mask(self, span: Span) -> None:
        start, stop = span
        self._held[start:stop] = b"*" * (stop - start)


def _part(spans: list[Span], start: int, stop: int) -> list[Span]:
    """Map a slice of the text that these spans form together back to positions in the source.

    >>> _part([(10, 13), (20, 25)], 2, 5)
    [(12, 13), (20, 22)]
    """
    found: list[Span] = []
    at = 0
    for first, end in spans:
        low, high = max(start - at, 0), min(stop - at, end - first)
        if low < high:
            found.append((first + low, first + high))
        at += end - first
    return found
