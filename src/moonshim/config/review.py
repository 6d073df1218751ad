"""A configuration file -> what it would run, read, reach and permit, without doing any of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from moonshim.config.endpoints import without_secrets
from moonshim.config.files.variables import variables_in
from moonshim.config.problems import Path, display_path
from moonshim.config.tables.transformers import is_plug_in

__all__ = ["Review", "review_of"]

_ADDRESSES: Final = frozenset({"api_base_url", "base_url", "baseUrl", "proxy", "PROXY_URL", "store"})
_FILES: Final = frozenset({"api_key_file", "api_key_from", "ca_bundle", "log_dir"})
_ACCESS: Final = frozenset({"host", "HOST", "allowed_hosts", "allowed_origins", "open_without_keys"})


class Review(Struct):
    """What to check before a configuration is trusted. Each line has the path and the value as written."""

    code: list[str] = []
    """Plug-ins and commands, as written."""
    variables: list[str] = []
    """Environment variables that it reads."""
    addresses: list[str] = []
    files: list[str] = []
    access: list[str] = []
    """Who may use a gateway with it."""


def review_of(value: Any) -> Review:
    """Review the values of a file; variables are not expanded.

    >>> review_of({"providers": [{"api_base_url": "http://x/${A}", "transformer": {"use": ["./mine.py:Mine"]}}]})
    Review(code=['./mine.py:Mine'], variables=['A'], addresses=['providers[0].api_base_url: http://x/${A}'], \
files=[], access=[])
    """
    found = Review()
    for path, one in _values(value, ()):
        names = [step for step in path if isinstance(step, str)]
        name = names[-1] if names else ""
        found.code += _plug_ins(path, one)
        if path == ("web_search", "command"):
            found.code.append(" ".join(map(str, one)) if isinstance(one, list) else str(one))
        if isinstance(one, dict | list):
            continue
        if isinstance(one, str):
            found.variables += [one] if name.endswith("_env") else variables_in(one)
        line = f"{display_path(path)}: {without_secrets(str(one))}"
        if name in _ADDRESSES or (isinstance(one, str) and "://" in one):
            found.addresses.append(line)
        elif name in _FILES:
            found.files.append(line)
        elif (name in _ACCESS and "providers" not in names) or names == ["keys", "name"]:
            found.access.append(line)
        elif names == ["APIKEY"]:
            found.access.append("APIKEY")
    for field in Review.__struct_fields__:
        setattr(found, field, list(dict.fromkeys(getattr(found, field))))
    return found


def _values(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """All nested values with their paths."""
    waiting: list[tuple[Path, Any]] = [(path, value)]
    while waiting:
        path, one = waiting.pop()
        yield path, one
        inner = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        waiting += reversed([((*path, step), part) for step, part in inner])


def _plug_ins(path: Path, value: Any) -> list[str]:
    """The plug-ins that this value names: in a list `use`, or as claude-code-router declares them."""
    match path, value:
        case (*_, "use", int()), str():
            names = [value]
        case (*_, "use", int()), [str() as first, *_]:
            names = [first]
        case (*_, "use", int()), dict():
            names = list(value)
        case ("transformers", int(), "path"), str():
            # Under its own name, so this need not look like a plug-in.
            return [value.strip()] if ".py" in value or is_plug_in(value) else []
        case _:
            names = []
    return [name for name in names if is_plug_in(name)]
