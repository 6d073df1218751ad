"""Native argument deltas -> what each of them adds, also from hosts that send everything so far each time.

Such a host sends `{"a`, `{"a": "x`, `{"a": "xy"}`. Deltas that only bring what is new
cannot look like that, with rare exceptions (`{"` and `{": 1}` are the object
`{"{": 1}`): there, both readings are followed until one of them is no JSON.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from moonshim.events import Repaired
from moonshim.repair.arguments import SafeArguments
from moonshim.repair.record import ArgumentsRecord
from moonshim.repair.slip import Slip

__all__ = ["CumulativeDeltas"]

_UNDECIDED_LIMIT: Final = 1024
"""How many characters may wait for the two readings to be told apart."""

_Growth: TypeAlias = list[tuple[str, Slip]]
"""What the arguments grow by, each piece with the frame that it came in."""


class CumulativeDeltas:
    """Decides how the deltas of one call add up. At most one reading can ever become a whole object."""

    __slots__ = ("_limit", "_said", "_trial", "_undecided", "is_cumulative", "settled")

    def __init__(self, limit: int) -> None:
        self.settled = False
        """Whether every delta from now on only brings what is new."""
        self.is_cumulative = False
        self._limit = limit
        self._said = ""
        """The first delta; later, where the host repeats itself, all that it has sent."""
        self._undecided: list[tuple[str, Slip | None]] = []
        """Deltas, each with its frame if that waits."""
        self._trial: SafeArguments | None = None
        """Reads the deltas as if each only brought what is new."""

    @property
    def waits(self) -> bool:
        """Whether deltas are held back."""
        return bool(self._undecided)

    def feed(self, text: str, slip: Slip) -> _Growth:
        if self.is_cumulative:
            return self._take_new(text, slip)
        if not self._said:
            self._said = text if text.strip() else ""
            self.settled = bool(self._said) and self._said.lstrip()[0] not in '{"'
            return [(text, slip)]
        last = self._undecided[-1][0] if self._undecided else self._said
        if not text.startswith(last) or len(text) > self._limit:
            return [*self._release(slip), (text, slip)]
        if self._trial is None:
            self._trial = SafeArguments(ArgumentsRecord())
            self._trial.feed(self._said)
            if self._trial.complete:
                # The same object once more, which is a repair of its own.
                return [*self._release(slip), (text, slip)]
        self._trial.feed(text)
        if self._trial.invalid or self._trial.trails:
            self._begin_cumulative(slip)
            return self._take_new(text, slip)
        self._undecided.append((text, slip))
        slip.waiting += 1
        if sum(len(one) for one, _ in self._undecided) > _UNDECIDED_LIMIT:
            return self._release(slip)
        return []

    def finish(self, slip: Slip) -> _Growth:
        """The call is over: what was undecided is the reading that is whole."""
        if not self._undecided:
            return []
        assert self._trial is not None
        self._trial.close()
        if self._trial.complete:
            return self._release(slip)
        text = self._undecided[-1][0]
        self._begin_cumulative(slip)
        return self._take_new(text, slip)

    def leave(self) -> None:
        """No frame waits any longer: what is undecided goes out with a later one."""
        for _, owner in self._undecided:
            if owner is not None:
                owner.waiting -= 1
        self._undecided = [(text, None) for text, _ in self._undecided]

    def _release(self, slip: Slip) -> _Growth:
        growth = [(text, owner if owner is not None else slip) for text, owner in self._undecided]
        self.leave()
        self._undecided, self._trial = [], None
        self.settled = True
        return growth

    def _begin_cumulative(self, slip: Slip) -> None:
        self.leave()
        self._undecided, self._trial = [], None
        self.is_cumulative = True
        slip.put(Repaired("arguments_cumulative", ""))

    def _take_new(self, text: str, slip: Slip) -> _Growth:
        if self._said.startswith(text):
            return []
        if text.startswith(self._said) and len(text) <= self._limit:
            new, self._said = text[len(self._said) :], text
            return [(new, slip)]
        self.settled = True
        return [(text, slip)]
