"""The fields of a body of a client that may use some models only, or spend so much -> those that keep within that.

Hosts have fields that answer with another model, fall back to one, or cost extra. Such a field is dropped; so is one
that nobody knows, since it may be the next of them. A field passes if it is here: a parameter of its dialect, or one of
sampling, of the prompt template, or of the form of the response that some host documents. What only narrows the choice
of a host passes as well, and what a client may have set for the sake of privacy is refused rather than dropped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from moonshim.engine.values.conversation import Change
from moonshim.errors import CannotExpress

__all__ = ["HARMLESS_FIELDS", "keep_within_limits"]

_SOURCES: Final[Mapping[str, str]] = {
    "https://platform.openai.com/docs/api-reference/chat/create": """
        model messages tools functions function_call tool_choice parallel_tool_calls stream stream_options temperature
        top_p max_tokens max_completion_tokens n stop seed presence_penalty frequency_penalty logit_bias logprobs
        top_logprobs response_format reasoning_effort user metadata store safety_identifier prompt_cache_key
        prompt_cache_retention verbosity prediction""",
    "https://docs.claude.com/en/api/messages": """
        system stop_sequences top_k thinking output_config output_format cache_control context_management
        anthropic_version anthropic_beta""",
    "https://platform.kimi.ai/docs/api/chat": "prompt_cache_options",
    "https://docs.vllm.ai (OpenAI-compatible server), https://docs.sglang.ai (sampling parameters)": """
        min_p min_tokens repetition_penalty length_penalty typical_p stop_token_ids ignore_eos skip_special_tokens
        include_stop_str_in_output spaces_between_special_tokens no_stop_trim stop_regex bad_words allowed_token_ids
        chat_template_kwargs add_generation_prompt continue_final_message add_special_tokens echo documents guided_json
        guided_regex guided_choice guided_grammar guided_decoding_backend guided_whitespace_pattern structured_outputs
        regex ebnf include_reasoning separate_reasoning stream_reasoning prompt_logprobs return_token_ids
        return_tokens_as_token_ids return_hidden_states truncate_prompt_tokens mm_processor_kwargs cache_salt
        thinking_token_budget""",
    "https://github.com/ggml-org/llama.cpp (tools/server), https://docs.ollama.com/api": """
        grammar json_schema cache_prompt top_a top_n_sigma tfs_z xtc_probability xtc_threshold dynatemp_range
        dynatemp_exponent dry_multiplier dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers
        repeat_penalty repeat_last_n mirostat mirostat_tau mirostat_eta mirostat_target mirostat_lr samplers
        reasoning_format timings_per_token return_progress think format""",
    "Fireworks, DeepInfra, SiliconFlow, Alibaba, Baseten and OpenRouter: the API reference of each": """
        context_length_exceeded_behavior prompt_truncate_len reasoning_history perf_metrics_in_response raw_output
        prompt_cache_isolation_key enable_thinking thinking_budget preserve_thinking chat_template_args do_sample
        reasoning reasoning_split reasoning_budget transforms usage session_id""",
}
HARMLESS_FIELDS: Final = frozenset(" ".join(_SOURCES.values()).split())
"""Top-level fields that neither answer with another model nor cost extra, with any value."""

_CLIENT_TOOLS: Final = re.compile(r"function|custom|(?:bash|text_editor|computer|memory)_\d+")
"""Types of tools that the client runs. Those that a host runs cost extra."""

_VALUES: Final[Mapping[str, Collection[Any]]] = {
    "service_tier": ("auto", "default", "standard", "standard_only", "flex"),
    "modalities": (["text"],),
}
"""Fields that pass with these values only."""

_NARROWING: Final[Mapping[str, Mapping[str, Collection[Any] | None]]] = {
    # https://openrouter.ai/docs/guides/routing/provider-selection
    "provider": {
        "only": None,
        "ignore": None,
        "quantizations": None,
        "max_price": None,
        "data_collection": ("deny",),
        "zdr": (True,),
        "require_parameters": (True,),
        "enforce_distillable_text": (True,),
        "allow_fallbacks": (False,),
    },
}
"""Fields of an object that narrow the choice of a host, with these values; None: with any."""

_ABOUT_PRIVACY: Final[Mapping[str, str]] = {
    "preset": "a preset may select other models, and may restrict which providers see the data",
    "provider.order": "it selects which providers see the data; use provider.only to restrict them",
    "providerOptions": "it may select other models, and which providers see the data",
    "inference_geo": "it selects where the data is processed, and may cost extra",
}
"""Fields whose absence may change who sees the data."""


def keep_within_limits(body: dict[str, Any], own: Collection[str]) -> tuple[dict[str, Any], list[Change]]:
    """The body without what widens or adds cost. `own`: the fields that the gateway itself has set.

    Raises `CannotExpress` with the field if dropping it may change who sees the data.

    >>> keep_within_limits({"model": "k", "models": ["gpt"], "provider": {"zdr": True, "sort": "price"}}, ())[0]
    {'model': 'k', 'provider': {'zdr': True}}
    """
    kept: dict[str, Any] = {}
    changes: list[Change] = []
    for name, value in body.items():
        if name == "tools" and name not in own and isinstance(value, list):
            kept[name] = _tools_of_client(value, changes)
        elif name in own or name in HARMLESS_FIELDS or value in _VALUES.get(name, ()) or value is None:
            kept[name] = value
        elif name in _ABOUT_PRIVACY:
            raise _refusal(name)
        elif name in _NARROWING and isinstance(value, dict):
            if narrowed := _narrow(name, value, changes):
                kept[name] = narrowed
        else:
            changes.append(_dropped(name))
    return (kept if changes else body), changes


def _narrow(name: str, value: dict[str, Any], changes: list[Change]) -> dict[str, Any]:
    kept = {}
    for key, one in value.items():
        place, allowed = f"{name}.{key}", _NARROWING[name].get(key, ())
        if one is None or allowed is None or any(type(one) is type(each) and one == each for each in allowed):
            kept[key] = one
        elif place in _ABOUT_PRIVACY:
            raise _refusal(place)
        else:
            changes.append(_dropped(place))
    return kept


def _tools_of_client(tools: list[Any], changes: list[Change]) -> list[Any]:
    kept = []
    for place, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind is None or (isinstance(kind, str) and _CLIENT_TOOLS.fullmatch(kind)):
            kept.append(tool)
        else:
            changes.append(_dropped(f"tools[{place}]"))
    return kept


def _dropped(place: str) -> Change:
    why = "dropped: the key has limited models or a budget, and the field may go beyond them"
    return Change("client_field", why, place)


def _refusal(place: str) -> CannotExpress:
    why = _ABOUT_PRIVACY[place]
    return CannotExpress(f"{place} cannot be used with a key that has limited models or a budget: {why}", field=place)
