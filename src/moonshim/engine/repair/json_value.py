"""Follows one JSON value while it streams: what has one reading is rewritten as JSON, the first error stops it.

Valid JSON passes unchanged. Trailing commas, Python's literals and single-quoted
strings are rewritten as they are read, and so are raw control characters and invalid
escapes in strings. What went out is therefore always the beginning of a JSON value.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.values.events import Repaired

__all__ = ["CODE_UNIT", "CODE_UNIT_PART", "LOW_HALF", "LOW_HALF_PART", "SCALAR", "SPACE_LIMIT", "JsonValue"]

_SPACE: Final = r"[ \t\r\n]*+"
_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
_IN_STRING: Final = re.compile(r'["\\\x00-\x1f]')
_IN_SINGLE: Final = re.compile(r"""['"\\\x00-\x1f]""")
_ESCAPE: Final = re.compile(r'["\\/bfnrt]')
CODE_UNIT: Final = re.compile(r"u[0-9a-fA-F]{4}")
CODE_UNIT_PART: Final = re.compile(r"u[0-9a-fA-F]{0,3}\Z")
_HIGH_HALF: Final = re.compile(r"u[dD][89abAB]")
LOW_HALF: Final = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
LOW_HALF_PART: Final = re.compile(r"(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z")
_HEX: Final = re.compile(r"x([0-9a-fA-F]{2})")
_HEX_PART: Final = re.compile(r"x[0-9a-fA-F]?\Z")
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}

_NUMBER: Final = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
SCALAR: Final = re.compile(rf"{_NUMBER}|true|false|null")
_SCALAR_PART: Final = re.compile(
    r"-?(?:0|[1-9][0-9]*+)(?:(?:\.[0-9]++)?[eE][+-]?[0-9]*+|\.[0-9]*+)?|-"
    r"|t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?"
)
"""The longest beginning of a number or word that can still become one."""
_SCALAR_ITEMS: Final = re.compile(rf"(?:(?:{_NUMBER}|true|false|null){_SPACE},{_SPACE}(?=[-0-9tfn]))++")
_PYTHON: Final = {"None": "null", "True": "true", "False": "false"}
_PYTHON_WORD: Final = re.compile("|".join(_PYTHON))
_PYTHON_PART: Final = re.compile(r"(?:N(?:on?)?|T(?:ru?)?|F(?:a(?:ls?)?)?)\Z")
_CLOSERS: Final = {"{": "}", "[": "]"}

_NESTING: Final = 1000
"""Deeper values cannot be read by most clients."""
_SCALAR_LIMIT: Final = 4096
"""Longer numbers cannot be read by most clients."""
SPACE_LIMIT: Final = 256
"""How much white space may wait for what follows it."""

# What the next token may be.
_KEY_OR_END, _KEY, _COLON, _ITEM_OR_END, _ITEM, _NEXT = range(6)
_GLUE: Final = {
    _COLON: re.compile(rf'{_SPACE}:{_SPACE}"'),
    _NEXT: re.compile(rf'{_SPACE},{_SPACE}"'),
}
"""What most often stands between two strings, up to the quote that opens the second."""


class JsonValue:
    """One value, whatever the chunking. Of valid JSON only a comma, with the white space after it, and escapes wait.

    `read` stops before what has to wait for more text, right after the end of the value, or at the first error.
    """

    __slots__ = (
        "_after_backslash",
        "_expect",
        "_in_string",
        "_record",
        "_scalar",
        "_single",
        "_stack",
        "_told",
        "broken",
        "continued_call",
        "ended",
        "repairs",
    )

    def __init__(self, record: ArgumentsRecord, repairs: list[Repaired]) -> None:
        self.ended = False
        self.broken = False
        """Whether the text cannot be JSON, nor read as JSON in exactly one way."""
        self.continued_call = False
        """Whether the next character is within a string, and no escape is open."""
        self._record = record
        self.repairs = repairs
        self._told: tuple[str, ...] = ()
        self._stack: list[str] = []
        """What closes each open container."""
        self._expect = _ITEM
        """What the next token may be; within a string, what may follow it."""
        self._in_string = False
        self._single = False
        """Whether the next character is within a single-quoted string."""
        self._after_backslash = False
        self._scalar = ""
        """The number or word that has not ended yet."""

    def open_object(self) -> None:
        """The value is an object, and its brace has been read."""
        self._stack.append("}")
        self._expect = _KEY_OR_END

    def read(self, text: str, pos: int, out: list[str]) -> int:
        start, end = pos, len(text)
        while pos < end and not self.ended:
            if self._in_string and not self._after_backslash:
                found = _IN_STRING.search(text, pos)
                if found is None:
                    pos = end
                    break
                pos = found.end()
                char = text[pos - 1]
                if char == '"':
                    self._in_string = False
                    self.ended = not self._stack
                elif char == "\\":
                    self._after_backslash = True
                else:
                    self._put(text[start : pos - 1], out)
                    self._put_control(char, out)
                    start = pos
                continue
            if self._after_backslash or self._single:
                self._put(text[start:pos], out)
                start = self._escape(text, pos, out) if self._after_backslash else self._in_single(text, pos, out)
                if start == pos:
                    break
                pos = start
                continue
            if self._scalar:
                pos = self._read_scalar(text, pos)
            elif (glue := _GLUE.get(self._expect)) is not None and (found := glue.match(text, pos)):
                pos = found.end()
                self._in_string = True
                self._expect = _COLON if self._expect == _NEXT and self._stack[-1] == "}" else _NEXT
            else:
                found = _NOT_SPACE.search(text, pos)
                if found is None:
                    pos = end
                    break
                at = found.start()
                pos = self._token(text, at)
                if pos == at:
                    # Not a token of JSON: it is rewritten, waits for more, or is an error.
                    self._put(text[start:at], out)
                    start = pos = self._rewrite(text, at, out)
                    if pos == at:
                        break
            if self.broken:
                break
        self._put(text[start:pos], out)
        self.continued_call = self._in_string and not self._after_backslash
        return pos

    def missing_brackets(self) -> str:
        """The brackets that are all that an object lacks; nothing where more than these may be missing."""
        if self._in_string or self._single or not self._stack or self._stack[0] != "}":
            return ""
        whole = SCALAR.fullmatch(self._scalar) is not None if self._scalar else self._expect == _NEXT
        return "".join(reversed(self._stack)) if whole else ""

    # -- between strings -------------------------------------------------------------

    def _token(self, text: str, at: int) -> int:
        """Where the JSON token that begins here ends; `at` if it needs a closer look."""
        expect, char = self._expect, text[at]
        if expect in (_ITEM, _ITEM_OR_END) and char in "-0123456789tfn":
            return self._read_scalar(text, at)
        if expect == _COLON:
            if char != ":":
                return at
            self._expect = _ITEM
        elif char in "}]":
            if expect not in (_NEXT, _KEY_OR_END, _ITEM_OR_END) or self._stack[-1] != char:
                return at
            self._stack.pop()
            self._expect = _NEXT
            self.ended = not self._stack
        elif expect == _NEXT:
            if char != "," or not self._continues(text, at):
                return at
            self._expect = _KEY if self._stack[-1] == "}" else _ITEM
        elif char == '"':
            self._in_string = True
            self._expect = _COLON if expect in (_KEY, _KEY_OR_END) else _NEXT
        elif char in "{[" and expect in (_ITEM, _ITEM_OR_END) and len(self._stack) < _NESTING:
            self._stack.append(_CLOSERS[char])
            self._expect = _KEY_OR_END if char == "{" else _ITEM_OR_END
        else:
            return at
        return at + 1

    def _continues(self, text: str, comma: int) -> bool:
        """Whether something other than a closing bracket follows this comma."""
        found = _NOT_SPACE.search(text, comma + 1)
        at = found.start() if found else len(text)
        return at - comma > SPACE_LIMIT or (found is not None and text[at] not in "}]")

    def _read_scalar(self, text: str, at: int) -> int:
        if not self._scalar and self._stack and self._stack[-1] == "]":
            # Long lists of numbers, all but the last of them at once.
            found = _SCALAR_ITEMS.match(text, at)
            if found is not None:
                self._expect = _ITEM
                return found.end()
        word = self._scalar + text[at : at + _SCALAR_LIMIT - len(self._scalar)]
        found = _SCALAR_PART.match(word)
        size = found.end() if found else 0
        stop = at + size - len(self._scalar)
        self._scalar = word[:size]
        if stop < len(text):
            if SCALAR.fullmatch(self._scalar):
                self._expect = _NEXT
            else:
                self.broken = True
            self._scalar = ""
        return stop

    def _rewrite(self, text: str, at: int, out: list[str]) -> int:
        """Something that is not JSON: where reading goes on, or `at` if it cannot."""
        expect, char = self._expect, text[at]
        if char == "'" and expect in (_KEY, _KEY_OR_END, _ITEM, _ITEM_OR_END):
            self._report_once("arguments_single_quotes", "'")
            self._put('"', out)
            self._single = True
            self._expect = _COLON if expect in (_KEY, _KEY_OR_END) else _NEXT
            return at + 1
        if char == "," and expect == _NEXT:
            found = _NOT_SPACE.search(text, at + 1)
            if found is None:
                return at
            if found.group() == self._stack[-1]:
                self._report_once("arguments_trailing_comma", ",")
                return at + 1
        elif char in "NTF" and expect in (_ITEM, _ITEM_OR_END):
            found = _PYTHON_WORD.match(text, at)
            if found is not None:
                self._report_once("arguments_python_literal", found.group())
                self._put(_PYTHON[found.group()], out)
                self._expect = _NEXT
                return found.end()
            if _PYTHON_PART.match(text, at):
                return at
        self.broken = True
        return at

    # -- strings ---------------------------------------------------------------------

    def _in_single(self, text: str, pos: int, out: list[str]) -> int:
        found = _IN_SINGLE.search(text, pos)
        if found is None:
            self._put(text[pos:], out)
            return len(text)
        at, char = found.start(), found.group()
        self._put(text[pos:at], out)
        if char == "'":
            self._put('"', out)
            self._single = False
        elif char == '"':
            self._put('\\"', out)
        elif char != "\\":
            self._put_control(char, out)
        elif at + 1 == len(text) or _HEX_PART.match(text, at + 1):
            return at
        elif text[at + 1] == "'":
            self._put("'", out)
            return at + 2
        elif (code := _HEX.match(text, at + 1)) is not None:
            self._put(f"\\u00{code[1]}", out)
            return at + 4
        else:
            self._put("\\", out)
            self._after_backslash = True
        return at + 1

    def _put_control(self, char: str, out: list[str]) -> None:
        self._put(_NAMED.get(char) or f"\\u{ord(char):04x}", out)
        self.repairs.append(_control_character(char))

    def _escape(self, text: str, pos: int, out: list[str]) -> int:
        """The backslash has gone out: what follows makes it an escape, or one more backslash makes it a letter."""
        char = text[pos]
        if char != "u":
            if not _ESCAPE.match(char):
                self._put("\\", out)
                self.repairs.append(_invalid_escape(char))
            self._after_backslash = False
            if char < " ":
                self._put_control(char, out)
                return pos + 1
            self._put(char, out)
            return pos + 1
        if CODE_UNIT.match(text, pos):
            return self._code_unit(text, pos, out)
        if CODE_UNIT_PART.match(text, pos):
            return pos
        self._after_backslash = False
        self.repairs.append(Repaired("arguments_invalid_escape", "\\u"))
        self._put("\\u", out)
        return pos + 1

    def _code_unit(self, text: str, pos: int, out: list[str]) -> int:
        unit = text[pos : pos + 5]
        if _HIGH_HALF.match(unit):
            if LOW_HALF.match(text, pos + 5):
                self._put(text[pos : pos + 11], out)
                self._after_backslash = False
                return pos + 11
            if LOW_HALF_PART.match(text, pos + 5):
                return pos
        self._after_backslash = False
        if unit[1] in "dD" and unit[2] in "89abcdefABCDEF":
            self.repairs.append(Repaired("arguments_lone_surrogate", "\\" + unit))
            unit = "ufffd"
        self._put(unit, out)
        return pos + 5

    # -- what goes out ---------------------------------------------------------------

    def _put(self, text: str, out: list[str]) -> None:
        if text:
            out.append(text)
            self._record.add(text)

    def _report_once(self, rule: str, detail: str) -> None:
        if rule not in self._told:
            self._told += (rule,)
            self.repairs.append(Repaired(rule, detail))


@lru_cache(128)  # the same few, again and again: one value for all of them
def _control_character(char: str) -> Repaired:
    return Repaired("arguments_control_character", repr(char))


@lru_cache(128)
def _invalid_escape(char: str) -> Repaired:
    return Repaired("arguments_invalid_escape", "\\" + char)
