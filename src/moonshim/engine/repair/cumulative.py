"""Native argument deltas -> what each of them adds, also from hosts that send everything so far each time.

Such a host sends `{"a`, `{"a": "x`, `{"a": "xy"}`. Deltas that only bring what is new
rarely look like that (`{"` and `{": 1}` are the object `{"{": 1}`). So from the first
delta that begins with everything said so far, there are two readings: every delta is
new, or those that begin with everything said so far repeat it. Both are followed until
one of them is no JSON, or the call ends; then the one that is whole is right.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from moonshim.engine.frames import FrameOutput
from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.repair.arguments import SafeArguments
from moonshim.engine.values.events import Repaired
from moonshim.engine.values.text_pieces import TextPieces

__all__ = ["CumulativeDeltas", "is_placeholder"]

_DELTA_COST: Final = 64
"""As how many characters an undecided delta counts, whatever is in it: only its place in the text is kept."""

_PLACEHOLDER: Final = re.compile(r'\s*+\{\s*+\}\s*+|[^{\["]*+')

_Growth: TypeAlias = list[tuple[str, FrameOutput]]
"""What the arguments grow by, each piece with the frame that it came in."""


def is_placeholder(text: str) -> bool:
    """Whether the real arguments may still come: `{}`, `null`, or words.

    >>> [is_placeholder(text) for text in ("{}", "null", " ", "{", '{"a": 1}', '"')]
    [True, True, True, False, False, False]
    """
    return _PLACEHOLDER.fullmatch(text) is not None


class CumulativeDeltas:
    """Decides how the deltas of one call add up, without ever guessing: what cannot be decided is `lost`."""

    __slots__ = (
        "_appended",
        "_limit",
        "_repeated",
        "_sent",
        "_size",
        "_text",
        "_undecided",
        "begun",
        "is_cumulative",
        "lost",
        "settled",
    )

    def __init__(self, limit: int) -> None:
        self.begun: bool = False
        """Whether more than a placeholder has come."""
        self.settled: bool = False
        """Whether every delta from now on only brings what is new."""
        self.is_cumulative: bool = False
        self.lost: bool = False
        """Whether the arguments can no longer be known: the call fails."""
        self._limit = limit
        self._text = TextPieces()
        """The arguments so far, if deltas that begin with all of them repeat them."""
        self._size = 0
        self._sent = 0
        """How much of this has been given out."""
        self._undecided: list[tuple[int, int, FrameOutput | None]] = []
        """Deltas: where each begins and ends in the text so far, and its frame if that waits."""
        self._appended: SafeArguments | None = None
        """Reads the deltas as if each only brought what is new."""
        self._repeated: SafeArguments | None = None
        """Reads the deltas as if some repeated the text so far."""

    @property
    def waits(self) -> bool:
        """Whether deltas are held back."""
        return bool(self._undecided)

    def feed(self, text: str, output: FrameOutput) -> _Growth:
        if self.lost:
            return []
        if not self.begun:
            if not is_placeholder(text):
                self.begun = True
                self._append(text)
                self._sent = self._size
            return [(text, output)]
        repeats = len(text) >= self._size and text.startswith("".join(self._text))
        if not self.is_cumulative and not self._undecided and not (repeats and self._begin_trial()):
            self.settled = True
            return [(text, output)]
        start = 0 if repeats else self._size
        new = text[self._size :] if repeats else text
        if repeats:
            self._text, self._size = TextPieces(), 0
        self._append(text)
        if self.is_cumulative:
            return self._take_new(output, new)
        return self._compare(text, new, start, output)

    def finish(self, output: FrameOutput) -> _Growth:
        """The call is over: what was undecided is the reading that is whole."""
        if not self._undecided:
            return []
        assert self._appended is not None
        assert self._repeated is not None
        self._appended.close()
        self._repeated.close()
        if self._appended.complete and self._repeated.complete:
            self._give_up()
            return []
        return self._release(output) if self._appended.complete else self._begin_cumulative(output)

    def release_all(self) -> None:
        """No frame waits any longer: what is undecided goes out with a later one."""
        for _, _, owner in self._undecided:
            if owner is not None:
                owner.waiting -= 1
        self._undecided = [(start, end, None) for start, end, _ in self._undecided]

    def _append(self, text: str) -> None:
        self._text.append(text)
        self._size += len(text)

    def _begin_trial(self) -> bool:
        """Follow both readings from here; not if the object is whole: the same once more is a repair of its own."""
        said = "".join(self._text)
        self._appended, self._repeated = SafeArguments(ArgumentsRecord()), SafeArguments(ArgumentsRecord())
        self._appended.feed(said)
        self._repeated.feed(said)
        return not self._appended.complete

    def _compare(self, text: str, new: str, start: int, output: FrameOutput) -> _Growth:
        assert self._appended is not None
        assert self._repeated is not None
        self._undecided.append((start, self._size, output))
        output.waiting += 1
        self._appended.feed(text)
        self._repeated.feed(new)
        if self._appended.invalid or self._appended.trails:
            return self._begin_cumulative(output)
        if self._repeated.invalid or self._repeated.trails:
            return self._release(output)
        if self._size + _DELTA_COST * len(self._undecided) > self._limit:
            self._give_up()
            output.events.append(Repaired("buffer_limit", "arguments that may repeat themselves"))
        return []

    def _release(self, output: FrameOutput) -> _Growth:
        said = "".join(self._text)
        growth = [(said[start:end], owner if owner is not None else output) for start, end, owner in self._undecided]
        self._forget()
        self.settled = True
        return growth

    def _begin_cumulative(self, output: FrameOutput) -> _Growth:
        self._forget()
        self.is_cumulative = True
        output.events.append(Repaired("arguments_cumulative", ""))
        return self._take_new(output, "".join(self._text)[self._sent :])

    def _take_new(self, output: FrameOutput, new: str) -> _Growth:
        self._sent = self._size
        if self._size > self._limit:
            self._give_up()
            output.events.append(Repaired("buffer_limit", "arguments that repeat themselves"))
            return []
        return [(new, output)] if new else []

    def _give_up(self) -> None:
        self._forget()
        self._text = TextPieces()
        self.lost = True

    def _forget(self) -> None:
        self.release_all()
        self._undecided, self._appended, self._repeated = [], None, None
