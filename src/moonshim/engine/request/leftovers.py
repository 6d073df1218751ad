"""What the Chat dialect keeps beside the parts of a message, made to fit when the parts have changed.

The forms are described in `dialects.openai_chat.messages`: `fields` and `omit` for the
fields of the message, `content` and `calls` with a slot for each entry of a list. Other
dialects find out by themselves what has changed; of Messages (`came`, `half`) only has to be
known which messages it would leave apart, and what they hold that is no part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from moonshim.engine.values.conversation import Media, Message, Part, Text

__all__ = [
    "CHAT",
    "MESSAGES",
    "came",
    "came_apart",
    "came_with_listed_results",
    "fields_of",
    "holds_unknown",
    "joined",
    "kept_of",
    "lacks",
    "more_follows",
    "only",
    "only_said",
    "without",
    "without_fields",
]

Json: TypeAlias = dict[str, Any]

CHAT: Final = "openai_chat"
MESSAGES: Final = "anthropic"

_KNOWN_BLOCKS: Final = (
    *("text", "thinking", "redacted_thinking", "image", "document"),
    *("tool_use", "tool_result", "search_result", "tool_reference"),
)


def kept_of(message: Message, dialect: str = CHAT) -> Json:
    """What a dialect keeps beside the parts: never to be changed."""
    kept = message.extras.get(dialect)
    return kept if isinstance(kept, dict) else {}


def fields_of(message: Message) -> Json:
    """The fields of a Chat message that are not in its parts."""
    if not message.extras:
        return {}
    fields = kept_of(message).get("fields")
    return fields if isinstance(fields, dict) else {}


def lacks(message: Message, field: str) -> bool:
    """Whether a Chat message came without this field, or with something in it that says nothing."""
    return field in kept_of(message).get("omit", ()) or field in fields_of(message)


def without(message: Message, *names: str) -> Message:
    """The message without some of what Chat keeps: it is written afresh."""
    kept = {name: value for name, value in kept_of(message).items() if name not in names}
    extras = {name: value for name, value in message.extras.items() if name != CHAT}
    return replace(message, extras=extras | {CHAT: kept} if kept else extras)


def without_fields(message: Message, *names: str) -> Message:
    """The message without some of its Chat fields."""
    fields = {name: value for name, value in fields_of(message).items() if name not in names}
    bare = without(message, "fields")
    if not fields:
        return bare
    return replace(bare, extras=bare.extras | {CHAT: kept_of(bare) | {"fields": fields}})


def only_said(message: Message, *names: str) -> Message:
    """The message without what Chat keeps of these fields: by now the parts say it."""
    bare = without_fields(message, *names)
    omitted = [name for name in kept_of(bare).get("omit", ()) if name not in names]
    bare = without(bare, "omit")
    return replace(bare, extras=bare.extras | {CHAT: kept_of(bare) | {"omit": omitted}}) if omitted else bare


def holds_unknown(message: Message, dialect: str) -> bool:
    """Whether a part that only its dialect knows is in the message, so that it is not as empty as it looks."""
    kept = kept_of(message, dialect)
    if dialect == MESSAGES:
        whole = kept.get("came")
        blocks = whole.get("content") if isinstance(whole, dict) else None
        return isinstance(blocks, list) and any(map(_is_unknown, blocks))
    slots = kept.get("content")
    return isinstance(slots, list) and any(isinstance(slot, dict) and "raw" in slot for slot in slots)


def _is_unknown(block: Json) -> bool:
    source = block.get("source")
    by_file = isinstance(source, dict) and source.get("type") == "file"
    return by_file or block.get("type") not in _KNOWN_BLOCKS


def came(message: Message) -> bool:
    """Whether it came in Messages, which writes it as near to that as can be."""
    return "came" in kept_of(message, MESSAGES)


def came_apart(message: Message) -> bool:
    """Whether Messages would leave it apart from one of the same role that came before it, as real hosts allow."""
    return came(message) and kept_of(message, MESSAGES).get("half") != 2


def more_follows(message: Message) -> bool:
    """Whether these are the results of a message that came in Messages and says more, which stands behind them."""
    return kept_of(message, MESSAGES).get("half") == 1


def came_with_listed_results(message: Message) -> bool:
    """Whether it came in Messages with a result that says nothing in a list of blocks, not in a text."""
    whole = kept_of(message, MESSAGES).get("came")
    blocks = whole.get("content") if isinstance(whole, dict) else None
    return isinstance(blocks, list) and any(isinstance(block.get("content"), list) for block in blocks)


def joined(message: Message) -> Message:
    """The message as one that Messages joins to the one before it."""
    others = {name: value for name, value in message.extras.items() if name != MESSAGES}
    if message.role == "tool":
        return replace(message, extras=others)
    return replace(message, extras=others | {MESSAGES: kept_of(message, MESSAGES) | {"half": 2}})


def only(message: Message, stays: Callable[[Part], bool]) -> Message:
    """The message with some of its parts, and with the slots of those; itself when all of them stay."""
    parts = tuple(part for part in message.parts if stays(part))
    if len(parts) == len(message.parts):
        return message
    slots = kept_of(message).get("content")
    if not isinstance(slots, list):
        return replace(message, parts=parts)
    content, left = (stays(part) for part in message.parts if isinstance(part, (Text, Media))), list[Any]()
    for slot in slots:
        if (isinstance(slot, dict) and "raw" in slot) or next(content, False):
            left.append(slot)
    bare = without(message, "content")
    extras = bare.extras | ({CHAT: kept_of(bare) | {"content": left}} if left else {})
    return replace(bare, parts=parts, extras=extras)
