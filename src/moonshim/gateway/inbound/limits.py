"""A key and its limits -> a request admitted or refused; counted in the store, so that several gateways count as one.

Requests and tokens are counted per calendar minute. The use in the last sixty seconds is estimated as all of this
minute plus the part of the previous minute that is within sixty seconds. That takes two numbers instead of a list of
times, and a client cannot get twice the limit around the turn of a minute.

Each process also counts for itself, and the higher of the two counts decides. So while the store is unavailable or
full, after it was emptied, and when the wall clock jumps, a limit holds per process.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections import Counter
from collections.abc import Callable
from math import ceil
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.config.model import GatewayKey
from moonshim.errors import Problem, Refused
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import Store, StoreUnavailable, key_space

__all__ = ["LEASE_SECONDS", "Limiter", "Used"]

Counted: TypeAlias = Literal["requests", "tokens"]

MINUTE: Final = 60.0
LEASE_SECONDS: Final = 60.0
"""Seconds until a slot that is not renewed expires: its gateway may have died. Renew it three times as often."""
_LOST: Final = "limits"


class Used(Struct, frozen=True):
    """How much of a limit is used at one moment."""

    before: int
    """In the previous calendar minute."""
    now: int
    """In the current one."""
    elapsed: float
    """Seconds of the current minute that have passed."""

    def total(self) -> float:
        return self.before * (1 - self.elapsed / MINUTE) + self.now

    def seconds_until(self, fewer_than: int) -> float:
        """Seconds until less than this is used, if nothing is added: a client that waits that long is served.

        >>> Used(before=0, now=10, elapsed=20.0).seconds_until(10)   # all of it moves out of sight in the next minute
        46.0
        >>> Used(before=10, now=2, elapsed=30.0).seconds_until(7)
        6.0
        """
        room = fewer_than - 1
        if self.now <= room:
            return max(0.0, _seconds_until_faded(self.before, room - self.now) - self.elapsed)
        return MINUTE - self.elapsed + _seconds_until_faded(self.now, room)


def _seconds_until_faded(count: int, room: int) -> float:
    """Seconds into a minute until `count` uses of the minute before weigh no more than `room`."""
    return MINUTE * (1 - max(0, room) / count) if count > room else 0.0


class _Uses(Struct, frozen=True):
    """What the store counted, and what this process counted itself."""

    shared: Used | None
    """None: the store is unavailable."""
    own: Used

    def total(self) -> float:
        return max(self.own.total(), 0.0 if self.shared is None else self.shared.total())

    def seconds_until(self, fewer_than: int) -> float:
        own = self.own.seconds_until(fewer_than)
        return own if self.shared is None else max(own, self.shared.seconds_until(fewer_than))


class _OwnCounts:
    """What this process has counted, by its own clock: it does not jump when the wall clock does."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._minutes: dict[tuple[Counted, str], tuple[int, int, int]] = {}
        """By unit and key: a minute, the count in the one before, and in this one."""

    def count(self, unit: Counted, key: GatewayKey, amount: int) -> Used:
        minute, elapsed = divmod(self._clock(), MINUTE)
        number = int(minute)
        last, before, now = self._minutes.get((unit, key.name), (number, 0, 0))
        if last != number:
            before, now = now if last == number - 1 else 0, 0
        now = max(0, now + amount)
        self._minutes[unit, key.name] = number, before, now
        return Used(before=before, now=now, elapsed=elapsed)


class Limiter:
    """Keeps every key within its limits. Refused requests do not count, so retrying is never penalised."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        """`clock` must be shared by all gateways: the wall clock."""
        self._store = store
        self._clock = clock
        self._own = _OwnCounts(_steady_clock() if clock is time.time else clock)
        self._running: Counter[str] = Counter()
        """Requests in progress in this process, by key."""
        self._process = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._streams: dict[int, str] = {}
        """By the identity of a request's record: the name of its slot in the store."""
        self._last_minutes: dict[tuple[Counted, str], tuple[int, int]] = {}
        """Each key's use in the previous minute, which no longer changes: read from the store once."""

    async def admit(self, key: GatewayKey, request_id: str, *, record: RequestRecord) -> list[tuple[bytes, bytes]]:
        """Count a request. Returns headers with the remaining quota; raises `Refused` (429) if there is none."""
        headers: list[tuple[bytes, bytes]] = []
        if key.tokens_per_minute is not None:
            used = await self._count("tokens", key, 0, record)
            if used.total() >= key.tokens_per_minute:
                raise _refusal(key, "tokens", key.tokens_per_minute, used)
            headers += _headers("tokens", key.tokens_per_minute, used)
        if key.requests_per_minute is not None:
            used = await self._count("requests", key, 1, record)
            if used.total() > key.requests_per_minute:
                used = await self._count("requests", key, -1, record)
                raise _refusal(key, "requests", key.requests_per_minute, used)
            headers += _headers("requests", key.requests_per_minute, used)
        # The slot is taken last, so that a request refused earlier holds none. A non-streaming response takes one as
        # well: its host works as long for it as for a stream.
        if key.concurrent_streams is not None and not await self._take_slot(key, request_id, record):
            if key.requests_per_minute is not None:
                await self._count("requests", key, -1, record)
            raise _too_many_streams(key)
        return headers

    async def _take_slot(self, key: GatewayKey, request_id: str, record: RequestRecord) -> bool:
        assert key.concurrent_streams is not None
        if self._running[key.name] >= key.concurrent_streams:
            return False
        self._running[key.name] += 1
        # Not by the request's id alone: clients may choose it, and requests with the same id would share one slot.
        holder = f"{request_id}.{self._process}.{next(self._numbers)}"
        is_taken = False
        try:
            is_taken = await self._store.lease(_streams(key), holder, key.concurrent_streams, LEASE_SECONDS)
        except StoreUnavailable:
            _record_store_failure(record)
            is_taken = True
        finally:
            if is_taken:
                self._streams[id(record)] = holder
            else:
                self._leave(key)
        return is_taken

    def _leave(self, key: GatewayKey) -> None:
        self._running[key.name] -= 1
        if not self._running[key.name]:
            del self._running[key.name]

    async def spend(self, key: GatewayKey, tokens: int, *, record: RequestRecord) -> None:
        """Count the tokens of a response. They are known when it is over, so one response may exceed the limit."""
        if key.tokens_per_minute is not None and tokens > 0:
            await self._count("tokens", key, tokens, record)

    async def renew(self, key: GatewayKey, request_id: str, *, record: RequestRecord) -> None:
        """Renew the slot of a running response. One that has lost its slot meanwhile is not cut off."""
        holder = self._streams.get(id(record))
        if holder is not None and key.concurrent_streams is not None:
            try:
                await self._store.lease(_streams(key), holder, key.concurrent_streams, LEASE_SECONDS)
            except StoreUnavailable:
                _record_store_failure(record)

    async def release(self, key: GatewayKey, request_id: str, *, record: RequestRecord) -> None:
        """Release the slot of a finished request. Harmless if it held none, and when called twice."""
        holder = self._streams.pop(id(record), None)
        if holder is not None:
            self._leave(key)
            try:
                await self._store.release(_streams(key), holder)
            except StoreUnavailable:
                _record_store_failure(record)

    async def _count(self, unit: Counted, key: GatewayKey, amount: int, record: RequestRecord) -> _Uses:
        own = self._own.count(unit, key, amount)
        try:
            return _Uses(await self._shared(unit, key, amount), own)
        except StoreUnavailable:
            _record_store_failure(record)
            return _Uses(None, own)

    async def _shared(self, unit: Counted, key: GatewayKey, amount: int) -> Used:
        minute, elapsed = divmod(self._clock(), MINUTE)
        number = int(minute)
        now = await self._store.add(_counter(unit, number, key), amount, 2 * MINUTE)
        known = self._last_minutes.get((unit, key.name))
        if known is None or known[0] != number:
            before = await self._store.add(_counter(unit, number - 1, key), 0, MINUTE)
            known = self._last_minutes[unit, key.name] = number, before
        return Used(before=max(0, known[1]), now=max(0, now), elapsed=elapsed)


def _steady_clock() -> Callable[[], float]:
    """The wall clock as of now, and without its jumps from now on: so both counts have the same minutes."""
    ahead = time.time() - time.monotonic()
    return lambda: time.monotonic() + ahead


def _counter(unit: Counted, minute: int, key: GatewayKey) -> str:
    return f"limits:{_space(key)}:{unit}:{minute}"


def _streams(key: GatewayKey) -> str:
    return f"limits:{_space(key)}:streams"


def _space(key: GatewayKey) -> str:
    return key_space(f"key:{key.name}")


def _record_store_failure(record: RequestRecord) -> None:
    if _LOST not in record.store_failures:
        record.store_failures.append(_LOST)


def _headers(unit: Counted, limit: int, used: _Uses) -> list[tuple[bytes, bytes]]:
    """The headers that OpenAI sends; `reset` is the time until nothing is used any more."""
    left = max(0, int(limit - used.total()))
    values = {"limit": str(limit), "remaining": str(left), "reset": _duration(used.seconds_until(1))}
    return [(f"x-ratelimit-{word}-{unit}".encode(), value.encode()) for word, value in values.items()]


def _duration(seconds: float) -> str:
    """
    >>> _duration(0.0), _duration(0.4), _duration(90.2)
    ('0s', '1s', '1m31s')
    """
    minutes, rest = divmod(ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _refusal(key: GatewayKey, unit: Counted, limit: int, used: _Uses) -> Refused:
    # Whole seconds, as in the header, and rounded up: a client that comes back then must not be refused again.
    wait = max(1, ceil(used.seconds_until(limit)))
    return Refused(
        Problem(
            status=429,
            kind="rate_limit",
            message=f"Rate limit for key {key.name!r} reached ({limit:,} {unit}/min). Please try again in {wait} s.",
            code=f"{unit}_per_minute",
            retry_after=float(wait),
        )
    )


def _too_many_streams(key: GatewayKey) -> Refused:
    return Refused(
        Problem(
            status=429,
            kind="rate_limit",
            message=f"Key {key.name!r} has reached its limit of concurrent requests ({key.concurrent_streams}). "
            "Retry when one of them has finished.",
            code="concurrent_streams",
            # The end of a response cannot be predicted: this is soon enough to retry, and rare enough not to be a
            # burden.
            retry_after=2.0,
        )
    )
