"""Whether to call a server that may be dead: not again right after a failure, and then with a single probe."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Circuit"]


class Circuit:
    """Closed until something fails; then open for `rest` seconds, after which one probe is let through.

    Every `lets_through` that was True is followed by one `settle`.
    """

    def __init__(self, rest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest = rest
        self._clock = clock
        self._failed_at: float | None = None
        self._tried = False
        """A probe is checking whether the server is back."""

    @property
    def is_closed(self) -> bool:
        """Whether everything is let through."""
        return self._failed_at is None

    def lets_through(self) -> bool:
        if self._failed_at is None:
            return True
        if self._tried or self._clock() - self._failed_at < self._rest:
            return False
        self._tried = True
        return True

    def settle(self, *, answered: bool | None) -> None:
        """Report the outcome; None: the call was abandoned, so nothing is known."""
        self._tried = False
        if answered is not None:
            self._failed_at = None if answered else self._clock()
