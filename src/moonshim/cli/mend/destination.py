"""Mended bytes -> standard output, or files in a folder; at once, completely, and never over an input."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["CannotWrite", "OutputFolder", "StandardOutput", "UnusableFolder"]

Write = Callable[[bytes], None]

_NAMELESS: Final = {"", ".", ".."}


class CannotWrite(Exception):
    """The output cannot be written; the message says where and why."""


class UnusableFolder(Exception):
    """The output folder is not a folder, or writing there would destroy an input."""


class StandardOutput:
    """Everything goes to standard output, one recording after the other. A broken pipe is passed on."""

    def __init__(self) -> None:
        self._last = b"\n"

    def path(self, place: int) -> str | None:
        return None

    def is_input(self, file: str) -> bool:
        """Whether this input is the file that standard output appends to: reading it would never end."""
        if sys.stdout is None:
            return False
        ours = os.fstat(sys.stdout.fileno())
        return stat.S_ISREG(ours.st_mode) and (ours.st_dev, ours.st_ino) in _identities([file])

    @contextmanager
    def open(self, place: int) -> Iterator[Write]:
        if self._last != b"\n":
            self._write(b"\n")  # a response may lack a final newline, and what follows is another document
        yield self._write

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if sys.stdout is None:
            raise CannotWrite("standard output is closed")
        try:
            _write_all(sys.stdout.fileno(), data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CannotWrite(f"cannot write to standard output: {error.strerror}") from None
        self._last = data[-1:]


class OutputFolder:
    """Each recording goes to its own file, under its base name; conflicting names are numbered."""

    def __init__(self, folder: str, files: Sequence[str], others: Iterable[str] = ()) -> None:
        """`others` are also read, and must not be overwritten either."""
        self._paths = [Path(folder) / name for name in _names(files)]
        inputs = _identities([*files, *others])
        for path, file in zip(self._paths, files, strict=True):
            if _identities([str(path)]) & inputs:
                raise UnusableFolder(f"--output {folder}: the output of {file} would overwrite the input {path}")
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise UnusableFolder(f"--output {folder}: not a folder") from None
        except (OSError, ValueError) as error:
            raise UnusableFolder(f"--output {folder}: {getattr(error, 'strerror', None) or error}") from None

    def path(self, place: int) -> str | None:
        return str(self._paths[place])

    def is_input(self, file: str) -> bool:
        return False

    @contextmanager
    def open(self, place: int) -> Iterator[Write]:
        path = self._paths[place]
        try:
            file = path.open("wb", buffering=0)
        except OSError as error:
            raise CannotWrite(f"cannot write to {path}: {error.strerror}") from None

        def write(data: bytes) -> None:
            try:
                _write_all(file.fileno(), data)
            except OSError as error:
                raise CannotWrite(f"cannot write to {path}: {error.strerror}") from None

        with file:
            yield write


def _write_all(descriptor: int, data: bytes) -> None:
    """Unbuffered: readers of a live stream see each piece when it comes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _names(files: Sequence[str]) -> list[str]:
    """
    >>> _names(["a/x.sse", "b/x.sse", "b/X.SSE", "x-2.sse", "-", "/"])
    ['x.sse', 'x-2.sse', 'X-3.SSE', 'x-2-2.sse', 'stdin', 'recording']
    """
    names: list[str] = []
    taken: set[str] = set()
    for file in files:
        base = "stdin" if file == "-" else Path(file).name
        base = "recording" if base in _NAMELESS else base
        name, number = base, 1
        while name.casefold() in taken:  # some file systems ignore case
            number += 1
            name = f"{Path(base).stem}-{number}{Path(base).suffix}"
        taken.add(name.casefold())
        names.append(name)
    return names


def _identities(files: Iterable[str]) -> set[tuple[int, int]]:
    """The identities of these files, by whatever name or link."""
    found: set[tuple[int, int]] = set()
    for file in files:
        try:
            seen = os.fstat(0) if file == "-" else os.stat(file)  # noqa: PTH116 - a name may be empty, Path("") is "."
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(seen.st_mode):
            found.add((seen.st_dev, seen.st_ino))
    return found
