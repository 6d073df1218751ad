"""The `extras` of a canonical value <-> the typed record that one dialect stores in them.

`extras` maps the name of a dialect to a frozen struct of that dialect, and only the dialect reads its fields. A value
loaded from a file has plain objects there instead, which are converted back to the struct.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from moonshim.engine.values.conversation import Message

__all__ = ["load_extras", "read_extras", "with_extras"]

Extras = TypeVar("Extras", bound=Struct)


def read_extras(extras: Mapping[str, Any], dialect: str, empty: Extras) -> Extras:
    """This dialect's record; `empty` if there is none."""
    found = extras.get(dialect)
    if found is None:
        return empty
    kind = type(empty)
    if type(found) is kind:
        return found
    loaded = load_extras(found, kind)
    return loaded if isinstance(loaded, kind) else empty


def load_extras(value: Any, kind: type[Struct]) -> Any:
    """Convert a plain object back to its record; anything else is returned unchanged."""
    if type(value) is kind:
        return value
    try:
        return convert(value, kind)
    except ValidationError:
        return value


def with_extras(message: Message, dialect: str, extras: Struct | None) -> Message:
    """The message with this record for the dialect; None or an empty record removes it."""
    others = {name: value for name, value in message.extras.items() if name != dialect}
    if extras is not None and extras != type(extras)():
        others[dialect] = extras
    return replace(message, extras=others)
