"""A key of a host with several regions -> the region that accepted it, remembered in a file. Asks nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from moonshim.config.files.find import state_folder
from moonshim.config.files.locked_files import locked, replace_file
from moonshim.config.files.source_file import read_file
from moonshim.config.model import Secret, digest_of
from moonshim.config.problems import ConfigError

__all__ = ["region_record", "remember_region", "remembered_region"]


def remembered_region(key: Secret, regions: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """The region of this key, if it was found out before. Any other address in the file is ignored."""
    record = region_record(environ)
    found = None if record is None else _read(record).get(digest_of(key.reveal()))
    return found if found in regions else None


def remember_region(key: Secret, region: str, environ: Mapping[str, str]) -> None:
    """Save the region under a digest of the key. Without a writable folder, it has to be found out again."""
    record = region_record(environ)
    if record is None:
        return
    with suppress(OSError), locked(record):
        known = _read(record) | {digest_of(key.reveal()): region}
        replace_file(record.resolve(), msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n", mode=0o600)


def region_record(environ: Mapping[str, str]) -> Path | None:
    """Path of the file; None: this user has no folder for it."""
    folder = state_folder(environ)
    return None if folder is None else folder / "regions.json"


def _read(record: Path) -> dict[str, str]:
    """What is remembered; nothing if the file is missing or damaged."""
    with suppress(OSError, ConfigError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(read_file(record), type=dict[str, str])
    return {}
