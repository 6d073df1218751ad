"""What Chat stores with a message, a tool or a request besides the canonical value, and functions to query it.

Parsing and rendering gives an equal result: these records hold what has no canonical field. Canonical fields always
win; a record only describes how they were written. The steps that adapt a request to its host use the functions
below, which take and return messages, and never read the fields of a record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from moonshim.engine.dialects.extras import read_extras, with_extras
from moonshim.engine.values.conversation import Media, Message, Part, Request, Text, Tool
from moonshim.engine.wire.json_codec import encode

__all__ = [
    "DIALECT",
    "NO_EXTRAS",
    "CallSlot",
    "ChatMediaExtras",
    "ChatMessageExtras",
    "ChatRequestExtras",
    "ChatToolExtras",
    "ContentSlot",
    "LegacyCall",
    "as_partial",
    "asks_for_search",
    "body_fields",
    "declared_tools",
    "definition_of",
    "extras_of",
    "has_legacy_call",
    "has_listed_content",
    "holds_unknown",
    "is_legacy_result",
    "is_partial",
    "is_plain",
    "is_refusal",
    "keep_parts",
    "lacks_call_id",
    "lacks_content",
    "legacy_result_name",
    "media_extras",
    "reasoning_fields",
    "refusal_as_text",
    "request_extras",
    "take_legacy_call",
    "unusual_role",
    "with_declared_tools",
    "with_plain_calls",
    "with_usual_role",
    "without_content_form",
    "without_content_list",
    "without_declared_tools",
    "without_empty_list",
    "without_form",
    "without_legacy_fields",
    "without_partial",
    "without_result_form",
    "without_result_name",
    "without_unread_calls",
]

DIALECT: Final = "openai_chat"
Json: TypeAlias = dict[str, Any]

_LEGACY: Final = ("functions", "function_call")


def asks_for_search(request: Request) -> bool:
    """Whether the body has `web_search_options`, Chat's declaration of a web search."""
    return isinstance(body_fields(request).get("web_search_options"), dict)


class ContentSlot(Struct, frozen=True, omit_defaults=True):
    """An entry of a content list that its part does not fully describe."""

    text: Json = {}
    """The other fields of a text entry."""
    raw: Any = UNSET
    """The entry itself, if it is not a part."""


class CallSlot(Struct, frozen=True, omit_defaults=True):
    """An entry of `tool_calls` that its call does not fully describe."""

    call: Json | None = None
    """The entry without the arguments."""
    of: str | None = None
    """The canonical id of its call."""
    text: bool = False
    """Whether the arguments were a string."""
    raw: Any = UNSET
    """The entry itself, if it is not a call."""

    @property
    def is_plain(self) -> bool:
        """Whether every host can read the entry: a function with its arguments as a string."""
        if self.call is None or not self.text:
            return False
        return self.call.get("type") in ("function", "builtin_function") and isinstance(self.call.get("function"), dict)


class ChatMessageExtras(Struct, frozen=True, omit_defaults=True):
    """How a Chat message was written."""

    fields: Json = {}
    """Fields as received: unknown ones, and known ones whose value is not a part (`content: null`)."""
    omit: tuple[str, ...] = ()
    """Fields that would be written but were missing."""
    content: tuple[ContentSlot | None, ...] | None = None
    """The content was a list: one slot per entry, None where the part describes it fully."""
    calls: tuple[CallSlot | None, ...] = ()
    """One slot per entry of `tool_calls`, None where the call describes it fully."""
    refusal: str | None = None
    """The text received as `refusal`, because the content is empty."""
    reasoning: tuple[str, ...] | None = None
    """The fields in which the reasoning was received; None: `reasoning_content`."""

    def lacks(self, field: str) -> bool:
        """Whether the message was received without this field, or with a value that is not a part."""
        return field in self.omit or field in self.fields


class ChatMediaExtras(Struct, frozen=True, omit_defaults=True):
    """How a content entry with an image, audio, video or file was written."""

    outer: Json = {}
    """Its other fields, outside of the inner object."""
    inner: Json = {}
    """The other fields of the inner object."""
    bare: bool = False
    """Whether the URL was in place of the inner object."""


class ChatToolExtras(Struct, frozen=True, omit_defaults=True):
    """How a tool was declared."""

    definition: Json = {}


class ChatRequestExtras(Struct, frozen=True, omit_defaults=True):
    """How a request was written."""

    fields: Json = {}
    """The body as received, without messages and tools."""
    has_tools: bool = False
    """Whether the body had `tools`, whatever its value."""


class LegacyCall(Struct, frozen=True):
    """A function call of the 2023 protocol, which had no ids."""

    name: str
    arguments: str


NO_EXTRAS: Final = ChatMessageExtras()
_NO_MEDIA: Final = ChatMediaExtras()
_NO_TOOL: Final = ChatToolExtras()
_NO_REQUEST: Final = ChatRequestExtras()
_USUAL_REASONING: Final = ("reasoning_content",)


# --- requests, tools, media -----------------------------------------------------------------------------------------


def request_extras(request: Request) -> ChatRequestExtras:
    return read_extras(request.extras, DIALECT, _NO_REQUEST)


def definition_of(tool: Tool) -> Json:
    """The received definition of a tool; empty for another dialect."""
    return read_extras(tool.extras, DIALECT, _NO_TOOL).definition


def media_extras(media: Media) -> ChatMediaExtras:
    return read_extras(media.extras, DIALECT, _NO_MEDIA) if media.extras else _NO_MEDIA


def body_fields(request: Request) -> Json:
    """The fields of the client's body without messages and tools; empty for another dialect."""
    return request_extras(request).fields


def without_legacy_fields(request: Request) -> tuple[Request, list[str]]:
    """The request without the 2023 fields that declare and choose functions, and the names of those fields."""
    extras = request_extras(request)
    old: list[str] = [name for name in _LEGACY if name in extras.fields]
    if not old:
        return request, []
    left = {name: value for name, value in extras.fields.items() if name not in old}
    return replace(request, extras=request.extras | {DIALECT: replace(extras, fields=left)}), old


# --- messages: reading ------------------------------------------------------------------------------------------


def extras_of(message: Message) -> ChatMessageExtras:
    return read_extras(message.extras, DIALECT, NO_EXTRAS) if message.extras else NO_EXTRAS


def is_plain(message: Message) -> bool:
    """Whether Chat stores nothing besides its parts. Most steps skip such messages."""
    return DIALECT not in message.extras


def unusual_role(message: Message) -> Any:
    """The received role if only some hosts know it (`developer`), else None."""
    return extras_of(message).fields.get("role")


def declared_tools(message: Message) -> Any:
    """The tools that a message declares, as received."""
    return extras_of(message).fields.get("tools")


def is_partial(message: Message) -> bool:
    """Whether the client asks the model to continue this message."""
    return bool(extras_of(message).fields.get("partial"))


def is_refusal(message: Message) -> bool:
    """Whether the text of the message was received as a refusal."""
    return extras_of(message).refusal is not None


def has_legacy_call(message: Message) -> bool:
    """Whether it has a function call of the 2023 protocol."""
    return "function_call" in extras_of(message).fields


def is_legacy_result(message: Message) -> bool:
    """Whether it is a function result of the 2023 protocol."""
    return message.role == "tool" and unusual_role(message) == "function"


def legacy_result_name(message: Message) -> str | None:
    """The function that a legacy result belongs to."""
    name = extras_of(message).fields.get("name")
    return name if isinstance(name, str) else None


def lacks_content(message: Message) -> bool:
    """Whether the message was received without content, or with null."""
    return extras_of(message).lacks("content")


def lacks_call_id(message: Message) -> bool:
    """Whether a result was received without an id, or with one that is not a string."""
    return extras_of(message).lacks("tool_call_id")


def has_listed_content(message: Message) -> bool:
    """Whether the content was a list of parts."""
    return extras_of(message).content is not None


def holds_unknown(message: Message) -> bool:
    """Whether it has content that only Chat knows. Such a message is not empty, even without parts."""
    return any(slot is not None and slot.raw is not UNSET for slot in extras_of(message).content or ())


def reasoning_fields(message: Message) -> tuple[str, ...]:
    """The fields in which the reasoning was received, or to which it would be written."""
    names = extras_of(message).reasoning
    return _USUAL_REASONING if names is None else names


# --- messages: changing -----------------------------------------------------------------------------------------


def _with_changes(message: Message, **changes: Any) -> Message:
    return with_extras(message, DIALECT, replace(extras_of(message), **changes))


def _with_field(message: Message, name: str, value: Any) -> Message:
    return _with_changes(message, fields={**extras_of(message).fields, name: value})


def _without_fields(message: Message, *names: str) -> Message:
    fields = extras_of(message).fields
    return _with_changes(message, fields={name: value for name, value in fields.items() if name not in names})


def _drop_stored(message: Message, *names: str) -> Message:
    """Drop what is stored for these fields: the parts have replaced it."""
    bare = _without_fields(message, *names)
    return _with_changes(bare, omit=tuple(name for name in extras_of(bare).omit if name not in names))


def with_usual_role(message: Message) -> Message:
    """The message with a role that every host knows."""
    return _without_fields(message, "role")


def with_declared_tools(message: Message, tools: list[Json]) -> Message:
    """The message declaring these tools instead of its own."""
    return _with_field(message, "tools", tools)


def without_declared_tools(message: Message) -> Message:
    return _without_fields(message, "tools")


def as_partial(message: Message) -> Message:
    """The message marked for the model to continue."""
    return _with_field(message, "partial", True)


def without_partial(message: Message) -> Message:
    return _without_fields(message, "partial")


def without_unread_calls(message: Message) -> tuple[Message, bool]:
    """Drop a `tool_calls` without a readable call; return whether there was one."""
    found = "tool_calls" in extras_of(message).fields
    return (_without_fields(message, "tool_calls") if found else message), found


def without_result_name(message: Message) -> Message:
    """Drop the tool name that was received with a result."""
    return _without_fields(message, "name") if "name" in extras_of(message).fields else message


def without_result_form(message: Message) -> Message:
    """A result whose content and id are written from its parts."""
    return _drop_stored(message, "content", "tool_call_id")


def without_content_form(message: Message) -> Message:
    """A message whose content is written from its parts, even if it was received without any."""
    return _drop_stored(message, "content")


def without_content_list(message: Message) -> Message:
    """A message whose content need not be a list."""
    return _with_changes(message, content=None)


def without_empty_list(message: Message) -> Message:
    """A message whose content is not an empty list; the same object if it was none."""
    return without_content_list(message) if extras_of(message).content == () else message


def without_form(message: Message) -> Message:
    """A message written from its parts, without any other field."""
    return _with_changes(message, content=None, omit=(), fields={})


def take_legacy_call(message: Message) -> tuple[Message, LegacyCall | None]:
    """The message without its legacy call, and that call; None if it has no name."""
    called = extras_of(message).fields.get("function_call")
    bare = _without_fields(message, "function_call")
    name = called.get("name") if isinstance(called, dict) else None
    if not isinstance(called, dict) or not isinstance(name, str):
        return bare, None
    arguments = called.get("arguments")
    text = arguments if isinstance(arguments, str) else encode({} if arguments is None else arguments).decode()
    return bare, LegacyCall(name, text)


def refusal_as_text(message: Message) -> Message:
    """Turn a refusal into ordinary text; an empty text before it is dropped."""
    bare = _drop_stored(_with_changes(message, refusal=None), "content")
    return keep_parts(bare, lambda part: part != Text(""))


def keep_parts(message: Message, stays: Callable[[Part], bool]) -> Message:
    """The message with only some of its parts, and their slots; the same object when all stay."""
    parts = tuple(part for part in message.parts if stays(part))
    if len(parts) == len(message.parts):
        return message
    slots = extras_of(message).content
    if slots is None:
        return replace(message, parts=parts)
    content = (stays(part) for part in message.parts if isinstance(part, (Text, Media)))
    left = tuple(slot for slot in slots if (slot is not None and slot.raw is not UNSET) or next(content, False))
    return replace(_with_changes(message, content=left or None), parts=parts)


def with_plain_calls(message: Message) -> tuple[Message, list[str]]:
    """Drop entries of `tool_calls` that hosts refuse; return what was wrong with them."""
    slots, wrong = extras_of(message).calls, list[str]()
    if all(slot is None or slot.is_plain for slot in slots):
        return message, wrong
    if any(slot is not None and slot.raw is not UNSET for slot in slots):
        wrong.append("entry of tool_calls dropped: it is not a tool call")
    if any(slot is not None and slot.call is not None and not slot.is_plain for slot in slots):
        wrong.append("tool call rewritten as type function with its arguments as a string")
    left = tuple(slot if slot is None or slot.is_plain else None for slot in slots if slot is None or slot.raw is UNSET)
    return _with_changes(message, calls=left if any(left) else ()), wrong
