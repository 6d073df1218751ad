"""The fields of a host profile: everything that has to be known of a host and a model generation, with its meaning."""

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
    "ThinkingStyle",
    "UpstreamDialect",
]

Generation: TypeAlias = Literal["k2", "k2-thinking", "k2.5", "k2.6", "k2.7", "k3", "k3.1", "other"]
UpstreamDialect: TypeAlias = Literal["openai_chat", "anthropic"]
IdPolicy: TypeAlias = Literal["k2", "unique", "keep"]
HistoryIds: TypeAlias = Literal["k2", "k2_messages", "unique", "keep", "standard", "anthropic", "mistral"]
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
    """The only values that a sampling field may have. Left out is always right."""

    thinking: tuple[float, ...] = ()
    plain: tuple[float, ...] = ()
    """With thinking switched off."""


class HostProfile(Struct, frozen=True, kw_only=True):
    """The profile of one host and model generation. `profile_for` makes it; every field can be overridden by name."""

    host: str
    """The name of the host."""
    generation: Generation
    """The generation of Kimi models; `other` for every other model."""
    dialect: UpstreamDialect
    """What the host is spoken to in."""

    # --- identifiers
    id_policy: IdPolicy
    """What the identifiers in a reply get: `k2`: `functions.name:n`; `unique`: only what repeats is changed; `keep`."""
    history_ids: HistoryIds
    """What the identifiers in the history get: `k2`: made anew from their position; `k2_messages`: the same, with
    characters that Messages allows; `unique`: only what repeats is changed; `keep`: nothing; `standard`, `anthropic`,
    `mistral`: legal for such models (at most 40 letters, digits, `_` and `-`; at most 64 of them; nine letters and
    digits), and unique."""

    # --- reasoning in the history
    reasoning_in: ReasoningIn | None
    """Where the reasoning of former turns is sent: in the field of this name (`reasoning_details` where the host gave
    some, `reasoning` for plain text beside them), under the name it came by (`echo`; `reasoning_content` if it had
    none), as `thinking` blocks, or, with None, nowhere."""
    reasoning_out: ReasoningOut | None
    """Where the host puts the reasoning of its answer."""
    lost_reasoning: Literal["", " "] | None
    """What is sent on an assistant message with calls whose reasoning is lost; None: nothing."""
    keeps_reasoning: Literal["all", "calls", "none"]
    """Which assistant messages are sent with their reasoning: all of them, those with calls, or none."""
    signature_pattern: str | None
    """What the signature of reasoning must match to be sent back: the form of the host's own. None: any is."""
    signed_reasoning: bool
    """Whether reasoning is sent back only with a signature: Claude refuses a thinking block that has none."""
    indexed_details: bool
    """Whether OpenRouter's entries of `reasoning_details` are sent back with the `index` they have in a stream."""

    # --- thinking
    thinking: ThinkingStyle | None
    """How a request says it. None: it cannot be said; `passed`: as the client said it."""
    thinking_default: Literal["on", "off"] | None
    """What the model does when nothing is said; None: unknown."""
    can_disable: bool
    """Whether thinking can be switched off."""
    efforts: dict[str, str]
    """From an effort as clients say it to the word of this host; empty: effort cannot be said."""
    keep_all: bool
    """Whether `keep: "all"`, which keeps the reasoning of all former turns in the prompt, can be said."""
    always_keeps: bool
    """Whether the model is shown the reasoning of all former turns without being asked to."""

    # --- sampling
    fixed_sampling: dict[SamplingField, Fixed]
    """Fields that take only certain values."""
    temperature_max: float | None
    """The highest temperature that is accepted."""
    one_when_greedy: bool
    """Whether a temperature near 0 goes only with one answer."""
    stop_limit: tuple[int, int] | None
    """How many stop sequences are accepted, and of how many bytes each."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None
    """The name of the limit of output tokens, for hosts that know only one; None: either."""
    default_max_tokens: int | None
    """What is sent when the client gave no limit; None: nothing."""
    output_limit: int | None
    """The highest limit of output tokens that is accepted."""
    clips_output: bool
    """Whether a limit that does not fit behind the prompt is cut by the host; elsewhere it is refused."""
    context_window: int | None
    """How many tokens prompt and answer may have together."""

    # --- tools
    tool_choice_with_thinking: frozenset[ToolMode]
    """The modes of `tool_choice` that are accepted while the model thinks."""
    named_choice: bool
    """Whether a choice of one tool by name is obeyed, also without thinking."""
    allowed_tools: bool
    """Whether a request can say that only some of its tools may be called."""
    tool_name_pattern: str | None
    """What a tool's name must match."""
    tool_name_limit: int | None
    """How many characters a tool's name may have."""
    tool_limit: int | None
    """How many tools may be declared."""
    schema_flavour: Literal["moonshot"] | None
    """Which dialect of JSON schema parameters, and the form of the answer, must be written in."""
    typed_tools: bool
    """Whether the tools that Anthropic has defined and clients run (`bash_20250124`) are known by their type."""
    web_search: Literal["$web_search"] | None
    """The name of the search that the host runs itself."""
    dynamic_tools: bool
    """Whether a system message may declare further tools (`messages[].tools`)."""

    # --- messages
    empty_content: Literal["omit", "allow"]
    """Whether an assistant message that has only calls is sent without `content`, or may have an empty one."""
    drops_empty_text: bool
    """Whether empty text has to be taken out of messages."""
    system_anywhere: bool
    """Whether a system message may stand in the middle of the conversation."""
    merges_roles: bool
    """Whether messages of one role that follow each other have to be one message."""
    media: frozenset[MediaKind]
    """The kinds of media that the model can see."""

    # --- the rest
    streaming: Literal["both", "only", "never"]
    """Whether the host answers as the client wishes, only as a stream, or only at once."""
    takes_cache_key: bool
    """Whether `prompt_cache_key` is accepted."""
    grammar: GrammarName | None
    """How calls that were left as markers in the text are read; None: they are not."""
