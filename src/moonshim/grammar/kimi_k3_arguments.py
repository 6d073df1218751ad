"""The typed arguments of one K3 call -> the text of one JSON object, piece by piece."""

from __future__ import annotations

import json
import re
from typing import Final

import msgspec

from moonshim.grammar.events import CallGrew, Found, Noticed
from moonshim.json_scan import ValueScanner

__all__ = ["HOLD_LIMIT", "RAW", "SPACE_LIMIT", "STRING", "ArgumentWriter", "escaped"]

HOLD_LIMIT: Final = 64 * 1024
"""How much of a value is held while nobody knows whether it is what its type says; over it, it is a string."""
SPACE_LIMIT: Final = 1024
"""How much white space waits to learn whether anything follows it; more than that counts as text."""

# What the current value is: raw text, a value that waits for its end, JSON that streams, JSON that is
# over, and a whole object in a `json` element.
STRING, HELD, CONTAINER, AFTER, RAW = range(5)

_WORDS: Final = {"boolean": ("true", "false"), "null": ("null",)}
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_BEGINS: Final = re.compile(r"-?[0-9][0-9.eE+\-]*|-")
_HELD_KINDS: Final = frozenset({"number", "boolean", "null", "object", "array"})
_JSON_SPACE: Final = r"[ \t\r\n]{0,64}"
# A container streams when its first two characters cannot be anything else; it waits while they are not there.
_STARTS: Final = {
    "object": re.compile(rf'{_JSON_SPACE}(?=\{{{_JSON_SPACE}["}}])'),
    "array": re.compile(rf'{_JSON_SPACE}(?=\[{_JSON_SPACE}["{{\[\]\-0-9tfn])'),
}
_MAY_START: Final = {
    "object": re.compile(rf"{_JSON_SPACE}(?:\{{{_JSON_SPACE})?\Z"),
    "array": re.compile(rf"{_JSON_SPACE}(?:\[{_JSON_SPACE})?\Z"),
}

_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


def escaped(text: str) -> str:
    """The inside of a JSON string; each character on its own, so that pieces can be joined."""
    return _encode(text)[1:-1]


class ArgumentWriter:
    """Writes one call's arguments. Strings and containers go out as they arrive, the rest when it is over.

    Nothing that came is left out: a value that is not what its type says becomes a
    string, and what follows a finished container is in a `Noticed`.
    """

    __slots__ = ("_body", "_key", "_kind", "_pieces", "_size", "_space", "_undecided", "phase", "scanner")

    def __init__(self) -> None:
        self.phase = STRING
        self.scanner = ValueScanner()
        self._body = ""
        self._key = ""
        self._kind = ""
        self._pieces: list[str] = []
        self._size = 0
        self._space: str | None = None
        self._undecided = False

    @property
    def empty(self) -> bool:
        """Whether no argument has begun."""
        return not self._body

    @property
    def closing(self) -> str:
        """The tag that is the current value's own end."""
        return "close json" if self.phase == RAW else "close argument"

    def begin_value(self, key: str, kind: str, out: list[Found]) -> None:
        # Arguments behind a `json` element make a second object: whoever mends arguments knows what to do with two.
        lead = ("{" if self._body != "arguments" else ", ") + _encode(key) + ": "
        self._body, self._key, self._kind = "arguments", key, kind
        self._undecided = kind in _STARTS
        if kind in _HELD_KINDS:
            self.phase = HELD
            out.append(CallGrew(lead))
        else:
            self.phase = STRING
            out.append(CallGrew(lead + '"'))

    def begin_json(self) -> None:
        self.phase = RAW
        self._space = None

    def take(self, text: str, pos: int, out: list[Found]) -> int:
        """Read the value on from `pos`, up to where a tag may begin (a `<`), or it changes, or the end."""
        if self.phase == CONTAINER:
            return self._stream(text, pos, out)
        stop = text.find("<|", pos)
        if stop < 0:
            stop = len(text) - text.endswith("<")
        self.write(text[pos:stop], out)
        return stop

    def write(self, text: str, out: list[Found]) -> None:
        """This text belongs to the value, whatever it looks like."""
        if not text:
            return
        match self.phase:
            case 0:
                out.append(CallGrew(escaped(text)))
            case 1:
                self._hold(text, out)
            case 2:
                out.append(CallGrew(text))
            case 3:
                self._keep_junk(text, out)
            case _:
                self._pass(text, out)

    def end_value(self, out: list[Found]) -> None:
        """A tag says that the value is over."""
        match self.phase:
            case 0:
                out.append(CallGrew('"'))
            case 1:
                raw = self._held()
                value = raw.strip()
                if _is_json(self._kind, value):
                    out.append(CallGrew(value))
                else:
                    out.append(Noticed("k3_value_as_string", raw))
                    out.append(CallGrew(_encode(raw)))
            case 2:
                out.append(Noticed("arguments_unfinished", self._key))
                self.scanner = ValueScanner()
            case 3:
                self._show_junk(out)

    def cut(self, out: list[Found]) -> None:
        """The input is over, the value is not: what came is delivered, and nothing is added to it."""
        if self.phase == AFTER:
            self._show_junk(out)
        elif self.phase == HELD:
            raw = self._held()
            value = raw.strip()
            if self._undecided or _may_be_json(self._kind, value):
                raw = value
            elif raw:
                out.append(Noticed("k3_value_as_string", raw))
                raw = '"' + escaped(raw)
            if raw:
                out.append(CallGrew(raw))

    def end_call(self, out: list[Found]) -> None:
        """A tag says that the call is over: so is its object."""
        if self._body != "json":
            out.append(CallGrew("}" if self._body else "{}"))

    # -- the kinds of values -----------------------------------------------------------

    def _hold(self, text: str, out: list[Found]) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._undecided:
            raw = "".join(self._pieces)
            start = _STARTS[self._kind].match(raw)
            if start is not None:
                self._held()
                self.phase = CONTAINER
                stop = self._stream(raw, start.end(), out)
                self.write(raw[stop:], out)
                return
            self._undecided = _MAY_START[self._kind].match(raw) is not None
        if self._size > HOLD_LIMIT:
            raw = self._held()
            out.append(Noticed("k3_value_as_string", raw[:HOLD_LIMIT]))
            out.append(CallGrew('"' + escaped(raw)))
            self.phase = STRING

    def _held(self) -> str:
        raw = "".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return raw

    def _stream(self, text: str, pos: int, out: list[Found]) -> int:
        """Markers inside the strings of a container are its own text: it ends where its JSON does."""
        end, scanner = len(text), self.scanner
        while pos < end:
            stop = scanner.scan(text, pos)
            if stop < end and scanner.inside and stop + 1 < end and text[stop + 1] != "|":
                stop += 1
            elif not scanner.inside:
                self.phase = AFTER
                end = stop
            else:
                end = stop
            if stop > pos:
                out.append(CallGrew(text[pos:stop]))
            pos = stop
        return pos

    def _keep_junk(self, text: str, out: list[Found]) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._size >= HOLD_LIMIT:
            raw = self._held()
            whole = len(raw) - len(raw) % HOLD_LIMIT
            out += [Noticed("arguments_trailing", raw[at : at + HOLD_LIMIT]) for at in range(0, whole, HOLD_LIMIT)]
            self._pieces.append(raw[whole:])
            self._size = len(raw) - whole

    def _show_junk(self, out: list[Found]) -> None:
        if junk := self._held().strip():
            out.append(Noticed("arguments_trailing", junk))

    def _pass(self, text: str, out: list[Found]) -> None:
        if self._space is None:
            text = text.lstrip()
            if not text:
                return
            if self._body == "arguments":
                out.append(CallGrew("}"))
            self._body = "json"
        else:
            text = self._space + text
        cut = max(len(text.rstrip()), len(text) - SPACE_LIMIT)
        if cut:
            out.append(CallGrew(text[:cut]))
        self._space = text[cut:]


def _is_json(kind: str, value: str) -> bool:
    if kind == "number":
        return _NUMBER.fullmatch(value) is not None
    if kind in _WORDS:
        return value in _WORDS[kind]
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _may_be_json(kind: str, value: str) -> bool:
    if kind == "number":
        return _NUMBER_BEGINS.fullmatch(value) is not None
    return any(word.startswith(value) for word in _WORDS.get(kind, ()))
