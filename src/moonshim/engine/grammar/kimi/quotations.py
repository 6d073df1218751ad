"""Texts of a request that contain markers -> whether a call in the response only repeats one of them.

A tool result, a web page or a document may contain a call in markers. A model that quotes it has not called anything,
and running it would let the author of that text run tools. So the texts that others wrote are searched for markers
once; most requests have none. A call that stands in such a text, or whose arguments stand there next to a marker, is
a quotation. White space, escapes and the signs of Markdown quotes do not count: models change them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any, Final

from moonshim.engine.values.conversation import Message, Text, ToolResult
from moonshim.engine.values.options import ToolTokens
from moonshim.engine.values.text_pieces import TextPieces

__all__ = ["QuotationMatch", "Quotations", "normalize", "quotations_in", "texts_of_others"]

_HINTS: Final = ("tool_call", "|open", "|close", "open|", "| open", "tool\\_call")
"""Found fast; a text without any of these has no markers, however it is escaped."""
_MARKER: Final = re.compile(r"<\|/?[A-Za-z_]*tool[A-Za-z_]*\|>|<\|(?:open|close)\|>")
_ESCAPES: Final = re.compile(r"\\+u([0-9a-fA-F]{4})|\\+[nrtbf]|\\+")
_SPACE: Final = re.compile(r"\n[ \t]*(?:>[ \t]*)+|[\s\u200b-\u200d\u2060\ufeff]+")
_LINE_STARTS: Final = (
    re.compile(r"\n[ \t]*[0-9]{1,7}(?:\u2192|\t|:|\||[ ]{1,2})[ ]?"),
    re.compile(r"\n[ \t]*(?:[-+|*]|//|#|>)[ \t]?"),
)
"""What tools put before each line of a file or a diff: its number, or a sign."""
_QUOTES: Final = re.compile('""+')
"""CSV doubles them; so an empty string is taken for one, in both texts."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_UNDECIDED: Final = 16
"""Characters at the end of a piece that may belong to an escape."""
_PLAIN: Final = re.compile(r"""[^\\&\n\r<>"'`]{40}(?=[A-Za-z])""")
"""Text long enough to have no part of an escape, an entity or a quoted line at its end."""
_NEXT_TO: Final = 24
"""Characters between arguments and a marker that still count as next to it: `and then`, a list sign, a quote."""
_TRIVIAL: Final = 2
"""Arguments of this length say nothing: `{}` is that of every tool without arguments."""


def texts_of_others(messages: Iterable[Any]) -> Iterator[str]:
    """The texts of a conversation that the model did not write."""
    for message in messages:
        if isinstance(message, Message):
            if message.role == "assistant":
                continue
            for part in message.parts:
                if isinstance(part, Text):
                    yield part.text
                elif isinstance(part, ToolResult):
                    yield from (inner.text for inner in part.parts if isinstance(inner, Text))
        elif isinstance(message, dict) and message.get("role") != "assistant":
            yield from _strings(message.get("content"))


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < 8 and isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item, depth + 1)


def quotations_in(texts: Iterable[str], tokens: ToolTokens | None = None) -> Quotations | None:
    """The texts with markers, in the form in which they are compared; None if there are none, as nearly always."""
    own: tuple[str, ...] = ()
    if tokens is not None and tokens != _DEFAULT:
        own = tuple(getattr(tokens, name) for name in tokens.__struct_fields__)
    found = []
    for text in texts:
        if not any(hint in text for hint in _HINTS) and not any(marker in text for marker in own):
            continue
        whole = f"\n{text}"
        for one in (whole, *(start.sub("\n", whole) for start in _LINE_STARTS)):
            plain = normalize(one)
            if _MARKER.search(plain) is not None or any(normalize(marker) in plain for marker in own):
                found.append(plain)
    return Quotations(tuple(dict.fromkeys(found)), own) if found else None


def normalize(text: str) -> str:
    """A text without white space and escapes.

    >>> normalize('{\\\\"a\\\\": 1}\\n> &lt;|open|&gt;'), normalize("\\\\u003c|x|>")
    ('{"a":1}<|open|>', '<|x|>')
    """
    if "&" in text:
        text = unescape(unescape(text))
    plain = _QUOTES.sub('"', _SPACE.sub("", _ESCAPES.sub(_unescape, text)))
    if _SURROGATE.search(plain) is not None:
        plain = plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return plain


def _unescape(found: re.Match[str]) -> str:
    character = chr(int(found[1], 16)) if found[1] else ""
    return "" if character.isspace() else character


_DEFAULT: Final = ToolTokens()


class Quotations:
    """The texts of a request that contain markers. A value: it serves all choices of a response."""

    __slots__ = ("_markers", "texts")

    def __init__(self, texts: tuple[str, ...], own: tuple[str, ...] = ()) -> None:
        self.texts = texts
        pattern = "|".join((_MARKER.pattern, *(re.escape(normalize(marker)) for marker in own)))
        self._markers = re.compile(pattern)

    def contains_text(self, text: str) -> bool:
        """Whether a text with a marker stands in one of the texts."""
        plain = normalize(text)
        return bool(plain) and any(plain in one for one in self.texts)

    def contains(self, header: str, arguments: str) -> bool:
        """Whether these arguments stand in one of the texts next to a marker; trivial ones, with their header."""
        header, arguments = normalize(header), normalize(arguments)
        if len(arguments) <= _TRIVIAL:
            name = _INDEX.sub("", header)
            return any(self._has_call(text, name, arguments) for text in self.texts)
        if self._markers.search(arguments) is not None:
            return any(arguments in text for text in self.texts)
        return any(self._is_beside(text, at, len(arguments)) for text in self.texts for at in _places(text, arguments))

    def _has_call(self, text: str, name: str, arguments: str) -> bool:
        for at in _places(text, name) if name else ():
            rest = text[at + len(name) : at + len(name) + 2 * _NEXT_TO + 64]
            if _INDEX_BEGINS.sub("", self._markers.sub("", rest)).startswith(arguments):
                return True
        return False

    def _is_beside(self, text: str, at: int, size: int) -> bool:
        before, after = text[max(0, at - _NEXT_TO - 40) : at], text[at + size : at + size + _NEXT_TO + 40]
        ends = [found.end() for found in self._markers.finditer(before)]
        if ends and len(before) - ends[-1] <= _NEXT_TO:
            return True
        first = self._markers.search(after)
        return first is not None and first.start() <= _NEXT_TO


_INDEX: Final = re.compile(r":[0-9]*\Z")
_INDEX_BEGINS: Final = re.compile(r"\A:?[0-9]*")


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


class QuotationMatch:
    """Whether the arguments of a call may still be a quotation, while they arrive.

    The place in a text only moves forward, so the work is linear in the texts and the arguments. Where that finds no
    place, the whole is looked for: again only when it has grown by a part of itself, and never after it was not found.
    """

    __slots__ = ("_differs", "_next_look", "_places", "_raw", "_rest", "_size", "_so_far", "_texts")

    def __init__(self, quotations: Quotations) -> None:
        self._texts = quotations.texts
        self._places = [0] * len(self._texts)
        """Where in each text the arguments so far begin; -1: nowhere."""
        self._so_far = ""
        self._rest = ""
        self._raw = TextPieces()
        self._size = 0
        self._next_look = 0
        """The size from which on the whole is looked for again."""
        self._differs = False

    def feed(self, text: str) -> None:
        """More of the arguments."""
        if self._differs:
            return
        self._raw.append(text)
        self._size += len(text)
        text = self._rest + text
        cut = max(len(text) - _UNDECIDED, 0)
        # An escape, an entity or a quoted line may go on in the next piece.
        start = max(text.rfind("\\", cut), text.rfind("&", cut), text.rfind("\n", cut))
        if (quotes := len(text.rstrip('"\\ \t\r\n'))) < len(text):
            start = quotes if start < 0 else min(start, quotes)
        if (low := text.rfind("\\u", max(cut - 8, 0), max(start, 0))) >= 0 and text[low + 2 : low + 3] in "dD":
            start = low  # the first half of a character
        while start > 0 and text[start - 1] == "\\":
            start -= 1
        self._rest = text[start:] if start >= 0 else ""
        self._add(normalize(text[:start] if start >= 0 else text))

    def _add(self, more: str) -> None:
        if not more:
            return
        before = len(self._so_far)
        self._so_far += more
        for index, text in enumerate(self._texts):
            at = self._places[index]
            if at >= 0 and (not before or not text.startswith(more, at + before)):
                self._places[index] = text.find(self._so_far, at)

    @property
    def may_match(self) -> bool:
        """Whether some text contains the arguments so far."""
        if any(at >= 0 for at in self._places):
            return True
        if self._differs or self._size < self._next_look:
            return not self._differs
        # Escapes that lie on both sides of a piece's end are read right only in the whole.
        raw = "".join(self._raw)
        whole = normalize(raw).rstrip('"')
        if any(whole in text for text in self._texts):
            self._next_look = self._size + max(_UNDECIDED, self._size // 8)
            return True
        # What follows may complete an escape, an entity or a quoted line, but changes nothing before that.
        end = max((found.end() for found in _PLAIN.finditer(raw)), default=0)
        decided = normalize(raw[:end])
        self._differs = bool(decided) and not any(decided in text for text in self._texts)
        self._next_look = self._size + max(_UNDECIDED, self._size // 8)
        return False
