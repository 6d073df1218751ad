"""How much of the gateway one tenant may occupy: bytes of request bodies in memory, and threads for large ones.

Limits per key (requests, tokens, streams) are in `limits`. These are limits of the process: whatever one tenant sends,
memory stays bounded and the event loop stays responsive for the others.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from moonshim.config.model import Limits
from moonshim.errors import Problem, Refused

__all__ = ["BodyMemory", "LargeWork", "RefusalPace", "Reservation", "TenantThreads", "large_contents"]

T = TypeVar("T")

RETRY_SECONDS: Final = 2.0
READ_BYTES_A_SECOND: Final = 64 * 1024 * 1024
"""Read rate for large bodies, all together: a small part of the event loop's time."""
REFUSALS_AT_ONCE: Final = 50
REFUSALS_A_SECOND: Final = 50
"""Per key."""
LONGEST_PAUSE: Final = 1.0
SEARCH_SECONDS: Final = 300.0
_FREED_AT_ONCE: Final = 500
_DEPTH: Final = 7
_LOOKED_AT: Final = 2000
_SHARED: Final = (type, ModuleType, FunctionType, BuiltinFunctionType, str, bytes, int, float)
"""Types that belong to the program itself, or contain nothing."""
LEAST_REST: Final = 0.001
"""Seconds: the resolution of an event loop's clock."""


class BodyMemory:
    """Counts the bytes of request bodies in memory, per tenant and in total.

    A request that would exceed a bound waits until others have released enough. Nothing is read from its client
    meanwhile, so that TCP holds the client back. After `queue_seconds` it is refused with a 503.

    A tenant's requests count with the length that they announce, and wait before their first byte: otherwise several
    half-read ones could wait for each other. The total counts what has arrived, so that a client cannot take room from
    other tenants by announcing much and sending nothing.
    """

    def __init__(self) -> None:
        self.total = 0
        self._by_tenant: Counter[str] = Counter()
        self._waiting: list[tuple[Reservation, int, int, asyncio.Future[None]]] = []
        self._busy_until = 0.0

    async def rest(self, size: int) -> None:
        """Yield to other requests after this many bytes of a large body were read."""
        now = asyncio.get_running_loop().time()
        self._busy_until = max(self._busy_until, now) + size / READ_BYTES_A_SECOND
        if self._busy_until - now >= LEAST_REST:
            await asyncio.sleep(self._busy_until - now)

    def reserve(self, tenant: str, limits: Limits) -> Reservation:
        """An empty reservation. Release it when the request is over."""
        return Reservation(self, tenant, limits)

    def _take(self, held: Reservation, announced: int, size: int) -> bool:
        """Raise a reservation to these amounts, if there is room."""
        limits = held.limits
        added, claimed = size - held.size, max(announced, size) - held.claim
        # A single request may always have `body_bytes`, whatever the other two are set to.
        if added and self.total + added > max(limits.bytes_in_flight, limits.body_bytes):
            return False
        if claimed and self._by_tenant[held.tenant] + claimed > max(limits.key_bytes_in_flight, limits.body_bytes):
            return False
        self.total += added
        self._by_tenant[held.tenant] += claimed
        held.size, held.announced = size, announced
        return True

    async def _wait(self, held: Reservation, announced: int, size: int) -> None:
        granted = asyncio.get_running_loop().create_future()
        place = held, announced, size, granted
        self._waiting.append(place)
        try:
            async with asyncio.timeout(held.limits.queue_seconds):
                await granted
        except TimeoutError:
            raise _busy("The gateway has no memory left for more request bodies. Retry in a moment.") from None
        finally:
            self._waiting.remove(place)

    def _give_back(self, held: Reservation) -> None:
        self.total -= held.size
        self._by_tenant[held.tenant] -= held.claim
        if not self._by_tenant[held.tenant]:
            del self._by_tenant[held.tenant]
        held.size = held.announced = 0
        for waiting, announced, size, granted in self._waiting:
            if not granted.done() and self._take(waiting, announced, size):
                granted.set_result(None)


class Reservation:
    """The bytes that one request holds."""

    __slots__ = ("_memory", "announced", "limits", "size", "tenant")

    def __init__(self, memory: BodyMemory, tenant: str, limits: Limits) -> None:
        self._memory, self.tenant, self.limits = memory, tenant, limits
        self.announced = 0
        self.size = 0

    @property
    def claim(self) -> int:
        """The bytes that count for its tenant."""
        return max(self.announced, self.size)

    async def announce(self, size: int) -> None:
        """Announce this many bytes. Waits for the tenant's turn; raises `Refused` (503) if that takes too long."""
        await self._raise_to(size, self.size)

    async def grow(self, amount: int) -> None:
        """Hold this many more bytes. Waits for room; raises `Refused` (503) if there is none in time."""
        await self._raise_to(self.announced, self.size + amount)

    async def rest(self, size: int) -> None:
        """Await this after reading this many bytes of a large body."""
        await self._memory.rest(size)

    async def _raise_to(self, announced: int, size: int) -> None:
        most = max(self.limits.key_bytes_in_flight, self.limits.body_bytes)
        if size > most:
            raise _too_large(most)  # waiting would not help: there will never be enough room
        if not self._memory._take(self, announced, size):
            await self._memory._wait(self, announced, size)

    def release(self) -> None:
        self._memory._give_back(self)


class RefusalPace:
    """Delays the answers to a client that keeps sending requests over its limits, by up to a second.

    Each refusal is cheap, but thousands per second would take the event loop's time from other tenants.
    """

    def __init__(self) -> None:
        self._due: dict[str, float] = {}

    async def wait(self, tenant: str) -> None:
        now = asyncio.get_running_loop().time()
        due = max(self._due.get(tenant, 0.0), now - REFUSALS_AT_ONCE / REFUSALS_A_SECOND) + 1 / REFUSALS_A_SECOND
        self._due[tenant] = min(due, now + LONGEST_PAUSE)
        if due > now:
            await asyncio.sleep(self._due[tenant] - now)


class TenantThreads:
    """Runs work in threads: a few at once, and one per tenant."""

    def __init__(self, at_once: int, name: str, *, when_busy: str) -> None:
        """`when_busy`: the error for a request whose turn does not come."""
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=name)
        self._turns = asyncio.Semaphore(at_once)
        self._tenants: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._when_busy = when_busy

    async def run(self, tenant: str, limits: Limits, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """The result of `work`. Raises `Refused` (503) if its turn does not come within `queue_seconds`."""
        own = self._tenants.setdefault(tenant, asyncio.Lock())
        try:
            async with asyncio.timeout(limits.queue_seconds):
                await own.acquire()
                try:
                    await self._turns.acquire()
                except BaseException:
                    own.release()
                    raise
        except TimeoutError:
            raise _busy(self._when_busy) from None

        def end_turn(_: object) -> None:
            own.release()
            self._turns.release()

        running = asyncio.get_running_loop().run_in_executor(self._threads, self._run, partial(work, *args, **kwargs))
        # A thread cannot be interrupted: if the client disconnects, the turn still ends with the work and not before.
        running.add_done_callback(end_turn)
        try:
            return await asyncio.shield(running)
        finally:
            # An error in it would keep this frame alive, and with it everything that belongs to the request.
            del running

    def _run(self, work: Callable[[], T]) -> T:
        return work()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class LargeWork(TenantThreads):
    """Runs work on large bodies.

    Python runs one thread at a time. More threads would only take turns from the event loop.
    """

    AT_ONCE: Final = 2

    def __init__(self) -> None:
        busy = "The gateway is busy with other large requests. Retry in a moment."
        super().__init__(self.AT_ONCE, "large-body", when_busy=busy)
        self._collection = _DeferredGarbageCollection()

    def _run(self, work: Callable[[], T]) -> T:
        return self._collection.run(work)

    def free(self, contents: list[list[Any]], then: Callable[[], None]) -> None:
        """Free the contents of large containers, a few at a time and in a thread."""
        try:
            freed = self._threads.submit(_free, contents)
        except RuntimeError:  # closed
            then()
        else:
            asyncio.wrap_future(freed).add_done_callback(lambda _: then())


class _DeferredGarbageCollection:
    """Turns the garbage collector off while large bodies are processed, since a collection would stop all threads.

    The objects that exist afterwards are excluded from later collections too, except for one every few minutes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._was_enabled = False
        self._searched = time.monotonic()

    def run(self, work: Callable[[], T]) -> T:
        with self._lock:
            if not self._running:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._running += 1
        try:
            return work()
        finally:
            with self._lock:
                self._running -= 1
                if not self._running and self._was_enabled:
                    self._settle()

    def _settle(self) -> None:
        now = time.monotonic()
        if now - self._searched > SEARCH_SECONDS:
            self._searched = now
            gc.unfreeze()
            gc.collect()
        gc.freeze()
        gc.enable()


def large_contents(root: Any) -> list[list[Any]]:
    """The contents of the large containers in a value, so that they can be freed in steps.

    >>> large_contents({"model": "m", "messages": ["hi"] * 3}), len(large_contents({"messages": ["hi"] * 3000})[0])
    ([], 3000)
    """
    found, nearby = list[list[Any]](), list[Any]([[root]])
    for _ in range(_DEPTH):
        if len(nearby) > _LOOKED_AT:
            break
        nearby = [one for one in gc.get_referents(*nearby) if not isinstance(one, _SHARED)]
        for one in nearby:
            if isinstance(one, list | tuple | dict) and len(one) > _FREED_AT_ONCE:
                found.append(list(one.values() if isinstance(one, dict) else one))
        nearby = [one for one in nearby if not isinstance(one, list | tuple | dict) or len(one) <= _FREED_AT_ONCE]
    return found


def _free(contents: list[list[Any]]) -> None:
    for content in contents:
        while content:
            del content[-_FREED_AT_ONCE:]


def _too_large(most: int) -> Refused:
    message = f"The request, including the conversation it continues, is larger than {most:,} bytes. Compact it."
    return Refused(Problem(status=413, kind="too_large", message=message))


def _busy(message: str) -> Refused:
    return Refused(
        Problem(status=503, kind="overloaded", message=message, code="gateway_busy", retry_after=RETRY_SECONDS)
    )
