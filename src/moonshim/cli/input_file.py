"""The name of an input file -> the opened file. What a command could wait for forever, such as a pipe, is refused."""

from __future__ import annotations

import os
import stat
from io import FileIO
from typing import Final

__all__ = ["open_input"]

_OWN_INPUT: Final = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Files that this process has open: standard input, and what a shell passes for `<(command)`."""


def open_input(name: str) -> FileIO:
    """Open a regular file for reading, without a buffer. Raises `OSError`, or `ValueError` for anything else."""
    if name.startswith(_OWN_INPUT):
        return FileIO(name)
    # Without O_NONBLOCK, opening a pipe would wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = FileIO(name, opener=lambda path, _: os.open(path, flags))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("not a regular file. Use - to read from a pipe on standard input")
    return file
