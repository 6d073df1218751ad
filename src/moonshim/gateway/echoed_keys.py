"""The raw bytes of a host's answer -> the same bytes for a log, with the keys that the host repeats masked."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

from moonshim.hosts.problem_body import FREE_VALUE, could_be_protocol
from moonshim.hosts.secret_spellings import spellings

__all__ = ["EchoMasker"]

MOST_HELD: Final = 256 * 1024
"""Bytes that may wait for the rest of a line, or of a key. Beyond that only keys in one piece are found."""

Span: TypeAlias = tuple[int, int]


class EchoMasker:
    """Masks keys however the host spells them and wherever they are cut: between reads, or between events.

    A mask has the length of what it replaces. Without secrets every byte passes at once; otherwise a line passes when
    it is complete, and as soon as no field in it ends with what could be the beginning of a key.
    """

    def __init__(self, secrets: Collection[str]) -> None:
        texts = spellings(secrets)
        self._all = [text.encode("utf-8", "replace") for text in texts]
        self._anywhere = [text.encode("utf-8", "replace") for text in texts if not could_be_protocol(text)]
        self._held = bytearray()
        self._searched = 0
        """How much of what is held was searched for keys in one piece."""
        self._read = 0
        """How much of it was read as lines."""
        self._open: dict[bytes, list[Span]] = {}
        """By the name of a field: where its text ends with what could be the beginning of a key."""

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        """More came; what can be written of it by now."""
        if not self._all:
            return data
        self._held += data
        for key in self._anywhere:
            at = max(0, self._searched - len(key) + 1)
            while (at := self._held.find(key, at)) >= 0:
                self._mask((at, at + len(key)))
        self._searched = len(self._held)
        self._read_lines(len(self._held) if last else self._held.rfind(b"\n") + 1)
        return self._released(last)

    def _read_lines(self, end: int) -> None:
        for found in FREE_VALUE.finditer(self._held, self._read, max(end, self._read)):
            spans = [*self._open.pop(found[2], []), found.span(3)]
            text = b"".join(self._held[start:stop] for start, stop in spans)
            for key in self._all:
                at = 0
                while (at := text.find(key, at)) >= 0:
                    for span in _part(spans, at, at + len(key)):
                        self._mask(span)
                    text = text[:at] + b"*" * len(key) + text[at + len(key) :]
            if left := self._begun(text):
                self._open[found[2]] = _part(spans, len(text) - left, len(text))
        self._read = max(end, self._read)

    def _begun(self, text: bytes | bytearray) -> int:
        """How many bytes at its end could be the beginning of a key."""
        return max(_begun(text, key) for key in self._all)

    def _released(self, last: bool) -> bytes:
        end = len(self._held)
        if not last:
            whole = end - self._begun(self._held)
            end = min([self._read, whole, *(spans[0][0] for spans in self._open.values())])
            if len(self._held) - end > MOST_HELD:
                end, self._open = whole, {}
        out = bytes(self._held[:end])
        del self._held[:end]
        self._searched -= end
        self._read = max(0, self._read - end)
        self._open = {name: [(start - end, stop - end) for start, stop in spans] for name, spans in self._open.items()}
        return out

    def _mask(self, span: Span) -> None:
        start, stop = span
        self._held[start:stop] = b"*" * (stop - start)


def _begun(text: bytes | bytearray, key: bytes) -> int:
    """
    >>> [_begun(text, b"abac") for text in (b"xaba", b"abac", b"x")]
    [3, 0, 0]
    """
    at = max(0, len(text) - len(key) + 1)
    while (at := text.find(key[:1], at)) >= 0:
        if key.startswith(text[at:]):
            return len(text) - at
        at += 1
    return 0


def _part(spans: list[Span], start: int, stop: int) -> list[Span]:
    """The places of a part of the text that these spans make together.

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
