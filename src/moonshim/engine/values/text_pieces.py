"""Text received in small pieces -> few strings, using little more memory than the text itself."""

from __future__ import annotations

from typing import Final

__all__ = ["TextPieces"]

_FOLD: Final = 64


class TextPieces(list[str]):
    """A list that joins small pieces as they arrive: a string of four characters takes the memory of sixty.

    Joined strings get shorter from first to last, so each character is copied only a few times.

    >>> pieces = TextPieces()
    >>> for piece in ("word " * 1000).split(" "):
    ...     pieces.append(piece)
    >>> "".join(pieces) == "word" * 1000, len(pieces) < 80
    (True, True)
    """

    __slots__ = ("_fresh",)

    def __init__(self) -> None:
        super().__init__()
        self._fresh = 0
        """Number of pieces added since the last join."""

    def append(self, text: str) -> None:
        super().append(text)
        self._fresh += 1
        if self._fresh < _FOLD:
            return
        self._fresh = 0
        self[-_FOLD:] = ["".join(self[-_FOLD:])]
        while len(self) > 1 and len(self[-2]) <= len(self[-1]):
            self[-2:] = ["".join(self[-2:])]
