"""A table of a file -> checked values, one after the other; keys that were not read are reported."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path as File
from stat import S_ISREG
from typing import Any, Final

from moonshim.config.files.source_file import file_kind, file_problem
from moonshim.config.files.variables import expand_variables, has_variable, variable_of
from moonshim.config.problems import Path, Problems, display_path, nearest
from moonshim.engine.values.type_names import describe_type

__all__ = ["Table", "existing_file", "kind_of", "resolve_path"]

_SWITCHES: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MISSING: Final = object()
_API_KEYS: Final = ("api_key", "apiKey", "api_keys")
"""Values that may be missing, as with `api_key_env`: if they are one variable that is not set, that is a warning."""


class Table:
    """One table of a file. Every value that is read is valid or reported; a value itself is never repeated.

    Variables (`${VAR}`) are expanded when a value is read: one that is not needed cannot be missing. Without an
    `environ` the table is inert: values with variables count as missing, and other files are not accessed.
    """

    def __init__(self, value: Any, path: Path, problems: Problems, environ: Mapping[str, str] | None) -> None:
        self.path = path
        self.problems = problems
        self._environ = environ
        self._read_keys: dict[str, None] = {}
        self._values: dict[str, Any] = {}
        if isinstance(value, dict):
            self._values = value
        else:
            problems.add(path, f"expected a table, got {kind_of(value)}")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @property
    def environ(self) -> Mapping[str, str] | None:
        """The environment; None if the table is inert."""
        return self._environ

    @property
    def inert(self) -> bool:
        return self._environ is None

    def at(self, key: str) -> Path:
        return (*self.path, key)

    def error(self, key: str, message: str) -> None:
        self.problems.add(self.at(key), message)

    def note(self, key: str, message: str) -> None:
        self.problems.note(self.at(key), message)

    def raw(self, key: str) -> Any:
        """The value as written, without expanding variables."""
        return self._values.get(key)

    def knows(self, *keys: str) -> None:
        """Mark these keys as known."""
        self._read_keys.update(dict.fromkeys(keys))

    def was_read(self, key: str) -> bool:
        return key in self._read_keys

    def text(self, key: str, *, also: tuple[str, ...] = (), empty: bool = False) -> str | None:
        """A string; an empty one is an error unless `empty` is set."""
        before = self.problems.count
        key, value = self._take(key, also)
        if value is _MISSING:
            return None
        if not isinstance(value, str):
            self._wrong(key, value, "a string")
            return None
        if not value.strip() and not empty:
            if self.problems.count == before:  # a variable that is not set was reported already
                self.error(key, "must not be empty")
            return None
        return value

    def texts(self, key: str, *, empty: bool = False) -> tuple[str, ...] | None:
        """A list of strings; an empty one among them is an error unless `empty` is set."""
        _, value = self._take(key)
        if value is _MISSING:
            return None
        if not isinstance(value, list):
            self._wrong(key, value, "a list of strings")
            return None
        good = [text for text in value if isinstance(text, str) and (empty or text.strip())]
        if len(good) < len(value):
            for place, text in enumerate(value):
                if not isinstance(text, str) or not (empty or text.strip()):
                    wrong = "an empty string" if isinstance(text, str) else kind_of(text)
                    self.problems.add((*self.at(key), place), f"expected a string, got {wrong}")
        return tuple(good)

    def variable(self, key: str) -> tuple[str | None, str]:
        """The value of the environment variable that a string names, and how to refer to it.

        If a user puts the secret itself here, it must not appear in a message: only what can be nothing but a name is
        repeated.
        """
        name = self.text(key)
        if name is None:
            return None, ""
        if _VARIABLE.fullmatch(name) is None:
            self.error(key, "expected the name of an environment variable, not its value")
            return None, ""
        if self._environ is None:
            return None, name
        return self._environ.get(name, ""), name if name.isupper() else "named by this key"

    def choice(self, key: str, words: Iterable[str]) -> str | None:
        """One of several words."""
        value = self.text(key)
        known = list(words)
        if value is None or value in known:
            return value
        self.error(key, f"expected one of {', '.join(known)}{nearest(value, known)}")
        return None

    def flag(self, key: str) -> bool | None:
        _, value = self._take(key)
        if isinstance(value, str) and has_variable(self._values[key]):
            value = _SWITCHES.get(value.strip().lower(), value)
        if isinstance(value, bool):
            return value
        if value is not _MISSING:
            self._wrong(key, value, "a boolean")
        return None

    def number(self, key: str, *, least: float = 0.0, above: bool = False) -> float | None:
        """A number that is at least `least`; with `above`, greater."""
        value = self._number(key, float)
        if isinstance(value, bool) or not isinstance(value, int | float):
            if value is not _MISSING:
                self._wrong(key, value, "a number")
            return None
        if not math.isfinite(value):
            self.error(key, "must be a finite number")
            return None
        if value < least or (above and value == least):
            self.error(key, f"must be {'greater than' if above else 'at least'} {least:g}")
            return None
        return float(value)

    def decimal(self, key: str, *, places: int, most: int) -> Decimal | None:
        """An exact amount of at least 0, as a number or as a string (`"0.15"`), with at most `places` decimals."""
        _, value = self._take(key)
        if value is _MISSING:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            self._wrong(key, value, "a number")
            return None
        try:
            # A float is written with the fewest digits that are read as the same float: those in the file.
            amount = Decimal(str(value).strip())
        except InvalidOperation:
            self.error(key, 'expected a number, such as "5.00"')
            return None
        if not amount.is_finite() or not 0 <= amount <= most:
            self.error(key, f"must be at least 0 and at most {most}")
            return None
        exponent = amount.normalize().as_tuple().exponent
        if isinstance(exponent, int) and exponent < -places:
            self.error(key, f"must have at most {places} decimals")
            return None
        return amount

    def integer(self, key: str, *, least: int = 1, most: int | None = None) -> int | None:
        value = self._number(key, int)
        if isinstance(value, bool) or not isinstance(value, int):
            if value is not _MISSING:
                self._wrong(key, value, "an integer")
            return None
        if value < least or (most is not None and value > most):
            self.error(key, f"must be at least {least}" + (f" and at most {most}" if most else ""))
            return None
        return value

    def table(self, key: str) -> Table | None:
        """A nested table; its own values are checked when they are read."""
        self.knows(key)
        return self._inner(self._values[key], self.at(key)) if key in self._values else None

    def tables(self, *keys: str) -> list[Table] | None:
        """A list of tables, under whichever of these names exists."""
        self.knows(*keys)
        key = next((key for key in keys if key in self._values), None)
        if key is None:
            return None
        value = self._values[key]
        if not isinstance(value, list):
            self._wrong(key, value, f"a list of tables (`[[{display_path(self.at(key))}]]` in TOML)")
            return []
        return [self._inner(one, (*self.at(key), place)) for place, one in enumerate(value)]

    def elements(self, key: str) -> list[Any]:
        """A list of anything; a table in it is a `Table`."""
        self.knows(key)
        value = self._values.get(key, [])
        if not isinstance(value, list):
            self._wrong(key, value, "a list")
            return []
        paths = [(*self.at(key), place) for place in range(len(value))]
        return [
            self._inner(one, path) if isinstance(one, dict) else self._expand(one, path)
            for one, path in zip(value, paths, strict=True)
        ]

    def any_value(self, key: str) -> Any:
        """Any value, with its variables expanded; None if there is none."""
        _, value = self._take(key)
        return None if value is _MISSING else value

    def close(self, *, hints: Mapping[str, str] | None = None, more: Iterable[str] = ()) -> None:
        """Report unknown keys, with the nearest known one."""
        for key in self._values:
            if key not in self._read_keys:
                hint = (hints or {}).get(key) or nearest(key, [*self._read_keys, *more])
                listed = "" if hint else f"; known keys: {', '.join(self._read_keys)}"
                self.error(key, f"unknown key '{key}'{hint or listed}")

    def unlike(self, *more: str) -> list[str]:
        """The unknown keys that resemble none that is known."""
        known = [*self._read_keys, *more]
        return [key for key in self._values if key not in self._read_keys and not nearest(key, known)]

    def _inner(self, value: Any, path: Path) -> Table:
        return Table(value, path, self.problems, self._environ)

    def _take(self, key: str, also: tuple[str, ...] = ()) -> tuple[str, Any]:
        """The name that was used, and the value."""
        self._read_keys.setdefault(key)
        given = [name for name in (key, *also) if name in self._values]
        self.knows(*given)
        if len(given) > 1:
            self.error(given[1], f"set only one of `{given[0]}` and `{given[1]}`")
        if not given or (self.inert and _with_variables(self._values[given[0]])):
            return key, _MISSING
        return given[0], self._expand(self._values[given[0]], self.at(given[0]))

    def _expand(self, value: Any, path: Path) -> Any:
        match value:
            case str() if "$" in value and self._environ is not None:
                text, problems = expand_variables(value, self._environ)
                may_be_missing = path[len(self.path)] in _API_KEYS and variable_of(value) is not None
                self.problems.add_unknown(path, problems, is_note=may_be_missing)
                return text
            case list():
                return [self._expand(one, (*path, place)) for place, one in enumerate(value)]
            case dict():
                return {key: self._expand(one, (*path, key)) for key, one in value.items()}
        return value

    def _number(self, key: str, kind: type[int] | type[float]) -> Any:
        """A number, which may be the string value of a variable."""
        _, value = self._take(key)
        if isinstance(value, str) and has_variable(self._values[key]):
            try:
                return kind(value)
            except ValueError:
                return value
        return value

    def _wrong(self, key: str, value: Any, wanted: str) -> None:
        self.error(key, f"expected {wanted}, got {kind_of(value)}")


def existing_file(table: Table, key: str, folder: File | None) -> str | None:
    """The path of a file that must exist, relative to `folder`."""
    text = table.text(key)
    if text is None or table.inert:
        return None
    path = resolve_path(text, folder)
    try:
        mode = File(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        table.error(key, f"no such file: {path}")
        return None
    except OSError as error:
        table.error(key, file_problem(path, error))
        return None
    if not S_ISREG(mode):
        table.error(key, f"expected a file, got {file_kind(mode)}: {path}")
        return None
    return path


def _with_variables(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return has_variable(value) if isinstance(value, str) else any(map(_with_variables, inner))


def resolve_path(text: str, folder: File | None) -> str:
    """A path, relative to the folder of its file."""
    path = File(text).expanduser()
    return str(path if folder is None else folder / path)


def kind_of(value: Any) -> str:
    """The type of a value, in the file's terms.

    >>> kind_of("x"), kind_of(True), kind_of([])
    ('a string', 'a boolean', 'a list')
    """
    return "a table" if isinstance(value, dict) else describe_type(value)
