"""Calls of read_file, write_file and edit_file -> changes to the files of a folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from moonshim.agent.toolbox.folder import WorkingFolder
from moonshim.agent.toolbox.text_files import LARGEST, LOOKED_AT, TextFile, looks_binary, read_text_file, write_bytes
from moonshim.agent.tools import ToolFailed

__all__ = ["Files"]

_LONGEST_LINE: Final = 2000
_LINES: Final = 2000
_PLACES_SHOWN: Final = 10


class Files:
    """The files of one folder. Every failure raises a `ToolFailed` that says what to do instead."""

    def __init__(self, folder: WorkingFolder, limit: int) -> None:
        self._folder = folder
        self._limit = limit

    def read_file(self, path: str, offset: int = 1, limit: int = _LINES) -> str:
        """Read a text file. Each line is prefixed with its line number and a tab, which are not part of the file.

        Args:
            path: The file: a path relative to the working directory, or an absolute path.
            offset: The line number to start at.
            limit: The maximum number of lines to read.
        """
        found = self._folder.find_file(path)
        if offset < 1 or limit < 1:
            raise ToolFailed("Error: offset and limit must be 1 or more.")
        lines, note = _lines_of(found, path)
        text = self._number_lines(lines, offset, min(limit, _LINES))
        return text + note

    def _number_lines(self, lines: Iterable[str], offset: int, most: int) -> str:
        shown: list[str] = []
        number, size = 0, 0
        for number, line in enumerate(lines, start=1):
            if number < offset:
                continue
            if len(shown) == most or size > self._limit:
                shown.append(f"\n(More lines follow. Continue with offset={number}.)")
                return "\n".join(shown)
            one = f"{number:>6}\t{_shorten(line)}"
            shown.append(one)
            size += len(one) + 1
        if not number:
            return "(The file is empty.)"
        if not shown:
            raise ToolFailed(f"Error: the file has only {number} lines.")
        return "\n".join(shown)

    def write_file(self, path: str, content: str) -> str:
        """Create a file, or replace the content of an existing one. Missing folders are created.

        Args:
            path: The file: a path relative to the working directory, or an absolute path.
            content: The complete content of the file.
        """
        found = self._folder.find(path)
        existed = self._folder.mode_of(found, path) is not None
        if existed:
            self._folder.find_file(path)
        data = TextFile("").encode(content)
        write_bytes(found, data, path)
        word = "Replaced" if existed else "Wrote"
        return f"{word} {self._folder.display(found)}: {_count(content.splitlines())}, {len(data)} bytes."

    def edit_file(self, path: str, old_string: str, new_string: str, replace_all: bool = False) -> str:
        """Replace text in a file. The old text must occur exactly once, unless replace_all is set.

        Args:
            path: The file: a path relative to the working directory, or an absolute path.
            old_string: The text to replace, exactly as it is in the file, including indentation but without line
                numbers. Include enough surrounding lines to make it unique.
            new_string: The new text.
            replace_all: Replace every occurrence.
        """
        found = self._folder.find_file(path)
        if not old_string:
            raise ToolFailed("Error: old_string is empty. Use write_file to create a file.")
        if old_string == new_string:
            raise ToolFailed("Error: old_string and new_string are identical.")
        file = read_text_file(found, path)
        if file.is_crlf or (old_string not in file.text and file.line_end == "\r\n"):
            # Models write line endings as \n, whatever the file has; also where only the new text has one.
            old_string, new_string = (re.sub("\r?\n", "\r\n", text) for text in (old_string, new_string))
        places = _occurrences(file.text, old_string)
        if not places:
            raise ToolFailed(f"Error: old_string is not in {path}.{_similar_lines(file.text, old_string)}")
        if len(places) > 1 and not replace_all:
            lines = ", ".join(str(_line_at(file.text, place)) for place in places[:_PLACES_SHOWN])
            raise ToolFailed(
                f"Error: old_string occurs {len(places)} times in {path} (lines {lines}). "
                "Include more surrounding lines so that it is unique, or set replace_all."
            )
        write_bytes(found, file.encode(file.text.replace(old_string, new_string)), path)
        if len(places) > 1:
            return f"Edited {self._folder.display(found)} in {len(places)} places."
        return f"Edited {self._folder.display(found)} at line {_line_at(file.text, places[0])}."


def _lines_of(path: Path, shown: str) -> tuple[Iterable[str], str]:
    """The lines of a file, and a note on how they were read."""
    try:
        large = path.stat().st_size > LARGEST
    except OSError as error:
        raise ToolFailed(f"Error: cannot read {shown}: {error.strerror}.") from error
    if large:
        return _stream_lines(path, shown), ""
    file = read_text_file(path, shown)
    text = file.text.replace("\r\n", "\n").removesuffix("\n")
    note = "" if file.encoding == "utf-8" else f"\n\n(The file is encoded in {file.encoding}.)"
    return (text.split("\n") if file.text else []), note


def _stream_lines(path: Path, shown: str) -> Iterator[str]:
    """Line by line, reading only the beginning of each: a file may be one line of a gigabyte."""
    try:
        with path.open("rb") as file:
            if looks_binary(file.peek(LOOKED_AT)):
                raise ToolFailed(f"Error: {shown} is a binary file.")
            while piece := file.readline(LARGEST):
                line = piece[: _LONGEST_LINE * 4].decode("utf-8", "replace").rstrip("\r\n")
                while piece and not piece.endswith(b"\n"):
                    piece = file.readline(LARGEST)
                yield line
    except OSError as error:
        raise ToolFailed(f"Error: cannot read {shown}: {error.strerror}.") from error


def _shorten(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} … (line truncated)"


def _count(lines: list[str]) -> str:
    return "1 line" if len(lines) == 1 else f"{len(lines)} lines"


def _occurrences(text: str, wanted: str) -> list[int]:
    places: list[int] = []
    at = text.find(wanted)
    while at >= 0:
        places.append(at)
        at = text.find(wanted, at + len(wanted))
    return places


def _line_at(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _similar_lines(text: str, wanted: str) -> str:
    """Where the text matches apart from white space: what models get wrong most."""
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")
    if not first:
        return " It must match exactly, including white space."
    for number, line in enumerate(text.splitlines(), start=1):
        if first in line.strip():
            return (
                f" Its first line is at line {number}: {_shorten(line)!r}. "
                "The text must match exactly, including white space and line endings. Read the file again."
            )
    return " The text must match exactly. Read the file again."
