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
    "MOST_CHOICES",
    "TOKEN_COUNTS",
    "Change",
    "Media",
    "Message",
    "Part",
    "Reasoning",
    "Request",
    "ResponseFormat",
    "Role",
    "Sampling",
    "SearchSettings",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "Usage",
    "add_usage",
    "token_count",
]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Text(Struct, frozen=True, tag="text"):
    """Visible text of a message."""

    text: str


class Reasoning(Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """The model's reasoning in a message. `Reasoning("")` is not the same as no reasoning at all."""

    text: str
    signature: str | None = None
    """The signature that the host requires back with the reasoning."""
    details: tuple[dict[str, Any], ...] = ()
    """`reasoning_details` as received, for hosts that require them in later requests."""
    field: str | None = None
    """Field name that a Chat host expects; None: as received, else `reasoning_content`."""


class ToolCall(Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """A tool call in an assistant message."""

    id: str
    """The canonical id, unique in the conversation."""
    name: str
    arguments: str
    """The arguments as the string that the model wrote."""
    wire_id: str | None = None
    """The id in the client's or host's messages; None if there is none yet."""


class Media(Struct, frozen=True, tag="media", omit_defaults=True):
    """An image, audio, video or document, as a URL (`url`) or as base64 (`data`)."""

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
    context: str | None = None
    """What the client says about a document, for the model."""


class ToolResult(Struct, frozen=True, tag="tool_result", omit_defaults=True):
    """The result of a tool call."""

    call_id: str
    """The canonical id of the call."""
    name: str | None = None
    """The name of the tool, if known."""
    parts: tuple[Text | Media, ...] = ()
    is_error: bool = False
    """Whether the tool failed."""
    wire_id: str | None = None
    """The id in the client's or host's messages; None if there is none yet."""


Part: TypeAlias = Text | Reasoning | ToolCall | ToolResult | Media


class Message(Struct, frozen=True, omit_defaults=True):
    """One message of a conversation: a role and its parts."""

    role: Role
    parts: tuple[Part, ...] = ()
    extras: dict[str, Any] = {}
    """By dialect: how the message was written, in a record that only this dialect reads (`dialects.<name>.extras`)."""

    def __post_init__(self) -> None:
        if self.role in FORMER_ROLES:
            warn(f"the role {self.role!r} was renamed to {FORMER_ROLES[self.role]!r}", DeprecationWarning, stacklevel=2)
            force_setattr(self, "role", FORMER_ROLES[self.role])

    @property
    def speaker(self) -> str:
        """Former name of `role`, with its former values."""
        warn("Message.speaker was renamed to role", DeprecationWarning, stacklevel=2)
        return next((former for former, role in FORMER_ROLES.items() if role == self.role), self.role)

    @property
    def is_one_text(self) -> bool:
        """Whether the only part is non-empty text. Most steps skip such messages, which keeps long histories cheap.

        >>> Message("user", (Text("hi"),)).is_one_text, Message("user", (Text(""),)).is_one_text
        (True, False)
        """
        parts = self.parts
        return len(parts) == 1 and type(parts[0]) is Text and bool(parts[0].text)


class SearchSettings(Struct, frozen=True, omit_defaults=True):
    """What a client limits its web search to."""

    max_uses: int | None = None
    allowed: tuple[str, ...] = ()
    """Domains; a result must be on one of them or on a subdomain."""
    blocked: tuple[str, ...] = ()
    is_live: bool = True
    """False: only what was stored of the web before (Responses: `external_web_access`), which nobody here has."""


class Tool(Struct, frozen=True, omit_defaults=True):
    """A declared tool. `parameters` is its JSON schema, or None if it has none."""

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
    search: SearchSettings | None = None
    """Set for a web search of `kind="server"`, which somebody may run in the host's place."""


class Usage(Struct, frozen=True, omit_defaults=True):
    """Token counts, as far as the host reported them. None: not reported."""

    input_tokens: int | None = None
    """All input, including what was read from the host's prompt cache and what was written to it."""
    output_tokens: int | None = None
    """All output, including reasoning."""
    cached_tokens: int | None = None
    """The part of the input that was read from the cache."""
    reasoning_tokens: int | None = None
    raw: dict[str, Any] = {}
    """The usage as the host reported it."""
    cache_write_tokens: int | None = None
    """The part of the input that was written to the cache, for any lifetime."""
    cache_write_1h_tokens: int | None = None
    """The part of `cache_write_tokens` that is cached for an hour."""
    rejected_tokens: int | None = None
    """The part of the output that was predicted and rejected: it is charged, and not in the response."""


TOKEN_COUNTS: Final = tuple(name for name in Usage.__struct_fields__ if name != "raw")
"""The fields of `Usage` that are numbers."""


def add_usage(one: Usage | None, other: Usage | None) -> Usage | None:
    """The sum of two responses; what only one of them reported counts as it is. Of what the hosts said, the cost stays.

    >>> add_usage(Usage(10, 2), Usage(20, 3, cached_tokens=10)) == Usage(30, 5, cached_tokens=10)
    True
    >>> add_usage(Usage(raw={"cost": 0.25, "total_tokens": 9}), Usage(raw={"cost": 0.5})).raw
    {'cost': 0.75}
    """
    if one is None or other is None:
        return one or other
    sums: dict[str, Any] = {}
    for name in TOKEN_COUNTS:
        counts = [count for usage in (one, other) if (count := getattr(usage, name)) is not None]
        sums[name] = sum(counts) if counts else None
    costs = [cost for usage in (one, other) if type(cost := usage.raw.get("cost")) in (int, float)]
    return Usage(**sums, raw={"cost": sum(costs)} if costs else {})


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


MOST_CHOICES: Final = 128
"""Responses to one request (`n`): OpenAI's limit. What a request may use is estimated with it."""


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
    cache_ttl: str | None = None
    """How long the host is asked to cache the prompt (`5m`, `1h`), as the client wrote it."""
    locations: tuple[str, ...] = ()
    """Path of each message in the client's body (`messages[3]`, `system`), for error messages."""
    body_overrides: dict[str, Any] = {}
    """Body fields in the host's spelling. They override everything else; None removes a field."""
    extras: dict[str, Any] = {}
    """By dialect: how the request was written, in a record that only this dialect reads (`dialects.<name>.extras`)."""

    put: ClassVar[FormerName] = FormerName("body_overrides")
    places: ClassVar[FormerName] = FormerName("locations")


class Change(Struct, frozen=True, omit_defaults=True):
    """One difference between the request that the client sent and the request that the host gets."""

    rule: str
    """The name of the rule (docs/reference/requests.md)."""
    detail: str
    """What was changed and why, for people."""
    place: str | None = None
    """The path of the field (`messages[3]`); None if the change belongs to no single field."""
