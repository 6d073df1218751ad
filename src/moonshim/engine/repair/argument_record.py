"""Remembers the arguments of a call well enough to know them again, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from hashlib import blake2b as Digest  # noqa: N812

__all__ = ["ArgumentsRecord", "RecordKey"]

RecordKey: TypeAlias = bytes | str | tuple[int, bytes]
"""The same for arguments that are the same JSON."""

_PIECES: Final = 32
_KEPT: Final = 8 * 1024
_START: Final = 256
"""How much of longer arguments is kept."""


class ArgumentsRecord:
    """What a call's arguments were: the text itself while it is short, its digest when it is long."""

    __slots__ = ("_digest", "_kept", "_size", "pieces")

    PIECES: Final = _PIECES

    def __init__(self) -> None:
        self.pieces: list[str] = []
        """Text not yet settled; the hot path appends here and settles when there are `PIECES`."""
        self._kept = ""
        self._digest: Digest | None = None
        self._size = 0

    def add(self, text: str) -> None:
        self.pieces.append(text)
        if len(self.pieces) >= _PIECES:
            self.settle()

    def settle(self) -> None:
        """Fold the pieces into the text, or into the digest."""
        joined = "".join(self.pieces)
        self.pieces.clear()
        self._size += len(joined)
        if self._digest is None and self._size <= _KEPT:
            self._kept += joined
            return
        if self._digest is None:
            # Long arguments are rare, and most programs that import us never see any.
            from hashlib import blake2b

            self._digest = blake2b(digest_size=16)
            joined = self._kept + joined
            self._kept = joined[:_START]
        self._digest.update(joined.encode("utf-8", "surrogatepass"))

    @property
    def key(self) -> RecordKey:
        """What arguments are compared by: short ones as JSON, long ones as text."""
        self.settle()
        if self._digest is not None:
            return self._size, self._digest.digest()
        canonical = _canonical(self._kept)
        return self._kept if canonical is None else canonical

    @property
    def has_empty_key(self) -> bool:
        """Whether the object has a value without a key; not known of long ones."""
        self.settle()
        if self._digest is not None or '""' not in self._kept:
            return False
        try:
            return "" in msgspec.json.decode(self._kept, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return False

    def same_as(self, other: ArgumentsRecord) -> bool:
        """Whether both are the same JSON; long ones must be the same text."""
        return self.key == other.key

    def sample(self) -> tuple[str, float]:
        """What was kept of the text, and how many times longer all of it is."""
        self.settle()
        return self._kept, self._size / len(self._kept) if self._kept else 1

    @property
    def size(self) -> int:
        return self._size + sum(map(len, self.pieces))

    @property
    def is_empty(self) -> bool:
        """Whether they are `{}`."""
        return self.size < _START and "".join((self._kept + "".join(self.pieces)).split()) == "{}"

    def may_begin(self, text: str) -> bool:
        """Whether a text begins with these arguments; of long ones, whether it begins like them."""
        self.settle()
        return bool(self._kept) and text.startswith(self._kept)

    @classmethod
    def of(cls, text: str) -> ArgumentsRecord:
        record = cls()
        record.add(text)
        return record


def _canonical(text: str) -> bytes | None:
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
