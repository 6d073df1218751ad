"""The fields of a host profile: everything to know about a host and a model generation."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "Fixed",
    "Generation",
    "GrammarName",
    "HistoryIds",
    "HostProfile",
    "IdPolicy",
    "MediaKind",
    "ReasoningIn",
    "SessionHeader",
    "ThinkingStyle",
    "UpstreamDialect",
]

Generation: TypeAlias = Literal["k2", "k2-thinking", "k2.5", "k2.6", "k2.7", "k3", "k3.1", "kimi", "other"]
UpstreamDialect: TypeAlias = Literal["openai_chat", "anthropic"]
IdPolicy: TypeAlias = Literal["k2", "unique", "keep"]
HistoryIds: TypeAlias = Literal["k2", "k2_repair", "k2_messages", "unique", "keep", "standard", "anthropic", "mistral"]
ReasoningIn: TypeAlias = Literal["reasoning_content", "reasoning", "reasoning_details", "echo", "thinking"]
ReasoningOut: TypeAlias = Literal["reasoning_content", "reasoning", "reasoning_details", "thinking"]
ThinkingStyle: TypeAlias = Literal[
    "thinking_object",
    "reasoning_effort",
    "template_kwargs",
    "openrouter_reasoning",
    "enable_thinking",
    "anthropic",
    "output_config",
    "passed",
]
ToolMode: TypeAlias = Literal["auto", "none", "required", "tool"]
MediaKind: TypeAlias = Literal["image", "audio", "video", "file"]
SessionHeader: TypeAlias = Literal["x-opencode-session", "x-session-affinity"]
SamplingField: TypeAlias = Literal["temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "n"]
GrammarName: TypeAlias = Literal[
    "kimi_k2",
    "kimi_k3",
    "kimi",
    "hermes",
    "qwen_xml",
    "deepseek",
    "deepseek_dsml",
    "llama_json",
    "pythonic",
    "gemma",
    "glm",
    "mistral",
    "minimax",
]


class Fixed(Struct, frozen=True):
    """The only values that a sampling field may have. Omitting it is always valid."""

    thinking: tuple[float, ...] = ()
    plain: tuple[float, ...] = ()
    """With thinking disabled."""


class HostProfile(Struct, frozen=True, kw_only=True):
    """The profile of one host and model generation. `profile_for` creates it; every field can be overridden by name."""

    host: str
    """Host name."""
    generation: Generation
    """Kimi generation; `kimi` for a Kimi whose name has none, `other` for every other model."""
    dialect: UpstreamDialect
    """The protocol that the host speaks."""

    # --- identifiers
    id_policy: IdPolicy
    """How ids in a reply are rewritten: `k2`: `functions.name:n`; `unique`: only repeated ones; `keep`: never."""
    history_ids: HistoryIds
    """How ids in the history are rewritten: `k2`: from their position; `k2_repair`: only those that are not
    `functions.name:n`, or repeat a number; `k2_messages`: from their position, with characters that Messages allows;
    `unique`: only repeated ones; `keep`: never; `standard`, `anthropic`, `mistral`: valid for such
    models (at most 40 letters, digits, `_` and `-`; at most 64 of them; nine letters and digits), and unique."""

    # --- reasoning in the history
    reasoning_in: ReasoningIn | None
    """Where the reasoning of earlier turns is sent: in the field of this name (`reasoning_details` if the host sent
    some, plus `reasoning` for plain text), under the name it was received by (`echo`; `reasoning_content` if none),
    as `thinking` blocks, or, with None, not at all."""
    reasoning_out: ReasoningOut | None
    """Where the host puts the reasoning of its response."""
    lost_reasoning: Literal["", " "] | None
    """Sent with an assistant message that has calls but lost its reasoning; None: nothing."""
    keeps_reasoning: Literal["all", "calls", "none"]
    """Which assistant messages are sent with their reasoning: all, those with calls, or none."""
    signature_pattern: str | None
    """Signatures must match this to be sent back: the form of the host's own. None: any signature is sent."""
    signed_reasoning: bool
    """Whether reasoning is sent back only with a signature: Claude refuses a thinking block without one."""
    indexed_details: bool
    """Whether OpenRouter's `reasoning_details` entries are sent back with their streaming `index`."""

    # --- thinking
    thinking: ThinkingStyle | None
    """How a request sets thinking. None: it cannot; `passed`: as the client set it."""
    thinking_default: Literal["on", "off"] | None
    """What the model does without a setting; None: unknown."""
    can_disable: bool
    """Whether thinking can be disabled."""
    efforts: dict[str, str]
    """Maps a client's effort to the host's value; empty: effort cannot be set."""
    keep_all: bool
    """Whether `keep: "all"`, which keeps the reasoning of all earlier turns in the prompt, is supported."""
    always_keeps: bool
    """Whether the model always sees the reasoning of all earlier turns."""
    thinking_headroom: int | None
    """Tokens that are added to the limit of a client that disabled thinking, where the model thinks all the same: its
    reasoning shares the limit. None: nothing is added."""

    # --- sampling
    fixed_sampling: dict[SamplingField, Fixed]
    """Fields that accept only certain values."""
    temperature_max: float | None
    """Highest accepted temperature."""
    one_when_greedy: bool
    """Whether a temperature near 0 requires `n` to be 1."""
    stop_limit: tuple[int, int] | None
    """Maximum number of stop sequences, and bytes in each."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None
    """Field for the output token limit, for hosts that know only one; None: either."""
    default_max_tokens: int | None
    """Sent when the client set no limit; None: nothing."""
    output_limit: int | None
    """Highest accepted output token limit."""
    clips_output: bool
    """Whether the host clips a limit that does not fit after the prompt; other hosts refuse it."""
    context_window: int | None
    """Maximum number of tokens in prompt and response together."""

    # --- tools
    tool_choice_with_thinking: frozenset[ToolMode]
    """The `tool_choice` modes accepted while the model thinks."""
    named_choice: bool
    """Whether a choice of one tool by name is obeyed, even without thinking."""
    enforces_choice: bool
    """Whether a forced call is certain, so that the response needs no check."""
    allowed_tools: bool
    """Whether a request can restrict which of its tools may be called."""
    tool_name_pattern: str | None
    """What a tool name must match."""
    tool_name_limit: int | None
    """Longest tool name, in characters."""
    tool_limit: int | None
    """Maximum number of declared tools."""
    schema_flavour: Literal["moonshot"] | None
    """The JSON Schema flavour required for parameters and response formats."""
    schema_limit: int | None
    """Largest schema in that flavour, in bytes of JSON. One that is larger is shortened. None: Moonshot's own limit."""
    typed_tools: bool
    """Whether Anthropic-defined client tools (`bash_20250124`) are known by their type."""
    web_search: Literal["$web_search"] | None
    """The name of the web search that the host runs itself."""
    dynamic_tools: bool
    """Whether a system message may declare further tools (`messages[].tools`)."""

    # --- messages
    empty_content: Literal["omit", "allow"]
    """Whether an assistant message with calls only is sent without `content`, or may have an empty one."""
    drops_empty_text: bool
    """Whether empty text must be removed from messages."""
    system_anywhere: bool
    """Whether a system message may appear in the middle of the conversation."""
    merges_roles: bool
    """Whether consecutive messages of one role must be merged."""
    media: frozenset[MediaKind]
    """Media kinds that the model accepts."""

    # --- headers
    api_version: str | None
    """The `anthropic-version` that is sent, whatever the client's is; None: the client's."""
    beta_flags: frozenset[str] | None
    """The flags of `anthropic-beta` that are passed on; None: all."""
    session_header: SessionHeader | None
    """The header for an id of the conversation; None: no such header."""

    # --- structured output
    structured_output: Literal["enforced", "json_schema", "json_object"] | None
    """What the host has for an answer in JSON. `enforced`: the answer is certain to match a schema; `json_schema`: a
    schema is accepted, but the answer may not match it; `json_object`: only valid JSON can be asked for; None:
    nothing. What the host has no field for is described to the model."""

    # --- the rest
    streaming: Literal["both", "only", "never"]
    """Whether the host supports streaming and single responses, only streams, or only single responses."""
    takes_cache_key: bool
    """Whether `prompt_cache_key` is accepted."""
    cache_ttl: Literal["passed", "prompt_cache_options", "cache_control"] | None
    """The field for the lifetime of the cached prompt, `5m` or `1h`. `passed`: not known, so a client's own fields are
    sent as received; –: the host has no lifetimes to choose from."""
    shows_reasoning: bool
    """Whether all reasoning is in the response: what is charged and not there was lost."""
    reads_markers: bool
    """Whether the host finds every call in what the model wrote: a call in markers in its text is then a quotation, or
    text that the host could not read, and never run."""
    defuse: bool
    """Whether special tokens of the prompt format in texts of users, tools and the model are sent with an invisible
    joiner in them, which is removed from the response: a server that encodes the prompt as one text would take them for
    the end of a message."""
    grammar: GrammarName | None
    """The grammar for calls that leak into the text as markers; None: they are not parsed."""
