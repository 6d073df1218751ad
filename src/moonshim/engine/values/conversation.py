"""The canonical conversation: values that belong to no dialect and to no provider.

Everything here is frozen. Tool calls and results carry two identifiers: `id` (or
`call_id`) is the canonical one, `hist_tool_*`, which the stored history keeps for
ever; `wire_id` is the identifier as it came, so that the same dialect gets it back
untouched.
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
    """What is said."""

    text: str


class Reasoning(Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """What was thought. `Reasoning("")` is not the same as no reasoning at all."""

    text: str
    signature: str | None = None
    details: tuple[dict[str, Any], ...] = ()
    """`reasoning_details` as the host sent them, for hosts that want them back."""
    field: str | None = None
    """Under which name a Chat host wants it; None: as it came, else `reasoning_content`."""


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
    """By dialect: how the part was written, in a record that only this dialect reads (`dialects.<name>.extras`)."""
    name: str | None = None
    """The file's name, or the document's title."""
    detail: str | None = None
    """How closely an image is to be looked at: `low`, `high`, `auto`."""


class ToolResult(Struct, frozen=True, tag="tool_result", omit_defaults=True):
    """What a tool gave back, for the call whose canonical identifier is `call_id`."""

    call_id: str
    name: str | None = None
    parts: tuple[Text | Media, ...] = ()
    is_error: bool = False
    wire_id: str | None = None


Part: TypeAlias = Text | Reasoning | ToolCall | ToolResult | Media


class Message(Struct, frozen=True, omit_defaults=True):
    """One turn of one role."""

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
        """The former name of `role`, with its former values."""
        warn("Message.speaker is called role now", DeprecationWarning, stacklevel=2)
        return next((former for former, role in FORMER_ROLES.items() if role == self.role), self.role)

    @property
    def is_one_text(self) -> bool:
        """Whether its parts are one text that is not empty. Most steps skip such messages: many small ones are cheap.

        >>> Message("user", (Text("hi"),)).is_one_text, Message("user", (Text(""),)).is_one_text
        (True, False)
        """
        parts = self.parts
        return len(parts) == 1 and type(parts[0]) is Text and bool(parts[0].text)


class Tool(Struct, frozen=True, omit_defaults=True):
    """A tool as it was declared. `parameters` is a JSON schema, or None when none was given."""

    name: str
    """The name that the model sees; a tool of a namespace has that before it (`github__search`)."""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    extras: dict[str, Any] = {}
    """By dialect: how the tool was declared, in a record that only this dialect reads (`dialects.<name>.extras`)."""
    kind: Literal["function", "custom", "server"] = "function"
    """`custom` takes one free text, said to the model as a function of one string, `input`; `server` is run by the
    host itself, and its `name` says what it is (`web_search`)."""
    namespace: str | None = None
    """The namespace that it was declared in, which is a part of its name."""
    deferred: bool = False
    """The client wanted it loaded only when it is searched for."""
    strict: bool | None = None
    """Whether the arguments have to follow the schema to the letter."""


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens spent, as far as the host said."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    raw: dict[str, Any] = {}


_MOST_TOKENS: Final = 2**53
"""What JSON carries without loss; no host has counted so far."""


def token_count(value: Any) -> int | None:
    """A number of tokens as a host told it. What cannot be one counts as not told: it would be added up for ever.

    >>> token_count(12), token_count(-1), token_count(10**30), token_count(True), token_count("12")
    (12, None, None, None, None)
    """
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


class ToolChoice(Struct, frozen=True, omit_defaults=True):
    """Whether a tool has to be called, and which."""

    mode: Literal["auto", "none", "required", "tool"]
    name: str | None = None
    """The tool that has to be called, when the mode is `tool`."""
    allowed: tuple[str, ...] | None = None
    """The tools that may be called, when that is not all of them."""


class Thinking(Struct, frozen=True, omit_defaults=True):
    """How much to think; None where the client did not say."""

    enabled: bool | None = None
    effort: str | None = None
    """`minimal`, `low`, `medium`, `high`, `xhigh`, `max`; any other word as the client wrote it."""
    budget: int | None = None
    keep: str | None = None
    """`all`: the reasoning of former turns is to be kept."""


class Sampling(Struct, frozen=True, omit_defaults=True):
    """How to pick tokens, how many, and where to stop."""

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
    """What form the answer must have."""

    kind: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request, in no dialect. System prompts are messages, wherever they stood."""

    model: str
    messages: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] | None = None
    """None: nothing was said; an empty tuple: there are none."""
    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None
    sampling: Sampling = Sampling()
    thinking: Thinking = Thinking()
    response_format: ResponseFormat | None = None
    stream: bool | None = None
    include_usage: bool | None = None
    """Whether a stream is to tell the usage (Chat asks for it)."""
    user: str | None = None
    metadata: dict[str, Any] = {}
    cache_key: str | None = None
    locations: tuple[str, ...] = ()
    """Where each message stood in the client's body (`messages[3]`, `system`), for errors that name it."""
    body_overrides: dict[str, Any] = {}
    """Fields of the body as this host spells them: written over everything else, and left out where None."""
    extras: dict[str, Any] = {}
    """By dialect: how the request was written, in a record that only this dialect reads (`dialects.<name>.extras`)."""

    put: ClassVar[FormerName] = FormerName("body_overrides")
    places: ClassVar[FormerName] = FormerName("locations")


class Change(Struct, frozen=True, omit_defaults=True):
    """Something in a request that was not sent as it came: by which rule, where, and why."""

    rule: str
    detail: str
    place: str | None = None
