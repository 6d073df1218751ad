"""A configuration file, and a key to add or to remove -> the file with only that change."""

from __future__ import annotations

import json
import os
import re
import tomllib
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

from moonshim.config.files.locked_files import replace_file
from moonshim.config.files.source_file import file_problem, read_file

__all__ = ["CannotEdit", "Entry", "KeyFile", "block_of", "create_file"]

Entry: TypeAlias = dict[str, Any]
"""One key as in the file: `name`, `digest` and its limits."""

_JSON_SUFFIXES: Final = (".json", ".jsonc", ".json5")
_JSON_BEGINS: Final = re.compile(r"\s*(?:\{|\[\s*\{)")
_HEADER: Final = re.compile(r"\s*\[")
_KEYS_HEADER: Final = re.compile(r"""\s*\[\[\s*(?:keys|"keys"|'keys')\s*\]\]\s*(?:#.*)?$""")
_GATEWAY_HEADER: Final = re.compile(r"""\s*\[\s*(?:gateway|"gateway"|'gateway')\s*\]\s*(?:#.*)?$""")
_NO_KEYS: Final = re.compile(r"\s*keys\s*=\s*\[\s*\]\s*(?:#.*)?$")
_NOT_REQUIRED: Final = re.compile(r"\A(\s*require_keys\s*=\s*)false\b")
_SAYS_NOTHING: Final = re.compile(r"\s*(?:#.*)?$")
_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_BYTE_ORDER_MARK: Final = "\ufeff"


class CannotEdit(Exception):
    """The file cannot be changed; the message says why, and what to do instead."""


class KeyFile:
    """A configuration file as text. New text is parsed before it replaces the old: only the change may differ."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()  # a link stays a link: its target is replaced
        try:
            self._data = read_file(self._path)
            text = self._data.decode()
        except OSError as error:
            raise CannotEdit(file_problem(path, error)) from None
        except UnicodeDecodeError:
            raise CannotEdit(f"{path}: not UTF-8") from None
        self.text = text.removeprefix(_BYTE_ORDER_MARK)
        self._mark = _BYTE_ORDER_MARK if self.text != text else ""
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self.is_json = path.suffix.lower() in _JSON_SUFFIXES or (
            path.suffix.lower() != ".toml" and _JSON_BEGINS.match(self.text) is not None
        )

    @cached_property
    def _value(self) -> Any:
        return self._parse(self.text)

    @property
    def entries(self) -> list[Entry]:
        """The keys in the file, as far as they are valid."""
        found = self._value.get("keys") if isinstance(self._value, dict) else None
        return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []

    def add(self, entry: Entry) -> None:
        """Add a key after the others; from now on a key is required, even if all of them get lost."""
        after = self._require_keys({"keys": [*self.entries, _plain(entry) if self.is_json else entry]})
        if self.is_json:
            self._replace(self._rewrite(after), after)
            return
        lines = self._lines_requiring_keys()
        empty = next((at for at, line in enumerate(lines) if _NO_KEYS.match(line.rstrip("\r\n"))), None)
        if empty is not None and not self.entries:
            del lines[empty : empty + (1 if "".join(lines[empty + 1 : empty + 2]).strip() else 2)]
        if lines[-1].strip():
            lines = [*lines, self._newline]
        self._replace("".join(lines) + block_of(entry, in_json=False).replace("\n", self._newline), after)

    def remove(self, name: str) -> None:
        """Remove the key of that name, which must exist. If it was the last one, the file says so."""
        place = next((at for at, entry in enumerate(self.entries) if entry.get("name") == name), None)
        left = [entry for at, entry in enumerate(self.entries) if at != place]
        after = _check_object(self._value) | {"keys": left} if left else self._require_keys({"keys": left})
        if place is None:  # claude-code-router's only key is a separate field: `APIKEY`
            after.pop(name, None)
        if self.is_json:
            self._replace(self._rewrite(after), after)
        elif place is None:
            raise CannotEdit(f"{self._path}: remove the line with {name} by hand")
        elif left:
            self._replace("".join(self._without_block(self._lines, place)), after)
        else:
            lines = self._without_block(self._lines_requiring_keys(), place)
            self._replace("".join(self._before_tables(lines, "keys = []\n\n")), after)

    def _require_keys(self, change: dict[str, Any]) -> dict[str, Any]:
        """The expected values: the change, and that a key is required."""
        after = _check_object(self._value)
        gateway = after.get("gateway", {})
        if not isinstance(gateway, dict):
            raise CannotEdit(f"{self._path}: `gateway` must be a table")
        return after | change | {"gateway": gateway | {"require_keys": True}}

    @property
    def _lines(self) -> list[str]:
        lines = self.text.splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += self._newline
        return lines

    def _lines_requiring_keys(self) -> list[str]:
        """The lines of a TOML file with `require_keys = true` near the top, where truncation does not reach it."""
        lines = self._lines
        gateway = self._value.get("gateway", {})
        if gateway.get("require_keys") is True:
            return lines
        if "require_keys" in gateway:
            return [_NOT_REQUIRED.sub(r"\1true", line) for line in lines]
        place = next((at for at, line in enumerate(lines) if _GATEWAY_HEADER.match(line.rstrip("\r\n"))), None)
        if place is None:
            return self._before_tables(lines, "[gateway]\nrequire_keys = true\n\n")
        return [*lines[: place + 1], f"require_keys = true{self._newline}", *lines[place + 1 :]]

    def _before_tables(self, lines: list[str], text: str) -> list[str]:
        """Insert this before the first table and its comment."""
        place = next((at for at, line in enumerate(lines) if _HEADER.match(line)), len(lines))
        while place > 0 and lines[place - 1].lstrip().startswith("#"):
            place -= 1
        added = text.replace("\n", self._newline).splitlines(keepends=True)
        return [*lines[:place], *added, *lines[place:]]

    def _parse(self, text: str) -> Any:
        try:
            return json.loads(text) if self.is_json else tomllib.loads(text)
        except RecursionError:
            raise CannotEdit(f"{self._path}: nested too deeply") from None
        except ValueError as error:
            if self.is_json:
                raise CannotEdit(
                    f"{self._path}: cannot edit a file with comments or invalid JSON ({error}). Edit it by hand: "
                    "`moonshim keys new NAME --print` prints an entry to add; to revoke a key, delete its entry"
                ) from None
            raise CannotEdit(f"{self._path}: invalid TOML: {error}") from None

    def _rewrite(self, value: Any) -> str:
        found = _INDENT.search(self.text)
        indent = None if found is None else found[1]
        text = json.dumps(value, indent=indent, ensure_ascii=False)
        return text + "\n" if self.text.endswith("\n") else text

    def _without_block(self, lines: list[str], place: int) -> list[str]:
        """Remove the lines of a `[[keys]]` table, from its header to its last value.

        Comments after that belong to what follows.
        """
        starts = [at for at, line in enumerate(lines) if _KEYS_HEADER.match(line.rstrip("\r\n"))]
        if place >= len(starts):
            raise CannotEdit(f"{self._path}: the key is not in its own [[keys]] table; remove it by hand")
        start = starts[place]
        end = next((at for at in range(start + 1, len(lines)) if _HEADER.match(lines[at])), len(lines))
        while _SAYS_NOTHING.match(lines[end - 1].rstrip("\r\n")):
            end -= 1
        while end < len(lines) and start > 0 and not lines[start - 1].strip() and not lines[end].strip():
            end += 1  # of the empty lines before and after it, those before are enough
        if end == len(lines):
            while start > 0 and not lines[start - 1].strip():
                start -= 1
        return lines[:start] + lines[end:]

    def _replace(self, text: str, expected: Any) -> None:
        try:
            right = self._parse(text) == expected
        except CannotEdit:
            right = False
        if not right:
            raise CannotEdit(
                f"{self._path}: cannot edit `keys` or `gateway` as this file writes them. Edit it by hand: "
                "`moonshim keys new NAME --print` prints a key, and `[gateway]` needs `require_keys = true`"
            )
        try:
            if self._path.read_bytes() != self._data:
                raise CannotEdit(f"{self._path}: the file was changed by another process; try again")
            replace_file(self._path, (self._mark + text).encode())
            self.text = text
        except OSError as error:
            raise CannotEdit(f"{self._path}: cannot write this file: {error.strerror}") from None


def create_file(path: Path) -> KeyFile:
    """Create an empty configuration file that only its owner can read."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write("{}\n" if path.suffix.lower() in _JSON_SUFFIXES else "")
    except OSError as error:
        raise CannotEdit(f"{path}: cannot create this file: {error.strerror}") from None
    return KeyFile(path)


def _check_object(value: Any) -> dict[str, Any]:
    """The configuration as an object: a provider, or a list of them, has no place for keys."""
    if isinstance(value, list):
        return {"providers": value}
    if not isinstance(value, dict):
        raise CannotEdit("expected a configuration: an object, or a list of providers")
    if "api_base_url" in value and "providers" not in value:
        return {"providers": [value]}
    return dict(value)


def _plain(entry: Entry) -> Entry:
    return {key: _moment(value) if isinstance(value, date) else value for key, value in entry.items()}


def _moment(value: date) -> str:
    return value.isoformat().replace("+00:00", "Z")


def block_of(entry: Entry, *, in_json: bool) -> str:
    """A key as written in a file.

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
        lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """
    >>> _toml([{"period": "day", "limit": "5.00"}])
    '[{ period = "day", limit = "5.00" }]'
    """
    match value:
        case date():
            return _moment(value)
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{ {', '.join(f'{key} = {_toml(inner)}' for key, inner in value.items())} }}"
    # A string and a number are written in TOML as in JSON.
    return json.dumps(value, ensure_ascii=False)
