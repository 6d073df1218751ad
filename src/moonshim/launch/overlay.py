"""A private folder for the overlay files of one launch; folders of launchers that were killed are removed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from moonshim.gateway.process.run_file import is_alive, run_folder

__all__ = ["overlay_folder", "write_files"]

_NAME: Final = re.compile(r"launch-(\d+)-\w+")


@contextlib.contextmanager
def overlay_folder(environ: Mapping[str, str]) -> Iterator[Path]:
    """A new folder that only this user can read; removed at the end, with all that is in it."""
    parent = run_folder(environ) or Path(tempfile.gettempdir())
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_left_over(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"launch-{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left_over(parent: Path) -> None:
    for path in parent.glob("launch-*"):
        found = _NAME.fullmatch(path.name)
        if found and not path.is_symlink() and not is_alive(int(found[1])):
            shutil.rmtree(path, ignore_errors=True)


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write overlay files, readable only by this user: they can contain a key."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
