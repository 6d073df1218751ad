"""The input of one tool_use block -> the text of its arguments, wherever the host says it.

Hosts give the input with the start of the block, in deltas, or both. Both means one of two
things: the deltas say it all again (then they count, since they are what the protocol
promises), or they go on where the start stopped (then the two are joined):

| start | deltas | arguments |
|---|---|---|
| `{"a": 1}` | none, or `{}` | `{"a":1}` |
| none, null, `{}` | `{"a": 1}` | `{"a": 1}` |
| `{"a": 1}` | `{"a": 1}` | `{"a": 1}`, from the deltas |
| `{"a": 1}` | `, "b": 2}` or `"b": 2}` | `{"a":1, "b": 2}` |
| `'{"a": '` | `1}` | `{"a": 1}` |
| none | none | `{}` |

What comes behind the value is left for those who mend arguments. That the start was said again, differed or was
joined is reported when the block is over.
"""

from __future__ import annotations

from typing import Any, Final

from moonshim.engine.dialects.anthropic.parts import encode_json
from moonshim.engine.grammar.protocol import Notice
from moonshim.engine.values.text_pieces import TextPieces
from moonshim.engine.wire.json_codec import decode_object
from moonshim.engine.wire.json_scanner import ValueScanner

__all__ = ["InputText"]

_SPACE: Final = " \t\r\n"
_SPACED: Final = 8
"""How many times as long the same input may be when it is written with escapes."""
_SPACE_LIMIT: Final = 1024
"""How much white space may be in it besides."""


class InputText:
    """Takes the start and the deltas; what it gives, joined, is the arguments.

    Deltas pass at once, unless the start had something to say: then the first characters
    wait until it is clear what they are, and without deltas the start comes out at the end.

    >>> text = InputText({"pattern": "*.c"})
    >>> text.feed(', "path"') + text.feed(': "src"}') + text.finish()
    '{"pattern":"*.c", "path": "src"}'
    >>> text = InputText({"pattern": "*.c"})
    >>> text.feed('{"patt') + text.feed('ern": "*.h"}') + text.finish()
    '{"pattern": "*.h"}'
    """

    __slots__ = ("_decided", "_deltas", "_has_delta", "_held", "_joined", "_room", "_said", "_start")

    def __init__(self, start: Any) -> None:
        self._start = _start_text(start)
        self._held = ""
        self._said = self._has_delta = False
        self._decided = not self._start
        self._joined = False
        """The deltas went on where the start stopped."""
        self._deltas: TextPieces | None = None
        """The deltas that took the place of the start, as long as they may still say the same."""
        self._room = _SPACED * len(self._start) + _SPACE_LIMIT

    @property
    def is_empty(self) -> bool:
        """Whether neither the start nor a delta has said anything."""
        return not self._start and not self._said

    @property
    def flows(self) -> bool:
        """Whether every delta from now on goes out as it comes, and changes nothing here."""
        return self._decided and self._said and self._deltas is None

    def feed(self, text: str) -> str:
        """A delta came: what can go out now."""
        self._has_delta = True
        if not self._decided:
            self._held += text
            text = self._decide()
        self._said = self._said or bool(text.strip(_SPACE))
        if self._deltas is not None and self._room >= 0:
            self._deltas.append(text)
            self._room -= len(text)
        return text

    def finish(self) -> str:
        """The block is over: what is left."""
        rest = ""
        if not self._decided:
            # A string or an empty object that never became more: the start says it better.
            self._decided, rest = True, self._start
        elif not self._said:
            rest = "{}"
        self._said = True
        return rest

    def notices(self) -> list[Notice]:
        """What was odd about where the input stood, once the block is over."""
        if not self._start and not self._has_delta:
            # Clients parse the deltas: one without input is enough for them, none is not.
            return [Notice("arguments_empty", "no input, and no delta")]
        if self._joined:
            return [Notice("input_joined", self._start)]
        if self._deltas is None:
            return []
        same = self._room >= 0 and _same_json(self._start, "".join(self._deltas))
        return [Notice("input_repeated", "") if same else Notice("input_conflict", self._start)]

    def _decide(self) -> str:
        held = self._held.lstrip(_SPACE)
        if _is_cut(self._start):
            return self._join(self._start + held) if held else ""
        while held.startswith("{"):
            inside = held[1:].lstrip(_SPACE)
            if not inside.startswith("}"):
                # Before the next character it may still be an empty object.
                self._held = "{"
                return self._replace("{" + inside) if inside else ""
            held = inside[1:].lstrip(_SPACE)
        self._held = held
        match held[:1]:
            case "," | "}" if self._start.endswith("}"):
                return self._join(self._start[:-1] + held)
            case '"' if self._start.endswith("}"):
                if len(held) == 1:
                    return ""
                # The whole input once more, as a string; or the next key, without its comma.
                again = held[1] in "{["
                return self._replace(held) if again else self._join(f"{self._start[:-1]},{held}")
        return "" if "null".startswith(held) else self._join(self._start + held)

    def _join(self, text: str) -> str:
        self._joined = True
        return self._take(text)

    def _replace(self, text: str) -> str:
        self._deltas = TextPieces()
        return self._take(text)

    def _take(self, text: str) -> str:
        self._decided, self._held = True, ""
        return text


def _same_json(one: str, other: str) -> bool:
    """Whether both are the same object."""
    first, second = decode_object(one.encode("utf-8", "replace")), decode_object(other.encode("utf-8", "replace"))
    return first is not None and first == second


def _start_text(start: Any) -> str:
    if start is None or start == {}:
        return ""
    if isinstance(start, str):
        text = start.strip(_SPACE)
        return "" if text in ("{}", "null") else text
    try:
        return encode_json(start)
    except ValueError:
        return ""


def _is_cut(text: str) -> bool:
    """Whether this is the beginning of an object, and no more."""
    scanner, at = ValueScanner(), 0
    if not text.startswith("{"):
        return False
    while at < len(text):
        at = scanner.scan(text, at)
        if not scanner.inside:
            return False
        at += at < len(text)  # A `<` is none of our business.
    return True
