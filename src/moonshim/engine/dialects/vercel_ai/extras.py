"""What the AI SDK dialect stores with a message besides its parts."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import UNSET, Struct

from moonshim.engine.dialects.extras import read_extras
from moonshim.engine.values.conversation import Message

__all__ = ["DIALECT", "Json", "UiContentSlot", "VercelMessageExtras", "extras_of"]

DIALECT: Final = "vercel_ai"
Json: TypeAlias = dict[str, Any]


class UiContentSlot(Struct, frozen=True, omit_defaults=True):
    """An entry of a content list that its part does not fully describe."""

    part: Json | None = None
    """The entry, if it is a part: reused only while it still equals its part."""
    raw: Any = UNSET
    """The entry, if it is not a part."""


class VercelMessageExtras(Struct, frozen=True, omit_defaults=True):
    """How a model message was written."""

    fields: Json = {}
    """Message fields other than role and content (`providerOptions`)."""
    content: tuple[UiContentSlot | None, ...] | None = None
    """The content was a list: one slot per entry, None where the part describes it fully."""


_NOTHING: Final = VercelMessageExtras()


def extras_of(message: Message) -> VercelMessageExtras:
    return read_extras(message.extras, DIALECT, _NOTHING)
