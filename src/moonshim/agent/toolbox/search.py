"""Calls of glob and grep -> the matching files and lines of a folder, bounded in number, size and time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import Any, Final

from moonshim.agent.toolbox import walking
from moonshim.agent.toolbox.folder import WorkingFolder
from moonshim.agent.toolbox.process_environment import environment_without
from moonshim.agent.tools import ToolFailed

__all__ = ["Search"]

_MOST_FILES: Final = 1000
_LOOKED_AT: Final = 500_000
"""How many files glob examines before it gives up."""
_MOST_LINES: Final = 500
_MOST_CONTEXT: Final = 10
_LONGEST_PATTERN: Final = 1000
"""Characters of a glob pattern: the cost of parsing one grows with their square."""
_SECONDS: Final = 30.0
_LONGEST_ANSWER: Final = 64 * 1024
"""Bytes of a line that the search process writes."""


class Search:
    """Searches one folder, without `.git` and the like."""

    def __init__(
        self, folder: WorkingFolder, limit: int, seconds: float = _SECONDS, *, hidden: Collection[str] = ()
    ) -> None:
        self._folder = folder
        self._limit = limit
        self._seconds = seconds
        self._hidden = hidden

    def glob(self, pattern: str, path: str = ".") -> str:
        """Find files by name, in a folder and its subfolders.

        Args:
            pattern: `*.py` matches file names in any folder; `src/**/*.ts` matches files anywhere under src;
                `{a,b}` matches either.
            path: The folder to search.
        """
        base = self._folder.find_folder(path)
        if not pattern.strip():
            raise ToolFailed("Error: the pattern is empty.")
        _check_length(pattern)
        if pattern.startswith("/"):
            raise ToolFailed("Error: the pattern cannot start with /. Set path to the folder to search.")
        fits = walking.matcher(pattern)
        files = islice(walking.walk(self._root, str(base)), _LOOKED_AT)
        found = list(islice((full for inner, full in files if fits(inner)), _MOST_FILES + 1))
        if not found:
            return f"No files match {pattern}."
        lines = [self._folder.display(Path(full)) for full in found[:_MOST_FILES]]
        if len(found) > _MOST_FILES:
            lines.append(f"\n(More than {_MOST_FILES} files match. Use a narrower pattern.)")
        return "\n".join(lines)

    async def grep(
        self, pattern: str, path: str = ".", glob: str = "", ignore_case: bool = False, context: int = 0
    ) -> str:
        """Find lines that match a regular expression (Python syntax), in a file or in all text files of a folder.

        Args:
            pattern: The regular expression, matched against single lines.
            path: The file or folder to search.
            glob: Search only files that match this pattern, such as `*.py`.
            ignore_case: Ignore upper and lower case.
            context: The number of lines to show before and after each match.
        """
        base = self._folder.find(path)
        if self._folder.mode_of(base, path) is None:
            raise ToolFailed(f"Error: {path} does not exist.")
        if not pattern:
            raise ToolFailed("Error: the pattern is empty.")
        _check_length(glob)
        query = {
            "root": self._root,
            "base": str(base),
            "pattern": pattern,
            "glob": glob,
            "ignore_case": ignore_case,
            "context": min(max(context, 0), _MOST_CONTEXT),
        }
        lines, note = await self._run_search(query)
        if not lines:
            return f"No lines match {pattern}.{note}"
        return "\n".join(lines) + note

    @property
    def _root(self) -> str:
        """Where links may lead to; empty: anywhere."""
        return "" if self._folder.outside else str(self._folder.root)

    async def _run_search(self, query: dict[str, Any]) -> tuple[list[str], str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", walking.__file__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment_without(self._hidden),  # a command that runs at the same time could read it
            limit=_LONGEST_ANSWER,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        lines: list[str] = []
        try:
            async with asyncio.timeout(self._seconds):
                process.stdin.write(json.dumps(query).encode() + b"\n")
                with contextlib.suppress(ConnectionError):
                    await process.stdin.drain()
                process.stdin.close()
                return lines, await self._read(process.stdout, lines)
        except TimeoutError:
            return lines, (
                f"\n\n(Stopped after {self._seconds:g} seconds. Search fewer files or use a simpler expression.)"
            )
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await process.stdout.read()  # pending writes first: only then is the pipe closed

    async def _read(self, stream: asyncio.StreamReader, lines: list[str]) -> str:
        """Collects lines as they are found; returns a note on what is missing."""
        hits, size, last = 0, 0, ("", 0)
        async for data in stream:
            found = json.loads(data)
            if "error" in found:
                raise ToolFailed(f"Error: {found['error']}.")
            if "path" not in found:
                return ""
            hits += found["hit"]
            if hits > _MOST_LINES or size > self._limit:
                return f"\n\n(Truncated: at most {_MOST_LINES} lines or {self._limit} characters are shown.)"
            shown = self._folder.display(Path(os.fsdecode(found["path"])))
            if lines and (last[0] != shown or last[1] != found["line"] - 1) and not found["hit"]:
                lines.append("--")
            mark = ":" if found["hit"] else "-"
            lines.append(f"{shown}{mark}{found['line']}{mark} {found['text']}")
            size += len(lines[-1]) + 1
            last = (shown, found["line"])
        raise ToolFailed("Error: the search process ended unexpectedly.")


def _check_length(pattern: str) -> None:
    if len(pattern) > _LONGEST_PATTERN:
        raise ToolFailed(f"Error: the file name pattern is longer than {_LONGEST_PATTERN} characters.")
