"""A file that people write, in TOML or JSON -> its values and their lines, or a `ConfigError` with the place."""

from __future__ import annotations

import re
import stat
from pathlib import Path as File
from typing import Any, Final

from moonshim.config.json_file import NotJson, read_json
from moonshim.config.problems import ConfigError, Path
from moonshim.config.toml_lines import toml_lines

__all__ = ["read_text", "read_values"]

LARGEST: Final = 4 * 1024 * 1024
_JSON_BEGINS: Final = re.compile(r"\s*(?:\{|\[\s*\{|//|/\*)")
_TOML_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_text(path: File | str, *, what: str = "a configuration") -> str:
    """What is in a file. `what` is how a message calls it."""
    file = File(path)
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # whoever opens a pipe waits for somebody who writes into it
            raise ConfigError([f"{path}: this is no file, but {_kind(file)}"])
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror or error}"]) from None
    if len(data) > LARGEST:
        raise ConfigError([f"{path}: {what} has at most {LARGEST:,} bytes"])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: this is not UTF-8"]) from None


def read_values(text: str, *, suffix: str, source: str) -> tuple[Any, dict[Path, int]]:
    """What the text says, and where. `suffix` says what it is written in (`.toml`, `.json`); another: it is guessed.

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
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        message = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "it is nested too deep"
        found = _TOML_PLACE.search(message)
        place = (
            f":{found[1]}:{found[2]}" if found and found[1] else f":{max(1, len(text.splitlines()))}" if found else ""
        )
        raise ConfigError([f"{source}{place}: {_TOML_PLACE.sub('', message)}"]) from None


def _kind(path: File) -> str:
    return "a folder" if path.is_dir() else "a pipe" if path.is_fifo() else "a device or a socket"
