"""Variables to hide -> an environment for child processes without them, and no trace of them under /proc."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

__all__ = ["environment_without", "erase_from_proc", "forbid_inspection"]

_ENV_START, _ENV_END = 47, 48
"""Fields 50 and 51 of /proc/self/stat, counted from the one after the name of the program (proc(5))."""
_PR_SET_DUMPABLE: Final = 4


def environment_without(hidden: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in hidden}


def erase_from_proc(names: Collection[str]) -> None:
    """Blank the values of these variables in /proc/self/environ (Linux); `os.environ` keeps them.

    That file shows the memory in which the kernel once put the environment, whatever `os.environ` has become since, and
    every program of the same user can read it, including commands from a model.
    """
    if sys.platform != "linux" or not names:
        return
    try:
        import ctypes

        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    except (ImportError, OSError, ValueError, IndexError):
        return
    if not 0 < start < end:
        return
    at = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, equals, value = entry.partition(b"=")
        spelt = os.fsdecode(name)
        if equals and spelt in names:
            if spelt in os.environ:
                os.putenv(spelt, os.environ[spelt])  # C code gets a copy at another address
            ctypes.memset(at + len(name) + 1, 0, len(value))
        at += len(entry) + 1


def forbid_inspection() -> None:
    """Keep other processes of the same user from reading the memory and the environment of this one (Linux).

    This also turns core dumps off. It does not keep out root, or processes with CAP_SYS_PTRACE.
    """
    if sys.platform == "linux":
        try:
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        except (ImportError, OSError, AttributeError):
            return
