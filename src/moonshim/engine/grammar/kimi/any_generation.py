"""Any Kimi model: the first marker selects the grammar for the rest, whatever the name of the model says."""

from __future__ import annotations

from typing import Final

from moonshim.engine.grammar.kimi.k2 import KimiK2Grammar
from moonshim.engine.grammar.kimi.k3 import KimiK3Grammar
from moonshim.engine.grammar.protocol import Channel, GrammarEvent, Skim
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.grammar.shared.text_so_far import TextSoFar
from moonshim.engine.values.options import ToolTokens

__all__ = ["KimiGrammar"]

_K3_MARKERS: Final = ("<|open|>", "<|close|>", "<|end_of_msg|>")
_K3: Final = marker_set(*_K3_MARKERS)


class KimiGrammar:
    """Parses as K2 unless a K3 marker comes first; after the first marker the generation is known.

    Theory of operation. One of two grammars reads at a time, and `_reader` is that one.

        reader   before a marker   a K3 marker                      a K2 marker
        K2       undecided         K3, if undecided                 K2, and decided
        K3       decided           stays                            K2 while K3's `tools` is open and no call is

    K2 calls inside of K3's wrapper are read by K2 until a K3 marker comes that is no part of their arguments.
    """

    __slots__ = (
        "_decided",
        "_held",
        "_inner",
        "_k2",
        "_k2_calls",
        "_k3",
        "_markers",
        "_reader",
        "said",
        "skim",
        "skim_value",
    )

    def __init__(
        self,
        channel: Channel,
        *,
        names: frozenset[str] | None = None,
        tokens: ToolTokens | None = None,
        calls: bool = True,
        said: TextSoFar | None = None,
        think_is_text: bool = False,
    ) -> None:
        """`think_is_text`: the model marks reasoning with tags of its own, so `<think>` is a word."""
        self.said = said if said is not None else TextSoFar()
        self._k2 = KimiK2Grammar(channel, names=names, tokens=tokens, calls=calls, said=self.said)
        self._k2.tags_are_text = think_is_text
        self._k3 = KimiK3Grammar(channel, calls=calls, said=self.said)
        self._k2_calls = marker_set(*(one for one in self._k2.markers if "think" not in one)) if calls else None
        self._markers = marker_set(*_K3_MARKERS, *self._k2.markers)
        self._reader: KimiK2Grammar | KimiK3Grammar = self._k2
        self._decided = False
        self._inner = False
        """Whether K2 reads calls inside of K3's wrapper."""
        self._held = ""
        self.skim: Skim = self._k2.skim
        self.skim_value: Skim = self._k2.skim_value

    @property
    def is_decided(self) -> bool:
        """Whether there was a marker."""
        return self._decided

    @property
    def tags_are_text(self) -> bool:
        return self._k2.tags_are_text

    @tags_are_text.setter
    def tags_are_text(self, value: bool) -> None:
        self._k2.tags_are_text = value

    @property
    def ended(self) -> bool:
        return self._k2.ended

    @ended.setter
    def ended(self, value: bool) -> None:
        self._k2.ended = self._k3.ended = value

    @property
    def held(self) -> str:
        return self._reader.held + (self._held if self._reader.is_outside else "")

    @property
    def channel(self) -> Channel:
        return self._reader.channel

    @property
    def is_outside(self) -> bool:
        return self._reader.is_outside

    @property
    def in_value(self) -> bool:
        return self._reader.in_value

    @property
    def markers(self) -> tuple[str, ...]:
        """Every string with a meaning in this grammar, or that begins a tag."""
        return (*_K3_MARKERS, *self._k2.markers)

    def called(self) -> None:
        """The host sent a call of its own: a section or wrapper that leaked is not empty."""
        self._k2.called()
        self._k3.called()

    def resume(self) -> None:
        """See `KimiK2Grammar.resume`; K3's servers send no call before its arguments."""
        if self._reader is self._k2 and not self._held:
            self._k2.resume()

    def quote(self, text: str) -> list[GrammarEvent]:
        """Text that is not to be read, though there are markers in it. Only outside of a call."""
        held, self._held = self._held, ""
        found = self._reader.quote(held + text)
        self.skim = self._reader.skim
        return found

    @property
    def direct(self) -> KimiK2Grammar | KimiK3Grammar | None:
        """What reads text without the beginning of a marker; None while something is held back."""
        return None if self._held or self._inner else self._reader

    def feed(self, text: str) -> list[GrammarEvent]:
        found = self._feed(text)
        self.skim = _skim_nothing if self._held or self._inner else self._reader.skim
        return found

    def _feed(self, text: str) -> list[GrammarEvent]:
        if self._inner:
            return self._feed_inner(text)
        if self._decided:
            return self._reader.feed(text) if self._reader is self._k2 else self._feed_k3(text)
        if not self._held and "<" not in text and "\u25c1" not in text and not self._custom_start(text):
            return self._k2.feed(text)
        text, self._held = self._held + text, ""
        pos = 0
        while (marker := self._markers.find(text, pos)) is not None:
            pos = marker.end()
            if marker.group() in _K3_MARKERS:
                found = self._k2.feed(text[: marker.start()]) + self._k2.flush()
                self._k3.words_open = self._k2.words_open
                self._decide(self._k3)
                return found + self._feed_k3(text[marker.start() :])
            if "think" not in marker.group():
                # Think tags do not reveal the generation.
                self._decide(self._k2)
                return self._k2.feed(text)
        cut = len(text) - self._markers.partial_length(text, pos)
        self._held = text[cut:]
        found = self._k2.feed(text[:cut])
        if self._held and any(start in self._k2.held for start in self._markers.starts):
            # No marker continues past the start of another.
            found += self._k2.flush()
        return found

    def flush(self) -> list[GrammarEvent]:
        held, self._held = self._held, ""
        found: list[GrammarEvent] = []
        if self._inner:
            found = self._k2.feed(held) + self._k2.flush()
            self._inner, self._reader, held = False, self._k3, ""
            self.skim_value = self._k3.skim_value
        self.skim = self._reader.skim
        return found + self._reader.feed(held) + self._reader.flush()

    def _decide(self, reader: KimiK2Grammar | KimiK3Grammar) -> None:
        self._reader, self._decided, self.skim_value = reader, True, reader.skim_value

    def _custom_start(self, text: str) -> bool:
        return len(self._markers.starts) > 2 and any(start in text for start in self._markers.starts)

    # -- K2's calls inside of K3's wrapper ---------------------------------------------

    def _feed_k3(self, text: str) -> list[GrammarEvent]:
        """K3 reads, and stops at a K2 marker that stands where only a call can stand."""
        markers = self._k2_calls
        if markers is None or (not self._held and "<" not in text):
            return self._k3.feed(text)
        found: list[GrammarEvent] = []
        text, self._held = self._held + text, ""
        while text:
            marker = markers.find(text)
            cut = marker.start() if marker is not None else len(text) - markers.partial_length(text)
            found += self._k3.feed(text[:cut])
            text = text[cut:]
            if not self._k3.in_tools:
                found += self._k3.feed(text[: marker.end() - cut] if marker is not None else text)
                text = text[marker.end() - cut :] if marker is not None else ""
            elif marker is None:
                if text and self._k3.held and not self._k3.held.startswith(_K3_MARKERS):
                    found += self._k3.quote("")  # no marker continues past the start of another
                self._held, text = text, ""
            else:
                self._k3.called()
                self._inner, self._reader, self.skim_value = True, self._k2, self._k2.skim_value
                return found + self._feed_inner(text)
        return found

    def _feed_inner(self, text: str) -> list[GrammarEvent]:
        """K2 reads, and stops at a K3 marker outside of its arguments."""
        found: list[GrammarEvent] = []
        text, self._held = self._held + text, ""
        while text:
            marker = _K3.find(text)
            cut = marker.start() if marker is not None else len(text) - _K3.partial_length(text)
            found += self._k2.feed(text[:cut])
            text = text[cut:]
            if marker is None:
                self._held, text = text, ""
            elif self._k2.in_string:
                size = marker.end() - marker.start()
                found += self._k2.feed(text[:size])
                text = text[size:]
            else:
                found += self._k2.flush()
                self._inner, self._reader, self.skim_value = False, self._k3, self._k3.skim_value
                return found + self._feed_k3(text)
        return found


def _skim_nothing(text: str) -> bool:
    """Something is held back: what follows may belong to it."""
    return False
