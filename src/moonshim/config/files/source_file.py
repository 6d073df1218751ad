"""A user's file, in TOML or JSON -> its values and their lines, or a `ConfigError` with the position."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path as File
from typing import Any, Final

from moonshim.config.files.json_file import NotJson, read_json
from moonshim.config.files.toml_lines import toml_lines
from moonshim.config.problems import ConfigError, Path

__all__ = ["file_kind", "file_problem", "read_file", "read_text", "read_values"]

LARGEST: Final = 4 * 1024 * 1024
_JSON_BEGINS: Final = re.compile(r"\s*(?:\{|\[\s*\{|//|/\*)")
_TOML_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_text(path: File | str, *, what: str = "a configuration file") -> str:
    """The content of a file. `what` is how messages refer to it."""
    try:
        data = read_file(path, what=what)
    except OSError as error:
        raise ConfigError([file_problem(path, error)]) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: not valid UTF-8"]) from None


def read_file(path: File | str, *, what: str = "a configuration file") -> bytes:
    """The bytes of a regular file. Raises `OSError`, or `ConfigError` for what is not a file or too large."""
    # Without O_NONBLOCK, opening a pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise ConfigError([f"{path}: expected a file, got {file_kind(mode)}"])
    with os.fdopen(descriptor, "rb") as opened:
        data = opened.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ConfigError([f"{path}: too large: {what} can have at most {LARGEST:,} bytes"])
    return data


def file_problem(path: File | str, error: OSError) -> str:
    """Why a file cannot be used, and what to do about it."""
    if error.errno == errno.ELOOP:
        return f"{path}: symbolic link loop; replace the link with a file"
    if error.errno == errno.EACCES:
        return f"{path}: permission denied; give yourself read access with `chmod` or `chown`"
    return f"{path}: {error.strerror or error}"


def read_values(text: str, *, suffix: str, source: str) -> tuple[Any, dict[Path, int]]:
    """The values and their lines. `suffix` selects the format (`.toml`, `.json`); for any other it is guessed.

    >>> read_values("a = 1", suffix=".toml", source="x.toml")
    ({'a': 1}, {('a',): 1})
    """
    known = {".toml": False, ".json": True, ".jsonc": True, ".json5": True}
    if known.get(suffix.lower(), _JSON_BEGINS.match(text) is not None):
        try:
            return read_json(text)
        except NotJson as error:
            raise ConfigError([f"{source}:{error.line}:{error.column}: {error}"]) from None
    import tomllib

    try:
        return tomllib.loads(text), toml_lines(text)
    except RecursionError:
        raise ConfigError([f"{source}: nested too deeply"]) from None
    except ValueError as error:
        # Python itself refuses integers of more than 4,300 digits.
        message = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "a number has too many digits"
        message = message.replace("Cannot overwrite a value", "this key is already set above")
        found = _TOML_PLACE.search(message)
        hint = " (is a quote missing?)" if message.startswith("Illegal character '\\n'") else ""
        place = (
            f":{found[1]}:{found[2]}" if found and found[1] else f":{max(1, len(text.splitlines()))}" if found else ""
        )
        raise ConfigError([f"{source}{place}: {_TOML_PLACE.sub('', message)}{hint}"]) from None


def file_kind(mode: int) -> str:
    """What something other than a regular file is, for people."""
    return "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
