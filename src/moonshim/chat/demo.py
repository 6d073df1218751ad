"""Nothing but a wish to look -> a configuration whose only host is the simulator, in this process.

`kimi-k2.5` leaks the markers of its calls into its text, as hosts do, so that there is something to mend. Any fault and
any scenario can be asked for in the name of a model: `/model kimi-k3+five-rounds+split-bytes`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from moonshim.config import Config, Provider, Retries
from moonshim.simulator.box import Simulator
from moonshim.simulator.models import MODELS

__all__ = ["demo_host"]

_FIRST: Final = "kimi-k2.5"
_FAULTS: Final = {_FIRST: "markers-in-content", "kimi-k3": "ids-missing"}
READING_PACE: Final = 120.0
"""Tokens in a second, for somebody who looks on."""


@asynccontextmanager
async def demo_host(*, paced: bool) -> AsyncIterator[Config]:
    """The simulator, and the configuration that leads to it."""
    async with Simulator(nature="selfhost", tokens_per_second=READING_PACE if paced else 0.0) as box:
        yield demo_config(box.url)


def demo_config(url: str) -> Config:
    """
    >>> demo_config("http://127.0.0.1:8485").aliases["default"]
    ('demo/kimi-k2.5+markers-in-content',)
    """
    # Neither lists its models: so any name with faults behind it can be passed on. The aliases list them instead.
    chat = Provider(name="demo", api_base_url=f"{url}/v1")
    messages = Provider(name="demo-messages", api_base_url=f"{url}/anthropic", dialect="anthropic")
    asked = {model: f"{model}+{_FAULTS[model]}" if model in _FAULTS else model for model in MODELS}
    aliases: dict[str, tuple[str, ...]] = {"default": (f"demo/{asked[_FIRST]}",)}
    aliases |= {model: (f"demo/{name}",) for model, name in asked.items()}
    aliases |= {f"demo-messages/{model}": (f"demo-messages/{name}",) for model, name in asked.items()}
    aliases["*+*"] = ("demo/*",)
    return Config(providers=(chat, messages), aliases=aliases, retries=Retries(longest_wait=2.0), source="--demo")
