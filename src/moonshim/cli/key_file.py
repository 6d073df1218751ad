"""A configuration file, and a key to add or to take away -> the file with that change, and nothing else changed."""

from __future__ import annotations

import json
import os
import re
import tomllib
from contextlib import suppress
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, TypeAlias

__all__ = ["CannotEdit", "Entry", "KeyFile", "block_of", "create_file"]

Entry: TypeAlias = dict[str, Any]
"""One key as the file has it: `name`, `digest` and its limits."""

_JSON_SUFFIXES: Final = (".json", ".jsonc", ".json5")
_JSON_BEGINS: Final = re.compile(r"\s*(?:\{|\[\s*\{)")
_HEADER: Final = re.compile(r"\s*\[")
_KEYS_HEADER: Final = re.compile(r"""\s*\[\[\s*(?:keys|"keys"|'keys')\s*\]\]\s*(?:#.*)?$""")
_SAYS_NOTHING: Final = re.compile(r"\s*(?:#.*)?$")
_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_BYTE_ORDER_MARK: Final = "\ufeff"


class CannotEdit(Exception):
    """The file cannot be changed; the message says why, and what to do instead."""


class KeyFile:
    """A configuration file as text. Before new text replaces it, it is read: it must say the old, and the change."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()  # a link stays a link: what it leads to is replaced
        try:
            self._data = self._path.read_bytes()
            self._text = self._data.decode()
        except OSError as error:
            raise CannotEdit(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise CannotEdit(f"{path}: this is not UTF-8") from None
        self.is_json = path.suffix.lower() in _JSON_SUFFIXES or (
            path.suffix.lower() != ".toml" and _JSON_BEGINS.match(self._text) is not None
        )

    @cached_property
    def _value(self) -> Any:
        return self._parsed(self._text)

    @property
    def entries(self) -> list[Entry]:
        """The keys in the file, as far as they are keys."""
        found = self._value.get("keys") if isinstance(self._value, dict) else None
        return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []

    def add(self, entry: Entry) -> None:
        """With one key more, behind the others."""
        after = _whole(self._value)
        after["keys"] = [*self.entries, _plain(entry) if self.is_json else entry]
        if self.is_json:
            self._replace(self._rewritten(after), after)
            return
        newline = "\r\n" if "\r\n" in self._text else "\n"
        gap = "" if not self._text else newline if self._text.endswith("\n") else 2 * newline
        block = block_of(entry, in_json=False).replace("\n", newline)
        self._replace(self._text + gap + block, after)

    def remove(self, name: str) -> None:
        """Without the key of that name, which must be there."""
        place = next((at for at, entry in enumerate(self.entries) if entry.get("name") == name), None)
        if place is None:
            self._remove_router_key(name)
            return
        after = _whole(self._value)
        after["keys"] = [entry for at, entry in enumerate(self.entries) if at != place]
        if not after["keys"]:
            del after["keys"]
        if self.is_json:
            self._replace(self._rewritten(after), after)
        else:
            self._replace(self._without_block(place), after)

    def _remove_router_key(self, name: str) -> None:
        """Of claude-code-router's file, whose only key is a field of its own: `APIKEY`."""
        if not self.is_json:
            raise CannotEdit(f"{self._path}: take out the line with {name} by hand")
        after = {field: value for field, value in self._value.items() if field != name}
        self._replace(self._rewritten(after), after)

    def _parsed(self, text: str) -> Any:
        text = text.removeprefix(_BYTE_ORDER_MARK)
        try:
            return json.loads(text) if self.is_json else tomllib.loads(text)
        except RecursionError:
            raise CannotEdit(f"{self._path}: this is nested too deeply") from None
        except ValueError as error:
            if self.is_json:
                raise CannotEdit(
                    f"{self._path}: it has comments, or is no strict JSON ({error}), so it is not rewritten here: "
                    "`moonshim keys new NAME --print` shows what to paste; what to take away, take away by hand"
                ) from None
            raise CannotEdit(f"{self._path}: this is no TOML: {error}") from None

    def _rewritten(self, value: Any) -> str:
        found = _INDENT.search(self._text)
        indent = None if found is None else found[1]
        text = json.dumps(value, indent=indent, ensure_ascii=False)
        return text + "\n" if self._text.endswith("\n") else text

    def _without_block(self, place: int) -> str:
        """The lines of a `[[keys]]` table, from its header to its last value. Comments behind that belong to others."""
        lines = self._text.splitlines(keepends=True)
        starts = [at for at, line in enumerate(lines) if _KEYS_HEADER.match(line.rstrip("\r\n"))]
        if place >= len(starts):
            raise CannotEdit(f"{self._path}: the key stands in a form that is not known here; take it out by hand")
        start = starts[place]
        end = next((at for at in range(start + 1, len(lines)) if _HEADER.match(lines[at])), len(lines))
        while _SAYS_NOTHING.match(lines[end - 1].rstrip("\r\n")):
            end -= 1
        while end < len(lines) and start > 0 and not lines[start - 1].strip() and not lines[end].strip():
            end += 1  # of the empty lines before and behind it, those before are enough
        if end == len(lines):
            while start > 0 and not lines[start - 1].strip():
                start -= 1
        return "".join(lines[:start] + lines[end:])

    def _replace(self, text: str, expected: Any) -> None:
        try:
            right = self._parsed(text) == expected
        except CannotEdit:
            right = False
        if not right:
            raise CannotEdit(f"{self._path}: the keys stand in a form that is not known here; change it by hand")
        try:
            if self._path.read_bytes() != self._data:
                raise CannotEdit(f"{self._path}: somebody else changed it just now; try again")
            _write(self._path, text.encode())
        except OSError as error:
            raise CannotEdit(f"{self._path}: cannot be written: {error.strerror}") from None


def create_file(path: Path) -> KeyFile:
    """A configuration file with nothing in it yet, for its owner alone."""
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write("{}\n" if path.suffix.lower() in _JSON_SUFFIXES else "")
    except OSError as error:
        raise CannotEdit(f"{path}: cannot be created: {error.strerror}") from None
    return KeyFile(path)


def _whole(value: Any) -> dict[str, Any]:
    """The configuration as an object: a provider, or a list of them, has no place for keys."""
    if isinstance(value, list):
        return {"providers": value}
    if not isinstance(value, dict):
        raise CannotEdit("this is no configuration")
    if "api_base_url" in value and "providers" not in value:
        return {"providers": [value]}
    return dict(value)


def _write(path: Path, data: bytes) -> None:
    """All of it or nothing, with the mode that the file had: a gateway that watches it never reads half of it."""
    before = path.stat()
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            Path(file.name).chmod(before.st_mode & 0o7777)
            if hasattr(os, "fchown"):
                with suppress(PermissionError):  # only root may give a file away
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _plain(entry: Entry) -> Entry:
    return {key: _moment(value) if isinstance(value, date) else value for key, value in entry.items()}


def _moment(value: date) -> str:
    return value.isoformat().replace("+00:00", "Z")


def block_of(entry: Entry, *, in_json: bool) -> str:
    """A key as it stands in a file.

    >>> print(block_of({"name": "ci", "models": ["kimi-*"], "expires": date(2027, 12, 31)}, in_json=False), end="")
    [[keys]]
    name = "ci"
    models = ["kimi-*"]
    expires = 2027-12-31
    """
    if in_json:
        return json.dumps(_plain(entry), indent=2, ensure_ascii=False) + "\n"
    lines = ["[[keys]]"]
    for key, value in entry.items():
        # A string, a number and a list of them are written in TOML as in JSON.
        is_moment = isinstance(value, date | datetime)
        lines.append(f"{key} = {_moment(value) if is_moment else json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"
