"""Texts of a request that contain markers -> whether a call in the response only repeats one of them.

A tool result, a web page or a document may contain a call in markers. A model that quotes it has not called anything,
and running it would let the author of that text run tools. So the texts that others wrote are searched for markers
once; most requests have none. A call that stands in such a text, or whose arguments stand there next to a marker, is
a quotation. White space, escapes, typography and the signs of Markdown quotes do not count: models change them.
"""

from __future__ import annotations

import re
import unicodedata
from base64 import b64decode
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any, Final

from moonshim.engine.values.conversation import Media, Message, Text, ToolResult
from moonshim.engine.values.options import ToolTokens
from moonshim.engine.values.text_pieces import TextPieces

__all__ = ["QuotationMatch", "Quotations", "normalize", "quotations_in", "texts_of_others", "texts_of_servers"]

_HINTS: Final = ("tool_call", "|open", "|close", "open|", "| open", "tool\\_call")
"""Found fast; a text without any of these has no markers, unless they are escaped in one of these ways:"""
_ESCAPED: Final[dict[str, tuple[str, ...]]] = {
    "\\": ("\\u007c", "\\u007C", "\\u005f", "\\u005F", "\\x7c", "\\x7C", "\\x5f", "\\x5F", "\\u{7c", "\\u{7C"),
    "&": ("&#124;", "&#95;", "&#x7c;", "&#x7C;", "&#x5f;", "&#x5F;", "&vert;", "&verbar;", "&lowbar;"),
    "%7": ("%7C", "%7c"),
}
"""How a text spells the signs of a marker, by what such a text must contain."""
_MARKER: Final = re.compile(r"<\|/?[A-Za-z_]*tool[A-Za-z_]*\|>|<\|(?:open|close)\|>")
_ESCAPES: Final = re.compile(r"\\+u\{?([0-9a-fA-F]{4}|(?<=\{)[0-9a-fA-F]{1,6})\}?|\\+x([0-9a-fA-F]{2})|\\+[nrtbf]|\\+")
_BACKSLASH: Final = re.compile(r"\\+(?:u005[cC]|x5[cC])")
_INVISIBLE: Final = "\xad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"
_HIDDEN: Final = re.compile(rf"\x1b\[[0-9;:?]*[A-Za-z]|[{_INVISIBLE}]")
"""What a reader does not see: colors of a terminal, and characters without a width."""
_SPACE: Final = re.compile(r"(?<!\|)\n[ \t]*(?:>[ \t]*)+|\s+")
_TYPOGRAPHY: Final = str.maketrans(
    dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u2036", '"')
    | dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u2035", "'")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
)
"""What publishing software makes of quotation marks and hyphens."""
_LINE_STARTS: Final = (
    re.compile(r"\n[ \t]*[0-9]{1,7}(?:\u2192|\t|:|\||[ ]{1,2})[ ]?"),
    re.compile(r"\n[ \t]*(?:[-+|*]|//|#|>)[ \t]?"),
)
"""What tools put before each line of a file or a diff: its number, or a sign."""
_QUOTES: Final = re.compile(r'(["-])\1+')
"""CSV doubles quotes, so an empty string is taken for one, in both texts. Publishing software joins hyphens."""
_TAG: Final = re.compile(r"</?[A-Za-z][^<>|]*>")
"""Of HTML: highlighted code has them around each of its words."""
_START: Final = re.compile(r".*(?:[\s:\-\])>}$#%\u2502\u2192]|(?<!<)\|)", re.DOTALL)
"""How the common beginning of lines ends, if it is no part of what they say."""
_LINE_END: Final = re.compile(r"[ \t]*[$|\u2502\u2503](?=\n|\Z)")
"""Of a frame, or of `cat -A`."""
_PERCENT: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_NUMBER: Final = re.compile(r"[0-9]+| +")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_RUN: Final = '"-\u2010\u2011\u2012\u2013\u2014\u2015\u2212\\ \t\r\n'
"""Signs of which several in a row count as one, and what may stand between them."""
_UNDECIDED: Final = 16
"""Characters at the end of a piece that may belong to an escape."""
_RESULTS: Final = ("text/plain", "application/json")
"""The types of the results of tools that a host ran."""
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


def texts_of_servers(messages: Iterable[Message]) -> Iterator[str]:
    """What tools that a host ran have answered. Such results are files in the model's own turn."""
    for message in messages:
        for part in message.parts if message.role == "assistant" else ():
            if isinstance(part, Media) and part.media_type in _RESULTS and part.data:
                try:
                    yield b64decode(part.data).decode("utf-8", "replace")
                except ValueError:
                    yield part.data


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
        if not _has_hint(text) and not any(marker in text for marker in own):
            continue
        for one in _readings(f"\n{text}"):
            plain = normalize(one)
            if _MARKER.search(plain) is not None or any(normalize(marker) in plain for marker in own):
                found.append(plain)
    return Quotations(tuple(dict.fromkeys(found)), own) if found else None


def _has_hint(text: str) -> bool:
    """Whether a text may contain a marker, escaped or not."""
    if any(hint in text for hint in _HINTS):
        return True
    if any(sign in text and any(escape in text for escape in _ESCAPED[sign]) for sign in _ESCAPED):
        return True
    if text.isascii() and "\x1b[" not in text:
        return False
    seen = _HIDDEN.sub("", text.replace("\uff5c", "|"))
    return any(hint in seen for hint in _HINTS)


def _readings(text: str) -> Iterator[str]:
    """A text as it is, and without what programs put around its lines and words."""
    yield text
    for start in _LINE_STARTS:
        yield start.sub("\n", text)
    if "</" in text:
        yield _TAG.sub("", text)
    if "%7" in text:
        in_bytes = _PERCENT.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode("utf-8", "replace"))
        yield in_bytes.decode("utf-8", "replace")
    listed = _without_line_starts(_HIDDEN.sub("", text))
    yield listed
    yield _LINE_END.sub("", listed)


def _without_line_starts(text: str) -> str:
    """A text without what lines one below the other begin with, apart from numbers: `notes.md:12:`, a time, a frame.

    >>> _without_line_starts("a.md:9:{\\na.md:10:  1\\na.md:11:}\\n\\nEnd")
    '{\\n  1\\n}\\n\\nEnd'
    """
    lines = text.split("\n")
    shapes = [_NUMBER.sub(_fold, line) for line in lines]
    out: list[str] = []
    at = 0
    while at < len(lines):
        start, end = "", at + 1
        while end < len(lines) and (common := _shared_start(start or shapes[at], shapes[end])):
            start, end = common, end + 1
        out += [_cut_shape(line, start) for line in lines[at:end]] if start else lines[at:end]
        at = end
    return "\n".join(out)


def _fold(found: re.Match[str]) -> str:
    return "0" if found[0][0] != " " else " "


def _shared_start(one: str, other: str) -> str:
    size = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    found = _START.match(one[:size])
    return found[0] if found is not None and found[0].strip() else ""


def _cut_shape(line: str, start: str) -> str:
    at = 0
    for sign in start:
        if sign in "0 ":
            while line[at : at + 1].isdecimal() if sign == "0" else line[at : at + 1] == " ":
                at += 1
        else:
            at += 1
    return line[at:]


def normalize(text: str) -> str:
    """A text without white space, escapes and typography.

    >>> normalize('{\\\\"a\\\\": 1}\\n> &lt;|open|&gt;'), normalize("\\\\u003c|x|>")
    ('{"a":1}<|open|>', '<|x|>')
    """
    if "&" in text:
        text = unescape(unescape(text))
    text = _ESCAPES.sub(_unescape, _BACKSLASH.sub(r"\\", _HIDDEN.sub("", text)))
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text.translate(_TYPOGRAPHY))
    plain = _QUOTES.sub(r"\1", _SPACE.sub("", text))
    if _SURROGATE.search(plain) is not None:
        plain = plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return plain


def _unescape(found: re.Match[str]) -> str:
    code = int(found[1] or found[2] or "20", 16)
    character = chr(code) if code < 0x110000 else ""
    return "" if character.isspace() or _HIDDEN.match(character) else character


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
            is_attribute = text[at - 1 : at] in ('"', "'") and _K3_HEADER_ENDS.match(rest) is not None
            if is_attribute and self._markers.search(text, max(0, at - _NEXT_TO), at):
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
_K3_HEADER_ENDS: Final = re.compile(r"""['"](?:[a-z]+=["'][^"']{0,20}["'])*<\|sep\|>(?!<\|open\|>)""")
"""The rest of a header in K3's form, and no argument after it."""


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


class QuotationMatch:
    """Whether the arguments of a call may still be a quotation, while they arrive.

    The place in a text only moves forward, so the work is linear in the texts and the arguments.
    """

    __slots__ = ("_differs", "_places", "_raw", "_rest", "_so_far", "_texts")

    def __init__(self, quotations: Quotations) -> None:
        self._texts = quotations.texts
        self._places = [0] * len(self._texts)
        """Where in each text the arguments so far begin; -1: nowhere."""
        self._so_far = ""
        self._rest = ""
        self._raw = TextPieces()
        self._differs = False

    def feed(self, text: str) -> None:
        """More of the arguments."""
        self._raw.append(text)
        text = self._rest + text
        cut = max(len(text) - _UNDECIDED, 0)
        # An escape, an entity or a quoted line may go on in the next piece.
        start = max(text.rfind(sign, cut) for sign in "\\&\n\x1b")
        if (quotes := len(text.rstrip(_RUN))) < len(text):
            start = quotes if start < 0 else min(start, quotes)
        if (low := text.rfind("\\u", max(cut - 8, 0), max(start, 0))) >= 0 and text[low + 2 : low + 3] in "dD":
            start = low  # the first half of a character
        start = len(text[:start].rstrip(_RUN)) if start > 0 else start
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
        if self._differs or any(at >= 0 for at in self._places):
            return not self._differs
        # Escapes that lie on both sides of a piece's end are read right only in the whole.
        raw = "".join(self._raw)
        self._so_far = normalize(raw[: len(raw) - len(self._rest)]).rstrip('"-')
        self._places = [text.find(self._so_far) for text in self._texts]
        self._differs = all(at < 0 for at in self._places)
        return not self._differs
