"""Codex: configuration overrides on the command line, and the key in a variable."""

from __future__ import annotations

import json
from typing import Any, Final

from moonshim.launch.clients.settings import COMPACT_SHARE, KEY_VARIABLE, PROVIDER, context_window, direct_connection
from moonshim.launch.plan import Client, ClientPlan, LaunchContext

__all__ = ["CODEX"]


def _plan(context: LaunchContext) -> ClientPlan:
    window = context_window(context.model)
    provider = f"model_providers.{PROVIDER}"
    settings: dict[str, Any] = {
        "model": context.model.id,
        "review_model": context.model.id,
        "memories.extract_model": context.small_model.id,
        "memories.consolidation_model": context.small_model.id,
        "model_provider": PROVIDER,
        f"{provider}.name": "Moonshim",
        f"{provider}.base_url": f"{context.url}/v1",
        f"{provider}.wire_api": "responses",
        f"{provider}.env_key": KEY_VARIABLE,
        f"{provider}.supports_websockets": False,
        # A shared background process would use the variables of the terminal that started it, and outlive the gateway.
        "features.daemon_auto_start": False,
        # Always: the user's values are those of another model.
        "model_context_window": window,
        "model_auto_compact_token_limit": int(window * COMPACT_SHARE),
    }
    # JSON strings, numbers and booleans are TOML values too.
    flags = [part for name, value in settings.items() for part in ("-c", f"{name}={json.dumps(value)}")]
    return ClientPlan(arguments=tuple(flags), env={KEY_VARIABLE: context.key, **direct_connection(context)})


CODEX: Final = Client(
    name="codex",
    title="Codex",
    program="codex",
    agent="codex_cli_rs/0.166.0",
    install="npm install -g @openai/codex",
    guide="guides/codex",
    plan=_plan,
)
