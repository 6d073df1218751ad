"""What the AI SDK's dialect holds of a message beside its parts."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import UNSET, Struct

from moonshim.engine.dialects.extras import read_extras
from moonshim.engine.values.conversation import Message

__all__ = ["DIALECT", "Json", "UiContentSlot", "VercelMessageExtras", "extras_of"]

DIALECT: Final = "vercel_ai"
Json: TypeAlias = dict[str, Any]


class UiContentSlot(Struct, frozen=True, omit_defaults=True):
    """An entry of a content list that its part does not say in full."""

    part: Json | None = None
    """The entry, where it is a part: used again only while it still says what its part says."""
    raw: Any = UNSET
    """The entry, where it is not a part."""


class VercelMessageExtras(Struct, frozen=True, omit_defaults=True):
    """How a model message was written."""

    fields: Json = {}
    """Fields of the message besides role and content (`providerOptions`)."""
    content: tuple[UiContentSlot | None, ...] | None = None
    """The content was a list: one slot for each entry, None where the part says it all."""


_NOTHING: Final = VercelMessageExtras()


def extras_of(message: Message) -> VercelMessageExtras:
    return read_extras(message.extras, DIALECT, _NOTHING)
