"""A Kimi model of unknown generation: the first marker selects the grammar for the rest."""

from __future__ import annotations

from typing import Final

from moonshim.engine.grammar.kimi.k2 import KimiK2Grammar
from moonshim.engine.grammar.kimi.k3 import KimiK3Grammar
from moonshim.engine.grammar.protocol import Channel, Grammar, GrammarEvent
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.values.options import ToolTokens

__all__ = ["KimiGrammar"]

_K3_MARKERS: Final = ("<|open|>", "<|close|>", "<|end_of_msg|>")


class KimiGrammar:
    """Parses as K2 unless a K3 marker comes first; after the first marker the generation is known."""

    __slots__ = ("_held", "_k2", "_k3", "_markers", "_reader")

    def __init__(
        self,
        channel: Channel,
        *,
        names: frozenset[str] | None = None,
        tokens: ToolTokens | None = None,
        calls: bool = True,
    ) -> None:
        self._k2 = KimiK2Grammar(channel, names=names, tokens=tokens, calls=calls)
        self._k3 = KimiK3Grammar(channel, calls=calls)
        self._markers = marker_set(*_K3_MARKERS, *self._k2.markers)
        self._reader: Grammar | None = None
        self._held = ""

    @property
    def tags_are_text(self) -> bool:
        return self._k2.tags_are_text

    @tags_are_text.setter
    def tags_are_text(self, value: bool) -> None:
        self._k2.tags_are_text = value

    @property
    def held(self) -> str:
        return self._reader.held if self._reader is not None else self._k2.held + self._held

    def feed(self, text: str) -> list[GrammarEvent]:
        if self._reader is not None:
            return self._reader.feed(text)
        if not self._held and not any(start in text for start in self._markers.starts):
            return self._k2.feed(text)
        text, self._held = self._held + text, ""
        pos = 0
        while (marker := self._markers.find(text, pos)) is not None:
            pos = marker.end()
            if marker.group() in _K3_MARKERS:
                self._reader = self._k3
                found = self._k2.feed(text[: marker.start()]) + self._k2.flush()
                self._k3.words_open = self._k2.words_open
                return found + self._k3.feed(text[marker.start() :])
            if "think" not in marker.group():
                # Think tags do not reveal the generation.
                self._reader = self._k2
                return self._k2.feed(text)
        cut = len(text) - self._markers.partial_length(text, pos)
        self._held = text[cut:]
        found = self._k2.feed(text[:cut])
        if self._held and any(start in self._k2.held for start in self._markers.starts):
            # No marker continues past the start of another.
            found += self._k2.flush()
        return found

    def flush(self) -> list[GrammarEvent]:
        if self._reader is not None:
            return self._reader.flush()
        held, self._held = self._held, ""
        return self._k2.feed(held) + self._k2.flush()
