"""aider: model settings in files given with flags. They have the address and the key, which nothing overrides."""

from __future__ import annotations

import json
from typing import Any, Final

from moonshim.launch.clients.settings import all_models, context_window, direct_connection, output_limit
from moonshim.launch.plan import Client, ClientPlan, LaunchContext, ModelInfo

__all__ = ["AIDER"]


def _plan(context: LaunchContext) -> ClientPlan:
    models = all_models(context)
    # JSON is YAML too.
    settings = [_settings(model, context) for model in models]
    metadata = {_name(model): _metadata(model) for model in models}
    arguments = ["--model", _name(context.model), "--weak-model", _name(context.small_model)]
    arguments += ["--editor-model", _name(context.model)]
    arguments += ["--model-settings-file", str(context.folder / "aider-settings.yml")]
    arguments += ["--model-metadata-file", str(context.folder / "aider-metadata.json")]
    if window := context.model.context_window:
        # It summarises older messages beyond this; its own limit for a large window is 8,192 tokens.
        arguments += ["--max-chat-history-tokens", str(window // 2)]
    return ClientPlan(
        arguments=tuple(arguments),
        # Only so that it does not complain about a missing key: the settings of the models have it.
        env={"OPENAI_API_KEY": context.key, **direct_connection(context)},
        files={
            "aider-settings.yml": json.dumps(settings, indent=2),
            "aider-metadata.json": json.dumps(metadata, indent=2),
        },
    )


def _name(model: ModelInfo) -> str:
    return f"openai/{model.id}"


def _settings(model: ModelInfo, context: LaunchContext) -> dict[str, Any]:
    return {
        "name": _name(model),
        "edit_format": "diff",
        "use_repo_map": True,
        "use_temperature": False,  # Kimi models accept few values
        "editor_edit_format": "editor-diff",
        "accepts_settings": ["reasoning_effort", "thinking_tokens"],
        "extra_params": {
            "api_base": f"{context.url}/v1",
            "api_key": context.key,
            "extra_body": {"prompt_cache_key": context.session},
        },
    }


def _metadata(model: ModelInfo) -> dict[str, Any]:
    return {
        "max_input_tokens": context_window(model),
        "max_tokens": output_limit(model),
        "max_output_tokens": output_limit(model),
        "litellm_provider": "openai",
        "mode": "chat",
    }


AIDER: Final = Client(
    name="aider",
    title="aider",
    program="aider",
    install="uv tool install aider-chat",
    guide="guides/aider",
    plan=_plan,
)
