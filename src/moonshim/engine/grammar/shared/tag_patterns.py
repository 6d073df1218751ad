"""Tags described as a sequence of parts -> a reader that finds them, and the start of one at the end of a text.

Every tag starts with `<`. What is found at a position does not depend on later text, except for "more": an incomplete
tag is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

__all__ = [
    "MORE",
    "NAME_LIMIT",
    "TagMatch",
    "TagPart",
    "TagPattern",
    "TagSet",
    "attribute",
    "chars",
    "either",
    "literal",
    "row",
    "space",
]

NAME_LIMIT: Final = 256
"""Longest tool name or argument key in a tag."""
MORE: Final = "more"
"""The kind of text that may still become a tag."""


class TagPart(Struct, frozen=True):
    """A piece of a tag: the pattern of all of it, and of text that may still become it (possibly empty)."""

    complete: str
    prefix: str


def literal(text: str) -> TagPart:
    prefix = ""
    for char in reversed(text[:-1]):
        prefix = f"(?:{re.escape(char)}{prefix})?"
    return TagPart(re.escape(text), prefix)


def space(most: int = 64) -> TagPart:
    """Optional white space."""
    return TagPart(rf"\s{{0,{most}}}+", rf"\s{{0,{most}}}+")


def chars(inside: str, most: int = NAME_LIMIT) -> TagPart:
    """Some of these characters (the inside of a bracket expression), captured."""
    return TagPart(rf"([{inside}]{{1,{most}}}+)", rf"[{inside}]{{0,{most}}}+")


def either(*parts: TagPart) -> TagPart:
    return TagPart(f"(?:{'|'.join(part.complete for part in parts)})", f"(?:{'|'.join(part.prefix for part in parts)})")


def row(*parts: TagPart) -> TagPart:
    """One part after the other."""
    prefix = parts[-1].prefix
    for part in reversed(parts[:-1]):
        prefix = f"(?:{part.complete}{prefix}|{part.prefix})"
    return TagPart("".join(part.complete for part in parts), prefix)


def attribute(name: str) -> TagPart:
    """`name="value"`; the quotes may be single or missing. The value is captured including quotes."""
    double, single, bare = (rf'[^"<\n]{{0,{NAME_LIMIT}}}+', rf"[^'<\n]{{0,{NAME_LIMIT}}}+", r"""[^\s"'<>=]""")
    value = TagPart(
        rf"""("{double}"|'{single}'|{bare}{{1,{NAME_LIMIT}}}+)""",
        rf"""(?:"{double}|'{single}|{bare}{{0,{NAME_LIMIT}}}+)""",
    )
    return row(literal(name), space(8), literal("="), space(8), value)


class TagPattern(Struct, frozen=True):
    """A kind of tag. With `follows` it is a tag only before that (white space may separate them), or at the very end.

    A `weak` tag is recognized only if no other tag can be: it waits until the others are ruled out.
    """

    kind: str
    part: TagPart
    follows: TagPart | None = None
    weak: bool = False
    at_end: bool = True
    """Whether the end of the input counts as what must follow."""

    @property
    def complete(self) -> str:
        return f"({self.part.complete})" + (
            rf"(?=\s{{0,64}}+{self.follows.complete})" if self.follows is not None else ""
        )

    @property
    def prefix(self) -> str:
        return self.part.prefix if self.follows is None else row(self.part, space(), self.follows).prefix

    @property
    def at_end_of_input(self) -> str:
        assert self.follows is not None
        return rf"({self.part.complete})(?=\s{{0,64}}+{self.follows.prefix}\Z)"


class TagMatch(Struct, frozen=True, gc=False):
    """A tag of this kind, or MORE, from `start` to `end`; `values` are the captures of its parts."""

    kind: str
    start: int
    end: int
    values: tuple[str, ...] = ()


class TagSet:
    """Finds the first of these tags. With `final` no text follows, so a tag need not wait.

    >>> tags = TagSet([TagPattern("call", row(literal("<f="), chars("a-z"), literal(">")))])
    >>> tags.find("a <b> <f=go>", 0), tags.find("a <f=g", 0), tags.find("a <f=1", 0)
    (TagMatch(kind='call', start=6, end=12, values=('go',)), TagMatch(kind='more', start=2, end=6, values=()), None)
    """

    __slots__ = ("_final", "_kinds", "_kinds_final", "_match", "_starts")

    def __init__(self, tags: Sequence[TagPattern], *, starts: str = "<") -> None:
        strong = [(tag.kind, tag.complete) for tag in tags if not tag.weak]
        weak = [(tag.kind, tag.complete) for tag in tags if tag.weak]
        at_end_of_input = [(tag.kind, tag.at_end_of_input) for tag in tags if tag.follows is not None and tag.at_end]
        more = [(MORE, rf"((?:{'|'.join(tag.prefix for tag in tags)})\Z)")]
        self._match, self._kinds = _compile(strong + more + weak)
        self._final, self._kinds_final = _compile(strong + at_end_of_input + weak + more)
        self._starts = re.compile(f"[{re.escape(starts)}]")

    def find(self, text: str, pos: int, *, final: bool = False) -> TagMatch | None:
        for start in self._starts.finditer(text, pos):
            if (seen := self.match_at(text, start.start(), final=final)) is not None:
                return seen
        return None

    def match_at(self, text: str, pos: int, *, final: bool = False) -> TagMatch | None:
        """The tag at this position, if any."""
        found = (self._final if final else self._match).match(text, pos)
        if found is None or found.end() == pos:
            return None
        assert found.lastindex is not None
        kind, inner = (self._kinds_final if final else self._kinds)[found.lastindex]
        values = tuple(value for group in inner if (value := found[group]) is not None)
        return TagMatch(kind, pos, found.end(found.lastindex), values)


def _compile(patterns: list[tuple[str, str]]) -> tuple[re.Pattern[str], dict[int, tuple[str, range]]]:
    """One combined pattern; and, by the group around each: its kind, and the groups inside that are its values."""
    kinds, index = {}, 1
    for kind, pattern in patterns:
        after = index + re.compile(pattern).groups
        kinds[index] = kind, range(index + 1, after if kind != MORE else index + 1)
        index = after
    return re.compile("|".join(pattern for _, pattern in patterns)), kinds
