"""Typed arguments of one K3 call, or its `json` element -> JSON object text, piece by piece."""

from __future__ import annotations

from typing import Final

from moonshim.engine.grammar.protocol import CallDelta, GrammarEvent
from moonshim.engine.grammar.shared.declared_kinds import JSON_ONLY, STRING_ONLY
from moonshim.engine.grammar.shared.raw_values import CONTAINER, HOLD_LIMIT, SPACE_LIMIT, STRING, ValueWriter, escape

__all__ = ["CONTAINER", "HOLD_LIMIT", "RAW", "SPACE_LIMIT", "STRING", "ArgumentWriter", "escape"]

RAW: Final = 4
"""State of the current value, in addition to those of `raw_values`: a complete object in a `json` element."""

_KINDS: Final = {kind: frozenset({kind}) for kind in JSON_ONLY}


class ArgumentWriter(ValueWriter):
    """Writes one call's arguments: each value has one type, and a `json` element is passed on unchanged."""

    __slots__ = ("_space",)

    def __init__(self) -> None:
        super().__init__(rule="k3_value_as_string")
        self._space: str | None = None

    @property
    def closing(self) -> str:
        """The tag that ends the current value."""
        return "close json" if self.phase == RAW else "close argument"

    def begin_value(self, key: str, kind: str, out: list[GrammarEvent]) -> None:
        self.begin(key, _KINDS.get(kind, STRING_ONLY), out)

    def begin_json(self) -> None:
        self.phase = RAW
        self._space = None

    def take(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Read the value from `pos` up to a possible tag (a `<`), a change of state, or the end."""
        if self.phase == CONTAINER:
            return self.stream(text, pos, out)
        stop = text.find("<|", pos)
        if stop < 0:
            stop = len(text) - text.endswith("<")
        self.write(text[pos:stop], out)
        return stop

    def write(self, text: str, out: list[GrammarEvent]) -> None:
        """Write text that belongs to the value, whatever it looks like."""
        if self.phase == RAW:
            self._pass(text, out)
        else:
            super().write(text, out)

    def _pass(self, text: str, out: list[GrammarEvent]) -> None:
        if self._space is None:
            text = text.lstrip()
            if not text:
                return
            if self._body == "arguments":
                out.append(CallDelta("}"))
            self._body = "json"
        else:
            text = self._space + text
        cut = max(len(text.rstrip()), len(text) - SPACE_LIMIT)
        if cut:
            out.append(CallDelta(text[:cut]))
        self._space = text[cut:]
