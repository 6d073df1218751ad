"""A process whose event loop has stopped -> its end, by the kernel, so that whatever supervises it can replace it.

Python cannot notice that itself: while one call of C code runs (a regular expression, for example), no signal handler
and no other thread gets a turn. The kernel can. It counts the CPU time of the process, and the event loop restarts that
count every second. Wall time never ends a process: a laptop that slept, or a machine that is overloaded, does not hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
import sys
from typing import Final

__all__ = ["HUNG_EXIT_CODE", "beat"]

HUNG_EXIT_CODE: Final = 27
"""Exit code of a process that was ended because it hung: the number of SIGPROF."""
BEAT_SECONDS: Final = 1.0


async def beat(cpu_seconds: float) -> None:
    """Runs until it is cancelled. If it gets no turn while the process uses this much CPU time, the process ends.

    The process writes where each of its threads was to standard error, and exits with `HUNG_EXIT_CODE`. Also tells
    systemd once a second that the process is alive, if its unit has `WatchdogSec`.
    """
    can_end = _end_on_profiling_signal()
    try:
        while True:
            if can_end:
                signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            notify_watchdog()
            await asyncio.sleep(BEAT_SECONDS)
    finally:
        if can_end:
            signal.setitimer(signal.ITIMER_PROF, 0)


def notify_watchdog() -> None:
    """Tell systemd that this process is alive, if it is the one that systemd watches."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place or "WATCHDOG_USEC" not in os.environ or os.environ.get("WATCHDOG_PID", "") != str(os.getpid()):
        return
    # A leading @ stands for the zero byte of an abstract address.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(b"WATCHDOG=1", "\0" + place[1:] if place.startswith("@") else place)


def _end_on_profiling_signal() -> bool:
    """Whether the kernel will end this process when the timer runs out."""
    if sys.platform == "win32":
        return False
    try:
        libc = ctypes.CDLL(None)
        libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
        # The handler is a C function, which needs no lock of Python's. Not the default action, which is also to end the
        # process: the kernel ignores it in the first process of a container.
        libc.signal(signal.SIGPROF, ctypes.cast(libc._exit, ctypes.c_void_p))
        faulthandler.register(signal.SIGPROF, all_threads=True, chain=True)
    except (AttributeError, OSError, RuntimeError, ValueError):  # another libc, or standard error is closed
        return False
    return True
