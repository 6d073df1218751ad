"""Codex: configuration overrides on the command line, a catalog of models, and the key in a variable."""

from __future__ import annotations

import json
from typing import Any, Final

from moonshim.launch.clients.settings import (
    COMPACT_SHARE,
    KEY_VARIABLE,
    PROVIDER,
    all_models,
    context_window,
    direct_connection,
)
from moonshim.launch.plan import Client, ClientPlan, LaunchContext, ModelInfo

__all__ = ["CODEX"]

_CATALOG: Final = "codex-models.json"
_INSTRUCTIONS: Final = """\
You are a coding agent in the Codex CLI, a program for the terminal. You share a workspace with the user. Work on \
their request until it is done, and ask only for what you cannot find out.

- Read before you change anything. Search with `rg` where it is installed.
- AGENTS.md files are instructions for the folder that they are in and all folders below it. A deeper one takes \
precedence over a higher one, and what the user says over both.
- Fix the cause, not the symptom. Keep changes small and in the style of the code around them. Leave everything else \
as it is: never revert changes that you did not make, and do not commit or create branches unless you are asked to.
- Edit files with the `apply_patch` tool if you have it, otherwise with the shell. Read the file again after an edit \
that could have failed.
- Commands may run in a sandbox. The developer's messages say what it permits, and how to ask for more.
- Check your work with the tests, linters or programs of the project: first what is closest to your change.
- If you have a tool for plans, use it for tasks with several steps, and keep the plan up to date.
- Before a group of tool calls, say in one sentence what you are going to do.
- End with a short answer: what you did, what you saw when you checked it, and what is left. Name files as \
`path:line`. Do not repeat whole files."""
"""Codex has instructions of its own only for OpenAI's models, and for models that are not in its catalog."""
_EFFORTS: Final = {
    "none": "No thinking",
    "low": "Short thinking, fast answers",
    "medium": "Balanced thinking",
    "high": "Thorough thinking for most tasks",
    "xhigh": "Longer thinking for hard tasks",
    "max": "The longest thinking, for the hardest tasks",
}


def _plan(context: LaunchContext) -> ClientPlan:
    models = all_models(context)
    window = max(map(context_window, models))
    provider = f"model_providers.{PROVIDER}"
    settings: dict[str, Any] = {
        "model": context.model.id,
        "review_model": context.model.id,
        "memories.extract_model": context.small_model.id,
        "memories.consolidation_model": context.small_model.id,
        "model_provider": PROVIDER,
        "model_catalog_json": str(context.folder / _CATALOG),
        f"{provider}.name": "Moonshim",
        f"{provider}.base_url": f"{context.url}/v1",
        f"{provider}.wire_api": "responses",
        f"{provider}.env_key": KEY_VARIABLE,
        f"{provider}.supports_websockets": False,
        # A shared background process would use the variables of the terminal that started it, and outlive the gateway.
        "features.daemon_auto_start": False,
        # Always: the user's values are those of another model. For each model, Codex lowers them to its own window.
        "model_context_window": window,
        "model_auto_compact_token_limit": int(window * COMPACT_SHARE),
    }
    # JSON strings, numbers and booleans are TOML values too.
    flags = [part for name, value in settings.items() for part in ("-c", f"{name}={json.dumps(value)}")]
    catalog = {"models": [_entry(model, place) for place, model in enumerate(models)]}
    return ClientPlan(
        arguments=tuple(flags),
        env={KEY_VARIABLE: context.key, **direct_connection(context)},
        files={_CATALOG: json.dumps(catalog, indent=2) + "\n"},
    )


def _entry(model: ModelInfo, place: int) -> dict[str, Any]:
    """A model in Codex's catalog. What is not said of the model itself is as Codex has it for an unknown model."""
    window = context_window(model)
    efforts = model.efforts if model.thinks else ()
    # Without a default, Codex shows `none` as such, whatever the host does then.
    default = "high" if "high" in efforts else efforts[-1] if efforts else None
    return {
        "slug": model.id,
        "display_name": model.id,
        "description": f"{model.provider or 'Kimi'} through Moonshim",
        **({} if default is None else {"default_reasoning_level": default}),
        "supported_reasoning_levels": [
            {"effort": effort, "description": _EFFORTS.get(effort, "As the host understands it")} for effort in efforts
        ],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": True,
        "priority": place,
        "base_instructions": _INSTRUCTIONS,
        "supports_reasoning_summaries": True,
        "support_verbosity": False,
        "truncation_policy": {"mode": "tokens", "limit": 10_000},
        "supports_parallel_tool_calls": True,
        "context_window": window,
        "max_context_window": window,
        "experimental_supported_tools": [],
        "input_modalities": ["text", *["image"] * model.sees_images],
        # `code_mode_only` replaces the shell by a JavaScript tool, which only OpenAI's models are trained for.
        "tool_mode": "direct",
    }


CODEX: Final = Client(
    name="codex",
    title="Codex",
    program="codex",
    agent="codex_cli_rs/0.169.0",
    install="npm install -g @openai/codex",
    guide="guides/codex",
    plan=_plan,
)
