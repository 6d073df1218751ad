"""The name of a host -> its behaviour: what it checks, which ids it gives, where it reports reasoning, usage and
errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.errors import MoonshimError
from moonshim.simulator.request import Wire

__all__ = ["BEHAVIOURS", "ErrorShape", "HostBehaviour", "UnknownBehaviour", "find_behaviour"]

ErrorShape: TypeAlias = Literal["moonshot", "kimi-coding", "siliconflow", "openrouter", "vllm"]


class UnknownBehaviour(MoonshimError):
    """No behaviour has this name; the message lists the valid names."""

    code = "unknown_nature"


class HostBehaviour(Struct, frozen=True, kw_only=True):
    """How one host behaves, in both of its dialects, for each family of models."""

    name: str
    about: str
    chat_contract: str
    """The row of `rules.contracts.HOSTS` for Chat."""
    messages_contract: str
    errors: ErrorShape = "moonshot"
    renames_ids: bool = False
    """Ids of the history become `functions.name:index` before the model sees them; elsewhere it sees them unchanged."""
    renames_on_messages: bool = True
    """The same on Messages: required where only Anthropic's ids are allowed, as K2 does not know these."""
    ids: Mapping[str, str]
    """Family -> the profile in `ids.ID_PROFILES` for call ids on Chat."""
    messages_ids: Mapping[str, str]
    """The same on Messages."""
    reasoning_field: Mapping[str, str]
    """Family -> the field for reasoning on Chat (`HostResponse.reasoning_field`)."""
    usage_in: tuple[str, ...] = ("last", "details")
    """Where usage is reported on Chat (`HostResponse.usage_in`)."""
    signs: bool = False
    """Reasoning on Messages is signed."""
    agents: tuple[str, ...] = ()
    """Only these clients are served, by a part of their User-Agent; empty: all."""
    reports_quota: bool = False
    """The used part of a subscription can be read at `/usages`."""
    trace_header: str = "x-request-id"
    cache_classes: tuple[str, ...] = ()
    """The lifetimes of a cached prompt that a request can choose from; it pays for what is written."""

    def contract(self, wire: Wire) -> str:
        return self.chat_contract if wire == "openai_chat" else self.messages_contract

    def renames(self, wire: Wire) -> bool:
        return self.renames_ids if wire == "openai_chat" else self.renames_on_messages

    def id_profile(self, wire: Wire, family: str) -> str:
        return (self.ids if wire == "openai_chat" else self.messages_ids)[family]


_IDS: Final = {"k2": "k2", "k3": "openai", "other": "openai"}
_MESSAGES_IDS: Final = {"k2": "anthropic", "k3": "anthropic", "other": "anthropic"}
_VERBATIM_MESSAGES_IDS: Final = {"k2": "k2", "k3": "anthropic", "other": "anthropic"}
"""vLLM puts its Chat ids into `tool_use` blocks unchanged (vllm#46344)."""
_MOONSHOT_IDS: Final = {"k2": "moonshot-k2", "k3": "moonshot-k3", "other": "openai"}
_MOONSHOT_MESSAGES_IDS: Final = {"k2": "kimi-anthropic", "k3": "kimi-anthropic", "other": "anthropic"}
_MOONSHOT_USAGE: Final = ("choice", "last", "cached_tokens", "details")
_AGENTS: Final = ("kimi", "claude", "roo", "kilo", "cline", "opencode", "codex", "qwen", "gemini-cli")


def _everywhere(field: str) -> dict[str, str]:
    return dict.fromkeys(("k2", "k3", "other"), field)


_ROWS: Final = (
    HostBehaviour(
        name="moonshot",
        about="Moonshot's platform: call ids like `ls:0` (K2) and `ls_0` (K3); rewrites the ids in the history",
        chat_contract="moonshot",
        messages_contract="moonshot-anthropic",
        renames_ids=True,
        ids=_MOONSHOT_IDS,
        messages_ids=_MOONSHOT_MESSAGES_IDS,
        reasoning_field=_everywhere("reasoning_content"),
        usage_in=_MOONSHOT_USAGE,
        trace_header="x-trace-id",
        cache_classes=("5m", "1h"),
    ),
    HostBehaviour(
        name="kimi-coding",
        about="Kimi Code: Moonshot's rules, for known coding agents only; signed reasoning",
        chat_contract="kimi-coding",
        messages_contract="kimi-coding",
        errors="kimi-coding",
        renames_ids=True,
        ids=_MOONSHOT_IDS,
        messages_ids=_MOONSHOT_MESSAGES_IDS,
        reasoning_field=_everywhere("reasoning_content") | {"k3": "reasoning_summary"},
        usage_in=_MOONSHOT_USAGE,
        signs=True,
        agents=_AGENTS,
        reports_quota=True,
        trace_header="x-trace-id",
    ),
    HostBehaviour(
        name="selfhost",
        about="A self-hosted model: sees the ids in the history unchanged, and imitates wrong ones",
        chat_contract="generic",
        messages_contract="generic",
        errors="vllm",
        ids=_IDS,
        renames_on_messages=False,
        messages_ids=_VERBATIM_MESSAGES_IDS,
        reasoning_field=_everywhere("reasoning_content"),
    ),
    HostBehaviour(
        name="vllm",
        about="vLLM: reasoning in `reasoning`; ids like `chatcmpl-tool-…` for K3",
        chat_contract="vllm",
        messages_contract="vllm",
        errors="vllm",
        ids={"k2": "k2", "k3": "vllm", "other": "vllm"},
        renames_on_messages=False,
        messages_ids=_VERBATIM_MESSAGES_IDS,
        reasoning_field=_everywhere("reasoning"),
    ),
    HostBehaviour(
        name="sglang",
        about="SGLang: reasoning in `reasoning_content`",
        chat_contract="sglang",
        messages_contract="sglang",
        errors="vllm",
        ids=_IDS,
        renames_on_messages=False,
        messages_ids=_VERBATIM_MESSAGES_IDS,
        reasoning_field=_everywhere("reasoning_content"),
    ),
    HostBehaviour(
        name="fireworks",
        about="Fireworks: K3's call ids are numbered from 0 in each response, so that they repeat",
        chat_contract="fireworks",
        messages_contract="fireworks",
        ids={"k2": "k2", "k3": "fireworks-k3", "other": "openai"},
        messages_ids=_MESSAGES_IDS,
        reasoning_field=_everywhere("reasoning_content"),
    ),
    HostBehaviour(
        name="together",
        about="Together: reasoning in `reasoning`; random ids",
        chat_contract="together",
        messages_contract="together",
        ids=_everywhere("openai"),
        messages_ids=_MESSAGES_IDS,
        reasoning_field=_everywhere("reasoning"),
    ),
    HostBehaviour(
        name="openrouter",
        about="OpenRouter with Moonshot: reasoning in `reasoning` and `reasoning_details`; wraps errors in its own",
        chat_contract="openrouter",
        messages_contract="openrouter",
        errors="openrouter",
        renames_ids=True,
        ids=_MOONSHOT_IDS,
        messages_ids=_MESSAGES_IDS,
        reasoning_field=_everywhere("reasoning_details"),
    ),
    HostBehaviour(
        name="siliconflow",
        about="SiliconFlow: errors with its own numeric codes",
        chat_contract="siliconflow",
        messages_contract="siliconflow",
        errors="siliconflow",
        ids=_IDS,
        messages_ids=_MESSAGES_IDS,
        reasoning_field=_everywhere("reasoning_content"),
        trace_header="x-siliconcloud-trace-id",
    ),
)

BEHAVIOURS: Final[dict[str, HostBehaviour]] = {row.name: row for row in _ROWS}


def find_behaviour(name: str) -> HostBehaviour:
    """
    >>> find_behaviour("moonshot").id_profile("openai_chat", "k3")
    'moonshot-k3'
    >>> find_behaviour("mars")
    Traceback (most recent call last):
    ...
    moonshim.simulator.host.behaviours.UnknownBehaviour: unknown behaviour 'mars'; choose from moonshot, kimi-coding,
    selfhost, vllm, sglang, fireworks, together, openrouter, siliconflow
    """
    if name not in BEHAVIOURS:
        raise UnknownBehaviour(f"unknown behaviour {name!r}; choose from {', '.join(BEHAVIOURS)}")
    return BEHAVIOURS[name]
