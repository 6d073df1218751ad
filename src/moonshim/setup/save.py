"""The text of a configuration -> a file that only its owner can read, and a backup of the file it replaces."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Final

from moonshim.config.files.locked_files import locked, replace_file
from moonshim.config.problems import ConfigError

__all__ = ["EXISTS", "save"]

EXISTS: Final = "the file exists. Pass --force to replace it; a backup is saved"
_PRIVATE: Final = 0o600


def save(path: Path, text: str, *, replace: bool, now: datetime | None = None) -> Path | None:
    """Write the file in one step; return the backup of the file that was there before.

    Raises `ConfigError` if the file cannot be written, or exists and `replace` is not set.
    """
    try:
        target = path.resolve()  # a link stays a link
        if target.exists() and not target.is_file():
            raise ConfigError([f"{path}: expected a file; choose another --output"])
        with locked(target):
            exists = target.exists()
            if exists and not replace:
                raise ConfigError([f"{path}: {EXISTS}"])
            backup = _back_up(target, now or datetime.now()) if exists else None
            replace_file(target, text.encode(), mode=_PRIVATE)
            return backup
    except RuntimeError:  # from `resolve`, before Python 3.13
        raise ConfigError([f"{path}: symbolic link loop; choose another --output"]) from None
    except OSError as error:
        # Its own name may be that of the lock or of a temporary file.
        raise ConfigError(
            [f"{path}: cannot write this file: {error.strerror or error}; choose another --output"]
        ) from None


def _back_up(path: Path, now: datetime) -> Path:
    """Copy the file to a name that is not taken."""
    data, number = path.read_bytes(), 1
    name = f"{path.name}.bak-{now:%Y%m%d-%H%M%S}"
    while True:
        backup = path.with_name(name if number == 1 else f"{name}-{number}")
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return backup
