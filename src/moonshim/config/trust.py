"""A configuration in the current folder -> whether the user has trusted its current content.

The author of a file in a folder is not always the user who runs a command there: a checkout of a third-party repository
may have a configuration that loads code, and sends any environment variable to any address.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from moonshim.config.files.find import FoundConfig, user_folders
from moonshim.config.files.locked_files import locked, replace_file
from moonshim.config.files.source_file import file_problem, read_file, read_text, read_values
from moonshim.config.files.variables import expand_variables
from moonshim.config.load import load_config, parse_config
from moonshim.config.model import Config
from moonshim.config.problems import ConfigError
from moonshim.config.review import Review, review_of
from moonshim.config.tables.transformers import plug_in_file

__all__ = [
    "NotTrusted",
    "Snapshot",
    "TrustRecordError",
    "forget",
    "load_found",
    "record_of_trust",
    "remember",
    "take_snapshot",
    "trusted_snapshot",
]


class NotTrusted(ConfigError):
    """The file is in the current folder, and its current content is not trusted."""


class TrustRecordError(ConfigError):
    """The record of trusted files cannot be read or written."""


class Snapshot(Struct, frozen=True):
    """A configuration file and its plug-ins, read once: the same bytes are shown, trusted and run."""

    path: Path
    text: str
    review: Review
    code: dict[Path, bytes | None]
    """The plug-in files that it names; None: one that cannot be read."""

    @property
    def fingerprint(self) -> str:
        digest = sha256(self.text.encode())
        for data in self.code.values():
            digest.update(sha256(data or b"").digest())
        return f"sha256:{digest.hexdigest()}"

    def load(self, environ: Mapping[str, str]) -> Config:
        """Load the configuration. No other plug-in file is read, and no module beside the file is imported."""
        return parse_config(
            self.text,
            suffix=self.path.suffix,
            environ=environ,
            source=str(self.path),
            folder=self.path.absolute().parent,
            code=self.code,
        )


def load_found(found: FoundConfig, environ: Mapping[str, str]) -> Config:
    """Load a configuration file that was found. Raises `NotTrusted` if it needs trust and has none."""
    if not found.needs_trust:
        return load_config(found.path, environ)
    return trusted_snapshot(found.path, environ).load(environ)


def take_snapshot(path: Path, environ: Mapping[str, str]) -> Snapshot:
    """The file as it is now, and what it would do. Nothing of it is run."""
    text = read_text(path)
    review = review_of(read_values(text, suffix=path.suffix, source=str(path))[0])
    # A name is expanded as a value, but not as the key of a table.
    names = [spelled for name in review.code for spelled in (name, expand_variables(name, environ)[0])]
    files = (plug_in_file(name, path.absolute().parent) for name in names)
    return Snapshot(path, text, review, {file: _code_in(file) for file in dict.fromkeys(files) if file is not None})


def _code_in(file: Path) -> bytes | None:
    try:
        return read_file(file, what="a plug-in")
    except (OSError, ValueError, ConfigError):  # once it becomes readable, it is another file
        return None


def trusted_snapshot(path: Path, environ: Mapping[str, str]) -> Snapshot:
    """The file as it is now, if that is how it was trusted. Raises `NotTrusted` otherwise."""
    known = _read(record_of_trust(environ)).get(_name(path))
    if known is not None:
        snapshot = take_snapshot(path, environ)
        if snapshot.fingerprint == known:
            return snapshot
    why = "is not trusted yet" if known is None else "has changed since you trusted it (or a plug-in that it uses has)"
    problem = (
        f"{path} {why}, so it is not used: a configuration in the current folder can run code and send your keys "
        "anywhere. Run `moonshim trust` to review and trust it. A file named with --config or MOONSHIM_CONFIG needs "
        "no trust"
    )
    raise NotTrusted([problem])


def remember(snapshot: Snapshot, environ: Mapping[str, str]) -> None:
    """Trust the file, as long as it is as in this snapshot. Raises `TrustRecordError`."""
    _change(environ, {_name(snapshot.path): snapshot.fingerprint})


def forget(path: Path, environ: Mapping[str, str]) -> None:
    """No longer trust the file. Raises `TrustRecordError`."""
    _change(environ, {_name(path): None})


def record_of_trust(environ: Mapping[str, str]) -> Path | None:
    """Path of the record; None: this user has no folder for it."""
    folders = user_folders(environ)
    return folders[0] / "trusted.json" if folders else None


def _name(path: Path) -> str:
    # Links are not resolved: plug-ins are relative to the link, so that is what is trusted.
    return str(path.parent.resolve() / path.name)


def _change(environ: Mapping[str, str], change: dict[str, str | None]) -> None:
    record = record_of_trust(environ)
    if record is None:
        raise TrustRecordError(["no folder to store the list of trusted files; set HOME or XDG_CONFIG_HOME"])
    _read(record)  # what cannot be read cannot be locked either
    try:
        with locked(record):
            known = {name: value for name, value in (_read(record) | change).items() if value is not None}
            replace_file(record.resolve(), msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
            record.chmod(0o600)
    except OSError as error:
        instead = "make the folder writable, or name the configuration with --config"
        raise TrustRecordError([f"{record}: cannot be written ({error.strerror}); {instead}"]) from None


def _read(record: Path | None) -> dict[str, str | None]:
    """The trusted files. Raises `TrustRecordError` if the record exists but cannot be read."""
    if record is None:
        return {}
    try:
        return msgspec.json.decode(read_file(record, what="the list of trusted files"), type=dict[str, str | None])
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        problem = file_problem(record, error)
    except ConfigError as error:
        problem = error.problems[0]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = f"{record}: the file is damaged ({error})"
    instead = "Move it away and run `moonshim trust` again, or name the configuration with --config"
    raise TrustRecordError([f"{problem}. This file lists the configurations you trust. {instead}"])
