"""Crush: a copy of its state folder, in which our provider is configured and selected.

Unverified: written from its documentation and source, and never run. See docs/guides/crush.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from moonshim.engine.request.extra_body import deep_merge
from moonshim.launch.clients.settings import (
    KEY_VARIABLE,
    PROVIDER,
    all_models,
    context_window,
    direct_connection,
    home_folder,
    output_limit,
    read_object,
)
from moonshim.launch.plan import Client, ClientPlan, LaunchContext, ModelInfo

__all__ = ["CRUSH"]

_FOLDER: Final = "CRUSH_GLOBAL_DATA"


def _plan(context: LaunchContext) -> ClientPlan:
    # The models that the user selected are in this file, and override the user's configuration. Crush has no flag or
    # variable for the model, so this file is replaced, and Crush still reads the user's own configuration first.
    # Logins stay out of the copy: a token that is renewed there would be lost, and the old one is no longer valid.
    before = {name: value for name, value in read_object(_state(context) / "crush.json").items() if name != "providers"}
    settings = {
        "providers": {
            PROVIDER: {
                "name": "Moonshim",
                "type": "openai-compat",
                "base_url": f"{context.url}/v1",
                "api_key": f"${KEY_VARIABLE}",
                "extra_body": {"prompt_cache_key": context.session},
                "models": [_model(model) for model in all_models(context)],
            }
        },
        "models": {
            "large": {"provider": PROVIDER, "model": context.model.id, "max_tokens": output_limit(context.model)},
            "small": {
                "provider": PROVIDER,
                "model": context.small_model.id,
                "max_tokens": output_limit(context.small_model),
            },
        },
    }
    return ClientPlan(
        env={
            _FOLDER: str(context.folder / "crush"),
            KEY_VARIABLE: context.key,
            **direct_connection(context),
        },
        files={"crush/crush.json": json.dumps(deep_merge(before, settings), indent=2)},
    )


def _state(context: LaunchContext) -> Path:
    """The folder of the file in which Crush keeps what the user selected."""
    environ = context.environ
    if own := environ.get(_FOLDER):
        return Path(own)
    if data := environ.get("XDG_DATA_HOME"):
        return Path(data) / "crush"
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home_folder(environ) / "AppData" / "Local") / "crush"
    return home_folder(environ) / ".local" / "share" / "crush"


def _model(model: ModelInfo) -> dict[str, Any]:
    return {
        "id": model.id,
        "name": model.id,
        "context_window": context_window(model),
        "default_max_tokens": output_limit(model),
        "can_reason": model.thinks,
        "supports_attachments": model.sees_images,
    }


CRUSH: Final = Client(
    name="crush",
    title="Crush",
    program="crush",
    install="npm install -g @charmland/crush",
    guide="guides/crush",
    plan=_plan,
)
