"""A path as a model writes it -> a place inside the folder that an agent works in, or a refusal."""

from __future__ import annotations

import os
import stat
from difflib import get_close_matches
from pathlib import Path

from moonshim.agent.tools import ToolFailed

__all__ = ["WorkingFolder"]


class WorkingFolder:
    """Where an agent works. What `find` gives is inside of it, links followed, unless `outside` is allowed."""

    def __init__(self, root: str | Path, *, outside: bool = False) -> None:
        self.root = Path(os.path.realpath(Path(root).expanduser()))
        self.outside = outside

    def find(self, path: str) -> Path:
        """The place that this path means, which need not exist; its links are resolved."""
        if "\0" in path:
            raise ToolFailed("Error: a path cannot have a NUL character in it.")
        if not path.strip():
            raise ToolFailed("Error: the path is empty.")
        try:
            wanted = Path(path).expanduser() if path.startswith("~") else Path(path)
            found = Path(os.path.realpath(self.root / wanted))
        except (OSError, ValueError, RuntimeError) as error:
            raise ToolFailed(f"Error: {path!r} is no path: {error}") from error
        if not self.outside and not self.has(found):
            raise ToolFailed(
                f"Error: {path} is outside of the working directory ({self.root}), and that is not allowed."
            )
        return found

    def has(self, path: Path) -> bool:
        """Whether a path without links is inside."""
        return path == self.root or self.root in path.parents

    def shown(self, path: Path) -> str:
        """The path as the model should write it."""
        return str(path.relative_to(self.root)) if self.has(path) else str(path)

    def mode_of(self, found: Path, path: str) -> int | None:
        """What is there; None: nothing."""
        try:
            return found.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ToolFailed(f"Error: {path} cannot be used: {error.strerror}.") from error

    def find_file(self, path: str) -> Path:
        """A file that exists: no folder, no pipe, no device."""
        found = self.find(path)
        mode = self.mode_of(found, path)
        if mode is None:
            raise ToolFailed(f"Error: there is no file {path}.{_perhaps(found)}")
        if stat.S_ISDIR(mode):
            raise ToolFailed(f"Error: {path} is a folder. Use glob to see what is in it.")
        if not stat.S_ISREG(mode):
            raise ToolFailed(f"Error: {path} is no ordinary file.")
        return found

    def find_folder(self, path: str) -> Path:
        found = self.find(path)
        mode = self.mode_of(found, path)
        if mode is None:
            raise ToolFailed(f"Error: there is no folder {path}.{_perhaps(found)}")
        if not stat.S_ISDIR(mode):
            raise ToolFailed(f"Error: {path} is no folder.")
        return found


def _perhaps(missing: Path) -> str:
    try:
        names = os.listdir(missing.parent)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return ""
    close = get_close_matches(missing.name, names, n=3)
    return f" There is {', '.join(close)}." if close else ""
