"""The terminal that a process was started in -> whether SIGHUP means that it was closed, or asks for a reload."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Final

__all__ = ["StartingTerminal"]

_CONTROLLING_TERMINAL: Final = "/dev/tty"


class StartingTerminal:
    """The controlling terminal at the time this is created. Create it before SIGHUP gets a handler.

    A process that was started to ignore hangups (nohup), or without a terminal (a service, a container), has none.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        hangup = getattr(signal, "SIGHUP", None)
        if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
            with suppress(OSError):
                # Held open: a file on a terminal that has hung up fails at once, whatever opens under that name later.
                self._file = os.open(_CONTROLLING_TERMINAL, os.O_RDONLY | os.O_NOCTTY)

    def is_gone(self) -> bool:
        """Whether there was a terminal, and it was closed."""
        if self._file is None:
            return False
        try:
            os.tcgetpgrp(self._file)
        except OSError:
            return True
        return False

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
