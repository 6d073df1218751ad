"""The body of a host request -> digests of its prompt, piece by piece; two of these -> the first difference.

Hosts cache prompts by their beginning: everything after the first difference is read again, at the full price. The
pieces are in the order of the prompt, and only digests are compared, so a request can be compared with an earlier one
whose text is not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.engine.wire.json_codec import encode

__all__ = [
    "PrefixChange",
    "PromptDigest",
    "added_messages",
    "common_length",
    "compare_prompts",
    "continues",
    "digest_prompt",
    "is_same_conversation",
    "is_user_message",
]

MAX_PIECES: Final = 4096
"""Number of tools, and of messages, that are compared; the rest is not."""
_SIZE: Final = 8
_NONE: Final = bytes(_SIZE)
_TEXT_KEYS: Final = frozenset({"type", "text"})

_BEFORE_MESSAGES: Final = (
    "thinking",
    "reasoning_effort",
    "reasoning",
    "output_config",
    "enable_thinking",
    "chat_template_kwargs",
)
"""Settings that templates write before the conversation."""
_AFTER_MESSAGES: Final = ("tool_choice", "response_format", "prompt_cache_key")
"""Settings that cost a prefix at some hosts only: written after the conversation, or used to find a machine."""

Section: TypeAlias = Literal["provider", "key", "model", "tools", "setting", "system", "messages"]
Action: TypeAlias = Literal["changed", "added", "removed", "reordered"]


class PromptDigest(Struct, frozen=True, array_like=True):
    """One prompt as digests, eight bytes for each piece. Without the key, no text can be found by trying."""

    provider: bytes
    key: bytes
    """Of the provider's API key: hosts cache by account."""
    model: bytes
    tools: bytes
    early: bytes
    """Of the settings before the conversation."""
    system: bytes
    messages: bytes
    """All messages that are not system prompts at the beginning."""
    late: bytes


class PrefixChange(Struct, frozen=True):
    """The first difference between two prompts: where it is, and what happened there."""

    section: Section
    action: Action = "changed"
    index: int = 0
    """In its section. System messages at the beginning of a conversation belong to `system`."""
    count: int = 1
    """How many pieces were added or removed."""
    name: str = ""
    """Of a setting."""
    is_branch: bool = False
    """Nothing after it is the same: the conversation was taken back to this point, and went on in another way."""

    def describe(self, body: Mapping[str, Any]) -> str:
        """What changed, in words; `body` is the later request, which has the names and roles.

        >>> body = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}
        >>> PrefixChange("messages", index=0).describe(body), PrefixChange("model").describe(body)
        ('messages[1] (user) changed', 'the model changed')
        """
        match self.section:
            case "provider" | "model":
                return f"the {self.section} changed"
            case "key":
                return "the API key of the provider changed"
            case "setting":
                return f"`{self.name}` changed"
            case _:
                return self._describe_piece(body)

    def _describe_piece(self, body: Mapping[str, Any]) -> str:
        place, kind = self._place(body)
        noun = {"tools": "tool", "system": "system block", "messages": "message"}[self.section]
        counted = f"1 {noun} was" if self.count == 1 else f"{self.count} {noun}s were"
        match self.action:
            case "changed":
                return f"{place}{kind} changed"
            case "reordered":
                return f"the {noun}s were reordered from {place} on"
            case "added":
                return f"{counted} added at {place}{kind}"
            case "removed":
                return f"{counted} removed at {place}"

    def _place(self, body: Mapping[str, Any]) -> tuple[str, str]:
        """Path of the piece in the body, and what it is."""
        name, index, blocks = self.section, self.index, _system_blocks(body)
        if name == "system" and index < len(blocks):
            return ("system" if isinstance(body["system"], str) else f"system[{index}]"), ""
        if name != "tools":
            index += -len(blocks) if name == "system" else _count_leading_system(_list_of(body, "messages"))
            name = "messages"
        return f"{name}[{index}]", _kind(_list_of(body, name), index)


def digest_prompt(
    body: Mapping[str, Any],
    secret: bytes,
    *,
    provider: str = "",
    key: str = "",
    encode: Callable[[Any], bytes] = encode,
) -> PromptDigest:
    """The digests of a request in the dialect of its host (Chat or Messages), as it is sent.

    Left out is what hosts do not write into the prompt: cache markers, and whether a text is a string or a list with
    one block.
    """
    start = sha256(secret)

    def digest(data: bytes) -> bytes:
        one = start.copy()
        one.update(data)
        return one.digest()[:_SIZE]

    def join(pieces: Iterable[Any]) -> bytes:
        return b"".join([digest(encode(_plain(piece))) for piece in pieces])

    def settings(names: Iterable[str]) -> bytes:
        return b"".join([digest(encode(body[name])) if body.get(name) is not None else _NONE for name in names])

    messages = _list_of(body, "messages")[:MAX_PIECES]
    leading = _count_leading_system(messages)
    return PromptDigest(
        provider=digest(encode(provider)),
        key=digest(encode(key)),
        model=digest(encode(body.get("model"))),
        tools=join(_list_of(body, "tools")[:MAX_PIECES]),
        early=settings(_BEFORE_MESSAGES),
        system=join(_system_blocks(body)[:MAX_PIECES]) + join(messages[:leading]),
        messages=join(messages[leading:]),
        late=settings(_AFTER_MESSAGES),
    )


def compare_prompts(previous: PromptDigest, current: PromptDigest) -> PrefixChange | None:
    """The first change to the previous prompt; None if the current one only continues it, or is a part of it."""
    targets: tuple[Section, ...] = ("provider", "key", "model")
    for section in targets:
        if getattr(previous, section) != getattr(current, section):
            return PrefixChange(section)
    if previous.tools != current.tools:
        return _compare_tools(_split(previous.tools), _split(current.tools))
    if (setting := _compare_settings(previous.early, current.early, _BEFORE_MESSAGES)) is not None:
        return setting
    if previous.system != current.system:
        return _compare_pieces("system", _split(previous.system), _split(current.system))
    old, new = previous.messages, current.messages
    if not (new.startswith(old) or old.startswith(new)):
        return _compare_pieces("messages", _split(old), _split(new))
    return _compare_settings(previous.late, current.late, _AFTER_MESSAGES)


def continues(previous: PromptDigest, current: PromptDigest) -> bool:
    """Whether the later prompt begins with the whole of the other, as almost every prompt does."""
    return (
        bool(previous.messages)
        and current.messages.startswith(previous.messages)
        and compare_prompts(previous, current) is None
    )


def is_same_conversation(previous: PromptDigest, current: PromptDigest) -> bool:
    """Whether the later prompt goes on where the other was, rather than having a session in common with it.

    At least half of the messages of the shorter one are in both. Requests for a title or a summary repeat messages
    too, but with another system prompt, and without the tools or for another model, or add no message.
    """
    shorter = min(len(previous.messages), len(current.messages)) // _SIZE
    if not shorter or 2 * _count_common(previous.messages, current.messages) < shorter:
        return False
    tools = max(len(previous.tools), len(current.tools)) // _SIZE
    differences = (
        (previous.provider, previous.model) != (current.provider, current.model),
        2 * _count_common(previous.tools, current.tools) < tools,
        previous.system != current.system and not _count_common(previous.system, current.system),
    )
    return sum(differences) < (1 if previous.messages == current.messages else 2)


def common_length(previous: PromptDigest, current: PromptDigest) -> int:
    """How many messages both begin with."""
    if current.messages.startswith(previous.messages):
        return len(previous.messages) // _SIZE
    return _first_difference(_split(previous.messages), _split(current.messages))


def added_messages(previous: PromptDigest, current: PromptDigest, body: Mapping[str, Any]) -> list[Any]:
    """The messages of the later request, `body`, by which it is longer."""
    count = (len(current.messages) - len(previous.messages)) // _SIZE
    return _list_of(body, "messages")[-count:] if count > 0 else []


def is_user_message(message: Any) -> bool:
    """Whether a user wrote it: some hosts then leave out the reasoning of the turns before it."""
    return isinstance(message, dict) and message.get("role") == "user" and not _has_results(message)


# --- pieces -------------------------------------------------------------------------------------------------------


def _list_of(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    return value if isinstance(value, list) else []


def _system_blocks(body: Mapping[str, Any]) -> list[Any]:
    """The system prompt of a Messages request."""
    system = body.get("system")
    return system if isinstance(system, list) else [] if system is None else [{"type": "text", "text": system}]


def _count_leading_system(messages: list[Any]) -> int:
    """Number of system messages at the beginning, as Chat has them."""
    return next((at for at, one in enumerate(messages) if not _is_system(one)), len(messages))


def _is_system(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in ("system", "developer")


def _plain(piece: Any) -> Any:
    """A tool, block or message without cache markers, which clients move from message to message; a list of one text
    as that text."""
    if not isinstance(piece, dict):
        return piece
    if "cache_control" in piece:
        piece = {name: value for name, value in piece.items() if name != "cache_control"}
    content = piece.get("content")
    if not isinstance(content, list):
        return piece
    blocks = [_plain(block) for block in content]
    if len(blocks) == 1 and isinstance(blocks[0], dict) and blocks[0].keys() == _TEXT_KEYS:
        return {**piece, "content": blocks[0]["text"]}
    return {**piece, "content": blocks}


def _has_results(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)


_LONGEST_NAME: Final = 64


def _kind(pieces: list[Any], index: int) -> str:
    """The name of a tool or the role of a message, in brackets; "" if it has none."""
    piece = pieces[index] if index < len(pieces) else None
    if not isinstance(piece, dict):
        return ""
    function = piece.get("function")
    named = function if isinstance(function, dict) else piece
    kind = piece.get("role") or named.get("name")
    if not isinstance(kind, str):
        return ""
    return " (tool)" if _has_results(piece) else f" ({kind[:_LONGEST_NAME]})"


# --- differences --------------------------------------------------------------------------------------------------


def _split(digests: bytes) -> list[bytes]:
    return [digests[at : at + _SIZE] for at in range(0, len(digests), _SIZE)]


def _count_common(previous: bytes, current: bytes) -> int:
    """Number of pieces of the shorter one that are in both, wherever they are."""
    if current.startswith(previous) or previous.startswith(current):
        return min(len(previous), len(current)) // _SIZE
    known = set(_split(previous))
    return min(sum(one in known for one in _split(current)), len(known))


def _first_difference(old: list[bytes], new: list[bytes]) -> int:
    pairs: Iterator[tuple[bytes, bytes]] = zip(old, new, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(old), len(new)))


def _compare_tools(old: list[bytes], new: list[bytes]) -> PrefixChange:
    at = _first_difference(old, new)
    before, after = set(old), set(new)
    if sorted(old) == sorted(new):
        return PrefixChange("tools", "reordered", at)
    if before < after:
        return PrefixChange("tools", "added", at, len(new) - len(old))
    if after < before:
        return PrefixChange("tools", "removed", at, len(old) - len(new))
    return PrefixChange("tools", "changed", at)


def _compare_settings(old: bytes, new: bytes, names: tuple[str, ...]) -> PrefixChange | None:
    if old == new:
        return None
    at = _first_difference(_split(old), _split(new))
    return PrefixChange("setting", name=names[at]) if at < len(names) else None


def _compare_pieces(section: Section, old: list[bytes], new: list[bytes]) -> PrefixChange:
    """Both have a different piece somewhere. Where the rest is the same again, pieces were added or removed."""
    at = _first_difference(old, new)
    rest, following = old[at:], new[at:]
    if not rest:
        return PrefixChange(section, "added", at, len(following))
    if not following:
        return PrefixChange(section, "removed", at, len(rest))
    if following[0] in rest:
        removed = rest.index(following[0])
        if following[: len(rest) - removed] == rest[removed:]:
            return PrefixChange(section, "removed", at, removed)
    if rest[0] in following:
        added = following.index(rest[0])
        if following[added : added + len(rest)] == rest:
            return PrefixChange(section, "added", at, added)
    is_branch = section == "messages" and set(rest).isdisjoint(following)
    return PrefixChange(section, "changed", at, is_branch=is_branch)
