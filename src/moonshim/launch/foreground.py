"""A command -> its exit code, with the terminal, the signals and the job control of the client itself."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Final

__all__ = ["exit_like", "run_foreground"]

_FORWARDED: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)
)
"""Signals that somebody sends to the launcher and means the client."""
_FORWARD_SECONDS: Final = 0.2
_FROM_TERMINAL: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGQUIT") if hasattr(signal, name))
"""Signals that a terminal sends to both: the client decides what they mean."""


def run_foreground(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a client in the foreground; negative for a client that was ended by a signal, as in `subprocess`.

    It stays in the launcher's process group: the terminal sends it Ctrl-C, Ctrl-Z and changes of size directly, and a
    shell stops and continues both together.
    """
    with _handled() as forward:
        process = subprocess.Popen(list(command), env=dict(env))
        forward.append(process)
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # before the handler was set
                continue


@contextlib.contextmanager
def _handled() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Forward signals to the processes in the list. A new process does not inherit the handlers, unlike `SIG_IGN`."""
    processes: list[subprocess.Popen[bytes]] = []

    def send(number: int) -> None:
        for process in processes:
            with contextlib.suppress(OSError):
                process.send_signal(number)

    def forward(number: int, _frame: FrameType | None) -> None:
        # `kill %1` and a closed terminal signal the whole group: a client that is about to end needs no second one.
        timer = threading.Timer(_FORWARD_SECONDS, send, (number,))
        timer.daemon = True
        timer.start()

    def leave_to_client(number: int, _frame: FrameType | None) -> None:
        pass

    handlers: dict[int, Any] = {number: forward for number in _FORWARDED if signal.getsignal(number) != signal.SIG_IGN}
    handlers |= dict.fromkeys(_FROM_TERMINAL, leave_to_client)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield processes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_like(code: int) -> int:
    """The exit code for the launcher. If a signal ended the client, the same signal ends the launcher here."""
    if code >= 0:
        return code
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to reset
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code
