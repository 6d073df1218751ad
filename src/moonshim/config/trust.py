"""A configuration that was found in the current folder -> whether the user has trusted it as it is now.

Whoever puts a file into a folder is not whoever runs a command there: a checkout of somebody else's repository may have
a configuration that loads code, and sends any environment variable to any address.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from moonshim.config.chains import plug_in_file
from moonshim.config.files import read_text, read_values
from moonshim.config.finding import look_for_config, user_folders
from moonshim.config.locked_files import locked, replace_file
from moonshim.config.problems import ConfigError
from moonshim.config.review import Review, review_of
from moonshim.config.variables import expanded

__all__ = ["find_config", "forget", "record_of_trust", "remember", "require_trust", "reviewed", "trust_problem"]


def find_config(explicit: str | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The file to use, as `look_for_config` finds it. Raises `ConfigError` for one that is not trusted."""
    found = look_for_config(explicit, environ, cwd)
    if found is not None and found.needs_trust:
        require_trust(found.path, environ)
    return None if found is None else found.path


def reviewed(path: Path, environ: Mapping[str, str]) -> tuple[Review, str]:
    """What a file would do, and the fingerprint of exactly that: of the file, and of the plug-in files it names."""
    text = read_text(path)
    review = review_of(read_values(text, suffix=path.suffix, source=str(path))[0])
    digest = sha256(text.encode())
    for name in review.code:
        # As a value a name is expanded, as the key of a table it is not.
        for spelled in dict.fromkeys((name, expanded(name, environ)[0])):
            file = plug_in_file(spelled, path.absolute().parent)
            if file is not None:
                digest.update(sha256(_bytes_of(file)).digest())
    return review, f"sha256:{digest.hexdigest()}"


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes() if file.is_file() else b""
    except OSError:  # once it can be read, it is another file
        return b""


def trust_problem(path: Path, environ: Mapping[str, str]) -> str | None:
    """Why this file is not used; None: it is trusted as it is now."""
    known = _read(record_of_trust(environ)).get(_name(path))
    if known is not None and known == reviewed(path, environ)[1]:
        return None
    why = "is not trusted" if known is None else "has changed since it was trusted (it, or a plug-in that it names)"
    return (
        f"{path}: this configuration was found in the current folder and {why}, so nothing in it is used: it could run "
        "code, and send your keys anywhere. `moonshim trust` shows what it would do and lets you trust it; a file that "
        "--config or MOONSHIM_CONFIG names needs no trust"
    )


def require_trust(path: Path, environ: Mapping[str, str]) -> None:
    """Raises `ConfigError` unless the file is trusted as it is now."""
    if (problem := trust_problem(path, environ)) is not None:
        raise ConfigError([problem])


def remember(path: Path, environ: Mapping[str, str], fingerprint: str) -> None:
    """From now on the file is trusted, as long as it has this fingerprint. Raises `ConfigError`."""
    _change(environ, {_name(path): fingerprint})


def forget(path: Path, environ: Mapping[str, str]) -> None:
    """From now on the file is not trusted."""
    _change(environ, {_name(path): None})


def record_of_trust(environ: Mapping[str, str]) -> Path | None:
    """Where it is remembered; None: this user has no folder for it."""
    folders = user_folders(environ)
    return folders[0] / "trusted.json" if folders else None


def _name(path: Path) -> str:
    # A link is not followed: plug-ins are looked for beside the link, so that is what is trusted.
    return str(path.parent.resolve() / path.name)


def _change(environ: Mapping[str, str], change: dict[str, str | None]) -> None:
    record = record_of_trust(environ)
    if record is None:
        raise ConfigError(["there is no place to remember it: neither HOME nor XDG_CONFIG_HOME is set"])
    try:
        with locked(record):
            known = {name: value for name, value in (_read(record) | change).items() if value is not None}
            replace_file(record.resolve(), msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
            record.chmod(0o600)
    except OSError as error:
        raise ConfigError([f"{record}: cannot be written: {error.strerror}"]) from None


def _read(record: Path | None) -> dict[str, str | None]:
    """What is trusted. What cannot be read trusts nothing."""
    if record is None:
        return {}
    try:
        return msgspec.json.decode(record.read_bytes(), type=dict[str, str | None])
    except (OSError, msgspec.DecodeError):
        return {}
