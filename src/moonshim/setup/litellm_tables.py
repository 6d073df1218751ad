"""What the converter knows of LiteLLM: its providers, and its settings that are not taken over."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from moonshim.engine.hosts.detect import host_of
from moonshim.setup.answers import HOSTS_BY_NAME

__all__ = ["BODY_FIELDS", "DEFAULT_WHY", "NOT_NEEDED", "NO_COUNTERPART", "PROVIDERS", "LiteLLMProvider", "model_at"]


class LiteLLMProvider(Struct, frozen=True, kw_only=True):
    """A provider of LiteLLM with a protocol that Moonshim speaks."""

    name: str
    """Of the provider in the new file."""
    url: str | None = None
    """Used without `api_base`; None: `api_base` is required."""
    variable: str | None = None
    """Where LiteLLM looks first for the key if none is set."""
    needs_key: bool = True
    """Whether it always sends a key; otherwise only if the variable is set."""
    host: str | None = None
    """The host profile, if the address does not tell."""
    dialect: str | None = None


def _known(name: str, variable: str) -> LiteLLMProvider:
    url = HOSTS_BY_NAME[name].api_base_url
    return LiteLLMProvider(name=name, url=url, variable=variable, host=host_of(url))


PROVIDERS: Final = {
    "moonshot": _known("moonshot", "MOONSHOT_API_KEY"),
    "openrouter": _known("openrouter", "OPENROUTER_API_KEY"),
    "fireworks_ai": _known("fireworks", "FIREWORKS_API_KEY"),
    "together_ai": LiteLLMProvider(
        name="together", url="https://api.together.ai/v1", variable="TOGETHER_API_KEY", host="together"
    ),
    "deepinfra": _known("deepinfra", "DEEPINFRA_API_KEY"),
    "groq": _known("groq", "GROQ_API_KEY"),
    "nvidia_nim": _known("nvidia", "NVIDIA_NIM_API_KEY"),
    "openai": LiteLLMProvider(name="openai", url="https://api.openai.com/v1", variable="OPENAI_API_KEY"),
    "custom_openai": LiteLLMProvider(name="openai-compatible", variable="OPENAI_API_KEY", needs_key=False),
    "openai_like": LiteLLMProvider(name="openai-compatible"),
    "lm_studio": LiteLLMProvider(name="lm-studio", variable="LM_STUDIO_API_KEY", needs_key=False),
    "litellm_proxy": LiteLLMProvider(name="litellm", variable="LITELLM_PROXY_API_KEY", needs_key=False),
    "hosted_vllm": LiteLLMProvider(name="vllm", variable="HOSTED_VLLM_API_KEY", needs_key=False, host="vllm"),
    "anthropic": LiteLLMProvider(
        name="anthropic", url="https://api.anthropic.com", variable="ANTHROPIC_API_KEY", dialect="anthropic"
    ),
}
"""By the word before the slash in `litellm_params.model`."""


def model_at(prefix: str, model: str) -> str:
    """The name that LiteLLM sends: at Fireworks it completes a short one.

    >>> model_at("fireworks_ai", "kimi-k2p5"), model_at("fireworks_ai", "accounts/me/models/mine")
    ('accounts/fireworks/models/kimi-k2p5', 'accounts/me/models/mine')
    >>> model_at("openrouter", "moonshotai/kimi-k3")
    'moonshotai/kimi-k3'
    """
    if prefix != "fireworks_ai" or model.startswith("accounts/") or "#" in model or "*" in model:
        return model
    if model.startswith(("routers/", "models/")):
        return f"accounts/fireworks/{model}"
    return f"accounts/fireworks/{'routers' if model.endswith('-fast') else 'models'}/{model}"


BODY_FIELDS: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "reasoning_effort",
    "thinking",
    "chat_template_kwargs",
    "service_tier",
)
"""Parameters in `litellm_params` that are sent with every request."""

_ADAPTED: Final = "requests are always adapted to what the host accepts"
_LIMITS: Final = "limits are set for each gateway key (`moonshim keys new --help`), not for each host"
_NO_TEAMS: Final = "Moonshim has no teams, and no database of keys and models"
_BUDGETS: Final = "budgets are set for each gateway key: `budgets` (docs/guides/budgets.md)"
_METRICS: Final = "metrics are served at /metrics, and logs are written to standard error"
_NOT_CACHED: Final = "responses are not cached"

NOT_NEEDED: Final = {
    "drop_params": _ADAPTED,
    "modify_params": _ADAPTED,
    "additional_drop_params": _ADAPTED,
    "allowed_openai_params": _ADAPTED,
    "merge_reasoning_content_in_choices": "reasoning is passed on as each client expects it",
    "enable_pre_call_checks": _ADAPTED,
    "set_verbose": "it is off",
    "use_in_pass_through": "all clients use the same addresses",
    "redis_host": "only needed if several gateways share their state: `[gateway] store`",
    "redis_port": "only needed if several gateways share their state: `[gateway] store`",
    "redis_password": "only needed if several gateways share their state: `[gateway] store`",
    "redis_url": "only needed if several gateways share their state: `[gateway] store`",
    "telemetry": "Moonshim sends no telemetry",
}
NO_COUNTERPART: Final = {
    "rpm": _LIMITS,
    "tpm": _LIMITS,
    "max_parallel_requests": _LIMITS,
    "global_max_parallel_requests": _LIMITS,
    "max_budget": _BUDGETS,
    "budget_duration": _BUDGETS,
    "tags": _NO_TEAMS,
    "database_url": _NO_TEAMS,
    "disable_spend_logs": 'usage is recorded; `[usage] file = "memory:"` keeps the records off the disk',
    "store_model_in_db": _NO_TEAMS,
    "alerting": _METRICS,
    "callbacks": _METRICS,
    "success_callback": _METRICS,
    "failure_callback": _METRICS,
    "service_callback": _METRICS,
    "json_logs": "see `moonshim serve --help` for the logs",
    "cache": _NOT_CACHED,
    "cache_params": _NOT_CACHED,
    "weight": "targets are tried in order, not by weight",
    "routing_strategy": "targets are tried in order",
    "routing_strategy_args": "targets are tried in order",
    "num_retries": "retries are set for all hosts together: `[retries] attempts`",
    "max_retries": "retries are set for all hosts together: `[retries] attempts`",
    "retry_policy": "retries are set for all errors together: `[retries] attempts`",
    "model_group_retry_policy": "retries are set for all models together: `[retries] attempts`",
    "context_window_fallbacks": "targets are tried in order, whatever the reason of a failure",
    "content_policy_fallbacks": "targets are tried in order, whatever the reason of a failure",
    "litellm_credential_name": "set `api_key_env` of the provider",
    "credential_list": "set `api_key_env` of each provider",
    "include": "convert each file",
    "guardrails": "write a transformer (docs/guides/transformers.md)",
    "mcp_servers": "tools belong to the client",
    "pass_through_endpoints": "only model requests are served",
    "environment_variables": "set them where the gateway is started",
    "completion_model": 'add the alias `"*"`',
}
"""By the name of the setting, in whatever section it is."""
DEFAULT_WHY: Final = {
    "model_list": "Moonshim has no such setting for a model",
    "router_settings": "Moonshim has no such setting for its routing",
    "general_settings": "Moonshim has no such setting",
    "litellm_settings": "Moonshim has no such setting",
}
