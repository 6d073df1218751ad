"""kimi-code: variables that define one more model and make it the default, for this process only."""

from __future__ import annotations

from typing import Final

from moonshim.launch.clients.settings import direct_connection
from moonshim.launch.plan import Client, ClientPlan, LaunchContext

__all__ = ["KIMI"]

_ALIAS: Final = "__kimi_env_model__"
"""The name that kimi-code gives to the model of the variables."""


def _plan(context: LaunchContext) -> ClientPlan:
    # It compacts at 85 % of the window, and uses its session's id as cache key. There is one model only: variables
    # cannot define a second one, so that its subagents use the same.
    capabilities = ["thinking"] * context.model.thinks + ["tool_use"] + ["image_in"] * context.model.sees_images
    env = {
        "KIMI_MODEL_NAME": context.model.id,
        "KIMI_MODEL_PROVIDER_TYPE": "kimi",
        "KIMI_MODEL_BASE_URL": f"{context.url}/v1",
        "KIMI_MODEL_API_KEY": context.key,
        "KIMI_MODEL_CAPABILITIES": ",".join(capabilities),
        "KIMI_MODEL_DISPLAY_NAME": f"{context.model.id} (Moonshim)",
        "KIMI_SECONDARY_MODEL": _ALIAS,
        **direct_connection(context),
    }
    if window := context.model.context_window:
        env["KIMI_MODEL_MAX_CONTEXT_SIZE"] = str(window)
    return ClientPlan(env=env)


KIMI: Final = Client(
    name="kimi",
    title="kimi-code",
    program="kimi",
    agent="kimi-code-cli/2.1.0",
    install="npm install -g @moonshot-ai/kimi-code",
    other_name="kimi-code",
    guide="guides/kimi-code",
    has_small_model=False,
    plan=_plan,
)
