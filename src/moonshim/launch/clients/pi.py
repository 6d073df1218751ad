"""pi: an extension, given with a flag, that registers a provider."""

from __future__ import annotations

import json
from typing import Any, Final

from moonshim.launch.clients.settings import (
    KEY_VARIABLE,
    PROVIDER,
    all_models,
    context_window,
    direct_connection,
    output_limit,
)
from moonshim.launch.plan import Client, ClientPlan, LaunchContext, ModelInfo

__all__ = ["PI"]

_EXTENSION: Final = """\
const provider = %(provider)s;

export default function (pi) {
  pi.registerProvider("%(name)s", { ...provider, apiKey: process.env.%(key)s });
  pi.on("before_provider_request", (event, ctx) => {
    if (ctx.model?.provider !== "%(name)s" || !event.payload) return undefined;
    // Hosts use it to find the conversation in their cache. pi sends it to some hosts only.
    const session = ctx.sessionManager?.getSessionId?.() ?? %(session)s;
    return { ...event.payload, prompt_cache_key: session };
  });
}
"""


def _plan(context: LaunchContext) -> ClientPlan:
    provider = {
        "name": "Moonshim",
        "baseUrl": f"{context.url}/v1",
        "api": "openai-completions",
        "models": [_model(model) for model in all_models(context)],
    }
    extension = _EXTENSION % {
        "provider": json.dumps(provider, indent=2),
        "name": PROVIDER,
        "key": KEY_VARIABLE,
        "session": json.dumps(context.session),
    }
    # It has no small model: titles and summaries come from the main model. It compacts when the window is nearly full.
    path = str(context.folder / "moonshim.js")
    return ClientPlan(
        arguments=("--extension", path, "--provider", PROVIDER, "--model", context.model.id),
        env={KEY_VARIABLE: context.key, **direct_connection(context)},
        files={"moonshim.js": extension},
    )


def _model(model: ModelInfo) -> dict[str, Any]:
    return {
        "id": model.id,
        "name": model.id,
        "reasoning": model.thinks,
        "input": ["text", "image"] if model.sees_images else ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": context_window(model),
        "maxTokens": output_limit(model),
        "compat": {
            "supportsStore": False,
            "supportsDeveloperRole": False,
            "supportsStrictMode": False,
            "requiresReasoningContentOnAssistantMessages": True,
        },
    }


PI: Final = Client(
    name="pi",
    title="pi",
    program="pi",
    install="npm install -g @mariozechner/pi-coding-agent",
    guide="guides/pi",
    has_small_model=False,
    plan=_plan,
)
