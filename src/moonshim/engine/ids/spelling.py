"""One tool call id -> its canonical form, or the form of a provider.

Every function depends on its arguments only and returns an id that is valid for its provider. `UniqueIds` keeps them
unique.

| form | looks like | characters | at most |
|---|---|---|---|
| canonical | `hist_tool_*` | letters, digits, `_`, `-` | |
| standard | `call_*` | letters, digits, `_`, `-` | 40: OpenAI has refused longer ones |
| anthropic | `toolu_*` | letters, digits, `_`, `-`; others become `-` | 64 |
| mistral | nine characters | letters and digits | 9, exactly |
| kimi | `functions.name:3` | the tool's name as it is | index of nine digits |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

__all__ = [
    "CANONICAL",
    "K2_MAX_INDEX",
    "NAMELESS",
    "CanonicalIds",
    "UniqueIds",
    "add_client_suffix",
    "anthropic_id",
    "canonical_id",
    "digest",
    "k2_id",
    "k2_index",
    "mistral_id",
    "standard_id",
]

CANONICAL: Final = "hist_tool_"
STANDARD: Final = "call_"
ANTHROPIC: Final = "toolu_"
STANDARD_LIMIT: Final = 40
ANTHROPIC_LIMIT: Final = 64
K2_MAX_INDEX: Final = 999_999_999
"""A number with more digits is not an index that a model counted."""
NAMELESS: Final = "unknown"
"""Replaces the name in the id of a call without one: `functions.:3` cannot be parsed back."""

_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def canonical_id(wire_id: str) -> str:
    """The form used in stored histories, whatever provider the id came from.

    >>> canonical_id("call_abc"), canonical_id("toolu_abc"), canonical_id("functions.read_file:3")
    ('hist_tool_abc', 'hist_tool_abc', 'hist_tool_functionsread_file3')
    """
    return CANONICAL + _clean(wire_id)


def standard_id(wire_id: str, mark: str = "") -> str:
    """The form `call_*`, which OpenAI and most hosts use.

    >>> standard_id("hist_tool_abc123"), standard_id("toolu_a.b"), standard_id("unknown_1")
    ('call_abc123', 'call_ab', 'call_unknown_1')
    """
    return _fit(STANDARD, _clean(wire_id), mark, STANDARD_LIMIT, wire_id)


def anthropic_id(wire_id: str, mark: str = "") -> str:
    """The form `toolu_*`. Ids of tools that Anthropic runs itself have another form, which is kept.

    >>> anthropic_id("call_abc.1"), anthropic_id("functions.ls:0"), anthropic_id(""), anthropic_id("call_a", "_2")
    ('toolu_abc-1', 'toolu_functions-ls-0', 'toolu_empty', 'toolu_a__2')
    """
    if wire_id.startswith("srvtoolu_") and not mark and not _OTHER.search(wire_id) and len(wire_id) <= ANTHROPIC_LIMIT:
        return wire_id
    return _fit(
        ANTHROPIC, _OTHER.sub("-", _body(wire_id)) or "empty", add_client_suffix("", mark), ANTHROPIC_LIMIT, wire_id
    )


def add_client_suffix(id: str, mark: str) -> str:
    """An id for a Messages client, with a suffix after an additional `_`.

    Claude Code (2.1.325) treats `toolu_a_2` as a copy of `toolu_a` and loses its result.

    >>> add_client_suffix("toolu_a", ""), add_client_suffix("toolu_a", "_2")
    ('toolu_a', 'toolu_a__2')
    """
    return f"{id}_{mark}" if mark else id


def mistral_id(wire_id: str, mark: str = "") -> str:
    """Nine letters and digits: the id itself if it has that form, otherwise a digest of it.

    >>> mistral_id("D681PevKs"), len(mistral_id("call_abc"))
    ('D681PevKs', 9)
    """
    if not mark and _NINE.fullmatch(wire_id):
        return wire_id
    # Providers rename: `call_abc` and its canonical form are the same id.
    number = int.from_bytes(_hash(_body(wire_id), mark)[:8], "big")
    letters = []
    for _ in range(9):
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    return "".join(letters)


def k2_id(name: str, index: int, prefix: str = "functions") -> str:
    """The form that K2 models write and expect.

    >>> k2_id("read_file", 3)
    'functions.read_file:3'
    """
    return f"{prefix}.{name or NAMELESS}:{index}"


def k2_index(wire_id: str, prefix: str = "functions", name: str | None = None) -> int | None:
    """The index in a K2 id (of the tool `name`, if given), or None if it is not one.

    >>> k2_index("functions.read_file:3"), k2_index("functions.a:3", name="b"), k2_index("functions.a:007")
    (3, None, None)
    """
    if not wire_id.startswith(prefix + "."):
        return None
    called, colon, digits = wire_id[len(prefix) + 1 :].rpartition(":")
    if not colon or not called or (name is not None and called != (name or NAMELESS)):
        return None
    return int(digits) if _INDEX.fullmatch(digits) else None


def digest(wire_id: str, mark: str = "") -> str:
    """Ten characters that stand for an id."""
    return _hash(wire_id, mark).hex()[:10]


def _hash(wire_id: str, mark: str) -> bytes:
    # Hosts do send lone surrogates; they must not raise here.
    return hashlib.sha256(f"{wire_id}\0{mark}".encode("utf-8", "surrogatepass")).digest()


def _body(wire_id: str) -> str:
    for prefix in (CANONICAL, STANDARD, ANTHROPIC):
        if wire_id.startswith(prefix):
            return wire_id[len(prefix) :]
    return wire_id


def _clean(wire_id: str) -> str:
    body = _body(wire_id)
    # An id without a single usable character still differs from an empty one.
    return _OTHER.sub("", body) or (digest(body) if body else "")


def _fit(prefix: str, body: str, mark: str, limit: int, wire_id: str) -> str:
    candidate = prefix + body + mark
    if len(candidate) <= limit:
        return candidate
    tail = "_" + digest(wire_id, mark)
    return prefix + body[: limit - len(prefix) - len(tail)] + tail


class UniqueIds:
    """Hands out ids that never repeat: the first caller gets the plain one, later ones get a suffix.

    Linear: however often the same id is requested, no attempt is made twice.

    >>> ids = UniqueIds()
    >>> [ids.take(lambda mark: "a" + mark) for _ in range(3)]
    ['a', 'a_2', 'a_3']
    """

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, spell: Callable[[str], str]) -> str:
        """The first free spelling; it is in use from now on."""
        plain = candidate = spell("")
        if plain in self.taken:
            number = self._next.get(plain, 2)
            while (candidate := spell(f"_{number}")) in self.taken:
                number += 1
            self._next[plain] = number + 1
        self.taken.add(candidate)
        return candidate


class CanonicalIds:
    """Maps wire ids to canonical ids: equal to equal, different to different.

    The canonical id of a wire id depends only on the wire ids before it.

    >>> ids = CanonicalIds()
    >>> ids.resolve("call_ab"), ids.resolve("call_a.b"), ids.resolve("call_ab")
    ('hist_tool_ab', 'hist_tool_ab_2', 'hist_tool_ab')
    """

    def __init__(self) -> None:
        self._distinct = UniqueIds()
        self._known: dict[str, str] = {}

    def resolve(self, wire_id: str) -> str:
        """The canonical id of a wire id."""
        known = self._known.get(wire_id)
        if known is None:
            known = self._known[wire_id] = self.new(wire_id)
        return known

    def new(self, wire_id: str) -> str:
        """An unused canonical id, for another call under a wire id that was used before."""
        return self._distinct.take(lambda mark: canonical_id(wire_id) + mark)

    def reserve(self, canonical: str) -> None:
        """Mark a canonical id as in use."""
        self._distinct.taken.add(canonical)
