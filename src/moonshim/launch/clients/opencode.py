"""opencode: configuration in a variable, which overrides the user's and the project's files."""

from __future__ import annotations

import json
from typing import Any, Final

from moonshim.engine.request.extra_body import deep_merge
from moonshim.launch.clients.settings import (
    KEY_VARIABLE,
    PROVIDER,
    all_models,
    context_window,
    direct_connection,
    output_limit,
)
from moonshim.launch.plan import Client, ClientPlan, LaunchContext, ModelInfo

__all__ = ["OPENCODE"]

_CONFIG: Final = "OPENCODE_CONFIG_CONTENT"


def _plan(context: LaunchContext) -> ClientPlan:
    settings = {
        "model": f"{PROVIDER}/{context.model.id}",
        "small_model": f"{PROVIDER}/{context.small_model.id}",
        # A model that the user has set for one of the two agents of the interface would win.
        "agent": {name: {"model": f"{PROVIDER}/{context.model.id}"} for name in ("build", "plan")},
        "provider": {
            PROVIDER: {
                "npm": "@ai-sdk/openai-compatible",  # part of opencode: nothing is downloaded
                "name": "Moonshim",
                "options": {"baseURL": f"{context.url}/v1", "apiKey": f"{{env:{KEY_VARIABLE}}}"},
                "models": {model.id: _model(model, context) for model in all_models(context)},
            }
        },
    }
    try:
        before = json.loads(context.environ.get(_CONFIG) or "{}")
    except ValueError:  # it may have comments; opencode would refuse ours in the same variable
        before = {}
    config = deep_merge(before if isinstance(before, dict) else {}, settings)
    env = {_CONFIG: json.dumps(config), KEY_VARIABLE: context.key, **direct_connection(context)}
    return ClientPlan(env=env)


def _model(model: ModelInfo, context: LaunchContext) -> dict[str, Any]:
    return {
        "name": model.id,
        "reasoning": model.thinks,
        "tool_call": True,
        "attachment": True,
        # Without it, opencode keeps images and PDF files from the model. The gateway reads PDF files for every model.
        "modalities": {"input": ["text", *["image"] * model.sees_images, "pdf"], "output": ["text"]},
        "interleaved": {"field": "reasoning_content"},  # sends reasoning back, which Kimi models need
        "limit": {"context": context_window(model), "output": output_limit(model)},
        "options": {"prompt_cache_key": context.session},
    }


OPENCODE: Final = Client(
    name="opencode",
    title="opencode",
    program="opencode",
    agent="opencode/1.18.33",
    install="npm install -g opencode-ai",
    guide="guides/opencode",
    plan=_plan,
)
