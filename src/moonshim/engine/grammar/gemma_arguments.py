"""The arguments of one Gemma call, `{key:<|"|>text<|"|>,n:1}` -> JSON text, piece by piece.

    object = "{" [ key ":" value { "," key ":" value } ] "}"
    array  = "[" [ value { "," value } ] "]"
    value  = quote text quote | object | array | number | "true" | "false" | "null"
    quote  = '<|"|>' (Gemma 4) | "<escape>" (FunctionGemma)

Text between quotes is raw: nothing in it is escaped, and nothing but the same quote ends it.
"""

from __future__ import annotations

import re
from typing import Final

from moonshim.engine.grammar.protocol import CallDelta, GrammarEvent, Notice
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.grammar.shared.raw_values import HOLD_LIMIT, encode_string, escape
from moonshim.engine.values.text_pieces import TextPieces
from moonshim.engine.wire.json_scanner import ValueScanner

__all__ = ["QUOTES", "GemmaArguments"]

QUOTES: Final = ('<|"|>', "<escape>")

# What the next character belongs to.
_KEY, _QUOTED_KEY, _VALUE, _STRING, _JSON_STRING, _SCALAR, _LONG_SCALAR, _NEXT = range(8)

_NOT_SPACE: Final = re.compile(r"\S")
_KEY_END: Final = re.compile(r"[:,}<]")
_VALUE_END: Final = re.compile(r"[,}\]<]")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_BEGINS: Final = re.compile(r"-?[0-9][0-9.eE+\-]*|-")
_WORDS: Final = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_CLOSING: Final = {"{": "}", "[": "]"}


class GemmaArguments:
    """Reads from `{` to its `}`, then it is `done`. Deviations from the format are reported.

    Strings are emitted as they arrive; keys, numbers and words once they are complete.

    >>> arguments, out = GemmaArguments("<tool_call|>"), []
    >>> arguments.read('{city:<|"|>Par', 0, out), out
    (14, [CallDelta(text='{'), CallDelta(text='"city": '), CallDelta(text='"'), CallDelta(text='Par')])
    """

    __slots__ = ("_comma", "_markers", "_mode", "_pieces", "_quote", "_scanner", "_size", "_stack", "done", "marker")

    def __init__(self, *markers: str) -> None:
        self._markers = marker_set(*QUOTES, *markers)
        self._mode = _VALUE
        self._stack: list[str] = []
        self._comma = False
        """Whether a comma must precede the next key or value: it is written with what follows it."""
        self._pieces = TextPieces()
        self._size = 0
        self._quote = QUOTES[0]
        self._scanner = ValueScanner()
        self.done = False
        self.marker: re.Match[str] | None = None
        """The marker outside of strings that ended the arguments early."""

    @property
    def in_string(self) -> bool:
        """Whether text without a `<` can only be the next piece of a string."""
        return self._mode == _STRING

    def read(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Continue at `pos`; return where reading stopped: at the end, at a marker, or at what may become one or a
        quote."""
        end = len(text)
        while pos < end and not self.done:
            match self._mode:
                case 1 | 3:
                    stop = self._in_quoted(text, pos, out)
                case 4:
                    stop = self._json_string(text, pos, out)
                case _:
                    stop = self._plain(text, pos, out)
            if stop < 0:
                return -1 - stop
            pos = stop
        return pos

    def cut(self, text: str, out: list[GrammarEvent]) -> None:
        """End of input: emit what was received and add nothing."""
        if self._mode == _STRING or self._mode == _JSON_STRING or self._mode == _LONG_SCALAR:
            self._grow(escape(text) if self._mode != _JSON_STRING else text, out)
            return
        raw = self._take() + text
        value = raw.strip()
        if self._mode in (_KEY, _QUOTED_KEY):
            if value:
                self._grow(self._lead() + '"' + escape(value), out)
        elif self._mode == _SCALAR:
            is_json = _NUMBER_BEGINS.fullmatch(value) or any(
                word.startswith(value) for word in _WORDS if word.islower()
            )
            if not is_json:
                out.append(Notice("value_as_string", value))
            self._grow(value if is_json else '"' + escape(value), out)
        elif value:
            out.append(Notice("arguments_trailing", value))

    def end(self, out: list[GrammarEvent]) -> None:
        """A marker ends the call before its object is complete: the argument repair closes it."""
        self._finish_plain(out)

    # -- outside of strings --------------------------------------------------------------

    def _plain(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Keys, scalars and what separates them. Negative: stopped there; the position is its complement (`~`)."""
        if self._mode in (_VALUE, _NEXT, _KEY) and not self._pieces:
            found = _NOT_SPACE.search(text, pos)
            if found is None:
                return len(text)
            pos = found.start()
            if self._mode == _VALUE and text[pos] in '{["' and not self._size:
                return self._open(text[pos], pos, out)
        ends = _KEY_END if self._mode == _KEY else _VALUE_END
        found = ends.search(text, pos)
        stop = found.start() if found else len(text)
        if stop > pos:
            if self._mode == _VALUE:
                self._mode = _SCALAR
            self._keep(text[pos:stop], out)
        if found is None:
            return stop
        char = text[stop]
        if char == "<":
            return self._at_marker(text, stop, out)
        if self._mode == _KEY and char == ":":
            self._end_key(out)
            return stop + 1
        self._finish_plain(out)
        if char == ",":
            self._comma = True
            self._mode = _KEY if self._stack[-1] == "{" else _VALUE
        else:
            self._close(out)
        return stop + 1

    def _open(self, char: str, pos: int, out: list[GrammarEvent]) -> int:
        if char == '"':
            # JSON strings are not part of the format, but their meaning is clear.
            self._grow(self._lead(), out)
            self._mode, self._scanner = _JSON_STRING, ValueScanner()
            return pos
        self._grow(self._lead() + char, out)
        self._stack.append(char)
        self._mode = _KEY if char == "{" else _VALUE
        return pos + 1

    def _close(self, out: list[GrammarEvent]) -> None:
        # Brackets are counted, not matched: the output fits whatever was opened.
        self._grow(_CLOSING[self._stack.pop()], out)
        self._comma = False
        self._mode = _NEXT
        self.done = not self._stack

    def _end_key(self, out: list[GrammarEvent]) -> None:
        key = self._take().strip()
        if len(key) > 1 and key[0] == key[-1] == '"':
            key = key[1:-1]
        self._grow(self._lead() + encode_string(key) + ": ", out)
        self._mode = _VALUE

    def _finish_plain(self, out: list[GrammarEvent]) -> None:
        """The collected text ends here, whatever it is."""
        raw = self._take()
        value = raw.strip()
        match self._mode:
            case 5:
                json = _scalar(value)
                if json is None:
                    out.append(Notice("value_as_string", value))
                self._grow(self._lead() + (json if json is not None else encode_string(value)), out)
            case 6:
                self._grow('"', out)
            case 2 if self._stack and self._stack[-1] == "{":
                out.append(Notice("value_as_string", ""))
                self._grow('""', out)
            case _:
                if value:
                    out.append(Notice("arguments_trailing", value))

    def _at_marker(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """At a `<`: a quote, a marker of the format, the start of one, or an ordinary character."""
        if (marker := self._markers.match(text, pos)) is not None:
            if marker.group() not in QUOTES:
                self.marker = marker
                return ~pos
            if self._mode == _VALUE:
                self._grow(self._lead() + '"', out)
                self._mode, self._quote = _STRING, marker.group()
            elif self._mode == _KEY and not "".join(self._pieces).strip():
                self._mode, self._quote = _QUOTED_KEY, marker.group()
            else:
                out.append(Notice("stray_marker", marker.group()))
            return marker.end()
        if self._markers.partial_length(text, pos) == len(text) - pos:
            return ~pos
        if self._mode == _VALUE:
            self._mode = _SCALAR
        self._keep("<", out)
        return pos + 1

    def _keep(self, text: str, out: list[GrammarEvent]) -> None:
        if self._mode == _LONG_SCALAR:
            self._grow(escape(text), out)
            return
        self._pieces.append(text)
        self._size += len(text)
        if self._mode == _SCALAR:
            if self._size > HOLD_LIMIT:
                raw = self._take()
                out.append(Notice("value_as_string", raw[:HOLD_LIMIT]))
                self._grow(self._lead() + '"' + escape(raw), out)
                self._mode = _LONG_SCALAR
        elif self._size >= HOLD_LIMIT:
            raw = self._take()
            whole = len(raw) - len(raw) % HOLD_LIMIT
            out += [Notice("arguments_trailing", raw[at : at + HOLD_LIMIT]) for at in range(0, whole, HOLD_LIMIT)]
            self._pieces.append(raw[whole:])
            self._size = len(raw) - whole

    # -- strings -------------------------------------------------------------------------

    def _in_quoted(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        stop = text.find(self._quote, pos)
        over = stop >= 0
        if not over:
            stop = len(text) - marker_set(self._quote).partial_length(text, pos)
        if stop > pos:
            if self._mode == _STRING:
                self._grow(escape(text[pos:stop]), out)
            else:
                self._keep(text[pos:stop], out)
        if not over:
            return ~stop if stop < len(text) else stop
        if self._mode == _STRING:
            self._grow('"', out)
            self._mode = _NEXT
        else:
            self._mode = _KEY
        return stop + len(self._quote)

    def _json_string(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        stop = self._scanner.scan(text, pos)
        self._grow(text[pos:stop], out)
        if not self._scanner.inside:
            self._mode = _NEXT
        return stop

    # -- writing -------------------------------------------------------------------------

    def _lead(self) -> str:
        """The comma, if one is due. (After a key there is none.)"""
        due, self._comma = self._comma, False
        return ", " if due else ""

    def _take(self) -> str:
        raw = "".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return raw

    def _grow(self, text: str, out: list[GrammarEvent]) -> None:
        if text:
            out.append(CallDelta(text))


def _scalar(value: str) -> str | None:
    if _NUMBER.fullmatch(value):
        return value
    return _WORDS.get(value)
