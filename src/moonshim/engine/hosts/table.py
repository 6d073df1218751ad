"""Facts about hosts and model generations, as rules applied on top of each other. Data only.

A rule lists the hosts, generations and dialects its fields apply to; where several rules set the same field, the last
one wins. General rules come first. Each fact appears in one rule. "KIMI n" refers to the section of the collected
facts that a rule is based on; "unverified" means that there is no evidence yet (docs/reference/hosts.md lists those).
"""

from __future__ import annotations

from typing import Any, Final, get_args

from msgspec import Struct

from moonshim.engine.hosts.profile import Fixed, Generation, UpstreamDialect

__all__ = ["DIALECTS", "GENERATIONS", "HOSTS", "RULES", "HostRule"]

HOSTS: Final = (
    "moonshot",
    "moonshot-anthropic",
    "kimi-coding",
    "openrouter",
    "fireworks",
    "together",
    "siliconflow",
    "deepinfra",
    "groq",
    "nim",
    "opencode",
    "bedrock",
    "baseten",
    "novita",
    "nebius",
    "modal",
    "cloudflare",
    "vercel",
    "ollama",
    "volcengine",
    "alibaba",
    "azure",
    "vllm",
    "sglang",
    "generic",
)
GENERATIONS: Final[tuple[Generation, ...]] = get_args(Generation)
DIALECTS: Final[tuple[UpstreamDialect, ...]] = get_args(UpstreamDialect)

# Moonshot's own validation runs there. OpenRouter may route a request to Moonshot or to another provider, so it gets
# what both accept (KIMI 3: its errors wrap those of Moonshot). So may Vercel's AI Gateway (vercel.com/docs/ai-gateway),
# and OpenCode, whose errors are Moonshot's (oh-my-pi#1482).
_PLATFORM: Final = ("moonshot", "moonshot-anthropic")
_OWN: Final = (*_PLATFORM, "kimi-coding")
_CHECKED: Final = (*_OWN, "openrouter", "opencode", "vercel")
_RESELLERS: Final = (
    *("opencode", "bedrock", "baseten", "novita", "nebius", "modal"),
    *("cloudflare", "vercel", "ollama", "volcengine", "alibaba", "azure"),
)
"""Hosts about which little is known: except for the fields of their own rows, they are treated as an unknown host is,
which is unverified."""
_KIMI: Final = tuple(name for name in GENERATIONS if name != "other")
_K3: Final = ("k3", "k3.1")
_K2: Final = tuple(name for name in _KIMI if name not in _K3)
"""`kimi` is among them: a Kimi whose name has no generation gets the strictest rules, which are those of K2."""
_THINKING_K2: Final = ("k2-thinking", "k2.5", "k2.6", "k2.7", "kimi")
_THINKING: Final = (*_THINKING_K2, *_K3)
_NEW_K2: Final = ("k2.5", "k2.6", "k2.7")
_NUMBERED: Final = tuple(name for name in _KIMI if name != "kimi")
_SEEING: Final = (*_NEW_K2, *_K3, "kimi")
_NEVER: Final = dict.fromkeys(("temperature", "top_p", "presence_penalty", "frequency_penalty"), Fixed())
_MISTRAL: Final = ("mistral", "ministral", "magistral", "devstral", "codestral", "mixtral", "pixtral", "voxtral")
_NO_REASONING: Final = ("gpt", "o1-", "o3-", "o4-", "claude", "gemini", "llama", "gemma", "command", *_MISTRAL)
"""Models whose hosts have no Chat field for the reasoning of earlier turns."""
_REASONING: Final = ("deepseek", "qwen", "qwq", "gpt-oss")
"""Models that do read it, even if another family's name is part of theirs (DeepSeek-R1-Distill-Llama)."""
_ALL_MODES: Final = frozenset({"auto", "none", "required", "tool"})

# KIMI 3: low, high and max exist. Kimi Code's documentation maps medium and xhigh like this; `none` is the closest to
# "do not think" where thinking cannot be disabled.
_K3_EFFORTS: Final = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "high",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
# OpenRouter has no `max`, and may forward the values to Moonshot unchanged.
_OPENROUTER_EFFORTS: Final = _K3_EFFORTS | {"xhigh": "xhigh", "max": "xhigh"}
_FIREWORKS_EFFORTS: Final = {word: word for word in ("none", "low", "medium", "high")} | {
    "minimal": "low",
    "xhigh": "high",
    "max": "high",
}


class HostRule(Struct, frozen=True):
    """Profile fields, and where they apply."""

    fields: dict[str, Any]
    hosts: tuple[str, ...] = HOSTS
    generations: tuple[Generation, ...] = GENERATIONS
    dialects: tuple[UpstreamDialect, ...] = DIALECTS
    models: tuple[str, ...] = ("",)
    """Lower-case strings, one of which occurs in the model's name."""


_DEFAULTS: Final[dict[str, Any]] = {
    # Unknown hosts and models: everything is passed on as received.
    "id_policy": "keep",
    "history_ids": "keep",
    "reasoning_in": "echo",
    "reasoning_out": "reasoning_content",
    "lost_reasoning": None,
    "keeps_reasoning": "all",
    "signature_pattern": None,
    "signed_reasoning": False,
    "indexed_details": True,
    "thinking": "passed",
    "thinking_default": None,
    "can_disable": True,
    "efforts": {},
    "keep_all": True,
    "always_keeps": False,
    "thinking_headroom": None,
    "fixed_sampling": {},
    "temperature_max": None,
    "one_when_greedy": False,
    "stop_limit": None,
    "max_tokens_field": None,
    "default_max_tokens": None,
    "output_limit": None,
    "clips_output": True,
    "context_window": None,
    "tool_choice_with_thinking": _ALL_MODES,
    "named_choice": True,
    "enforces_choice": True,
    "allowed_tools": True,
    "tool_name_pattern": None,
    "tool_name_limit": None,
    "tool_limit": None,
    "schema_flavour": None,
    "schema_limit": None,
    "typed_tools": True,
    "web_search": None,
    "dynamic_tools": False,
    "empty_content": "allow",
    "drops_empty_text": False,
    "system_anywhere": True,
    "merges_roles": False,
    "media": frozenset({"image", "audio", "video", "file"}),
    "api_version": None,
    "beta_flags": None,
    "session_header": None,
    "structured_output": "enforced",
    "streaming": "both",
    "takes_cache_key": False,
    "cache_ttl": "passed",
    "shows_reasoning": False,
    "reads_markers": False,
    "defuse": False,
    "grammar": None,
}

_GENERATION_ROWS: Final = (
    # vLLM and SGLang encode the prompt of a K2 as one text, special tokens in it included, and so does llama.cpp
    # (huggingface/transformers#29279 and #47386, sgl-project/sglang#30962, ggml-org/llama.cpp#24382; vllm#31735 was
    # closed). A host of Kimi blocks such texts (gonka-ai#1184). vLLM's renderer of K3 in Rust encodes texts on their
    # own, but a request does not show which renderer a server has. No host is known to pass them safely.
    HostRule({"defuse": True}, generations=_KIMI),
    # No Kimi host supports OpenAI's `allowed_tools` (KIMI 3). vLLM and similar servers refuse an output token limit
    # that leaves no room for the prompt.
    HostRule({"allowed_tools": False, "clips_output": False}, generations=_KIMI),
    # KIMI 3: "must not contain streaming index". Only Anthropic's models know Anthropic's own tools.
    HostRule({"indexed_details": False, "typed_tools": False}, generations=_KIMI),
    # A host that is not known to enforce a schema or a forced call may ignore it: the answer is checked. No Kimi host
    # is known to have `output_config.format` (KIMI 4 has only its `effort`).
    HostRule({"structured_output": "json_schema", "enforces_choice": False}, generations=_KIMI),
    # KIMI 1a, 2: the template writes history ids into the prompt and the model imitates them, so they must have the
    # form that it was trained on. Names with a dot or an unusual first character cannot be parsed back (KIMI 1a, 3).
    HostRule(
        {
            "id_policy": "k2",
            "history_ids": "k2",
            "tool_name_pattern": r"^[A-Za-z][A-Za-z0-9_-]*$",
            "tool_name_limit": 64,  # older documentation; unverified (KIMI 9)
            "context_window": 262_144,
            "output_limit": 262_144,
            "grammar": "kimi_k2",
            "media": frozenset(),
        },
        generations=_K2,
    ),
    HostRule({"context_window": 131_072}, generations=("k2",), models=("0711",)),  # unverified
    # K2-0711 and 0905 do not think. KIMI 1a: the template of K2 has no reasoning.
    HostRule(
        {"thinking": None, "thinking_default": "off", "keeps_reasoning": "none", "reasoning_in": None},
        generations=("k2",),
    ),
    # KIMI 1a: reasoning is rendered only after the last assistant message without calls. It is still sent with every
    # message that has calls: what is sent must not depend on later messages.
    HostRule({"thinking": None, "can_disable": False}, generations=("k2-thinking",)),
    HostRule(
        {"thinking_default": "on", "keeps_reasoning": "calls", "keep_all": False},
        generations=_THINKING_K2,
    ),
    # KIMI 1a: K2.6 has preserve_thinking, in K2.7 it is always on.
    HostRule({"keeps_reasoning": "all", "keep_all": True}, generations=("k2.6", "k2.7")),
    # KIMI 3: "open-source hosts: chat_template_kwargs".
    HostRule({"thinking": "template_kwargs"}, generations=(*_NEW_K2, *_K3)),
    HostRule({"can_disable": False, "always_keeps": True}, generations=("k2.7",)),  # KIMI 1a, 3
    # Claude Code's safety check disables thinking and allows 64 tokens, which a model that thinks anyway uses up (FIELD
    # 26: 1,084 responses were cut off, 143 complete). How much each generation thinks is unverified.
    HostRule({"thinking_headroom": 4_096}, generations=_THINKING),
    HostRule({"media": frozenset({"image"})}, generations=_SEEING),
    # KIMI 1b: ids never reach the prompt of K3, but the reasoning of all turns does.
    HostRule(
        {
            "id_policy": "unique",
            "history_ids": "unique",
            "thinking_default": "on",
            "always_keeps": True,
            "efforts": _K3_EFFORTS,
            "tool_name_pattern": r"^[A-Za-z][A-Za-z0-9_-]*$",
            "tool_name_limit": 256,  # KIMI 3: 257 is refused
            "context_window": 1_048_576,
            "output_limit": 1_048_576,
            "grammar": "kimi_k3",
        },
        generations=_K3,
    ),
    HostRule({"context_window": 262_144, "output_limit": 262_144}, generations=_K3, models=("256k",)),
    # A name such as `my-kimi` may be any generation, so it gets what all of them accept: no field for thinking, and no
    # sampling values, which is always safe (KIMI 3). The first marker decides how its text is parsed.
    HostRule(
        {"thinking": None, "can_disable": False, "fixed_sampling": _NEVER, "grammar": "kimi"}, generations=("kimi",)
    ),
    # Another model family may continue a conversation that a Kimi started. OpenAI has refused ids of more than 40
    # characters, and hosts of models without a reasoning field refuse reasoning.
    HostRule({"history_ids": "standard"}, generations=("other",)),
    HostRule({"reasoning_in": None}, generations=("other",), models=_NO_REASONING),
    HostRule({"reasoning_in": "echo"}, generations=("other",), models=_REASONING),
    HostRule({"grammar": "kimi"}, models=("kimi-for-coding", "kimi-latest")),
)

_DIALECT_ROWS: Final = (
    # What the Messages protocol requires of every host. 128: Anthropic's own limit.
    HostRule(
        {
            "history_ids": "anthropic",
            "reasoning_in": "thinking",
            "reasoning_out": "thinking",
            "drops_empty_text": True,
            "empty_content": "omit",
            "system_anywhere": False,
            "merges_roles": True,
        },
        dialects=("anthropic",),
    ),
    # Claude refuses thinking without a signature, and any signature but its own, which is plain base64.
    HostRule(
        {"signed_reasoning": True, "signature_pattern": r"^[A-Za-z0-9+/]+={0,2}$"},
        generations=("other",),
        dialects=("anthropic",),
        models=("claude",),
    ),
    # "must be a-z, A-Z, 0-9, with a length of 9", whatever the dialect.
    HostRule({"history_ids": "mistral"}, generations=("other",), models=_MISTRAL),
    # The field is required. KIMI 3: the default of K2.5 and K2.6. For other models the dialect has a default.
    HostRule({"default_max_tokens": 32_768}, generations=_KIMI, dialects=("anthropic",)),
    HostRule(
        {"tool_name_pattern": r"^[a-zA-Z0-9_-]+$", "tool_name_limit": 128},
        generations=("other",),
        dialects=("anthropic",),
    ),
    HostRule({"id_policy": "unique"}, generations=_KIMI, dialects=("anthropic",)),
    HostRule({"structured_output": None}, generations=_KIMI, dialects=("anthropic",)),
    HostRule({"reasoning_in": None}, generations=("k2",), dialects=("anthropic",)),
    HostRule({"thinking": "anthropic"}, generations=_NEW_K2, dialects=("anthropic",)),
    # KIMI 4: K3 accepts output_config.effort and no thinking field.
    HostRule({"thinking": "output_config", "can_disable": False}, generations=_K3, dialects=("anthropic",)),
)

_CHECKED_ROWS: Final = (
    # KIMI 3: what Moonshot's own validation refuses.
    HostRule(
        {
            "drops_empty_text": True,  # "text content is empty"
            "empty_content": "omit",  # "must not be empty"; kimi-code omits the field
            "schema_flavour": "moonshot",
            "schema_limit": 120_000,  # KIMI 3
            "stop_limit": (5, 32),
            "tool_limit": 128,
        },
        hosts=_CHECKED,
        generations=_KIMI,
    ),
    # KIMI 3, 4: "malformed encrypted reasoning content: invalid base64url encoding"; an unsigned block is accepted.
    # Anthropic's own signatures are plain base64.
    HostRule(
        {"signature_pattern": r"^[A-Za-z0-9_-]+={0,2}$"},
        hosts=_CHECKED,
        generations=_KIMI,
        dialects=("anthropic",),
    ),
    # kimi-code sends the whole window as its limit, to every model (CLIENTS).
    HostRule({"clips_output": True}, hosts=_OWN, generations=_KIMI),
    # KIMI 5: every call of Moonshot's own API could be read in its vendor's verification, and no source (KIMI 7) has
    # markers in the content of its responses. So what looks like a call there is a quotation.
    HostRule({"reads_markers": True}, hosts=_OWN, generations=_KIMI),
    # Both pass on everything that the model wrote, in one field or another, unless a request says otherwise.
    HostRule({"shows_reasoning": True}, hosts=("vllm", "sglang"), generations=_KIMI, dialects=("openai_chat",)),
    # KIMI 3: K2 accepts temperatures from 0 to 1, near 0 with n 1 only.
    HostRule({"temperature_max": 1.0, "one_when_greedy": True}, hosts=_CHECKED, generations=("k2", "k2-thinking")),
    # KIMI 3: "only 1 is allowed for this model", 0.6 with thinking disabled. Moonshot seems to accept more for K2.6
    # since; the strict reading is valid for all. The messages for the other fields are unverified (KIMI 9).
    HostRule(
        {
            "fixed_sampling": {
                "temperature": Fixed((1.0,), (0.6,)),
                "top_p": Fixed((0.95,), (0.95,)),
                "presence_penalty": Fixed((0.0,), (0.0,)),
                "frequency_penalty": Fixed((0.0,), (0.0,)),
                "n": Fixed((1.0,), (1.0,)),
            }
        },
        hosts=_CHECKED,
        generations=(*_NEW_K2, *_K3),
    ),
    HostRule({"fixed_sampling": _NEVER | {"n": Fixed((1.0,), (1.0,))}}, hosts=_CHECKED, generations=("kimi",)),
    # KIMI 3: "tool_choice 'required' is incompatible with thinking enabled".
    HostRule(
        {"tool_choice_with_thinking": frozenset({"auto", "none"})},
        hosts=_CHECKED,
        generations=_THINKING_K2,
    ),
    # KIMI 3: K3 thinks and accepts `required`; it silently ignores a choice by name.
    HostRule(
        {"tool_choice_with_thinking": frozenset({"auto", "none", "required"}), "named_choice": False},
        hosts=_CHECKED,
        generations=_K3,
    ),
    # KIMI 3: "thinking is enabled but reasoning_content is missing"; an empty string is accepted. K3 does not enforce
    # it on the platform (KIMI 9 has doubts).
    HostRule({"lost_reasoning": ""}, hosts=_OWN, generations=_THINKING_K2),
    # So is an alias of one: only the models of old have no reasoning.
    HostRule({"lost_reasoning": ""}, hosts=_OWN, generations=("other",)),
    HostRule({"lost_reasoning": None}, hosts=_OWN, generations=("other",), models=("moonshot-v1",)),
    # KIMI 4: a thinking block always comes first; an empty one without a signature is enough.
    HostRule({"lost_reasoning": ""}, hosts=_OWN, generations=_K3, dialects=("anthropic",)),
    # KIMI 9: a report of July 2026 has it enforced for K3 on /coding.
    HostRule({"lost_reasoning": ""}, hosts=("kimi-coding",), generations=_K3),
    # An unknown host may be a reseller that forwards the request to Moonshot. Elsewhere an empty string does no harm:
    # the templates write empty reasoning anyway (KIMI 1a, 1b). OpenCode Go accepts it, and refuses placeholders that
    # contain words (oh-my-pi#1483).
    HostRule({"lost_reasoning": ""}, hosts=("generic", *_RESELLERS), generations=_THINKING),
    # An empty string may count as missing on the way to Moonshot (unverified); a space does not.
    HostRule({"lost_reasoning": " "}, hosts=("openrouter",), generations=_THINKING_K2),
)

_OWN_ROWS: Final = (
    # Every anthropic SDK since 2.0 sends version 2026-10-21 (FIELD); whether Kimi's Messages endpoints accept it is
    # unverified. So are the flags: they are some of those that Claude Code sends, which Moonshot documents for these
    # endpoints (Kimi-K2#129); no source says which flags they accept.
    HostRule(
        {
            "api_version": "2023-06-01",
            "beta_flags": frozenset(
                {
                    "claude-code-20250219",
                    "interleaved-thinking-2025-05-14",
                    "fine-grained-tool-streaming-2025-05-14",
                }
            ),
        },
        hosts=_OWN,
        dialects=("anthropic",),
    ),
    # KIMI 2: Moonshot renames the ids of the history itself, but refuses repeated ones (K2.x). Its documentation asks
    # for ids as K2 writes them, so the platform gets those; for Kimi Code there is no such documentation.
    HostRule({"id_policy": "unique"}, hosts=_OWN, generations=_KIMI),
    HostRule({"history_ids": "unique"}, ("kimi-coding",), _NUMBERED, ("openai_chat",)),
    HostRule({"reasoning_in": "reasoning_content"}, _OWN, _THINKING, ("openai_chat",)),
    HostRule({"thinking": "thinking_object"}, hosts=_OWN, generations=_NEW_K2, dialects=("openai_chat",)),
    # KIMI 3: K3 documents top-level reasoning_effort; off, none and disabled are refused by Kimi Code.
    HostRule(
        {"thinking": "reasoning_effort", "can_disable": False},
        hosts=_OWN,
        generations=_K3,
        dialects=("openai_chat",),
    ),
    HostRule({"takes_cache_key": True}, hosts=_OWN, generations=_KIMI, dialects=("openai_chat",)),  # KIMI 3
    # forum.moonshot.ai/t/613 (September 2026): 5m (the default) and 1h, for K3; kimi-code#3942 has the field. How the
    # Messages surface says it (apidog.com/blog/kimi-k3-1-pro-api: differently) is unverified: Anthropic's own field.
    HostRule({"cache_ttl": "prompt_cache_options"}, hosts=_PLATFORM, generations=_K3, dialects=("openai_chat",)),
    HostRule({"cache_ttl": "cache_control"}, hosts=_PLATFORM, generations=_K3, dialects=("anthropic",)),
    # Measured by pi-provider-kimi-code (docs/caching.md): /coding caches for more than 5 and less than 30 minutes,
    # whatever the request says; over Messages it ignores `cache_control`.
    HostRule({"cache_ttl": None}, hosts=("kimi-coding",), dialects=("openai_chat",)),
    HostRule({"dynamic_tools": True}, hosts=_OWN, generations=_K3, dialects=("openai_chat",)),  # KIMI 3
    HostRule({"media": frozenset({"image", "video"})}, _OWN, _SEEING, ("openai_chat",)),
    # KIMI 3: builtin_function with a name that starts with `$`. There is no evidence for it on /coding.
    HostRule({"web_search": "$web_search"}, hosts=("moonshot",), generations=_KIMI, dialects=("openai_chat",)),
    # KIMI 3: since September 2026 K3 sends reasoning_details, summary and encrypted, and requires them back.
    HostRule(
        {"reasoning_in": "echo", "reasoning_out": "reasoning_details"},
        hosts=("kimi-coding",),
        generations=_K3,
        dialects=("openai_chat",),
    ),
)

_HOST_ROWS: Final = (
    # OpenRouter knows which model accepts reasoning, and returns signed reasoning to the model it came from; the
    # templates of vLLM and SGLang ignore what they do not know.
    HostRule(
        {"reasoning_in": "echo"},
        hosts=("openrouter", "vllm", "sglang"),
        generations=("other",),
        dialects=("openai_chat",),
    ),
    # KIMI 3: OpenRouter has `reasoning` and `reasoning_details`; `reasoning: {effort, enabled}` requests it.
    HostRule(
        {"reasoning_in": "reasoning_details", "reasoning_out": "reasoning_details", "indexed_details": True},
        hosts=("openrouter",),
        generations=_THINKING,
        dialects=("openai_chat",),
    ),
    HostRule(
        {"thinking": "openrouter_reasoning"},
        hosts=("openrouter",),
        generations=(*_NEW_K2, *_K3),
        dialects=("openai_chat",),
    ),
    # Moonshot, to which it may be routed, cannot disable thinking for K3.
    HostRule({"can_disable": False}, hosts=("openrouter",), generations=_K3),
    HostRule({"efforts": _OPENROUTER_EFFORTS}, hosts=("openrouter",), generations=_K3, dialects=("openai_chat",)),
    # Fireworks documents reasoning_effort, with `none` for no thinking (unverified for Kimi).
    HostRule(
        {"thinking": "reasoning_effort", "efforts": _FIREWORKS_EFFORTS, "keep_all": False},
        hosts=("fireworks",),
        generations=(*_NEW_K2, *_K3),
        dialects=("openai_chat",),
    ),
    HostRule(
        {"reasoning_in": "reasoning_content"},
        hosts=("fireworks", "siliconflow", "deepinfra", "nim", "sglang"),
        generations=_THINKING,
        dialects=("openai_chat",),
    ),
    # KIMI 3: Together, Groq and newer vLLM use `reasoning`; vLLM reads no other field in a request.
    HostRule({"reasoning_out": "reasoning"}, hosts=("together", "groq", "vllm"), dialects=("openai_chat",)),
    HostRule({"reasoning_in": "reasoning"}, ("together", "groq", "vllm"), _THINKING, ("openai_chat",)),
    # SiliconFlow documents enable_thinking at the top of the body (unverified for Kimi).
    HostRule(
        {"thinking": "enable_thinking", "efforts": {}, "keep_all": False},
        hosts=("siliconflow",),
        generations=(*_NEW_K2, *_K3),
        dialects=("openai_chat",),
    ),
    # Their documentation has only max_tokens (unverified); all others accept both names.
    HostRule(
        {"max_tokens_field": "max_tokens"},
        hosts=("together", "siliconflow", "deepinfra", "nim"),
        generations=_KIMI,
        dialects=("openai_chat",),
    ),
    # Groq serves K2 only; the limit is from its model page (unverified).
    HostRule({"tool_limit": 128, "output_limit": 16_384}, hosts=("groq",), generations=_KIMI),
    # vLLM sends K2's own ids over Messages (vllm#46344) and, like SGLang, writes the returned ones into the prompt:
    # there KIMI 1a applies in both dialects. Other hosts may enforce the protocol, which forbids dots and colons.
    HostRule({"history_ids": "k2_messages"}, hosts=("generic",), generations=_K2, dialects=("anthropic",)),
    HostRule({"history_ids": "k2"}, hosts=("vllm", "sglang"), generations=_K2, dialects=("anthropic",)),
    # Their documentation has no lifetime of a cached prompt. OpenRouter accepts OpenAI's fields (openrouter.ai/docs).
    HostRule(
        {"cache_ttl": None},
        hosts=("fireworks", "together", "siliconflow", "deepinfra", "groq", "nim", "vllm", "sglang"),
        dialects=("openai_chat",),
    ),
    # KIMI 3 for Moonshot (`strict` is the default); docs.fireworks.ai/structured-responses, docs.vllm.ai
    # (features/structured_outputs) and docs.sglang.ai (structured_outputs): the answer is decoded by the schema's
    # grammar. Kimi Code is unverified. OpenRouter supports it "for compatible models" (openrouter.ai/docs); Groq, best
    # effort (console.groq.com/docs/structured-outputs); Together and NIM are unverified: all of these are checked.
    HostRule({"structured_output": "enforced"}, ("moonshot", "fireworks", "vllm", "sglang"), _KIMI, ("openai_chat",)),
    # docs.siliconflow.cn/guides/json_mode: JSON mode only. The same for DeepInfra is unverified.
    HostRule({"structured_output": "json_object"}, ("siliconflow", "deepinfra"), _KIMI, ("openai_chat",)),
    # KIMI 3 (where the choice is accepted); vLLM and SGLang decode the call by a grammar, in both dialects.
    HostRule({"enforces_choice": True}, hosts=(*_PLATFORM, "vllm", "sglang"), generations=_KIMI),
    # KIMI 1b: its renderer supports tools declared later.
    HostRule({"dynamic_tools": True}, hosts=("vllm",), generations=_K3, dialects=("openai_chat",)),
)

_RESELLER_ROWS: Final = (
    # opencode.ai/docs/go: one id for each conversation. Since September 2026 requests without it are refused with
    # MissingSessionID (kimi-cli#2653, webbrain#3031, opencode#47763). Zen accepts it, too (genoffice#331).
    HostRule({"session_header": "x-opencode-session"}, hosts=("opencode",)),
    # Operit#988 reads `reasoning_effort` from OpenCode's own catalog; for K2, nothing is known.
    HostRule(
        {"thinking": "reasoning_effort", "can_disable": False},
        hosts=("opencode",),
        generations=_K3,
        dialects=("openai_chat",),
    ),
    # vercel.com/docs/ai-gateway/sdks-and-apis/openai-chat-completions/reasoning: `reasoning: {effort, enabled}`, as
    # OpenRouter has it. The efforts, and the field of reasoning in a history, are unverified.
    HostRule(
        {"thinking": "openrouter_reasoning"},
        hosts=("vercel",),
        generations=(*_NEW_K2, *_K3),
        dialects=("openai_chat",),
    ),
    HostRule(
        {"can_disable": False, "efforts": _OPENROUTER_EFFORTS},
        hosts=("vercel",),
        generations=_K3,
        dialects=("openai_chat",),
    ),
    # hexdocs.pm/langchain (ChatAwsMantle): `reasoning`, and the ids of the model. aws-samples#352, stdapi.ai#282: K3
    # takes only `reasoning.effort`, refuses temperature, top_p and cache points; K2's fields have no effect.
    HostRule(
        {"reasoning_in": "reasoning", "reasoning_out": "reasoning", "cache_ttl": None},
        hosts=("bedrock",),
        generations=_THINKING,
        dialects=("openai_chat",),
    ),
    HostRule({"thinking": None}, hosts=("bedrock",), generations=_NEW_K2, dialects=("openai_chat",)),
    HostRule(
        {
            "thinking": "openrouter_reasoning",
            "can_disable": False,
            "fixed_sampling": {"temperature": Fixed(), "top_p": Fixed()},
        },
        hosts=("bedrock",),
        generations=_K3,
        dialects=("openai_chat",),
    ),
    # docs.litellm.ai/docs/providers/novita lists max_tokens only; the efforts of K3 are from models.dev#3787.
    HostRule({"max_tokens_field": "max_tokens"}, hosts=("novita",), generations=_KIMI, dialects=("openai_chat",)),
    HostRule({"thinking": "reasoning_effort"}, hosts=("novita",), generations=_K3, dialects=("openai_chat",)),
    # Requests with one id go to one instance, whose cache holds the prompt (stackbilt-dev/llm-providers 1.13.0).
    HostRule({"session_header": "x-session-affinity"}, hosts=("cloudflare",)),
    # docs.ollama.com/api/openai-compatibility lists these fields; models.dev#3787 has the efforts of K3, and that it
    # can be asked not to think. The efforts of K2, and `reasoning` in responses and in a history, are unverified.
    HostRule(
        {"max_tokens_field": "max_tokens", "cache_ttl": None},
        hosts=("ollama",),
        generations=_KIMI,
        dialects=("openai_chat",),
    ),
    HostRule(
        {"reasoning_in": "reasoning", "reasoning_out": "reasoning"},
        hosts=("ollama",),
        generations=_THINKING,
        dialects=("openai_chat",),
    ),
    HostRule(
        {"thinking": "reasoning_effort", "efforts": _FIREWORKS_EFFORTS, "keep_all": False},
        hosts=("ollama",),
        generations=_NEW_K2,
        dialects=("openai_chat",),
    ),
    HostRule(
        {"thinking": "reasoning_effort", "efforts": _K3_EFFORTS | {"none": "none"}, "keep_all": False},
        hosts=("ollama",),
        generations=_K3,
        dialects=("openai_chat",),
    ),
    # Unverified: Ark's fields for its own models; no page about Kimi was read.
    HostRule(
        {"thinking": "thinking_object", "keep_all": False, "reasoning_in": "reasoning_content"},
        hosts=("volcengine",),
        generations=_NEW_K2,
        dialects=("openai_chat",),
    ),
    HostRule(
        {"thinking": "reasoning_effort", "reasoning_in": "reasoning_content"},
        hosts=("volcengine",),
        generations=_K3,
        dialects=("openai_chat",),
    ),
    # help.aliyun.com/zh/model-studio/kimi-api: reasoning_content and these limits, for K2 to K2.5. docs.apiyi.com,
    # which forwards to it: `enable_thinking`. Later generations are unverified.
    HostRule({"reasoning_in": "reasoning_content"}, ("alibaba",), _THINKING, ("openai_chat",)),
    HostRule(
        {
            "thinking": "enable_thinking",
            "efforts": {},
            "keep_all": False,
            "output_limit": 32_768,
            "media": frozenset({"image", "video"}),
        },
        hosts=("alibaba",),
        generations=("k2.5", "k2.6"),
        dialects=("openai_chat",),
    ),
    HostRule({"output_limit": 16_384}, hosts=("alibaba",), generations=("k2-thinking",)),
    HostRule({"output_limit": 8_192, "context_window": 131_072}, hosts=("alibaba",), generations=("k2",)),
)

RULES: Final[tuple[HostRule, ...]] = (
    HostRule(_DEFAULTS),
    *_GENERATION_ROWS,
    *_DIALECT_ROWS,
    *_CHECKED_ROWS,
    *_OWN_ROWS,
    *_HOST_ROWS,
    *_RESELLER_ROWS,
)
