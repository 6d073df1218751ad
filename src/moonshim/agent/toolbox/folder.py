"""A path as a model writes it -> a place inside the folder that an agent works in, or a refusal."""

from __future__ import annotations

import os
import stat
from difflib import get_close_matches
from pathlib import Path

from moonshim.agent.tools import ToolFailed

__all__ = ["WorkingFolder"]


class WorkingFolder:
    """The folder that an agent works in. `find` returns paths inside it, links resolved, unless `outside` is
    allowed."""

    def __init__(self, root: str | Path, *, outside: bool = False) -> None:
        self.root = Path(os.path.realpath(Path(root).expanduser()))
        self.outside = outside

    def find(self, path: str) -> Path:
        """The absolute path, with links resolved; it need not exist."""
        if "\0" in path:
            raise ToolFailed("Error: the path contains a NUL character.")
        if not path.strip():
            raise ToolFailed("Error: the path is empty.")
        try:
            wanted = Path(path).expanduser() if path.startswith("~") else Path(path)
            found = Path(os.path.realpath(self.root / wanted))
        except (OSError, ValueError, RuntimeError) as error:
            raise ToolFailed(f"Error: invalid path {path!r}: {error}") from error
        if not self.outside and not self.has(found):
            raise ToolFailed(f"Error: {path} is outside the working directory ({self.root}), which is not allowed.")
        return found

    def has(self, path: Path) -> bool:
        """Whether a path without links is inside."""
        return path == self.root or self.root in path.parents

    def display(self, path: Path) -> str:
        """The path as the model should write it."""
        return str(path.relative_to(self.root)) if self.has(path) else str(path)

    def mode_of(self, found: Path, path: str) -> int | None:
        """The file mode; None: there is nothing."""
        try:
            return found.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ToolFailed(f"Error: cannot access {path}: {error.strerror}.") from error

    def find_file(self, path: str) -> Path:
        """An existing regular file, not a folder, pipe or device."""
        found = self.find(path)
        mode = self.mode_of(found, path)
        if mode is None:
            raise ToolFailed(f"Error: file {path} does not exist.{_suggest_path(found)}")
        if stat.S_ISDIR(mode):
            raise ToolFailed(f"Error: {path} is a folder. Use glob to list its files.")
        if not stat.S_ISREG(mode):
            raise ToolFailed(f"Error: {path} is not a regular file.")
        return found

    def find_folder(self, path: str) -> Path:
        found = self.find(path)
        mode = self.mode_of(found, path)
        if mode is None:
            raise ToolFailed(f"Error: folder {path} does not exist.{_suggest_path(found)}")
        if not stat.S_ISDIR(mode):
            raise ToolFailed(f"Error: {path} is not a folder.")
        return found


def _suggest_path(missing: Path) -> str:
    try:
        names = os.listdir(missing.parent)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return ""
    close = get_close_matches(missing.name, names, n=3)
    return f" Did you mean {', '.join(close)}?" if close else ""
