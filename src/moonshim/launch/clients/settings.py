"""What the rows of several clients share: the list of models, limits, proxies and the settings files of a user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from moonshim.launch.plan import LaunchContext, ModelInfo

__all__ = [
    "COMPACT_SHARE",
    "KEY_VARIABLE",
    "PROVIDER",
    "all_models",
    "context_window",
    "direct_connection",
    "home_folder",
    "output_limit",
    "read_object",
]

PROVIDER: Final = "moonshim"
"""The provider's name in clients that have several."""
KEY_VARIABLE: Final = "MOONSHIM_LAUNCH_KEY"
"""Clients that read their key from a variable of any name read it from this one."""
COMPACT_SHARE: Final = 0.9
"""The part of the context window at which a client summarises the conversation."""
_UNKNOWN_WINDOW: Final = 131_072
"""For clients that need a number: the smallest window of a Kimi model since K2."""
_OUTPUT: Final = 65_536
"""Enough for long reasoning. Clients subtract the limit from the window, so the model's own maximum is too much."""


def all_models(context: LaunchContext) -> tuple[ModelInfo, ...]:
    """The main model, the small model, and all others of the gateway, each once."""
    found = {model.id: model for model in (*context.models, context.small_model, context.model)}
    first = dict.fromkeys((context.model.id, context.small_model.id))
    return tuple(found[name] for name in (*first, *(name for name in found if name not in first)))


def context_window(model: ModelInfo) -> int:
    """The context window, for a client that does not start without one."""
    return model.context_window or _UNKNOWN_WINDOW


def output_limit(model: ModelInfo) -> int:
    """The longest output that a client should ask for, including reasoning.

    >>> output_limit(ModelInfo("kimi-k3", 1_048_576, 1_048_576)), output_limit(ModelInfo("small", 16_384))
    (65536, 4096)
    """
    return min(_OUTPUT, model.output_limit or _OUTPUT, context_window(model) // 4)


def direct_connection(context: LaunchContext) -> dict[str, str]:
    """Variables that keep requests to the gateway away from a proxy; none if the user has no proxy."""
    environ = context.environ
    names = {name for name in environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy") and environ[name]}
    host = urlsplit(context.url).hostname
    if not names or host is None:
        return {}
    before = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if before.strip() == "*" or host in (part.strip() for part in before.split(",")):
        return {}
    excluded = ",".join(part for part in (before, host) if part)
    # Programs disagree about the case of the name, and some read only one of the two.
    return {"NO_PROXY": excluded, "no_proxy": excluded}


# -- settings files of the user, which are only read ----------------------------------------------------------------


def home_folder(environ: Mapping[str, str]) -> Path:
    """The user's home folder as the client sees it."""
    return Path(environ.get("HOME") or environ.get("USERPROFILE") or "/")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none, or none that can be read."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
