"""An async server -> the same server in its own thread, for code without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

__all__ = ["in_thread"]

T = TypeVar("T")


@contextlib.contextmanager
def in_thread(server: AbstractAsyncContextManager[T], name: str) -> Iterator[T]:
    """Enter the server in a new thread with its own event loop; leave it there at the end."""
    ready, over = threading.Event(), asyncio.Event()
    entered: list[tuple[asyncio.AbstractEventLoop, T]] = []
    failures: list[BaseException] = []

    async def run() -> None:
        async with server as value:
            entered.append((asyncio.get_running_loop(), value))
            ready.set()
            await over.wait()

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    ready.wait()
    if failures:
        raise failures[0]
    ((loop, value),) = entered
    try:
        yield value
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
