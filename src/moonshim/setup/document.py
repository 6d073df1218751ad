"""A configuration as plain values -> the text of a TOML file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any, Final, TypeAlias

__all__ = ["Document", "render", "without_nulls"]

Document: TypeAlias = dict[str, Any]
"""The top-level tables of a configuration, as `moonshim.toml` has them."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_ORDER: Final = ("providers", "aliases", "routes", "keys", "gateway", "timeouts", "retries", "limits", "prices")


def render(document: Document, *, comment: str = "") -> str:
    """The text of the file, which starts with the comment.

    >>> print(render({"aliases": {"claude-*": ["a/k3", "b/k3"]}, "gateway": {"port": 8484}, "prices": {}}))
    [aliases]
    "claude-*" = ["a/k3", "b/k3"]
    <BLANKLINE>
    [gateway]
    port = 8484
    <BLANKLINE>
    """
    names = sorted(document, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    blocks = ["".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())] if comment else []
    for name in names:
        blocks += _blocks(name, document[name])
    return "\n".join(blocks)


def _blocks(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value:
            yield _block(f"[{_key(name)}]", value)
    else:
        yield from (_block(f"[[{_key(name)}]]", one) for one in value)


def _block(header: str, table: Mapping[str, Any]) -> str:
    return "\n".join([header, *(f"{_key(key)} = {_value(value)}" for key, value in table.items())]) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _value(value: Any) -> str:
    match value:
        case dict():
            inner = ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case str():
            return _string(value)
        case date():
            return value.isoformat()
    return json.dumps(value)  # numbers and booleans are written as in JSON


def _string(text: str) -> str:
    """A TOML string. Half characters, which UTF-8 cannot express, become question marks."""
    whole = text.encode("utf-8", "replace").decode()
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")


def without_nulls(value: Any) -> Any:
    """The value without nulls, which TOML cannot express.

    >>> without_nulls({"a": None, "b": [1, None]})
    {'b': [1]}
    """
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value if one is not None] if isinstance(value, list) else value
