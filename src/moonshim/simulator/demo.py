"""The address of a simulator -> a configuration that uses it, for trying Moonshim out.

`kimi-k2.5` leaks the markers of its calls into its text, as hosts do, and `kimi-k3` calls without an id. Every other
model behaves correctly. A request that names faults gets exactly those: `kimi-k2.5+markers-in-reasoning+split-bytes`.
All models are available twice, over Chat and, as `demo-messages/…`, over Messages.
"""

from __future__ import annotations

from typing import Final

from moonshim.config import Config, ProviderConfig, UsageBooks
from moonshim.simulator.host.models import MODELS

__all__ = ["CHAT", "FIRST", "MESSAGES", "demo_config"]

CHAT: Final = "demo"
MESSAGES: Final = "demo-messages"
FIRST: Final = "kimi-k2.5"
"""The default model."""
_FAULTS: Final = {FIRST: "markers-in-content", "kimi-k3": "ids-missing"}
"""The faults of a model when the request names none."""


def demo_config(url: str) -> Config:
    """
    >>> config = demo_config("http://127.0.0.1:8485")
    >>> config.aliases["kimi-k2.5"], config.aliases["*+*"]
    (('demo/kimi-k2.5+markers-in-content',), ('demo/*',))
    """
    # Neither lists its models, so that any name with faults appended is passed on. The aliases list them instead.
    chat = ProviderConfig(name=CHAT, api_base_url=f"{url}/v1")
    messages = ProviderConfig(name=MESSAGES, api_base_url=f"{url}/anthropic", dialect="anthropic")
    names = {model: f"{model}+{_FAULTS[model]}" if model in _FAULTS else model for model in MODELS}
    aliases: dict[str, tuple[str, ...]] = {model: (f"{CHAT}/{name}",) for model, name in names.items()}
    aliases |= {f"{MESSAGES}/{model}": (f"{MESSAGES}/{name}",) for model, name in names.items()}
    aliases["*+*"] = (f"{CHAT}/*",)
    # Made-up responses cost nothing: they do not belong in the books of real ones.
    books = UsageBooks(file="memory:")
    return Config(providers=(chat, messages), aliases=aliases, usage=books, source="--demo")
