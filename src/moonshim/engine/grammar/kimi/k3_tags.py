"""Text at a `<|` -> the XTML tag there, no tag, or "more" when it is incomplete.

    open  = "<|open|>" name { " " key "=" '"' value '"' } "<|sep|>"
    close = "<|close|>" name "<|sep|>"

Only the four `<|…|>` are tokens of the model; names and attributes are ordinary text, so some hosts put spaces around
them or lose the `<|sep|>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["ATTRIBUTE_LIMIT", "TAG_LIMIT", "K3Tag", "TagReader", "TagReading"]

TAG_LIMIT: Final = 1024
"""Longest tag including attributes; anything longer is text."""
ATTRIBUTE_LIMIT: Final = 8
"""Maximum number of attributes; Moonshot's tags have at most five."""

_MARKERS: Final = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
_WITH_ATTRIBUTES: Final = frozenset({"open message", "open call", "open argument", "open json"})
_GLUED: Final = {"open call": ("tool", "index", "name", "id"), "open argument": ("key", "type", "name")}
"""Attributes that models have written without the space before the first."""
_MISNAMED: Final = frozenset({"arg", "args", "arguments", "value", "param", "parameter"})
"""Names in the end tag of an argument that models have used."""


class K3Tag(Struct, frozen=True, gc=False):
    """A parsed tag: `key` is `open call`, `close think`, `end_of_msg`; it ends before `end`."""

    key: str
    raw: str
    end: int
    whole: bool
    """Whether its `<|sep|>` was present."""
    attributes: dict[str, str] = {}


TagReading: TypeAlias = K3Tag | Literal["text", "more"]


def _partial_pattern(markers: Iterable[str]) -> str:
    heads = {marker[:size] for marker in markers for size in range(1, len(marker))}
    return "(?:" + "|".join(re.escape(head) for head in sorted(heads, key=len, reverse=True)) + ")"


_SPACE: Final = r"\s{0,8}"
_MARKER: Final = "(?:" + "|".join(map(re.escape, _MARKERS)) + ")"
# A pending tag is parsed again with every chunk, so this must be fast: possessive (`*+`), and few `<` in a value.
_DOUBLE: Final = rf'[^"<]*+(?:(?!{_MARKER})<[^"<]*+){{0,16}}'
_SINGLE: Final = rf"[^'<]*+(?:(?!{_MARKER})<[^'<]*+){{0,16}}"
_BARE: Final = r"""[^\s"'<>=]++"""
_KEY: Final = r"[A-Za-z_][\w\-]*+"
_ATTRIBUTE: Final = rf"""\s{{0,8}}{_KEY}{_SPACE}={_SPACE}(?:"{_DOUBLE}"|'{_SINGLE}'|{_BARE})"""

_HEAD: Final = re.compile(rf"<\|(?:(open|close)\|>{_SPACE}([a-z0-9_\-]*)|end_of_msg\|>)")
_ATTRIBUTES: Final = re.compile(rf"(?:{_ATTRIBUTE}){{0,{ATTRIBUTE_LIMIT}}}")
_ONE: Final = re.compile(rf"""({_KEY}){_SPACE}={_SPACE}(?:"({_DOUBLE})"|'({_SINGLE})'|({_BARE}))""")
_UNREADABLE: Final = re.compile(rf"(?:(?!{_MARKER})[^\n])*")
"""Whatever is written where the attributes belong."""
_TAG_FOLLOWS: Final = re.compile(rf"{_SPACE}<\|(?:open|close)\|>")
_TAG_MAY_FOLLOW: Final = re.compile(rf"{_SPACE}{_partial_pattern(['<|open|>', '<|close|>'])}?\Z")
_TAIL: Final = re.compile(rf"{_SPACE}(?:(<\|sep\|>)|(?=({_MARKER})))")
_SEPARATOR_BEGINS: Final = re.compile(rf"{_SPACE}{_partial_pattern(['<|sep|>'])}?\Z")
_MARKER_BEGINS: Final = re.compile(rf"{_SPACE}{_partial_pattern(_MARKERS)}?\Z")
_ATTRIBUTES_GO_ON: Final = re.compile(
    rf"(?:{_ATTRIBUTE}){{0,{ATTRIBUTE_LIMIT}}}(?:{_SPACE}{_partial_pattern(_MARKERS)}?"
    rf"|\s{{0,8}}{_KEY}{_SPACE}(?:={_SPACE}(?:\"{_DOUBLE}|'{_SINGLE}|{_BARE})?)?)\Z"
)


class TagReader:
    """Recognizes a set of tags. More text never changes a result, except for "more".

    A lost `<|sep|>` is tolerated if the tag has no attributes or the next marker follows; with `elided` (inside
    values, where text may look like a tag) only for those tags, and only before a marker or the end.

    >>> reader = TagReader(["close think", "open call"])
    >>> reader.read("<|close|> think <|sep|>", 0)
    K3Tag(key='close think', raw='<|close|> think <|sep|>', end=23, whole=True, attributes={})
    >>> reader.read("<|close|>thi", 0), reader.read("<|close|>this", 0)
    ('more', 'text')
    """

    __slots__ = ("_elided", "_heads", "_keys")

    def __init__(self, keys: Iterable[str], *, elided: frozenset[str] | None = None) -> None:
        self._keys = frozenset(keys)
        misnamed = [f"close {name}" for name in _MISNAMED] if "close argument" in self._keys else []
        self._heads = frozenset(key[:size] for key in (*self._keys, *misnamed) for size in range(len(key) + 1))
        self._elided = elided

    def read(self, text: str, pos: int, *, final: bool = False) -> TagReading:
        """What is at `pos`. With `final` nothing follows, so a tag may end there without its `<|sep|>`."""
        head = _HEAD.match(text, pos)
        if head is None:
            rest = text[pos : pos + len("<|end_of_msg|>")]
            return "more" if any(marker.startswith(rest) for marker in _MARKERS if marker != "<|sep|>") else "text"
        kind, name = head.groups()
        if kind is None:
            return K3Tag("end_of_msg", head.group(), head.end(), whole=True)
        key, at = f"{kind} {name}", head.end()
        if key not in self._keys and (key not in self._heads or at < len(text)):
            key, at = self._split(key, head.end(2))
            if at < 0:
                return "more" if head.end() == len(text) else "text"
            if self._elided is not None and key == "close argument" and key in self._keys:
                return self._misnamed(text, pos, head.end())
        if key in _WITH_ATTRIBUTES and key in self._keys and at < len(text):
            return self._with_attributes(key, text, pos, at)
        if at == len(text) and not (final and key in self._keys and key not in _WITH_ATTRIBUTES):
            return "more" if key in self._heads else "text"
        return self._plain(key, text, pos, at, final) if key in self._keys else "text"

    def _split(self, key: str, end: int) -> tuple[str, int]:
        """The tag and its end where its name ran into an attribute, or was misspelled; -1: more text may tell."""
        for tag, attributes in _GLUED.items():
            if key.startswith(tag) and tag in self._keys:
                rest = key[len(tag) :]
                if rest in attributes:
                    return tag, end - len(rest)
                if any(one.startswith(rest) for one in attributes):
                    return key, -1
        if key.partition(" ")[2] in _MISNAMED and key.startswith("close") and "close argument" in self._keys:
            return "close argument", end
        return key, end

    @staticmethod
    def _misnamed(text: str, pos: int, at: int) -> TagReading:
        """An end tag with a wrong name inside a value, which may contain anything: another tag has to follow."""
        tail = _TAIL.match(text, at)
        if tail is None:
            return "more" if _SEPARATOR_BEGINS.match(text, at) else "text"
        if tail[1] is None:
            return "text"
        if _TAG_FOLLOWS.match(text, tail.end()):
            return K3Tag("close argument", text[pos : tail.end()], tail.end(), whole=True)
        return "more" if _TAG_MAY_FOLLOW.match(text, tail.end()) else "text"

    def _with_attributes(self, key: str, text: str, pos: int, start: int) -> TagReading:
        found = _ATTRIBUTES.match(text, start)
        at = found.end() if found else start
        tail = _TAIL.match(text, at)
        if tail is not None:
            whole = tail[1] is not None
            if tail.end(1 if whole else 2) - pos > TAG_LIMIT or not (whole or self._elided is None):
                return "text"
            end = tail.end() if whole else at
            return K3Tag(key, text[pos:end], end, whole, _decode_attributes(text, start, at))
        if len(text) - pos <= TAG_LIMIT and _ATTRIBUTES_GO_ON.match(text, start):
            return "more"
        if key not in _GLUED or self._elided is not None:
            return "text"
        # Whatever stands there, it is a call or an argument.
        unreadable = _UNREADABLE.match(text, start)
        at = unreadable.end() if unreadable else start
        if at - pos > TAG_LIMIT:
            return "text"
        if text.startswith("<|sep|>", at):
            end = at + len("<|sep|>")
            return K3Tag(key, text[pos:end], end, True, _decode_attributes(text, start, at))
        return "more" if at == len(text) or "<|sep|>".startswith(text[at:]) else "text"

    def _plain(self, key: str, text: str, pos: int, at: int, final: bool) -> TagReading:
        tail = _TAIL.match(text, at)
        if tail is not None and tail[1] is not None:
            return K3Tag(key, text[pos : tail.end()], tail.end(), whole=True)
        loose = self._elided is None
        if tail is None and (_SEPARATOR_BEGINS if loose else _MARKER_BEGINS).match(text, at):
            if not final or not (loose or key in (self._elided or ())):
                return "more"
            # A truncated separator belongs to its tag; a single `<` may be anything.
            end = len(text) if "<|" in text[at:] else at
            return K3Tag(key, text[pos:end], end, whole=False)
        if loose or (tail is not None and key in (self._elided or ())):
            return K3Tag(key, text[pos:at], at, whole=False)
        return "text"


def _decode_attributes(text: str, start: int, end: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in _ONE.finditer(text, start, end):
        key, double, single, bare = one.groups()
        value = next(part for part in (double, single, bare) if part is not None)
        found.setdefault(key, value.replace("&quot;", '"').replace("&amp;", "&"))
    return found
