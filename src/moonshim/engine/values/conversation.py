"""The canonical conversation: values that are independent of dialect and provider.

All values are frozen. Tool calls and results carry two ids: `id` (or `call_id`) is the canonical `hist_tool_*` id,
which never changes in a stored history; `wire_id` is the id as received, which the same dialect gets back unchanged.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, TypeAlias
from warnings import warn

from msgspec import Struct
from msgspec.structs import force_setattr

from moonshim.compat import FORMER_ROLES, FormerName

__all__ = [
    "Change",
    "Media",
    "Message",
    "Part",
    "Reasoning",
    "Request",
    "ResponseFormat",
    "Role",
    "Sampling",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "Usage",
    "token_count",
]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Text(Struct, frozen=True, tag="text"):
    """Visible content."""

    text: str


class Reasoning(Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """Reasoning. `Reasoning("")` is not the same as no reasoning at all."""

    text: str
    signature: str | None = None
    details: tuple[dict[str, Any], ...] = ()
    """`reasoning_details` as received, for hosts that require them in later requests."""
    field: str | None = None
    """Field name that a Chat host expects; None: as received, else `reasoning_content`."""


class ToolCall(Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """A tool call. `arguments` is the raw string that the model wrote."""

    id: str
    name: str
    arguments: str
    wire_id: str | None = None


class Media(Struct, frozen=True, tag="media", omit_defaults=True):
    """An image, audio, video or document, by URL or by value (base64)."""

    kind: Literal["image", "audio", "video", "file"]
    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    extras: dict[str, Any] = {}
    """By dialect: how the part was written, in a record that only this dialect reads (`dialects.<name>.extras`)."""
    name: str | None = None
    """File name or document title."""
    detail: str | None = None
    """Image detail: `low`, `high`, `auto`."""


class ToolResult(Struct, frozen=True, tag="tool_result", omit_defaults=True):
    """The result of the call whose canonical id is `call_id`."""

    call_id: str
    name: str | None = None
    parts: tuple[Text | Media, ...] = ()
    is_error: bool = False
    wire_id: str | None = None


Part: TypeAlias = Text | Reasoning | ToolCall | ToolResult | Media


class Message(Struct, frozen=True, omit_defaults=True):
    """One message of one role."""

    role: Role
    parts: tuple[Part, ...] = ()
    extras: dict[str, Any] = {}
    """By dialect: how the message was written, in a record that only this dialect reads (`dialects.<name>.extras`)."""

    def __post_init__(self) -> None:
        if self.role in FORMER_ROLES:
            warn(f"the role {self.role!r} is called {FORMER_ROLES[self.role]!r} now", DeprecationWarning, stacklevel=2)
            force_setattr(self, "role", FORMER_ROLES[self.role])

    @property
    def speaker(self) -> str:
        """Former name of `role`, with its former values."""
        warn("Message.speaker is called role now", DeprecationWarning, stacklevel=2)
        return next((former for former, role in FORMER_ROLES.items() if role == self.role), self.role)

    @property
    def is_one_text(self) -> bool:
        """Whether its only part is a text that is not empty. Most steps skip such messages, which keeps long
        histories cheap.

        >>> Message("user", (Text("hi"),)).is_one_text, Message("user", (Text(""),)).is_one_text
        (True, False)
        """
        parts = self.parts
        return len(parts) == 1 and type(parts[0]) is Text and bool(parts[0].text)


class Tool(Struct, frozen=True, omit_defaults=True):
    """A declared tool. `parameters` is a JSON schema, or None when there is none."""

    name: str
    """The name that the model sees, including the namespace (`github__search`)."""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    extras: dict[str, Any] = {}
    """By dialect: how the tool was declared, in a record that only this dialect reads (`dialects.<name>.extras`)."""
    kind: Literal["function", "custom", "server"] = "function"
    """`custom`: takes one free-form string, declared to the model as a function with one string parameter, `input`.
    `server`: run by the host itself; `name` identifies it (`web_search`)."""
    namespace: str | None = None
    """The namespace in which it was declared; `name` includes it."""
    deferred: bool = False
    """The client wants it loaded only when a tool search finds it."""
    strict: bool | None = None
    """Whether arguments must match the schema exactly."""


class Usage(Struct, frozen=True, omit_defaults=True):
    """Token counts, as far as the host reported them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    raw: dict[str, Any] = {}


_MAX_TOKENS: Final = 2**53
"""The largest integer that JSON carries without loss."""


def token_count(value: Any) -> int | None:
    """A token count reported by a host; None for an impossible value, which would distort every sum.

    >>> token_count(12), token_count(-1), token_count(10**30), token_count(True), token_count("12")
    (12, None, None, None, None)
    """
    return value if type(value) is int and 0 <= value <= _MAX_TOKENS else None


class ToolChoice(Struct, frozen=True, omit_defaults=True):
    """Whether a tool must be called, and which one."""

    mode: Literal["auto", "none", "required", "tool"]
    name: str | None = None
    """The tool to call when `mode` is `tool`."""
    allowed: tuple[str, ...] | None = None
    """The tools that may be called, if not all of them."""


class Thinking(Struct, frozen=True, omit_defaults=True):
    """Thinking settings; None where the client set nothing."""

    enabled: bool | None = None
    effort: str | None = None
    """`minimal`, `low`, `medium`, `high`, `xhigh`, `max`, or any other value as received."""
    budget: int | None = None
    keep: str | None = None
    """`all`: keep the reasoning of earlier turns."""


class Sampling(Struct, frozen=True, omit_defaults=True):
    """Sampling parameters, token limit and stop sequences."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    n: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


class ResponseFormat(Struct, frozen=True, omit_defaults=True):
    """Required format of the response."""

    kind: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One dialect-neutral request. System prompts are messages, whatever their position."""

    model: str
    messages: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] | None = None
    """None: not specified; an empty tuple: explicitly none."""
    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None
    sampling: Sampling = Sampling()
    thinking: Thinking = Thinking()
    response_format: ResponseFormat | None = None
    stream: bool | None = None
    include_usage: bool | None = None
    """Whether a stream should report usage (Chat's `stream_options`)."""
    user: str | None = None
    metadata: dict[str, Any] = {}
    cache_key: str | None = None
    locations: tuple[str, ...] = ()
    """Path of each message in the client's body (`messages[3]`, `system`), for error messages."""
    body_overrides: dict[str, Any] = {}
    """Body fields in the host's spelling. They override everything else; None removes a field."""
    extras: dict[str, Any] = {}
    """By dialect: how the request was written, in a record that only this dialect reads (`dialects.<name>.extras`)."""

    put: ClassVar[FormerName] = FormerName("body_overrides")
    places: ClassVar[FormerName] = FormerName("locations")


class Change(Struct, frozen=True, omit_defaults=True):
    """A part of a request that was not sent as received: the rule, the reason and the path."""

    rule: str
    detail: str
    place: str | None = None
