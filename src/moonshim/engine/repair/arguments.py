"""Mends the arguments of one call while they stream: text as it came -> one JSON object.

Only what has one possible meaning is mended. Nothing is invented: arguments that
break off stay broken off, unless somebody said that they are over, and all that they
lack is brackets.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.repair.json_value import (
    CODE_UNIT,
    CODE_UNIT_PART,
    LOW_HALF,
    LOW_HALF_PART,
    SCALAR,
    SPACE_LIMIT,
    JsonValue,
)
from moonshim.engine.values.events import Repaired
from moonshim.engine.values.options import DEFAULT_BUFFER_LIMIT
from moonshim.engine.values.text_pieces import TextPieces
from moonshim.engine.wire.json_scanner import ValueScanner

__all__ = ["Arguments", "PlainArguments", "SafeArguments", "may_be_object"]

_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
_QUOTED_END: Final = re.compile(r'["\\]')
_UNESCAPED: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

# Where in the arguments the next character stands.
_START, _BRACE, _EMPTY, _JUNK, _QUOTE, _QUOTED, _VALUE, _AFTER, _TRAIL, _RAW, _INVALID, _LIST = range(12)

_REPORTED: Final = 4096
"""How many characters of invalid arguments are reported."""
_OPENING: Final = ("{", "[")
_GROWTH: Final = 6
"""How many times longer arguments can get when they are mended: a control character becomes an escape."""
_INCOMPLETE: Final = frozenset({"arguments_unclosed", "arguments_empty", "arguments_single_quotes"})
_OBJECT_BEGINS: Final = re.compile(r"""\{\s*["']""")
_RECORD_PIECES: Final = ArgumentsRecord.PIECES
# Possessive, as what is taken is never given back: otherwise the engine notes every step, 150 bytes a character.
_STRING_BODY: Final = re.compile(r'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt])*+')


def _is_string_body(text: str) -> bool:
    """Whether this text leaves a string as it was: inside, whole escapes, nothing to mend."""
    if "\\" in text or '"' in text:
        return _STRING_BODY.fullmatch(text) is not None
    return text.isprintable()


def may_be_object(text: str) -> bool:
    """Whether a text is an object with something in it, or the beginning of one.

    >>> may_be_object('{"a": 1}'), may_be_object("{"), may_be_object("{}")
    (True, False, False)
    """
    return _OBJECT_BEGINS.match(text) is not None


class Arguments(Protocol):
    """What the arguments of a call go through. `held` is the input that is kept back."""

    @property
    def held(self) -> str: ...
    @property
    def complete(self) -> bool: ...
    @property
    def invalid(self) -> bool: ...
    @property
    def repeats(self) -> bool: ...
    @property
    def trails(self) -> bool: ...
    @property
    def rewritten(self) -> bool: ...
    @property
    def unbraced(self) -> bool: ...
    @property
    def record(self) -> ArgumentsRecord: ...
    def feed(self, text: str) -> str: ...
    def settle(self) -> str: ...
    def take_trail(self) -> str: ...
    def add_trail(self, text: str) -> None: ...
    def close(self, *, cut: bool = False, over: bool = False) -> str: ...
    def drain(self) -> list[Repaired]: ...


class PlainArguments:
    """Lets everything through and only watches where the value ends."""

    __slots__ = ("_scanner", "record")
    held = ""
    invalid = False
    repeats = False
    trails = False
    rewritten = False
    unbraced = False

    def __init__(self, record: ArgumentsRecord) -> None:
        self.record: ArgumentsRecord = record
        self._scanner = ValueScanner()

    @property
    def complete(self) -> bool:
        return not self._scanner.inside

    def feed(self, text: str) -> str:
        self.record.add(text)
        scanner, pos = self._scanner, 0
        if scanner.in_string and not scanner.escaped and '"' not in text and "\\" not in text:
            return text
        while pos < len(text):
            pos = scanner.scan(text, pos)
            if pos < len(text) and text[pos] == "<":
                pos += 1
        return text

    def settle(self) -> str:
        return ""

    def take_trail(self) -> str:
        return ""

    def add_trail(self, text: str) -> None:
        pass

    def close(self, *, cut: bool = False, over: bool = False) -> str:
        return ""

    def drain(self) -> list[Repaired]:
        return []


class SafeArguments:
    """Mends what has one meaning: see docs/reference/repairs.md. Within a value at most an escape is kept back.

    >>> arguments = SafeArguments(ArgumentsRecord())
    >>> arguments.feed('{}{"a": "x') + arguments.feed('\\n"}') + arguments.close()
    '{"a": "x\\\\n"}'
    >>> [repair.rule for repair in arguments.drain()]
    ['arguments_leading_empty', 'arguments_control_character']
    """

    __slots__ = (
        "_inner",
        "_json",
        "_kept",
        "_kept_size",
        "_limit",
        "_listed",
        "_needed",
        "_only_object",
        "_repairs",
        "_state",
        "complete",
        "held",
        "invalid",
        "record",
        "repeats",
        "rewritten",
        "unbraced",
    )

    def __init__(
        self,
        record: ArgumentsRecord,
        *,
        limit: int = DEFAULT_BUFFER_LIMIT,
        only_object: bool = False,
        needed: bool = False,
    ) -> None:
        """`only_object`: anything but one object is invalid, as for the arguments of a call. `needed`: the tool cannot
        be called without arguments, so none are invented for it."""
        self.record: ArgumentsRecord = record
        self._only_object, self._needed = only_object, needed
        self._listed = self.unbraced = False
        """The object is the only item of a list; it has no brackets."""
        self.complete = False
        """Whether the value has ended."""
        self.invalid: bool = False
        """Whether the input is neither JSON nor has exactly one reading as JSON: then the call cannot be run."""
        self.rewritten: bool = False
        """Whether the arguments look as if a server's parser had given up on them."""
        self.repeats: bool = False
        """Whether some text that came in one piece began with everything before it, or may have."""
        self._limit = limit
        self._state = _START
        self.held = ""
        self._inner: SafeArguments | None = None
        self._kept = TextPieces()
        self._kept_size = 0
        self._repairs: list[Repaired] = []
        self._json = JsonValue(record, self._repairs)

    @property
    def trails(self) -> bool:
        """Whether something other than white space came after the value, and was not read elsewhere."""
        return self._state == _TRAIL and bool(self._kept)

    def drain(self) -> list[Repaired]:
        if not self._repairs:
            return []
        self.rewritten = self.rewritten or any(repair.rule in _INCOMPLETE for repair in self._repairs)
        repairs, self._repairs = self._repairs, []
        if self._json is not _READ:
            self._json.repairs = self._repairs
        return repairs

    def feed(self, text: str) -> str:
        if self._json.continued_call and _is_string_body(text):
            pieces = self.record.pieces
            pieces.append(text)
            if len(pieces) >= _RECORD_PIECES:
                self.record.settle()
            return text
        if self._state == _VALUE and not self.repeats and text.lstrip()[:1] in _OPENING:
            self.repeats = self._may_repeat(text)
        text, self.held = self.held + text, ""
        out: list[str] = []
        pos = 0
        while pos < len(text):
            pos = _STEPS[self._state](self, text, pos, out)
        return "".join(out) if len(out) != 1 else out[0]

    def _may_repeat(self, text: str) -> bool:
        if len(text) * _GROWTH < self.record.size:
            return False
        alone = SafeArguments(ArgumentsRecord())
        return self.record.may_begin(alone.feed(text).lstrip())

    def settle(self) -> str:
        """Nothing will follow an empty object: give it out."""
        if self._state != _EMPTY:
            return ""
        held, self.held = self.held, ""
        self._state = _AFTER
        self.record.add("}")
        return held

    def take_trail(self) -> str:
        """What came after the value and is no value itself, for a grammar to read."""
        first = "".join(piece[:2] for piece in self._kept[:2])[:2]  # the pieces themselves may be large
        if self._state != _TRAIL or first in ("", '"') or first[0] in "{[" or first in ('"{', '"['):
            return ""
        trail, self._kept, self._kept_size = "".join(self._kept), TextPieces(), 0
        return trail

    def add_trail(self, text: str) -> None:
        """Text after the value is no part of it; what is over the limit is not even reported."""
        if self._kept_size <= self._limit:
            self._kept.append(text)
            self._kept_size += len(text)

    def close(self, *, cut: bool = False, over: bool = False) -> str:
        """The call is over: what was held back goes out, or is reported. If it was `cut` off, nothing is added.

        `over`: somebody said so, and it was not just the end of what came. Then brackets that are all that is missing
        were forgotten.
        """
        held, self.held = self.held, ""
        kept, self._kept = "".join(self._kept), TextPieces()
        if self._state == _INVALID:
            more = self._kept_size - len(kept)
            self._report("arguments_invalid", f"{kept} ... and {more} more characters" if more else kept)
            return ""
        if cut and not self.complete:
            return self._finish_inner(cut=True) + held if self._inner is not None else kept + held
        match self._state:
            case 0 | 3 if kept.strip() in ("", "null", "None") and self._needed:
                self.invalid = True
                self._report("arguments_missing", kept)
                return ""
            case 0:
                self._report("arguments_empty", held)
                return self._settle_bare_words("{}")
            case 2:
                self.record.add("}")
            case 3 if kept.strip() in ("null", "None"):
                self._report("arguments_empty", kept)
                return self._settle_bare_words("{}")
            case 3 if not self._only_object and SCALAR.fullmatch(kept.strip()):
                return self._settle_bare_words(kept)
            case 3 | 4 | 11:
                self.invalid = True
                self._report("arguments_invalid", kept + held)
                return ""
            case 5:
                return self._inner_text(held) + self._finish_inner()
            case 6 if (over or self.unbraced) and not held and (missing := self._json.missing_brackets()):
                self._report("arguments_unclosed", missing)
                return self._settle_bare_words(missing)
            case 8 if kept:
                self._judge_trail(kept[: self._limit])
        return held

    def _settle_bare_words(self, text: str) -> str:
        """Bare words have no end of their own: with the call, they are whole."""
        self.complete = True
        self.record.add(text)
        return text

    def _keep(self, text: str, out: list[str], what: str) -> None:
        """Hold text for as long as it takes; over the limit it goes out, and so does all that follows."""
        self._kept.append(text)
        self._kept_size += len(text)
        if self._kept_size > self._limit:
            self._report("buffer_limit", what)
            out.append("".join(self._kept))
            self._kept.clear()
            self._state = _RAW

    # -- before the value ------------------------------------------------------------

    def _start(self, text: str, pos: int, out: list[str]) -> int:
        found = _NOT_SPACE.search(text, pos)
        if found is None:
            out.append(text[pos:])
            return len(text)
        at = found.start()
        out.append(text[pos:at])
        match text[at]:
            case "{":
                self._state = _BRACE
                self._put("{", out)
                return at + 1
            case "[":
                self._state = _LIST if self._only_object and not self._listed else _VALUE
                return at
            case '"':
                self._state = _QUOTE
                return at
            case _:
                self._state = _JUNK
                return at

    def _list(self, text: str, pos: int, out: list[str]) -> int:
        """A list in the place of the object: of one object, that object was meant."""
        found = _NOT_SPACE.search(text, pos + 1, pos + 1 + SPACE_LIMIT)
        if found is None and len(text) - pos <= SPACE_LIMIT:
            return self._hold(text, pos)
        if found is None or text[found.start()] != "{":
            return self._refuse(text, pos)
        self._listed = True
        self._report("arguments_listed", "")
        self._state = _START
        return found.start()

    def _refuse(self, text: str, pos: int) -> int:
        """JSON, and no object: nothing of it goes out."""
        self._state, self.invalid = _INVALID, True
        return pos

    def _hold(self, text: str, pos: int) -> int:
        """Keep everything from `pos` until more of it is there."""
        self.held = text[pos:]
        return len(text)

    def _brace(self, text: str, pos: int, out: list[str]) -> int:
        """`{` has gone out. If `}` follows, an object after it may be the one that was meant."""
        found = _NOT_SPACE.search(text, pos)
        at = found.start() if found else len(text)
        self._put(text[pos:at], out)
        if found and text[at] == "}":
            self._state, self.complete = _EMPTY, True
            return at
        if found:
            self._state = _VALUE
            self._json.open_object()
        return at

    def _empty(self, text: str, pos: int, out: list[str]) -> int:
        found = _NOT_SPACE.search(text, pos + 1, pos + 1 + SPACE_LIMIT)
        if found is None and len(text) - pos <= SPACE_LIMIT:
            return self._hold(text, pos)
        if found is not None and text[found.start()] == "{":
            self._report("arguments_leading_empty", "{}")
            self._state, self.complete = _BRACE, False
            return found.end()
        self._put("}", out)
        self._state = _AFTER
        return pos + 1

    def _junk(self, text: str, pos: int, out: list[str]) -> int:
        end = min(len(text), pos + self._limit + 1 - self._kept_size)
        brace = text.find("{", pos, end)
        if brace < 0:
            self._keep(text[pos:end], out, "arguments without an object")
            return end
        junk = "".join(self._kept) + text[pos:brace]
        self._kept, self._kept_size = TextPieces(), 0
        rule = "arguments_leading_null" if junk.strip() == "null" else "arguments_leading_junk"
        self._report(rule, junk)
        self._state = _START
        return brace

    # -- the whole object as a JSON string -------------------------------------------

    def _quote(self, text: str, pos: int, out: list[str]) -> int:
        found = _NOT_SPACE.search(text, pos + 1, pos + 1 + SPACE_LIMIT)
        if found is None and len(text) - pos <= SPACE_LIMIT:
            return self._hold(text, pos)
        if found is None or text[found.start()] != "{":
            self._state = _VALUE
            if self._only_object:
                # An object without its brackets, or no object: then what follows the string is an error.
                self.unbraced = True
                self._put("{", out)
                self._json.open_object()
            return pos
        self._report("arguments_stringified", "")
        self._state = _QUOTED
        self._inner = SafeArguments(self.record, limit=self._limit, only_object=self._only_object)
        return pos + 1

    def _in_quoted(self, text: str, pos: int, out: list[str]) -> int:
        found = _QUOTED_END.search(text, pos)
        if found is None:
            out.append(self._inner_text(text[pos:]))
            return len(text)
        at = found.start()
        out.append(self._inner_text(text[pos:at]))
        if text[at] == '"':
            out.append(self._finish_inner())
            self._state = _AFTER
            return at + 1
        if at + 1 == len(text) or (text[at + 1] == "u" and CODE_UNIT_PART.match(text, at + 1)):
            return self._hold(text, at)
        if plain := _UNESCAPED.get(text[at + 1]):
            out.append(self._inner_text(plain))
            return at + 2
        if CODE_UNIT.match(text, at + 1):
            return self._read_quoted_unit(text, at, out)
        out.append(self._inner_text(text[at : at + 2]))
        return at + 2

    def _read_quoted_unit(self, text: str, at: int, out: list[str]) -> int:
        code = int(text[at + 2 : at + 6], 16)
        if 0xD800 <= code <= 0xDBFF:
            if LOW_HALF.match(text, at + 6):
                code = 0x10000 + ((code - 0xD800) << 10) + int(text[at + 8 : at + 12], 16) - 0xDC00
                out.append(self._inner_text(chr(code)))
                return at + 12
            if LOW_HALF_PART.match(text, at + 6):
                return self._hold(text, at)
        if 0xD800 <= code <= 0xDFFF:
            self._report("arguments_lone_surrogate", text[at : at + 6])
            code = 0xFFFD
        out.append(self._inner_text(chr(code)))
        return at + 6

    def _inner_text(self, text: str) -> str:
        assert self._inner is not None
        return self._inner.feed(text)

    def _finish_inner(self, *, cut: bool = False) -> str:
        assert self._inner is not None
        rest = self._inner.close(cut=cut)
        self._repairs += self._inner.drain()
        self.complete, self.invalid = self._inner.complete, self._inner.invalid
        return rest

    # -- the value -------------------------------------------------------------------

    def _value(self, text: str, pos: int, out: list[str]) -> int:
        value = self._json
        pos = value.read(text, pos, out)
        if value.ended:
            # Calls are remembered for longer than they are read.
            self._state, self.complete, self._json = _AFTER, True, _READ
        elif value.broken:
            self._state, self.invalid = _INVALID, True
        elif pos < len(text):
            return self._hold(text, pos)
        return pos

    def _put(self, text: str, out: list[str]) -> None:
        if text:
            out.append(text)
            self.record.add(text)

    # -- after the value -------------------------------------------------------------

    def _after(self, text: str, pos: int, out: list[str]) -> int:
        found = _NOT_SPACE.search(text, pos)
        at = found.start() if found else len(text)
        out.append(text[pos:at])
        if found:
            self._state = _TRAIL
        return at

    def _in_trail(self, text: str, pos: int, out: list[str]) -> int:
        if self._listed and not self._kept and text[pos] == "]":
            self._state = _AFTER  # the end of the list around the object
            return pos + 1
        self.add_trail(text[pos:])
        return len(text)

    def _judge_trail(self, trail: str) -> None:
        if ArgumentsRecord.of(trail.strip()).same_as(self.record):
            self._report("arguments_doubled", "")
        elif (self._only_object and may_be_object(trail.lstrip(", \t\r\n"))) or (
            trail[0] == "{" and self.record.is_empty
        ):
            # Another call under the same name, say: one of the two would be lost.
            self.invalid = True
            self._report("arguments_invalid", trail[:_REPORTED])
        else:
            self._report("arguments_trailing", trail)

    def _raw(self, text: str, pos: int, out: list[str]) -> int:
        out.append(text[pos:])
        return len(text)

    def _withhold(self, text: str, pos: int, out: list[str]) -> int:
        """What has gone out is the beginning of JSON, which every client can read; the rest is only reported."""
        if self._kept_size < _REPORTED:
            self._kept.append(text[pos : pos + _REPORTED - self._kept_size])
        self._kept_size += len(text) - pos
        return len(text)

    def _report(self, rule: str, detail: str) -> None:
        self._repairs.append(Repaired(rule, detail))


_READ: Final = JsonValue(ArgumentsRecord(), [])
"""Stands for every value that has been read."""
# In the order of the states.
_STEPS: Final = (
    SafeArguments._start,
    SafeArguments._brace,
    SafeArguments._empty,
    SafeArguments._junk,
    SafeArguments._quote,
    SafeArguments._in_quoted,
    SafeArguments._value,
    SafeArguments._after,
    SafeArguments._in_trail,
    SafeArguments._raw,
    SafeArguments._withhold,
    SafeArguments._list,
)
