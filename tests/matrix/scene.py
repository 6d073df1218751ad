"""Every behaviour of the simulator, one gateway before them all, and the official packages, shared by many talks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final, TypeVar

import uvloop

from moonshim.config import Config, ProviderConfig, Retries, Secret, Timeouts
from moonshim.gateway.outbound.attempts import AskAgainLimit
from moonshim.simulator import Simulator
from moonshim.simulator.request import Wire
from tests.matrix.cells import HOSTS, Cell
from tests.matrix.steps import Steps
from tests.support.gateway.official_clients import Packages
from tests.support.gateway.running import Running, running

__all__ = ["OTHER", "Scene", "scene"]

T = TypeVar("T")
OTHER: Final = "plain-1"
"""The model of the simulator that is no Kimi."""
AGENT: Final = "claude-cli/2.1.325 (the matrix)"
"""One of those that Kimi's coding endpoint lets in."""
PATIENCE: Final = 120.0
HASTY: Final = 1.5
"""Seconds that somebody waits who does not wait for a host that stalls."""


class Scene:
    """Talks run on it one by one."""

    def __init__(self, runner: asyncio.Runner, boxes: dict[str, Simulator]) -> None:
        self._runner, self.boxes = runner, boxes
        self.direct = {name: Packages(server.url, agent=AGENT, timeout=HASTY) for name, server in boxes.items()}
        self.gateway: Running
        self.mended: Packages

    def run(self, test: Coroutine[Any, Any, T]) -> T:
        """Run one to its end; one that hangs fails."""
        return self._runner.run(asyncio.wait_for(test, PATIENCE))

    def name_of(self, cell: Cell, model: str) -> str:
        """As a client of the gateway asks for it."""
        hasty = cell.fault.startswith("stall")
        return f"{_provider_name(cell.host, cell.wire, hasty=hasty)}/{model}"


def _provider_name(host: str, wire: Wire, *, hasty: bool) -> str:
    name = f"{host}-messages" if wire == "anthropic" else host
    return f"{name}-hasty" if hasty else name


def _providers(boxes: dict[str, Simulator]) -> Iterator[ProviderConfig]:
    """Each host twice: as it is usually configured, and by somebody who does not wait for a host that stalls."""
    for name, host in HOSTS.items():
        for wire in host.wires:
            messages = wire == "anthropic"
            for hasty in (False, True):
                yield ProviderConfig(
                    name=_provider_name(name, wire, hasty=hasty),
                    api_base_url=f"{boxes[name].url}/anthropic" if messages else f"{boxes[name].url}/v1",
                    keys=(Secret("sk-host"),),
                    dialect=wire,
                    host=host.messages_row if messages else host.row,
                    timeouts=Timeouts(first_byte=HASTY, between_bytes=HASTY) if hasty else Timeouts(),
                )


@contextmanager
def scene() -> Iterator[Scene]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()

        async def begin() -> Scene:
            boxes = {}
            for name, host in HOSTS.items():
                server = Simulator(behaviour=host.behaviour, model=Steps())
                boxes[name] = await stack.enter_async_context(server)
            made = Scene(runner, boxes)
            config = Config(providers=tuple(_providers(boxes)), retries=Retries(attempts=1, breaker_failures=10**9))
            made.gateway = await stack.enter_async_context(running(config))
            made.gateway.state.ask_again_limit = AskAgainLimit(least=1_000_000)  # here every answer may fail
            made.mended = Packages(made.gateway.url, agent=AGENT)
            for packages in (made.mended, *made.direct.values()):
                stack.push_async_callback(packages.close)
            return made

        async def end() -> None:
            await stack.aclose()

        try:
            yield runner.run(begin())
        finally:
            runner.run(end())
