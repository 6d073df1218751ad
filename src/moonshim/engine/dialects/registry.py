"""The name of a dialect -> the dialect, loaded when it is first asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from moonshim.engine.dialects.protocol import Dialect
from moonshim.errors import InvalidInput

__all__ = ["CLIENT_DIALECTS", "UPSTREAM_DIALECTS", "dialect_named"]

_HOMES: Final = {
    "openai_chat": "OPENAI_CHAT",
    "anthropic": "ANTHROPIC",
    "openai_responses": "OPENAI_RESPONSES",
}
CLIENT_DIALECTS: Final = tuple(_HOMES)
UPSTREAM_DIALECTS: Final = ("openai_chat", "anthropic")


def dialect_named(name: str, *, field: str = "dialect", among: tuple[str, ...] = CLIENT_DIALECTS) -> Dialect:
    """The dialect of this name; `InvalidInput` lists those that there are.

    >>> dialect_named("openai_chat").name
    'openai_chat'
    """
    if not isinstance(name, str) or name not in among:
        shown = repr(name) if isinstance(name, str) else type(name).__name__
        raise InvalidInput(f"there is no {field} {shown}; the names are {', '.join(among)}", field=field)
    return _load(name)


@cache
def _load(name: str) -> Dialect:
    found: Dialect = getattr(import_module(f"moonshim.engine.dialects.{name}.dialect"), _HOMES[name])
    return found
