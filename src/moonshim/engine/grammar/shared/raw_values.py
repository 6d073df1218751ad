"""Arguments received as raw text, one value at a time -> JSON object text, piece by piece.

A value has a set of possible types: "string", "number", "boolean", "null", "object", "array". Without "string" the
text is parsed as JSON, and becomes a string only if it is invalid. With "string" and other types, the others come
first: text that is valid JSON of such a type is that JSON, all other text is a string.
"""

from __future__ import annotations

import json
import re
from typing import Final

import msgspec

from moonshim.engine.grammar.protocol import CallDelta, GrammarEvent, Notice
from moonshim.engine.grammar.shared.declared_kinds import ANYTHING
from moonshim.engine.values.text_pieces import TextPieces
from moonshim.engine.wire.json_scanner import ValueScanner

__all__ = [
    "AFTER",
    "CONTAINER",
    "HELD",
    "HOLD_LIMIT",
    "SPACE_LIMIT",
    "STRING",
    "ValueWriter",
    "encode_string",
    "escape",
]

HOLD_LIMIT: Final = 64 * 1024
"""Maximum size of a value that is held until it is known whether it has its declared type; above it, it is a string."""
SPACE_LIMIT: Final = 1024
"""Maximum white space that is held until something follows it; more counts as text."""
SCALAR_LIMIT: Final = 256
"""Longest number, boolean or null recognized in a value that may be a string."""

# State of the current value: raw text, held until its end, streaming JSON, complete JSON.
STRING, HELD, CONTAINER, AFTER = range(4)

_WORDS: Final = {"boolean": ("true", "false"), "null": ("null",)}
_PYTHON_WORDS: Final = {"True": ("boolean", "true"), "False": ("boolean", "false"), "None": ("null", "null")}
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_BEGINS: Final = re.compile(r"-?[0-9][0-9.eE+\-]*|-")
_JSON_SPACE: Final = r"[ \t\r\n]{0,64}"
_CONTAINERS: Final = {"{": "object", "[": "array"}
_DECODED: Final[dict[type, str]] = {dict: "object", list: "array"}
# A container streams once its first two characters are unambiguous; until then it is held.
_STARTS: Final = {
    "object": re.compile(rf'{_JSON_SPACE}(?=\{{{_JSON_SPACE}["}}])'),
    "array": re.compile(rf'{_JSON_SPACE}(?=\[{_JSON_SPACE}["{{\[\]\-0-9tfn])'),
}
_MAY_START: Final = {
    "object": re.compile(rf"{_JSON_SPACE}(?:\{{{_JSON_SPACE})?\Z"),
    "array": re.compile(rf"{_JSON_SPACE}(?:\[{_JSON_SPACE})?\Z"),
}

encode_string: Final = json.JSONEncoder(ensure_ascii=False).encode


def escape(text: str) -> str:
    """The inside of a JSON string; each character separately, so that pieces can be concatenated."""
    return encode_string(text)[1:-1]


class ValueWriter:
    """Writes one call's arguments. Strings and containers are emitted as they arrive, the rest when it is complete.

    Nothing is dropped: a value that does not have its declared type becomes a string, and content after a complete
    container is reported in a `Notice`.

    `rule` is the rule under which a value that became a string is reported; with `trims`, one line break at each end
    of a value belongs to the format; with `python_words`, a boolean may be `True`, and null `None`.
    """

    __slots__ = (
        "_body",
        "_first",
        "_key",
        "_kinds",
        "_pieces",
        "_python_words",
        "_rule",
        "_size",
        "_tail",
        "_undecided",
        "at_line",
        "phase",
        "scanner",
        "trims",
    )

    def __init__(self, *, rule: str = "value_as_string", trims: bool = False, python_words: bool = False) -> None:
        self.phase = STRING
        self.scanner = ValueScanner()
        self.trims = trims
        self.at_line = True
        """Whether the value is at the start of a line."""
        self._rule = rule
        self._python_words = python_words
        self._body = ""
        self._key = ""
        self._kinds = ANYTHING
        self._pieces = TextPieces()
        self._size = 0
        self._first = False
        self._tail = ""
        self._undecided = False

    @property
    def empty(self) -> bool:
        """Whether no argument has started."""
        return not self._body

    def is_plain(self, text: str) -> bool:
        """Whether this text, if it contains no tag, can only be the next piece of a string."""
        if self.phase != STRING:
            return False
        return not self.trims or not (self._first or self._tail or text[-1] == "\n")

    def begin(self, key: str, kinds: frozenset[str], out: list[GrammarEvent]) -> None:
        # Arguments after a complete object form a second one: the argument repair handles two.
        lead = ("{" if self._body != "arguments" else ", ") + encode_string(key) + ": "
        self._body, self._key, self._kinds = "arguments", key, kinds
        self._first, self._tail, self.at_line = self.trims, "", True
        if kinds == {"string"}:
            self.phase = STRING
            out.append(CallDelta(lead + '"'))
        else:
            self.phase = HELD
            self._undecided = not kinds.isdisjoint(_STARTS) or "string" in kinds
            out.append(CallDelta(lead))

    def begin_object(self) -> None:
        """All arguments are one object, whose `{` is next."""
        self._body, self._key = "object", ""
        self.phase = CONTAINER

    def write(self, text: str, out: list[GrammarEvent]) -> None:
        """Write text that belongs to the value, whatever it looks like."""
        if not text:
            return
        self.at_line = text.endswith("\n")
        if self.trims and self.phase <= HELD:
            text = self._trim(text)
        match self.phase:
            case 0:
                if text:
                    out.append(CallDelta(escape(text)))
            case 1:
                self._hold(text, out)
            case 2:
                out.append(CallDelta(text))
            case _:
                self._keep_junk(text, out)

    def stream(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Read a container from `pos` up to a `<` outside of its strings, its end, or the end of the text."""
        stop = self.scanner.scan(text, pos)
        if not self.scanner.inside:
            self.phase = AFTER
        if stop > pos:
            out.append(CallDelta(text[pos:stop]))
        return stop

    def end_value(self, out: list[GrammarEvent]) -> None:
        """A tag ends the value."""
        match self.phase:
            case 0:
                out.append(CallDelta('"'))
            case 1:
                self._end_held(out)
            case 2:
                out.append(Notice("arguments_unfinished", self._key))
                self.scanner = ValueScanner()
            case 3:
                self._show_junk(out)

    def cut(self, out: list[GrammarEvent]) -> None:
        """End of input within the value: emit what was received and add nothing."""
        tail, self._tail = self._tail, ""
        if self.phase == STRING and tail:
            out.append(CallDelta(escape(tail)))
        elif self.phase == AFTER:
            self._show_junk(out)
        elif self.phase == HELD:
            raw = self._held_text() + tail
            value = raw.strip()
            if self._may_be_json(value):
                raw = value
            elif raw:
                if "string" not in self._kinds:
                    out.append(Notice(self._rule, raw))
                raw = '"' + escape(raw)
            if raw:
                out.append(CallDelta(raw))

    def end_call(self, out: list[GrammarEvent]) -> None:
        """A tag ends the call, and with it its object."""
        if self._body in ("", "arguments"):
            out.append(CallDelta("}" if self._body else "{}"))

    # -- the kinds of values -----------------------------------------------------------

    def _trim(self, text: str) -> str:
        if self._first:
            self._first = False
            text = text.removeprefix("\n")
        text = self._tail + text
        self._tail = "\n" if text.endswith("\n") else ""
        return text.removesuffix("\n")

    def _hold(self, text: str, out: list[GrammarEvent]) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._undecided:
            raw = "".join(self._pieces)
            if self._begins_container(raw):
                self._undecided = False
                if "string" not in self._kinds:
                    self._held_text()
                    self.phase = CONTAINER
                    stop = self.stream(raw, len(raw) - len(raw.lstrip()), out)
                    while stop < len(raw) and self.phase == CONTAINER:
                        # There was no tag here, so it is part of the container.
                        out.append(CallDelta("<"))
                        stop = self.stream(raw, stop + 1, out)
                    self.write(raw[stop:], out)
                    return
            elif not self._may_begin(raw):
                self._undecided = False
                if "string" in self._kinds:
                    self._become_string(out)
                    return
        if self._size > HOLD_LIMIT:
            if "string" not in self._kinds:
                raw = self._held_text()
                out.append(Notice(self._rule, raw[:HOLD_LIMIT]))
                self._pieces.append(raw)
            self._become_string(out)

    def _become_string(self, out: list[GrammarEvent]) -> None:
        out.append(CallDelta('"' + escape(self._held_text())))
        self.phase = STRING

    def _begins_container(self, raw: str) -> bool:
        return any(kind in self._kinds and start.match(raw) for kind, start in _STARTS.items())

    def _may_begin(self, raw: str) -> bool:
        """Whether this may still become JSON of one of the types."""
        if any(kind in self._kinds and start.match(raw) for kind, start in _MAY_START.items()):
            return True
        if "string" not in self._kinds or len(raw) > SCALAR_LIMIT:
            return False
        value = raw.strip()
        if "number" in self._kinds and (not value or _NUMBER_BEGINS.fullmatch(value)):
            return True
        return any(word.startswith(value) for kind in self._kinds for word in _WORDS.get(kind, ()))

    def _end_held(self, out: list[GrammarEvent]) -> None:
        raw = self._held_text()
        value = self._as_json(raw.strip())
        if value is None:
            if "string" not in self._kinds:
                out.append(Notice(self._rule, raw))
            value = encode_string(raw)
        out.append(CallDelta(value))

    def _as_json(self, value: str) -> str | None:
        kinds = self._kinds
        if "number" in kinds and _NUMBER.fullmatch(value):
            return value
        if any(value in _WORDS.get(kind, ()) for kind in kinds):
            return value
        strict = "string" not in kinds
        if strict and self._python_words and value in _PYTHON_WORDS:
            kind, word = _PYTHON_WORDS[value]
            return word if kind in kinds else None
        if kinds.isdisjoint(_STARTS) or (not strict and value[:1] not in _CONTAINERS):
            return None
        try:
            decoded = msgspec.json.decode(value)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        return value if strict or _DECODED.get(type(decoded)) in kinds else None

    def _may_be_json(self, value: str) -> bool:
        """Whether truncated text may stay as it is: the start of JSON."""
        if "string" in self._kinds:
            # An unfinished word or number may be the start of any text.
            return _CONTAINERS.get(value[:1], "") in self._kinds
        if any(kind in self._kinds and start.match(value) for kind, start in _MAY_START.items()):
            return True
        if "number" in self._kinds and _NUMBER_BEGINS.fullmatch(value):
            return True
        return any(word.startswith(value) for kind in self._kinds for word in _WORDS.get(kind, ()))

    def _held_text(self) -> str:
        raw = "".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return raw

    def _keep_junk(self, text: str, out: list[GrammarEvent]) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._size >= HOLD_LIMIT:
            raw = self._held_text()
            whole = len(raw) - len(raw) % HOLD_LIMIT
            out += [Notice("arguments_trailing", raw[at : at + HOLD_LIMIT]) for at in range(0, whole, HOLD_LIMIT)]
            self._pieces.append(raw[whole:])
            self._size = len(raw) - whole

    def _show_junk(self, out: list[GrammarEvent]) -> None:
        if junk := self._held_text().strip():
            out.append(Notice("arguments_trailing", junk))
