"""One `{"name": …, "arguments": {…}}`, piece by piece -> a call whose arguments stream as they were written.

    object = "{" pair { "," pair } "}"
    pair   = '"name"' ":" string | ( '"arguments"' | '"parameters"' ) ":" value | string ":" value

The keys may come in any order. Also accepted, because models write them: `{"type": "function", "function": {…}}`, the
name under `function`, and doubled braces, which some templates contain.
"""

from __future__ import annotations

import json
import re
from typing import Final

from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, Channel, GrammarEvent, Notice
from moonshim.engine.grammar.shared.declared import DeclaredNames, call_without_arguments
from moonshim.engine.grammar.shared.markers import MarkerSet
from moonshim.engine.values.text_pieces import TextPieces
from moonshim.engine.wire.json_scanner import ValueScanner

__all__ = ["EXTRA_LIMIT", "HOLD_LIMIT", "NamedObject"]

HOLD_LIMIT: Final = 64 * 1024
"""Maximum size of an object that is held for its name; above it, it is text."""
KEY_LIMIT: Final = 64
NAME_LIMIT: Final = 256
EXTRA_LIMIT: Final = 1024
"""Maximum size of one report about unknown content."""

# What the next character belongs to.
_KEY, _IN_KEY, _COLON, _VALUE, _IN_NAME, _IN_VALUE, _IN_WORD, _NEXT, _JUNK = range(9)

_STEP: Final = 1024

_NOT_SPACE: Final = re.compile(r"\S")
_STRING_END: Final = re.compile(r'["\\]')
_WORD_END: Final = re.compile(r"[,}<]")
_ARGUMENTS: Final = frozenset({"arguments", "parameters"})
_BARE_KEYS: Final = DeclaredNames(_ARGUMENTS | {"name", "type", "function"})
_TYPES: Final = DeclaredNames({"function"})
_HARMLESS: Final = frozenset({'"type": "function"'})


class NamedObject:
    """Reads one object; the call starts with its arguments, once its name is known.

    Until then everything is kept in `raw`, so that it can be emitted as text if it is not a call. After that nothing
    fails: misplaced content is reported in a `Notice`. With `bare`, only an object that names one of these tools
    before its arguments is a call, and anything else is rejected at its first wrong character.

    >>> reader, out = NamedObject("text"), []
    >>> reader.read('{"name": "ls", "arguments": {"dir": "/tm', 0, out)
    40
    >>> out
    [CallStarted(channel='text', header='', name='ls', opened=True), CallDelta(text='{"dir": "/tm')]
    """

    __slots__ = (
        "_bare",
        "_begun",
        "_channel",
        "_depth",
        "_escaped",
        "_extras",
        "_key",
        "_kind",
        "_markers",
        "_name",
        "_names",
        "_over",
        "_paused",
        "_piece",
        "_pieces",
        "_pieces_size",
        "_raw",
        "_scanner",
        "_size",
        "_state",
        "_waiting",
        "_wire_id",
        "done",
        "failed",
    )

    def __init__(
        self,
        channel: Channel,
        *,
        markers: MarkerSet | None = None,
        names: frozenset[str] | None = None,
        bare: DeclaredNames | None = None,
    ) -> None:
        self._channel: Channel = channel
        self._markers = markers
        """Markers that end the call anywhere outside of a string."""
        self._names = names
        self._bare = bare
        self.done = False
        self.failed = False
        self._state = _KEY
        self._depth = 0
        self._raw = TextPieces()
        self._size = 0
        self._piece = ""
        """Text read so far of a key or a name."""
        self._escaped = False
        self._paused = False
        """The next characters may become a marker."""
        self._key: str | None = None
        self._kind = ""
        """The kind of the current value: "arguments", arguments that are "held", or an "extra"."""
        self._scanner = ValueScanner()
        self._name = ""
        self._wire_id = ""
        self._waiting: TextPieces | None = None
        self._extras: list[str] = []
        """Unknown fields, reported when the call starts."""
        self._pieces: list[str] = []
        """Text read so far of such a field, or of other misplaced content."""
        self._pieces_size = 0
        self._begun = False
        self._over = False

    @property
    def raw(self) -> str:
        """Everything read so far, while it is not a call."""
        return "" if self._begun else "".join(self._raw)

    @property
    def in_string(self) -> bool:
        """Whether the next text, up to a quote or a backslash, continues a string of the arguments."""
        scanner = self._scanner
        return self._state == _IN_VALUE and self._kind == "arguments" and scanner.in_string and not scanner.escaped

    def read(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Continue; return where reading stopped. Before the end while not `done`: the rest may become a marker."""
        start = pos
        # Never past the limit in one step: where it is reached must not depend on the chunking.
        end = len(text) if self._begun else min(len(text), pos + HOLD_LIMIT - self._size)
        while pos < end and not self.done:
            pos = self._step(text, pos, end, out)
            if self._paused:
                self._paused = False
                break
            if self._begun:
                end = len(text)
        if not self._begun:
            self._raw.append(text[start:pos])
            self._size += pos - start
            if self._size >= HOLD_LIMIT and not self.done:
                self.done = self.failed = True
        return pos

    def cut(self, rest: str, out: list[GrammarEvent]) -> str:
        """End of input: a started call is cut off, unless its arguments are complete."""
        if self._begun and not self.done:
            self._end(out, closed=self._over)
        return rest

    # -- the object --------------------------------------------------------------------

    def _step(self, text: str, pos: int, end: int, out: list[GrammarEvent]) -> int:
        match self._state:
            case 1:
                return self._in_key(text, pos, end)
            case 4:
                return self._in_name(text, pos, end, out)
            case 5:
                return self._in_value(text, pos, end, out)
            case 6:
                return self._in_word(text, pos, end, out)
            case 8:
                return self._in_junk(text, pos, out)
        found = _NOT_SPACE.search(text, pos, end)
        if found is None:
            return end
        pos = found.start()
        match self._state:
            case 0:
                return self._before_key(text[pos], pos, out)
            case 2:
                if text[pos] != ":":
                    return self._reject(pos)
                self._state = _VALUE
                return pos + 1
            case 3:
                return self._before_value(text, pos, out)
            case _:
                return self._after_value(text, pos, out)

    def _before_key(self, char: str, pos: int, out: list[GrammarEvent]) -> int:
        if char == '"' and self._depth:
            self._state, self._piece = _IN_KEY, ""
            return pos + 1
        if char == "}" and self._depth:
            return self._close(pos, out)
        if char == "{" and (not self._depth or (self._depth == 1 and self._key is None and self._bare is None)):
            self._depth += 1
            return pos + 1
        return self._reject(pos)

    def _in_key(self, text: str, pos: int, end: int) -> int:
        pos, done = self._read_string(text, pos, end, KEY_LIMIT, None if self._bare is None else _BARE_KEYS)
        if done:
            self._key, self._piece = _decode(self._piece), ""
            self._state = _COLON
        return pos

    def _before_value(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        char, key = text[pos], self._key
        self._kind = "extra"
        if key in _ARGUMENTS and not self._begun and self._waiting is None:
            if self._name:
                self._begin(out)
                self._kind = "arguments"
            elif self._bare is not None:
                return self._reject(pos)
            else:
                self._waiting = TextPieces()
                self._kind = "held"
        elif key in ("name", "function") and not self._begun and not self._name:
            if char == '"':
                self._state, self._piece = _IN_NAME, ""
                return pos + 1
            if key == "function" and char == "{":
                self._depth += 1
                self._state = _KEY
                return pos + 1
        if self._bare is not None and not self._begun:
            # In a bare object every other field is suspicious.
            if key != "type" or char != '"':
                return self._reject(pos)
            self._state, self._piece = _IN_NAME, ""
            return pos + 1
        if self._kind == "extra":
            self._add(f'"{key}": ', out)
        self._scanner = ValueScanner()
        self._state = _IN_VALUE if char in '{["' else _IN_WORD
        return pos

    def _in_name(self, text: str, pos: int, end: int, out: list[GrammarEvent]) -> int:
        allowed = self._bare if self._key != "type" or self._bare is None else _TYPES
        pos, done = self._read_string(text, pos, end, NAME_LIMIT, allowed)
        if done:
            self._state = _NEXT
            if self._key != "type":
                self._name = _decode(self._piece)
            self._piece = ""
            if self._name and self._waiting is not None:
                self._begin(out)
                out.append(CallDelta("".join(self._waiting)))
                self._waiting, self._over = None, True
        return pos

    def _after_value(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        match text[pos]:
            case ",":
                self._state = _KEY
                return pos + 1
            case "}":
                return self._close(pos, out)
            case '"':
                # The comma is missing.
                self._state = _KEY
                return pos
        return self._reject(pos)

    def _close(self, pos: int, out: list[GrammarEvent]) -> int:
        self._depth -= 1
        self._state = _NEXT
        if self._depth:
            return pos + 1
        if self._begun:
            self._end(out, closed=True)
        elif self._waiting is None and self._bare is None and not self._extras:
            # Any of the other fields could have been meant as the arguments.
            out += (found := call_without_arguments(self._name, self._wire_id, self._names, self._channel))
            self.done, self.failed = True, not found
        else:
            self.done = self.failed = True
        return pos + 1

    def _begin(self, out: list[GrammarEvent]) -> None:
        self._begun = True
        out.append(CallStarted(self._channel, self._wire_id, self._name))
        out += [Notice("call_field", extra) for extra in self._extras]

    def _end(self, out: list[GrammarEvent], *, closed: bool) -> None:
        self._show(out)
        out.append(CallEnded(closed))
        self.done = True

    # -- values ------------------------------------------------------------------------

    def _read_string(
        self, text: str, pos: int, end: int, limit: int, allowed: DeclaredNames | None
    ) -> tuple[int, bool]:
        """Read a string into `_piece`; return where it stopped, and whether it ended."""
        while pos < end:
            if self._escaped:
                found, stop = None, pos + 1
                self._escaped = False
            else:
                found = _STRING_END.search(text, pos, end)
                stop = found.start() if found else end
                if found is not None and found.group() == "\\":
                    self._escaped = True
                    found, stop = None, stop + 1
            before = len(self._piece)
            piece = self._piece + text[pos : min(stop, pos + limit - before + 1)]
            fits = len(piece) if allowed is None else allowed.prefix_length(piece)
            if fits < len(piece) or len(piece) > limit:
                return self._reject(pos + min(fits, limit) - before), False
            self._piece = piece
            if found is not None:
                if allowed is not None and piece not in allowed.names:
                    return self._reject(stop), False
                return stop + 1, True
            pos = stop
        return pos, False

    def _in_value(self, text: str, pos: int, end: int, out: list[GrammarEvent]) -> int:
        scanner = self._scanner
        if end == len(text):
            stop = scanner.scan(text, pos)
        else:
            # In small pieces: the text after the limit must not be copied with every value.
            stop = pos + scanner.scan(text[pos : min(end, pos + _STEP)], 0)
        self._grow(text[pos:stop], out)
        if not scanner.inside:
            self._end_value(out)
        elif not scanner.in_string and text.startswith("<", stop, end):
            return self._at_angle(text, stop, out)
        return stop

    def _in_word(self, text: str, pos: int, end: int, out: list[GrammarEvent]) -> int:
        found = _WORD_END.search(text, pos, end)
        stop = found.start() if found else end
        self._grow(text[pos:stop], out)
        if found is not None and found.group() == "<":
            return self._at_angle(text, stop, out)
        if found is not None:
            self._end_value(out)
        return stop

    def _at_angle(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """At a `<` outside of strings: a marker ends the call, anything else is part of the current value."""
        if self._markers is not None:
            if self._markers.match(text, pos) is not None:
                if self._begun:
                    self._end(out, closed=True)
                else:
                    self.done = self.failed = True
                return pos
            if self._markers.may_grow(text, pos):
                self._paused = True
                return pos
        self._grow("<", out)
        return pos + 1

    def _grow(self, text: str, out: list[GrammarEvent]) -> None:
        if not text:
            return
        if self._kind == "arguments":
            out.append(CallDelta(text))
        elif self._kind == "held" and self._waiting is not None:
            self._waiting.append(text)
        else:
            self._add(text, out)

    def _end_value(self, out: list[GrammarEvent]) -> None:
        self._state = _NEXT
        if self._kind == "arguments":
            self._over = True
        elif self._kind == "extra" and self._begun:
            self._show(out)
        elif self._kind == "extra":
            field, self._pieces, self._pieces_size = "".join(self._pieces), [], 0
            value = field.removeprefix(f'"{self._key}": ').strip()
            if self._key == "id" and value.startswith('"'):
                self._wire_id = _decode(value[1:-1])
            elif field not in _HARMLESS:
                self._extras.append(field)

    # -- misplaced content -------------------------------------------------------------

    def _reject(self, pos: int) -> int:
        """Invalid content: not a call, or, in a call that has started, something to report."""
        if not self._begun:
            self.done = self.failed = True
            return pos
        match self._state:
            case 1:
                self._pieces = ['"' + self._piece]
            case 2:
                self._pieces = [f'"{self._key}"']
        self._state, self._kind, self._escaped = _JUNK, "junk", False
        return pos

    def _in_junk(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        found = _WORD_END.search(text, pos)
        stop = found.start() if found else len(text)
        self._add(text[pos:stop], out)
        if found is None:
            return stop
        if found.group() == "<":
            return self._at_angle(text, stop, out)
        self._show(out)
        self._state = _NEXT
        return stop

    def _add(self, text: str, out: list[GrammarEvent]) -> None:
        """Collect misplaced content; once there is a call it is reported in pieces, so that little is held."""
        self._pieces.append(text)
        self._pieces_size += len(text)
        if self._begun and self._pieces_size >= EXTRA_LIMIT:
            joined = "".join(self._pieces)
            whole = len(joined) - len(joined) % EXTRA_LIMIT
            out += [Notice(self._rule, joined[at : at + EXTRA_LIMIT]) for at in range(0, whole, EXTRA_LIMIT)]
            self._pieces, self._pieces_size = [joined[whole:]], len(joined) - whole

    def _show(self, out: list[GrammarEvent]) -> None:
        if self._state == _IN_KEY:
            self._pieces = ['"' + self._piece]
        elif self._state in (_COLON, _VALUE):
            self._pieces = [f'"{self._key}"']
        piece, self._pieces, self._pieces_size = "".join(self._pieces).strip(), [], 0
        if piece and piece not in _HARMLESS:
            out.append(Notice(self._rule, piece))

    @property
    def _rule(self) -> str:
        return "call_field" if self._kind == "extra" else "arguments_trailing"


def _decode(inside: str) -> str:
    """The value of a JSON string; unchanged if it is not valid JSON."""
    try:
        return str(json.loads(f'"{inside}"')) if "\\" in inside else inside
    except ValueError:
        return inside
