"""The events of a response -> those for a client that turned thinking off, from a model that thinks all the same.

The host was asked for more tokens than the client wants (`request.thinking.add_headroom`), because reasoning shares the
limit. So the limit of the client is applied here, to what it sees.
"""

from __future__ import annotations

import re
from typing import Final, assert_never

from msgspec.structs import replace

from moonshim.engine.tokens import mean_tokens
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    Event,
    Failed,
    Finished,
    Opaque,
    Repaired,
    Started,
)

__all__ = ["VisibleOutput"]

_CALL_TOKENS: Final = 4
"""What a model writes around a call, besides its name and arguments."""
_MARGIN: Final = 1.1
"""The estimate is some percent off. A few tokens more harm nobody, and a response that was complete must not be cut."""
_SETTLED: Final = 512
"""Characters that are counted together: their sum is more exact than that of single words, and the work is bounded."""
_WORD: Final = re.compile(r"\s*(?:[!-~]{1,16}|[^\s!-~]{1,2})|\s+")


class VisibleOutput:
    """One choice: reasoning is left out, and the rest ends where the limit is reached, with the finish reason `length`.

    Tokens are estimated, as there is no vocabulary here. The host writes on until its own limit; what comes after the
    end is dropped.
    """

    __slots__ = ("_counter", "_is_hidden", "_open", "_shown")

    def __init__(self, limit: int | None) -> None:
        """`limit`: the tokens that the client asked for; None: it set no limit."""
        self._counter = None if limit is None else _TokenCounter(limit)
        self._shown: set[int] = set()
        """The blocks that are open for the client."""
        self._open: dict[int, bool] = {}
        self._is_hidden = False

    def feed(self, event: Event) -> list[Event]:
        match event:
            case BlockOpened(kind="reasoning"):
                first, self._is_hidden = not self._is_hidden, True
                return [Repaired("reasoning_hidden", "the client turned thinking off")] if first else []
            case BlockOpened(index=index):
                if self._is_full:
                    return []
                self._shown.add(index)
                if event.kind == "call" and self._counter is not None:
                    self._counter.count_call(event.name or "")
                return [event]
            case BlockDelta(index=index, text=text):
                return self._grow(event, text) if index in self._shown else []
            case BlockSigned(index=index):
                return [event] if index in self._shown else []
            case BlockClosed(index=index):
                if index not in self._shown:
                    return []
                self._shown.discard(index)
                return [event]
            case Finished():
                return [replace(event, reason="length", stop_sequence=None)] if self._is_full else [event]
            case Started() | Repaired() | Failed() | Opaque():
                return [event]
            case _:
                assert_never(event)

    @property
    def _is_full(self) -> bool:
        return self._counter is not None and self._counter.is_full

    def _grow(self, event: BlockDelta, text: str) -> list[Event]:
        if self._counter is None:
            return [event]
        fitting = self._counter.take(text)
        if not self._counter.is_full:
            return [event]
        grown: list[Event] = [BlockDelta(event.index, fitting)] if fitting else []
        # An unfinished call must not be run.
        closed = [BlockClosed(index, complete=False) for index in sorted(self._shown)]
        self._shown.clear()
        detail = f"ended at the client's limit of {self._counter.limit} tokens"
        return [*grown, *closed, Repaired("output_limit", detail)]


class _TokenCounter:
    """Takes text as long as it fits into a limit of tokens. The work is linear in the text."""

    __slots__ = ("_counted", "_most", "_text", "is_full", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._most = limit * _MARGIN
        self.is_full = False
        """Whether something did not fit."""
        self._counted = 0.0
        self._text = ""
        """What is not part of `_counted` yet."""

    def count_call(self, name: str) -> None:
        self._counted += _CALL_TOKENS + mean_tokens(name)

    def take(self, text: str) -> str:
        """The part that fits."""
        for start in range(0, len(text), _SETTLED):
            piece = text[start : start + _SETTLED]
            fitting = self._take(piece)
            if fitting < len(piece):
                self.is_full = True
                return text[: start + fitting]
        return text

    def _take(self, piece: str) -> int:
        """How many characters of a short piece fit."""
        # A token has at least one byte.
        left = self._most - self._counted
        if len((self._text + piece).encode("utf-8", "surrogatepass")) > left:
            at = 0
            for word in _WORD.findall(piece):
                if self._counted + mean_tokens(self._text + word) > self._most:
                    return at
                at += len(word)
                self._add(word)
            return at
        self._add(piece)
        return len(piece)

    def _add(self, text: str) -> None:
        self._text += text
        if len(self._text) > _SETTLED:
            self._counted += mean_tokens(self._text)
            self._text = ""
