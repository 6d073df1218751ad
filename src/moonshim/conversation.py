"""The canonical conversation: values that belong to no dialect and to no provider.

Everything here is frozen. Tool calls and results carry two identifiers: `id` (or
`call_id`) is the canonical one, `hist_tool_*`, which the stored history keeps for
ever; `wire_id` is the identifier as it came, so that the same dialect gets it back
untouched.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "Media",
    "Message",
    "Part",
    "Reasoning",
    "Speaker",
    "Text",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Usage",
]

Speaker: TypeAlias = Literal["system", "human", "ai", "tool"]


class Text(Struct, frozen=True, tag="text"):
    """What is said."""

    text: str


class Reasoning(Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """What was thought. `Reasoning("")` is not the same as no reasoning at all."""

    text: str
    signature: str | None = None
    details: tuple[dict[str, Any], ...] = ()
    """`reasoning_details` as the host sent them, for hosts that want them back."""


class ToolCall(Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """A call of a tool. The arguments stay the text that the model wrote."""

    id: str
    name: str
    arguments: str
    wire_id: str | None = None


class Media(Struct, frozen=True, tag="media", omit_defaults=True):
    """An image, a sound, a document: by address or by value (base64)."""

    kind: Literal["image", "audio", "video", "file"]
    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    extras: dict[str, Any] = {}
    """What the dialect it came from says besides, for that dialect alone."""


class ToolResult(Struct, frozen=True, tag="tool_result", omit_defaults=True):
    """What a tool gave back, for the call whose canonical identifier is `call_id`."""

    call_id: str
    name: str | None = None
    parts: tuple[Text | Media, ...] = ()
    is_error: bool = False
    wire_id: str | None = None


Part: TypeAlias = Text | Reasoning | ToolCall | ToolResult | Media


class Message(Struct, frozen=True, omit_defaults=True):
    """One turn of one speaker."""

    speaker: Speaker
    parts: tuple[Part, ...] = ()
    extras: dict[str, Any] = {}
    """Fields of the message that only its own dialect knows (`name`, `partial`, …)."""


class Tool(Struct, frozen=True, omit_defaults=True):
    """A tool as it was declared. `parameters` is a JSON schema, or None when none was given."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    extras: dict[str, Any] = {}
    """Fields of the definition that only its own dialect knows (`strict`, `cache_control`, …)."""


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens spent, as far as the host said."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    raw: dict[str, Any] = {}
