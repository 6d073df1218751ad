"""qwen-code: a file of system settings, which overrides the user's and the project's settings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from moonshim.engine.request.extra_body import deep_merge
from moonshim.launch.clients.settings import (
    KEY_VARIABLE,
    all_models,
    direct_connection,
    output_limit,
    read_object,
)
from moonshim.launch.plan import Client, ClientPlan, LaunchContext, ModelInfo

__all__ = ["QWEN"]

_SETTINGS: Final = "QWEN_CODE_SYSTEM_SETTINGS_PATH"
_DEFAULTS: Final = "QWEN_CODE_SYSTEM_DEFAULTS_PATH"
_SYSTEM: Final = {
    "darwin": "/Library/Application Support/QwenCode",
    "win32": "C:\\ProgramData\\qwen-code",
}.get(sys.platform, "/etc/qwen-code")


def _plan(context: LaunchContext) -> ClientPlan:
    system = Path(context.environ.get(_SETTINGS) or f"{_SYSTEM}/settings.json")
    settings = {
        "model": {"name": context.model.id},
        "fastModel": context.small_model.id,
        "security": {"auth": {"selectedType": "openai"}},
        # Models of the user with the same names would bring their own address, so this list replaces the user's.
        "modelProviders": {"openai": [_model(model, context) for model in all_models(context)]},
    }
    return ClientPlan(
        env={
            _SETTINGS: str(context.folder / "qwen.json"),
            # It looks for the defaults beside the settings.
            _DEFAULTS: context.environ.get(_DEFAULTS) or str(system.with_name("system-defaults.json")),
            KEY_VARIABLE: context.key,
            # Some of its own requests do not use the list.
            "OPENAI_BASE_URL": f"{context.url}/v1",
            "OPENAI_API_KEY": context.key,
            "OPENAI_MODEL": context.model.id,
            **direct_connection(context),
        },
        files={"qwen.json": json.dumps(deep_merge(read_object(system), settings), indent=2)},
    )


def _model(model: ModelInfo, context: LaunchContext) -> dict[str, Any]:
    generation: dict[str, Any] = {
        "extra_body": {"prompt_cache_key": context.session},
        "samplingParams": {"max_tokens": output_limit(model)},
    }
    if model.context_window:
        generation["contextWindowSize"] = model.context_window
    return {
        "id": model.id,
        "name": f"{model.id} (Moonshim)",
        "envKey": KEY_VARIABLE,
        "baseUrl": f"{context.url}/v1",
        "generationConfig": generation,
    }


QWEN: Final = Client(
    name="qwen",
    title="qwen-code",
    program="qwen",
    agent="QwenCode/0.24.4",
    install="npm install -g @qwen-code/qwen-code",
    other_name="qwen-code",
    guide="guides/qwen-code",
    plan=_plan,
)
