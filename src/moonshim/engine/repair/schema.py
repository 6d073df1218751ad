"""Mends arguments by the declared schema: a value that was sent as a string -> the value that was meant.

Kimi sometimes writes `{"todos": "[{\\"done\\": \\"true\\"}]"}` where an array was
declared. Only where the schema rejects the string, the text is exactly one JSON value,
and the schema accepts that value, is the string taken for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.repair.arguments import SafeArguments
from moonshim.engine.repair.schema_reader import (
    ARRAY,
    FRACTION,
    KIND_OF_BRACKET,
    KIND_OF_WORD,
    NUMBER,
    OBJECT,
    Node,
    Schema,
    SchemaPosition,
)
from moonshim.engine.values.events import Repaired
from moonshim.engine.values.options import DEFAULT_BUFFER_LIMIT
from moonshim.engine.values.text_pieces import TextPieces

__all__ = ["SchemaArguments"]

_SPACE: Final = " \t\r\n"
_NESTING: Final = 128
"""How deep the place in the value is followed."""
_LEVELS: Final = 8
"""How many strings within strings are read."""
_KEY_SIZE: Final = 1024
_OPENING: Final = 64
"""How many blanks a string may begin with and still be told by its first character."""

_SPACES: Final = re.compile(r"[ \t\r\n]+")
_BARE: Final = re.compile(r'[^ \t\r\n"{}\[\],:]+')
_BARE_ITEMS: Final = re.compile(r'(?:[^ \t\r\n"{}\[\],:]++[ \t\r\n]*+,[ \t\r\n]*+)++')
_STRING_TEXT: Final = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_BRACKET: Final = re.compile(r'["{}\[\]]')
_BLANKS: Final = re.compile(r" *")
_NUMBER_TEXT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")

_IN_STRINGS: Final = {"arguments_control_character", "arguments_invalid_escape", "arguments_lone_surrogate"}
"""What may be mended in a value that came as a string: anything else, and it is not JSON."""

# Where in the value the next character stands: between tokens, then within strings, then beyond caring.
_KEY, _COLON, _VALUE, _END, _WORD, _IN_KEY, _IN_STRING, _IN_OPENING, _HELD, _BLIND, _THROUGH = range(11)


class _Frame:
    """A container that is open: where in it we are, and what the schema says of that place."""

    __slots__ = ("_inside", "child", "step")

    def __init__(self, inside: SchemaPosition, step: str | int) -> None:
        self._inside = inside
        self.move_to(step)

    def move_to(self, step: str | int) -> None:
        self.step = step
        """The key, in an object; the index, in an array."""
        self.child = self._inside.at(step)


class _Walk:
    """Follows one JSON value and knows at every string which schema applies.

    Everything goes out as it comes, but for a string that may be another value: that
    one is kept back to its closing quote. Where the text is not JSON, the rest of it
    goes through untouched.
    """

    __slots__ = (
        "_depth",
        "_escaped",
        "_kept",
        "_kept_size",
        "_level",
        "_limit",
        "_mode",
        "_out",
        "_path",
        "_quoted",
        "_repairs",
        "_schema",
        "_sent",
        "_stack",
        "_target",
        "plain",
    )

    def __init__(self, schema: Schema, top: Node, repairs: list[Repaired], limit: int, path: str, level: int) -> None:
        self.plain = False
        """Within a string that goes through: only a quote or a backslash can change that."""
        self._schema = schema
        self._target = top
        """What is said of the string that is kept back; at first, of the whole value."""
        self._repairs = repairs
        self._limit = limit
        self._path = path
        self._level = level
        self._mode = _VALUE
        self._stack: list[_Frame] = []
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self._kept = TextPieces()
        """The text of the key that is being read, or of the string that is kept back."""
        self._kept_size = 0
        self._out: list[str] = []
        self._sent = 0

    @property
    def undecided(self) -> str:
        """The beginning of a string that may yet turn out to be only that."""
        return '"' + "".join(self._kept) if self._mode == _IN_OPENING else ""

    @property
    def is_through(self) -> bool:
        """Whether whatever follows goes out as it comes."""
        return self._mode == _THROUGH

    def feed(self, text: str) -> str:
        self._out, self._sent = [], 0
        pos, end = 0, len(text)
        while pos < end:
            pos = _STEPS[self._mode](self, text, pos)
        if self._mode not in (_IN_OPENING, _HELD):
            self._out.append(text[self._sent :])
        self.plain = not self._escaped and (self._mode == _IN_STRING or (self._mode == _BLIND and self._quoted))
        return "".join(self._out)

    def close(self) -> str:
        """The value is over: what is kept back was never closed, and goes out as it came."""
        mode, self._mode = self._mode, _THROUGH
        return '"' + self._take_held() if mode in (_IN_OPENING, _HELD) else ""

    # -- between strings -------------------------------------------------------------

    def _token(self, text: str, pos: int) -> int:
        char, stack = text[pos], self._stack
        if action := _ACTIONS[self._mode].get(char):
            action(self, text, pos)
            return pos + 1
        if char in _SPACE:
            self._mode = _END if self._mode == _WORD else self._mode
            return _end(_SPACES, text, pos)
        if char in '"{}[],:' or self._mode not in (_VALUE, _WORD) or not stack:
            self._mode = _THROUGH
            return pos
        step = stack[-1].step
        if isinstance(step, int) and self._mode == _VALUE and (end := _end(_BARE_ITEMS, text, pos)) > pos:
            # Long lists of numbers: all but the last that is here, at one go.
            stack[-1].move_to(step + text.count(",", pos, end))
            return end
        self._mode = _WORD
        return _end(_BARE, text, pos)

    def _go_on(self, text: str, pos: int) -> None:
        self._mode = _IN_KEY if self._mode == _KEY else _VALUE

    def _comma(self, text: str, pos: int) -> None:
        frame, self._mode = self._stack[-1], _KEY
        if isinstance(frame.step, int):
            frame.move_to(frame.step + 1)
            self._mode = _VALUE

    def _open(self, text: str, pos: int) -> None:
        kind = KIND_OF_BRACKET[text[pos]]
        inside = self._current_node().inside(kind)
        if inside.has_opinion and len(self._stack) < _NESTING:
            self._stack.append(_Frame(inside, "" if kind == OBJECT else 0))
            self._mode = _KEY if kind == OBJECT else _VALUE
        else:
            self._mode, self._depth = _BLIND, 1

    def _close(self, text: str, pos: int) -> None:
        if self._stack and isinstance(self._stack[-1].step, str) == (text[pos] == "}"):
            self._stack.pop()
            self._value_ended()
        else:
            self._mode = _THROUGH

    def _current_node(self) -> Node:
        return self._stack[-1].child if self._stack else self._target

    def _value_ended(self) -> None:
        self._mode = _END if self._stack else _THROUGH

    def _blind(self, text: str, pos: int) -> int:
        """Nothing is said of what is in here: only its end matters."""
        if self._quoted:
            at = self._closing_quote(text, pos)
            self._quoted = at < 0
            return at + 1 or len(text)
        found = _BRACKET.search(text, pos)
        if found is None:
            return len(text)
        if found[0] == '"':
            self._quoted = True
        else:
            self._depth += 1 if found[0] in "{[" else -1
            if not self._depth:
                self._value_ended()
        return found.end()

    # -- strings ---------------------------------------------------------------------

    def _closing_quote(self, text: str, pos: int) -> int:
        """Where the quote is that ends the string, or -1."""
        at = _end(_STRING_TEXT, text, pos + self._escaped)
        self._escaped = at < len(text) and text[at] == "\\"
        return at if at < len(text) and not self._escaped else -1

    def _in_string(self, text: str, pos: int) -> int:
        at = self._closing_quote(text, pos)
        if at >= 0:
            self._value_ended()
        return at + 1 or len(text)

    def _in_key(self, text: str, pos: int) -> int:
        at = self._closing_quote(text, pos)
        if self._kept_size <= _KEY_SIZE:
            self._keep(text[pos : at if at >= 0 else len(text)])
        if at >= 0:
            raw, frame, self._mode = self._take_held(), self._stack[-1], _COLON
            key = _decode(raw) if len(raw) <= _KEY_SIZE else None
            frame.move_to(key or "")
            if key is None:
                frame.child = self._schema.anything
        return at + 1 or len(text)

    def _begin_string(self, text: str, pos: int) -> None:
        self._target, self._mode = self._current_node(), _IN_STRING
        if self._target.mendable:
            self._out.append(text[self._sent : pos])
            self._mode = _IN_OPENING

    def _in_string_start(self, text: str, pos: int) -> int:
        """The first character often tells that a string is only a string: then it need not wait."""
        at = _end(_BLANKS, text, pos)
        blank = self._kept_size + at - pos
        if blank < _OPENING and at == len(text):
            self._keep(text[pos:])
            return at
        if blank >= _OPENING or text[at] in self._target.starts:
            self._mode = _HELD
        else:
            self._release(pos)
        return pos

    def _hold_string(self, text: str, pos: int) -> int:
        at = self._closing_quote(text, pos)
        stop = at if at >= 0 else len(text)
        self._keep(text[pos:stop])
        if self._kept_size > self._limit:
            self._repairs.append(Repaired("buffer_limit", self._path_text()))
            self._release(stop)
        if at < 0 or self._mode != _HELD:
            return stop
        raw = self._take_held()
        intended = self._embedded_json(raw)
        self._out.append(f'"{raw}"' if intended is None else intended)
        self._sent = at + 1
        self._value_ended()
        return at + 1

    def _keep(self, text: str) -> None:
        self._kept.append(text)
        self._kept_size += len(text)

    def _take_held(self) -> str:
        kept, self._kept, self._kept_size = "".join(self._kept), TextPieces(), 0
        return kept

    def _release(self, pos: int) -> None:
        """It stays the string that it is, and streams on from `pos`."""
        self._out.append('"' + self._take_held())
        self._sent, self._mode = pos, _IN_STRING

    # -- what was meant --------------------------------------------------------------

    def _embedded_json(self, raw: str) -> str | None:
        """The JSON that the string holds, if it is of a kind that is allowed here."""
        text = _decode(raw)
        if text is None or text in self._target.strings:
            return None
        value = text.strip(_SPACE)
        kind = _kind_of_text(value) & self._target.mendable
        if kind & (ARRAY | OBJECT):
            return self._container(value) if self._level < _LEVELS else None
        if not kind or not self._target.accepts(_value_of(value)):
            return None
        self._repairs.append(Repaired("arguments_schema", self._path_text()))
        return value

    def _container(self, value: str) -> str | None:
        safe = SafeArguments(ArgumentsRecord(), limit=self._limit)
        mended = safe.feed(value) + safe.close()
        inner = safe.drain()
        if not all(repair.rule in _IN_STRINGS for repair in inner):
            return None
        walk = _Walk(self._schema, self._target, inner, self._limit, self._path_text(), self._level + 1)
        mended = walk.feed(mended) + walk.close()
        intended = _value_of(mended)
        if intended is None or not self._target.accepts(intended):
            return None
        self._repairs += [Repaired("arguments_schema", self._path_text()), *inner]
        return mended

    def _path_text(self) -> str:
        steps = [self._path]
        for frame in self._stack:
            named = isinstance(frame.step, str) and frame.step.isidentifier()
            steps.append(f".{frame.step}" if named else f"[{frame.step!r}]")
        return "".join(steps)


# In the order of the modes.
_STEPS: Final[tuple[Callable[[_Walk, str, int], int], ...]] = (
    *[_Walk._token] * 5,
    _Walk._in_key,
    _Walk._in_string,
    _Walk._in_string_start,
    _Walk._hold_string,
    _Walk._blind,
    lambda _, text, pos: len(text),
)
_ACTIONS: Final[tuple[dict[str, Callable[[_Walk, str, int], None]], ...]] = (
    {'"': _Walk._go_on, "}": _Walk._close},
    {":": _Walk._go_on},
    {'"': _Walk._begin_string, "{": _Walk._open, "[": _Walk._open, "]": _Walk._close},
    {",": _Walk._comma, "}": _Walk._close, "]": _Walk._close},
    {",": _Walk._comma, "}": _Walk._close, "]": _Walk._close},
)
"""What may come in each mode between strings. Anything else is not JSON."""


def _value_of(text: str) -> Any:
    """The value that this JSON is; None if it is none, or null."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _end(pattern: re.Pattern[str], text: str, pos: int) -> int:
    found = pattern.match(text, pos)
    return found.end() if found else pos


def _kind_of_text(value: str) -> int:
    """The kinds that a text can be of, as JSON; none if it is not JSON. What is in brackets is not looked at."""
    if kind := KIND_OF_WORD.get(value) or KIND_OF_BRACKET.get(value[:1]):
        return kind
    found = _NUMBER_TEXT.fullmatch(value)
    if found is None:
        return 0
    # With an exponent it takes arithmetic to see whether a number is whole: it is not tried.
    return FRACTION if found[2] or (found[1] or "").strip(".0") else NUMBER


def _decode(raw: str) -> str | None:
    """What a string says; None if its text is not that of a JSON string."""
    if "\\" not in raw:
        return raw
    try:
        return msgspec.json.decode(f'"{raw}"', type=str)
    except (msgspec.MsgspecError, ValueError):
        return None


class SchemaArguments:
    """Mends what `SafeArguments` does and, by the schema, values that came as strings. Only those wait for their end.

    >>> schema = {"type": "object", "properties": {"n": {"type": "integer"}, "text": {"type": "string"}}}
    >>> arguments = SchemaArguments(ArgumentsRecord(), schema)
    >>> [arguments.feed(text) for text in ('{"text": "1', '2", "n": "1', '2"', "}")]
    ['{"text": "1', '2", "n": ', '12', '}']
    >>> arguments.drain()
    [Repaired(rule='arguments_schema', detail='$.n', choice=0)]
    """

    __slots__ = ("_begun", "_inner", "_repairs", "_walk", "record")

    def __init__(
        self,
        record: ArgumentsRecord,
        schema: dict[str, Any] | Schema,
        *,
        limit: int = DEFAULT_BUFFER_LIMIT,
        only_object: bool = False,
        needed: bool = False,
    ) -> None:
        """`schema` may have been read before: one serves all calls of its tool."""
        self.record = record
        # What was delivered is not what `SafeArguments` saw, and it needs the latter to know a repetition.
        self._inner = SafeArguments(ArgumentsRecord(), limit=limit, only_object=only_object, needed=needed)
        self._repairs: list[Repaired] = []
        read = schema if isinstance(schema, Schema) else Schema(schema)
        self._walk: _Walk | None = _Walk(read, read.top, self._repairs, limit, "$", 0)
        """None when the value is whole: calls are remembered for longer than they are read."""
        self._begun = False

    @property
    def held(self) -> str:
        """The input that is kept back, but for a value on its way to being mended: that will not leave as it came."""
        walk = self._walk
        return self._inner.held if walk is None or walk.plain else walk.undecided + self._inner.held

    @property
    def complete(self) -> bool:
        return self._inner.complete

    @property
    def invalid(self) -> bool:
        return self._inner.invalid

    @property
    def repeats(self) -> bool:
        return self._inner.repeats

    @property
    def trails(self) -> bool:
        return self._inner.trails

    @property
    def rewritten(self) -> bool:
        return self._inner.rewritten

    @property
    def unbraced(self) -> bool:
        return self._inner.unbraced

    def feed(self, text: str) -> str:
        mended = self._inner.feed(text)
        walk = self._walk
        if walk is None:
            self._repairs += self._inner.drain()
            return self._record_output(mended)
        if walk.plain and '"' not in mended and "\\" not in mended:
            self.record.add(mended)
            return mended
        self._repairs += self._inner.drain()
        return self._run_walk(mended)

    def take_trail(self) -> str:
        return self._inner.take_trail()

    def add_trail(self, text: str) -> None:
        self._inner.add_trail(text)

    def settle(self) -> str:
        return self._run_walk(self._inner.settle())

    def close(self, *, cut: bool = False, over: bool = False) -> str:
        """The call is over. Nothing is added to a value that was cut off: it goes out as it came."""
        rest = self._inner.close(cut=cut, over=over)
        self._repairs += self._inner.drain()
        return self._run_walk(rest, last=True)

    def drain(self) -> list[Repaired]:
        repairs = [*self._repairs, *self._inner.drain()]
        self._repairs.clear()
        return repairs

    def _run_walk(self, text: str, *, last: bool = False) -> str:
        walk = self._walk
        if walk is not None:
            text = walk.feed(text) + (walk.close() if last else "")
            if walk.is_through:
                self._walk = None
        return self._record_output(text)

    def _record_output(self, text: str) -> str:
        """Note what goes out; white space around the value is no part of it."""
        noted = text if self._begun else text.lstrip(_SPACE)
        if self._inner.complete:
            noted = noted.rstrip(_SPACE)
        if noted:
            self._begun = True
            self.record.add(noted)
        return text
