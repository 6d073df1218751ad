"""A host and a configuration -> both running for a module of tests, in one loop that pauses between them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, TypeVar

import uvloop

from moonshim.config import Config
from tests.support.gateway.hosts import PATIENCE, Host
from tests.support.gateway.official_clients import Packages
from tests.support.gateway.running import Running, running

__all__ = ["Stage", "stage"]

T = TypeVar("T")


class Stage:
    """A gateway between the official packages and a host. Tests run on it one by one."""

    def __init__(self, runner: asyncio.Runner, host: Any, gateway: Running, packages: Packages) -> None:
        self._runner = runner
        self.host, self.gateway, self.packages = host, gateway, packages

    def run(self, test: Coroutine[Any, Any, T]) -> T:
        """Run a test to its end; one that hangs fails."""
        return self._runner.run(asyncio.wait_for(test, PATIENCE))


@contextmanager
def stage(host: Host, config: Any) -> Iterator[Stage]:
    """`config`: creates a `Config` once the host has its address."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()

        async def begin() -> Stage:
            await stack.enter_async_context(host)
            made: Config = config(host)
            gateway = await stack.enter_async_context(running(made))
            packages = Packages(gateway.url)
            stack.push_async_callback(packages.close)
            return Stage(runner, host, gateway, packages)

        async def end() -> None:
            await stack.aclose()

        try:
            yield runner.run(begin())
        finally:
            runner.run(end())
