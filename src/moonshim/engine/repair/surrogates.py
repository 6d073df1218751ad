"""Joins the two halves of a character that a host cut over two chunks (`"\\ud83d"`, then `"\\ude00"`)."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final

from moonshim.engine.frames import FrameOutput
from moonshim.engine.values.events import Repaired

__all__ = ["SurrogateJoiner"]

_HALF: Final = re.compile("[\ud800-\udfff]")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class SurrogateJoiner:
    """Carries a first half over to the next text of the same field; a half that stays alone becomes U+FFFD."""

    __slots__ = ("carried",)

    def __init__(self) -> None:
        self.carried: dict[Hashable, str] = {}
        """The first halves that wait, by field."""

    def join(self, field: Hashable, text: str, output: FrameOutput) -> str:
        if not self.carried and (text.isascii() or _HALF.search(text) is None):
            return text
        if not text:
            return text
        text = self.carried.pop(field, "") + text
        text = _PAIR.sub(_join_pair, text)
        if text and "\ud800" <= text[-1] <= "\udbff":
            self.carried[field] = text[-1]
            text = text[:-1]
        mended = _HALF.sub("\ufffd", text)
        if mended != text:
            output.events.append(Repaired("lone_surrogate", "half of a surrogate pair, without the other half"))
        return mended

    def flush(self, output: FrameOutput) -> list[tuple[Hashable, str]]:
        """The end: what takes the place of halves in text. (Half a character in arguments is only reported.)"""
        for _ in self.carried:
            output.events.append(Repaired("lone_surrogate", "half of a surrogate pair, without the other half"))
        left: list[tuple[Hashable, str]] = [(field, "\ufffd") for field in self.carried if isinstance(field, str)]
        self.carried.clear()
        return left


def _join_pair(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16", "surrogatepass").decode("utf-16")
