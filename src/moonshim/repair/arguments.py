"""Mends the arguments of one call while they stream: text as it came -> one JSON object.

Only what has one possible meaning is mended. Nothing is invented: arguments that
break off stay broken off, unless somebody said that they are over, and all that they
lack is brackets.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from moonshim.events import Repaired
from moonshim.json_scan import ValueScanner
from moonshim.options import DEFAULT_BUFFER_LIMIT
from moonshim.repair.record import ArgumentsRecord

__all__ = ["Arguments", "PlainArguments", "SafeArguments"]

_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
_IN_STRING: Final = re.compile(r'["\\\x00-\x1f]')
_OUT_OF_STRING: Final = re.compile(r'["{}\[\]]')
_QUOTED_END: Final = re.compile(r'["\\]')
_ESCAPE: Final = re.compile(r'["\\/bfnrt]')
_UNICODE: Final = re.compile(r"u[0-9a-fA-F]{4}")
_UNICODE_PART: Final = re.compile(r"u[0-9a-fA-F]{0,3}\Z")
_HIGH: Final = re.compile(r"u[dD][89abAB]")
_LOW: Final = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_LOW_PART: Final = re.compile(r"(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z")
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_UNESCAPED: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

_SCALAR_END: Final = re.compile(
    r"([:,\[])[ \t\r\n]*+(?:-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)[ \t\r\n]*+\Z"
)
_CLOSERS: Final = {"{": "}", "[": "]"}
_NESTING: Final = 256
"""How deep a value may be nested whose brackets are still matched, and not only counted."""
_TAIL: Final = 40
"""How much of what stands between strings is remembered, to know what a text ends in."""
_SPACE_LIMIT: Final = 256
"""How much white space may wait for what follows it."""

# Where in the arguments the next character stands.
_START, _BRACE, _EMPTY, _JUNK, _QUOTE, _QUOTED, _VALUE, _AFTER, _TRAIL, _RAW = range(10)


_RECORD_PIECES: Final = ArgumentsRecord.PIECES
# Possessive, as what is taken is never given back: otherwise the engine notes every step, 150 bytes a character.
_STRING_BODY: Final = re.compile(r'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt])*+')


def _is_string_body(text: str) -> bool:
    """Whether this text leaves a string as it was: inside, whole escapes, nothing to mend."""
    if "\\" in text or '"' in text:
        return _STRING_BODY.fullmatch(text) is not None
    return text.isprintable()


class Arguments(Protocol):
    """What the arguments of a call go through. `held` is the input that is kept back."""

    @property
    def held(self) -> str: ...
    @property
    def complete(self) -> bool: ...
    @property
    def record(self) -> ArgumentsRecord: ...
    def feed(self, text: str) -> str: ...
    def settle(self) -> str: ...
    def close(self, *, cut: bool = False, over: bool = False) -> str: ...
    def drain(self) -> list[Repaired]: ...


class PlainArguments:
    """Lets everything through and only watches where the value ends."""

    __slots__ = ("_scanner", "record")
    held = ""

    def __init__(self, record: ArgumentsRecord) -> None:
        self.record = record
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

    def close(self, *, cut: bool = False, over: bool = False) -> str:
        return ""

    def drain(self) -> list[Repaired]:
        return []


class SafeArguments:
    """Mends what has one meaning: see docs/repairs.md. Within a value at most an escape is kept back.

    >>> arguments = SafeArguments(ArgumentsRecord())
    >>> arguments.feed('{}{"a": "x') + arguments.feed('\\n"}') + arguments.close()
    '{"a": "x\\\\n"}'
    >>> [repair.rule for repair in arguments.drain()]
    ['arguments_leading_empty', 'arguments_control_character']
    """

    __slots__ = (
        "_after_backslash",
        "_before",
        "_closers",
        "_depth",
        "_held",
        "_in_string",
        "_inner",
        "_kept",
        "_kept_size",
        "_limit",
        "_repairs",
        "_state",
        "_tail",
        "complete",
        "record",
    )

    def __init__(self, record: ArgumentsRecord, *, limit: int = DEFAULT_BUFFER_LIMIT) -> None:
        self.record = record
        self.complete = False
        """Whether the value has ended."""
        self._limit = limit
        self._state = _START
        self._held = ""
        self._depth = 0
        self._in_string = False
        self._after_backslash = False
        self._closers: list[str] | None = []
        """What would close the brackets that are open; None when they do not match, or are too many."""
        self._tail = ""
        """The last that came outside of strings."""
        self._before = ""
        """What stood before the last string."""
        self._inner: SafeArguments | None = None
        self._kept: list[str] = []
        self._kept_size = 0
        self._repairs: list[Repaired] = []

    @property
    def held(self) -> str:
        return self._held

    def drain(self) -> list[Repaired]:
        repairs, self._repairs = self._repairs, []
        return repairs

    def feed(self, text: str) -> str:
        if self._in_string and not self._held and not self._after_backslash and _is_string_body(text):
            pieces = self.record.pieces
            pieces.append(text)
            if len(pieces) >= _RECORD_PIECES:
                self.record.settle()
            return text
        text, self._held = self._held + text, ""
        out: list[str] = []
        pos = 0
        while pos < len(text):
            pos = _STEPS[self._state](self, text, pos, out)
        return "".join(out) if len(out) != 1 else out[0]

    def settle(self) -> str:
        """Nothing will follow an empty object: give it out."""
        if self._state != _EMPTY:
            return ""
        held, self._held = self._held, ""
        self._state = _AFTER
        self.record.add("}")
        return held

    def close(self, *, cut: bool = False, over: bool = False) -> str:
        """The call is over: what was kept back goes out, or is told. If it was `cut` off, nothing is added.

        `over`: somebody said so, and it was not just the end of what came. Then brackets that are all that is missing
        were forgotten.
        """
        held, self._held = self._held, ""
        kept, self._kept = "".join(self._kept), []
        if cut and not self.complete:
            return kept + held if self._inner is None else self._inner.close(cut=True) + held
        match self._state:
            case 0:
                self._report("arguments_empty", held)
                return self._settled("{}")
            case 2:
                self.record.add("}")
            case 3 if kept.strip() == "null":
                self._report("arguments_empty", kept)
                return self._settled("{}")
            case 3:
                return self._settled(kept)
            case 5:
                return self._inner_text(held) + self._finish_inner()
            case 6 if over and (missing := self._missing()):
                self._report("arguments_unclosed", missing)
                return held + self._settled(missing)
            case 8:
                self._judge_trail(kept)
        return held

    def _settled(self, text: str) -> str:
        """Bare words have no end of their own: with the call, they are whole."""
        self.complete = True
        self.record.add(text)
        return text

    def _missing(self) -> str:
        """The brackets that are all that an object lacks; nothing where more than these may be missing."""
        closers = self._closers
        if self._in_string or self._after_backslash or not closers or closers[0] != "}":
            return ""
        in_list = closers[-1] == "]"
        last = self._tail.rstrip()[-1:]
        if last == '"':
            whole = self._before == ":" or (in_list and self._before in ("[", ","))
        elif last in ("}", "]"):
            whole = True
        else:
            found = _SCALAR_END.search(self._tail)
            whole = found is not None and (found[1] == ":" or in_list)
        return "".join(reversed(closers)) if whole else ""

    def _keep(self, text: str, out: list[str], what: str) -> None:
        """Hold text for as long as it takes; over the limit it goes out, and so does all that follows."""
        self._kept.append(text)
        self._kept_size += len(text)
        if self._kept_size > self._limit:
            self._report("buffer_limit", what)
            out.append("".join(self._kept))
            self._kept = []
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
                self._state = _VALUE
                return at
            case '"':
                self._state = _QUOTE
                return at
            case _:
                self._state = _JUNK
                return at

    def _hold(self, text: str, pos: int) -> int:
        """Keep everything from `pos` until more of it is there."""
        self._held = text[pos:]
        return len(text)

    def _brace(self, text: str, pos: int, out: list[str]) -> int:
        """`{` has gone out. If `}` follows, an object behind it may be the one that was meant."""
        self._depth, self._closers, self._tail = 1, ["}"], "{"
        found = _NOT_SPACE.search(text, pos)
        at = found.start() if found else len(text)
        self._put(text[pos:at], out)
        if found and text[at] == "}":
            self._state, self._depth, self.complete = _EMPTY, 0, True
            return at
        if found:
            self._state = _VALUE
        return at

    def _empty(self, text: str, pos: int, out: list[str]) -> int:
        found = _NOT_SPACE.search(text, pos + 1, pos + 1 + _SPACE_LIMIT)
        if found is None and len(text) - pos <= _SPACE_LIMIT:
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
        self._kept, self._kept_size = [], 0
        rule = "arguments_leading_null" if junk.strip() == "null" else "arguments_leading_junk"
        self._report(rule, junk)
        self._state = _START
        return brace

    # -- the whole object as a JSON string -------------------------------------------

    def _quote(self, text: str, pos: int, out: list[str]) -> int:
        found = _NOT_SPACE.search(text, pos + 1, pos + 1 + _SPACE_LIMIT)
        if found is None and len(text) - pos <= _SPACE_LIMIT:
            return self._hold(text, pos)
        if found is None or text[found.start()] != "{":
            # An honest string, or words: whatever it is, it goes out as it came.
            self._state = _VALUE
            return pos
        self._report("arguments_stringified", "")
        self._state = _QUOTED
        self._inner = SafeArguments(self.record, limit=self._limit)
        return pos + 1

    def _quoted(self, text: str, pos: int, out: list[str]) -> int:
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
        if at + 1 == len(text) or (text[at + 1] == "u" and _UNICODE_PART.match(text, at + 1)):
            return self._hold(text, at)
        if plain := _UNESCAPED.get(text[at + 1]):
            out.append(self._inner_text(plain))
            return at + 2
        if _UNICODE.match(text, at + 1):
            return self._quoted_unit(text, at, out)
        out.append(self._inner_text(text[at : at + 2]))
        return at + 2

    def _quoted_unit(self, text: str, at: int, out: list[str]) -> int:
        code = int(text[at + 2 : at + 6], 16)
        if 0xD800 <= code <= 0xDBFF:
            if _LOW.match(text, at + 6):
                code = 0x10000 + ((code - 0xD800) << 10) + int(text[at + 8 : at + 12], 16) - 0xDC00
                out.append(self._inner_text(chr(code)))
                return at + 12
            if _LOW_PART.match(text, at + 6):
                return self._hold(text, at)
        if 0xD800 <= code <= 0xDFFF:
            self._report("arguments_lone_surrogate", text[at : at + 6])
            code = 0xFFFD
        out.append(self._inner_text(chr(code)))
        return at + 6

    def _inner_text(self, text: str) -> str:
        assert self._inner is not None
        return self._inner.feed(text)

    def _finish_inner(self) -> str:
        assert self._inner is not None
        rest = self._inner.close()
        self._repairs += self._inner.drain()
        self.complete = self._inner.complete
        return rest

    # -- the value -------------------------------------------------------------------

    def _value(self, text: str, pos: int, out: list[str]) -> int:
        start, end, ended = pos, len(text), False
        first = pos
        while pos < end and not ended:
            if self._after_backslash:
                self._put(text[start:pos], out)
                pos = start = self._escape(text, pos, out)
            elif self._in_string:
                found = _IN_STRING.search(text, pos)
                if found is None:
                    pos = end
                    break
                pos = found.end()
                char = text[pos - 1]
                if char == '"':
                    self._in_string = False
                    ended = not self._depth
                elif char == "\\":
                    self._after_backslash = True
                else:
                    self._put(text[start : pos - 1], out)
                    self._put(_NAMED.get(char) or f"\\u{ord(char):04x}", out)
                    self._report("arguments_control_character", repr(char))
                    start = pos
            else:
                found = _OUT_OF_STRING.search(text, pos)
                if found is None:
                    pos = end
                    break
                pos = found.end()
                match text[pos - 1]:
                    case '"':
                        self._in_string = True
                        between = text[max(first, pos - _TAIL) : pos - 1]
                        self._before = (self._tail + between if len(between) < _TAIL else between).rstrip()[-1:]
                    case "{" | "[" as bracket:
                        self._depth += 1
                        if self._closers is not None:
                            self._closers.append(_CLOSERS[bracket])
                            if self._depth > _NESTING:
                                self._closers = None
                    case bracket:
                        self._depth -= 1
                        ended = self._depth <= 0
                        if self._closers is not None and (not self._closers or self._closers.pop() != bracket):
                            self._closers = None
        if not self._in_string:
            self._tail = (self._tail + text[max(first, pos - _TAIL) : pos])[-_TAIL:]
        self._put(text[start:pos], out)
        if ended:
            self._state, self.complete = _AFTER, True
        return pos

    def _escape(self, text: str, pos: int, out: list[str]) -> int:
        """The backslash has gone out: what follows makes it an escape, or one more backslash makes it a letter."""
        char = text[pos]
        if char != "u":
            if not _ESCAPE.match(char):
                self._put("\\", out)
                self._report("arguments_invalid_escape", "\\" + char)
                if char < " ":
                    # A raw control character behind a backslash: the backslash is a letter, the rest mends itself.
                    self._after_backslash = False
                    return pos
            self._after_backslash = False
            self._put(char, out)
            return pos + 1
        if _UNICODE.match(text, pos):
            return self._code_unit(text, pos, out)
        if _UNICODE_PART.match(text, pos):
            return self._hold(text, pos)
        self._after_backslash = False
        self._report("arguments_invalid_escape", "\\u")
        self._put("\\u", out)
        return pos + 1

    def _code_unit(self, text: str, pos: int, out: list[str]) -> int:
        unit = text[pos : pos + 5]
        if _HIGH.match(unit):
            if _LOW.match(text, pos + 5):
                self._put(text[pos : pos + 11], out)
                self._after_backslash = False
                return pos + 11
            if _LOW_PART.match(text, pos + 5):
                return self._hold(text, pos)
        self._after_backslash = False
        if unit[1] in "dD" and unit[2] in "89abcdefABCDEF":
            self._report("arguments_lone_surrogate", "\\" + unit)
            unit = "ufffd"
        self._put(unit, out)
        return pos + 5

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

    def _trailing(self, text: str, pos: int, out: list[str]) -> int:
        self._keep(text[pos:], out, "text behind the arguments")
        return len(text)

    def _judge_trail(self, trail: str) -> None:
        if ArgumentsRecord.of(trail.strip()).same_as(self.record):
            self._report("arguments_doubled", "")
        else:
            self._report("arguments_trailing", trail)

    def _raw(self, text: str, pos: int, out: list[str]) -> int:
        out.append(text[pos:])
        return len(text)

    def _report(self, rule: str, detail: str) -> None:
        self._repairs.append(Repaired(rule, detail))


# In the order of the states.
_STEPS: Final = (
    SafeArguments._start,
    SafeArguments._brace,
    SafeArguments._empty,
    SafeArguments._junk,
    SafeArguments._quote,
    SafeArguments._quoted,
    SafeArguments._value,
    SafeArguments._after,
    SafeArguments._trailing,
    SafeArguments._raw,
)
