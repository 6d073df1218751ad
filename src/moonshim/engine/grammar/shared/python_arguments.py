"""Keyword arguments of a Python call, piece by piece -> JSON object text.

    arguments = [ name "=" value { "," name "=" value } ] ")"
    value     = string { string } | number | "True" | "False" | "None" | list | tuple | set | dict

Tuples and sets become arrays, keys become strings. A value that is not a literal becomes a string.
"""

from __future__ import annotations

import re
from typing import Final

from moonshim.engine.grammar.protocol import CallDelta, CallEnded, GrammarEvent, Notice
from moonshim.engine.grammar.shared.python_literals import UNFINISHED_ESCAPE, escape, json_of_escape, json_of_word
from moonshim.engine.values.text_pieces import TextPieces

__all__ = ["HOLD_LIMIT", "PythonArguments"]

HOLD_LIMIT: Final = 4096
"""Maximum size of a number, a word or the first key of a dict; above it, it is a string (or not a dict)."""

# What the next character belongs to.
_KEY, _EQUALS, _VALUE, _STRING, _STRING_ENDED, _BARE, _AFTER = range(7)

_NOT_SPACE: Final = re.compile(r"\S")
_NAME_END: Final = re.compile(r"\W")
_OPENING: Final = re.compile(r"([rRbBuUfF]{0,2})(\"\"\"|'''|\"(?!\"|\Z)|'(?!'|\Z)|\"(?=\"[^\"])|'(?='[^']))")
_MAY_OPEN: Final = re.compile(r"[rRbBuUfF]{0,2}(?:\"{1,2}|'{1,2})?\Z")
_STRING_STOPS: Final = {quote: re.compile(rf"[\\{quote}]") for quote in "'\""}
_BARE_STOPS: Final = re.compile(r"[,:()\[\]{}'\"]")
_OPEN, _CLOSE = "([{", ")]}"


class _Frame:
    """An open container, or the call itself."""

    __slots__ = ("count", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        """`call`, `array`, `dict`, or `brace` while it may be a dict or a set."""
        self.count = 0


class PythonArguments:
    """Writes one call's arguments. Strings and containers are emitted as they arrive, the rest when it is complete.

    Nothing is dropped: a value that is not a literal becomes a string, and misplaced content is reported in a
    `Notice`. Reading starts after `(` with the first key, and is `done` after `)`, or before the `]` of a list that
    lacks it.

    >>> arguments, out = PythonArguments(), []
    >>> arguments.read("a=(1, 2.5), b='it', c={'k': None})", 0, out), arguments.done
    (34, True)
    >>> out
    [CallDelta(text='{"a": [1, 2.5], "b": "it", "c": {"k": null}}'), CallEnded(closed=True)]
    """

    __slots__ = (
        "_bare",
        "_bare_quote",
        "_bare_size",
        "_buffer",
        "_depth",
        "_key",
        "_paused",
        "_pending",
        "_pending_size",
        "_quote",
        "_raw",
        "_rule",
        "_spilled",
        "_stack",
        "_state",
        "done",
    )

    in_string: Final = False
    """Strings are re-encoded, so the fast path never applies."""
    failed: Final = False
    raw: Final = ""

    def __init__(self) -> None:
        self.done = False
        self._state = _KEY
        self._stack = [_Frame("call")]
        self._key = ""
        self._quote = ""
        self._raw = False
        """In a raw string a backslash is a backslash."""
        self._bare: list[str] = []
        self._bare_size = 0
        self._bare_quote = ""
        self._depth = 0
        """Number of open brackets in a bare value."""
        self._rule = ""
        """The rule under which misplaced bare content is reported."""
        self._spilled = False
        self._pending: list[str] | None = None
        """The first element after `{`: a key, or the first item of a set."""
        self._pending_size = 0
        self._buffer = TextPieces()
        self._paused = False

    def read(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Continue; return where reading stopped. Before the end while not `done`: more text is needed."""
        while pos < len(text) and not self.done and not self._paused:
            match self._state:
                case 3:
                    pos = self._in_string(text, pos)
                case 5:
                    pos = self._in_bare(text, pos, out)
                case _:
                    found = _NOT_SPACE.search(text, pos)
                    pos = self._between(text, found.start(), out) if found else len(text)
        self._paused = False
        self._send(out)
        if self.done:
            out.append(CallEnded(closed=True))
        return pos

    def cut(self, rest: str, out: list[GrammarEvent]) -> str:
        """End of input within the arguments: emit what was received and add nothing."""
        if self._state == _STRING:
            self._emit(escape(rest))
        elif rest:
            self._bare.append(rest)
        if self._state == _STRING_ENDED:
            self._emit('"')
        elif self._state in (_KEY, _EQUALS):
            self._bare.insert(0, self._key)
            self._rule = "arguments_trailing"
        if raw := "".join(self._bare).strip():
            if self._rule:
                self._notice(self._rule, raw, out)
            elif not self._spilled:
                self._emit(json_of_word(raw) or '"' + escape(raw))
        if self._pending is not None:
            self._decide("{")
        self._send(out)
        out.append(CallEnded(closed=False))
        return ""

    # -- between values ----------------------------------------------------------------

    def _between(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        char = text[pos]
        match self._state:
            case 0:
                return self._in_key(text, pos, out)
            case 1:
                if char == "=":
                    self._begin_argument()
                    return pos + 1
                self._begin_bare("unreadable_argument", self._key)
                return pos
            case 2:
                return self._before_value(text, pos, out)
            case 4:
                # Adjacent strings are one.
                opening = _OPENING.match(text, pos)
                if opening is not None:
                    return self._begin_string(opening)
                if _MAY_OPEN.match(text, pos):
                    self._paused = True
                    return pos
                self._emit('"')
                self._state = _AFTER
                return pos
            case _:
                return self._after_value(text, pos, out)

    def _in_key(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        char = text[pos]
        if char in ")]" and not self._key:
            return self._end(char, pos)
        if char == "," and not self._key:
            return pos + 1
        found = _NAME_END.search(text, pos)
        stop = found.start() if found else len(text)
        self._key += text[pos:stop]
        if not self._key or self._key[0].isdigit() or len(self._key) > HOLD_LIMIT:
            self._begin_bare("unreadable_argument", self._key)
        elif found is not None:
            self._state = _EQUALS
        return stop

    def _begin_argument(self) -> None:
        call = self._stack[0]
        self._emit(("{" if not call.count else ", ") + f'"{escape(self._key)}": ')
        call.count += 1
        self._key, self._state = "", _VALUE

    def _before_value(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        frame, char = self._stack[-1], text[pos]
        if char in _CLOSE and frame.kind != "call":
            return self._close(pos)
        if char == "," and frame.kind != "call":
            return pos + 1
        if char in _OPEN:
            self._begin_element(container=True)
            self._stack.append(_Frame("brace" if char == "{" else "array"))
            if char != "{":
                self._emit("[")
            return pos + 1
        if (opening := _OPENING.match(text, pos)) is not None:
            self._begin_element()
            self._emit('"')
            return self._begin_string(opening)
        if _MAY_OPEN.match(text, pos):
            self._paused = True
            return pos
        self._begin_element()
        self._begin_bare("", "")
        return pos

    def _begin_element(self, *, container: bool = False) -> None:
        """The next value of the innermost container starts."""
        frame = self._stack[-1]
        if frame.kind == "brace":
            self._pending, self._pending_size = [], 0
            if container:
                # Only strings and numbers are keys.
                self._decide("[")
        elif frame.kind == "array" or (frame.kind == "dict" and frame.count % 2 == 0):
            self._emit(", " if frame.count else "")
        frame.count += frame.kind != "call"

    def _after_value(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        frame, char = self._stack[-1], text[pos]
        if frame.kind == "call":
            if char in ")]":
                return self._end(char, pos)
            if char == ",":
                self._state = _KEY
                return pos + 1
            if char == "}":
                self._notice("arguments_trailing", char, out)
                return pos + 1
        elif char in _CLOSE:
            return self._close(pos)
        elif char == ",":
            if frame.kind == "brace":
                self._decide("[")
            elif self._is_key(frame):
                self._end_key(out)
            self._state = _VALUE
            return pos + 1
        elif char == ":" and self._is_key(frame):
            if frame.kind == "brace":
                self._decide("{")
            self._emit(": ")
            self._state = _VALUE
            return pos + 1
        self._begin_bare("arguments_trailing", "")
        return pos

    @staticmethod
    def _is_key(frame: _Frame) -> bool:
        """Whether the current value is, or may be, the key of a dict."""
        return frame.kind == "brace" or (frame.kind == "dict" and frame.count % 2 == 1)

    def _end_key(self, out: list[GrammarEvent]) -> None:
        self._emit(": null")
        self._notice("python_key_without_value", "null", out)
        self._stack[-1].count += 1

    def _decide(self, bracket: str) -> None:
        """Decide whether what started with `{` is a dict or a set."""
        frame, text = self._stack[-1], "".join(self._pending or ())
        frame.kind, self._pending = ("dict" if bracket == "{" else "array"), None
        if bracket == "{" and not text.startswith('"'):
            text = f'"{text}"'
        self._emit(bracket + text)

    def _close(self, pos: int) -> int:
        """Brackets are counted, not matched: the end must be found even in malformed text."""
        frame = self._stack[-1]
        if frame.kind == "brace" and frame.count:
            self._decide("[")
        if frame.kind == "dict" and frame.count % 2:
            self._emit(": null")
        self._stack.pop()
        self._emit({"array": "]", "dict": "}", "brace": "{}"}[frame.kind])
        self._state = _AFTER
        return pos + 1

    def _end(self, char: str, pos: int) -> int:
        self._emit("}" if self._stack[0].count else "{}")
        self.done = True
        return pos + 1 if char == ")" else pos

    # -- values ------------------------------------------------------------------------

    def _begin_string(self, opening: re.Match[str]) -> int:
        self._raw = "r" in opening[1].lower()
        self._quote = opening[2]
        self._state = _STRING
        return opening.end()

    def _in_string(self, text: str, pos: int) -> int:
        found = _STRING_STOPS[self._quote[0]].search(text, pos)
        stop = found.start() if found else len(text)
        if stop > pos:
            self._emit(escape(text[pos:stop]))
        if found is None:
            return stop
        if found.group() == "\\":
            if (stop + 1 == len(text)) if self._raw else UNFINISHED_ESCAPE.match(text, stop):
                self._paused = True
                return stop
            end, meaning = (stop + 2, escape(text[stop : stop + 2])) if self._raw else json_of_escape(text, stop)
            self._emit(meaning)
            return end
        if text.startswith(self._quote, stop):
            self._state = _STRING_ENDED
            return stop + len(self._quote)
        if self._quote.startswith(text[stop:]):
            self._paused = True
            return stop
        self._emit(escape(found.group()))
        return stop + 1

    def _begin_bare(self, rule: str, raw: str) -> None:
        """A number, a word, or (with a rule) misplaced content: up to the next comma or bracket."""
        self._state, self._rule, self._spilled = _BARE, rule, False
        self._bare, self._bare_size = [raw], len(raw)
        self._bare_quote, self._depth = "", 0
        self._key = ""

    def _in_bare(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        stops = _STRING_STOPS[self._bare_quote] if self._bare_quote else _BARE_STOPS
        found = stops.search(text, pos)
        if found is None:
            self._take(text[pos:], out)
            return len(text)
        stop, char = found.start(), found.group()
        if char == "\\":
            # The next character belongs to it, when it arrives.
            self._paused = stop + 1 == len(text)
            end = stop if self._paused else stop + 2
            self._take(text[pos:end], out)
            return end
        ends = False
        if char in "'\"":
            self._bare_quote = "" if self._bare_quote else char
        elif char in _OPEN:
            self._depth += 1
        elif self._depth:
            self._depth -= char in _CLOSE
        else:
            ends = char != ":" or (not self._rule and self._is_key(self._stack[-1]))
        self._take(text[pos : stop + (not ends)], out)
        if ends:
            self._end_bare(out)
            return stop
        return stop + 1

    def _take(self, text: str, out: list[GrammarEvent]) -> None:
        if self._spilled:
            self._emit(escape(text))
            return
        self._bare.append(text)
        self._bare_size += len(text)
        if self._bare_size <= HOLD_LIMIT:
            return
        raw = "".join(self._bare)
        if not self._rule:
            self._notice("value_as_string", raw[:HOLD_LIMIT], out)
            self._emit('"' + escape(raw))
            self._bare, self._bare_size, self._spilled = [], 0, True
            return
        whole = len(raw) - len(raw) % HOLD_LIMIT
        for at in range(0, whole, HOLD_LIMIT):
            self._notice(self._rule, raw[at : at + HOLD_LIMIT], out)
        self._bare, self._bare_size = [raw[whole:]], len(raw) - whole

    def _end_bare(self, out: list[GrammarEvent]) -> None:
        raw, self._bare = "".join(self._bare).strip(), []
        self._state = _AFTER
        if self._rule:
            if raw:
                self._notice(self._rule, raw, out)
            self._rule = ""
        elif self._spilled:
            self._emit('"')
        else:
            word = json_of_word(raw) if raw else "null"
            if word is None or not raw:
                self._notice("value_as_string" if raw else "python_value_missing", raw, out)
            if self._stack[-1].kind == "dict" and self._is_key(self._stack[-1]):
                self._emit(f'"{word or escape(raw)}"')
            else:
                self._emit(word or f'"{escape(raw)}"')

    # -- output -----------------------------------------------------------------

    def _emit(self, text: str) -> None:
        if self._pending is None:
            self._buffer.append(text)
            return
        self._pending.append(text)
        self._pending_size += len(text)
        if self._pending_size > HOLD_LIMIT:
            self._decide("[")

    def _send(self, out: list[GrammarEvent]) -> None:
        if text := "".join(self._buffer):
            out.append(CallDelta(text))
        self._buffer.clear()

    def _notice(self, rule: str, detail: str, out: list[GrammarEvent]) -> None:
        self._send(out)
        out.append(Notice(rule, detail))
