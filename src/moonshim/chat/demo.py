"""`--demo` -> a configuration whose only host is the simulator, in this process.

Any fault and any scenario can be selected in the name of a model: `/model kimi-k3+five-rounds+split-bytes`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from msgspec.structs import replace

from moonshim.config import Config, Retries
from moonshim.simulator import demo
from moonshim.simulator.server import Simulator

__all__ = ["demo_host"]

READING_PACE: Final = 120.0
"""Tokens per second, for people to watch."""


@asynccontextmanager
async def demo_host(*, paced: bool) -> AsyncIterator[Config]:
    """The simulator, and the configuration that uses it."""
    async with Simulator(behaviour="selfhost", tokens_per_second=READING_PACE if paced else 0.0) as simulator:
        yield demo_config(simulator.url)


def demo_config(url: str) -> Config:
    """
    >>> demo_config("http://127.0.0.1:8485").aliases["default"]
    ('demo/kimi-k2.5+markers-in-content',)
    """
    config = demo.demo_config(url)
    aliases = {"default": config.aliases[demo.FIRST]} | config.aliases
    return replace(config, aliases=aliases, retries=Retries(longest_wait=2.0))
