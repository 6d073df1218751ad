"""The usage books of several machines -> one report, by way of the store that their gateways share.

Each machine writes its sums of a day as one value, and writes them again when they change. Sums are absolute, so that
writing them twice changes nothing, and what could not be written while the store was down is in the next ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from sqlite3 import Connection
from typing import Final

import msgspec
from msgspec import Struct

from moonshim.store import Store, StoreUnavailable
from moonshim.usage.ledger import UsageLedger
from moonshim.usage.report import Grouping, UsageReport, UsageRow, build_report, read_groups

__all__ = ["SharedUsage", "UsagePart", "read_other_machines", "read_parts", "report_of_parts"]

INTERVAL: Final = 5.0
"""Seconds until the store has what a machine has used."""
_LAZINESS: Final = 20
"""Sums are computed at most one part in so many of the time."""
_LEASES: Final = 3
"""Intervals after which another worker takes over."""
_DAY: Final = 24 * 3600 * 1000
_RECENT: Final = 2
"""Days that still change."""
MOST_PARTS: Final = 2000
"""Per machine and day. The sessions with the fewest requests are added up."""
OTHER_SESSIONS: Final = "(other)"
_MACHINES: Final = "usage:all:machines"
_READ_AT_ONCE: Final = 200
_COLUMNS: Final = ("key", "session", "client", "provider", "model")


class UsagePart(Struct, array_like=True):
    """What the requests of one day have used that agree in all of these."""

    day: int
    """Since 1970."""
    key: str | None
    session: str | None
    client: str | None
    provider: str | None
    model: str | None
    row: UsageRow


def read_parts(connection: Connection, *, since: int | None = None, until: int | None = None) -> list[UsagePart]:
    """The parts of the days from `since` until `until` (milliseconds since 1970) in the books of this machine."""
    first, last = days_of(since, until)
    parts: dict[tuple[str | None, ...], UsagePart] = {}
    for names, row in read_groups(
        connection,
        (f"started / {_DAY}", *(f"nullif(\"{column}\", '')" for column in _COLUMNS)),
        since=None if first is None else first * _DAY,
        until=None if last is None else last * _DAY,
    ):
        if names not in parts:
            day, key, session, client, provider, model = names
            parts[names] = UsagePart(int(day or 0), key, session, client, provider, model, UsageRow())
        parts[names].row.add(row)
    return list(parts.values())


def report_of_parts(
    parts: Iterable[UsagePart], *, by: Grouping, since: int | None, until: int | None, key: str | None
) -> UsageReport:
    """As `summarize`, for whole days: those that contain a moment from `since` until before `until`."""
    first, last = days_of(since, until)
    groups = (
        (_day_name(part.day) if by == "day" else getattr(part, by), f"{part.provider}/{part.model}", part.row)
        for part in parts
        if (key is None or part.key == key)
        and (first is None or part.day >= first)
        and (last is None or part.day < last)
    )
    return build_report(groups, by=by, since=since, until=until)


def days_of(since: int | None, until: int | None) -> tuple[int | None, int | None]:
    """Milliseconds -> days, from the first until before the last."""
    return None if since is None else since // _DAY, None if until is None else -(-until // _DAY)


async def read_other_machines(
    store: Store, own: str | None, *, since: int | None, until: int | None
) -> list[UsagePart]:
    """What all machines but this one have written, for a report from `since` until before `until` (milliseconds).

    Raises `StoreUnavailable`.
    """
    first, last = days_of(since, until)
    parts: list[UsagePart] = []
    for machine, value in (await store.entries(_MACHINES)).items():
        days = [day for day in _decode_days(value) if (first or 0) <= day and (last is None or day < last)]
        for start in range(0, 0 if machine == own else len(days), _READ_AT_ONCE):
            names = [_name(machine, day) for day in days[start : start + _READ_AT_ONCE]]
            for data in await store.get_many(names):
                parts += [] if data is None else _decode(data)
    return parts


class SharedUsage:
    """Writes what this machine has used to the store, off the path of requests. One of its workers does it."""

    def __init__(self, store: Store, ledger: UsageLedger, *, days: int, clock: Callable[[], float] = time.time) -> None:
        self._store, self._ledger, self._clock = store, ledger, clock
        self._days = days
        self._process = secrets.token_hex(8)
        self._written: dict[int, tuple[int, int]] = {}
        """By day: the number of its requests and when the last one ended, as far as they are in the store."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Write the rest. Before the store and the books are closed."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            with contextlib.suppress(StoreUnavailable):
                await self.write()
                await self._store.release(await self._lease_name(), self._process)

    async def _run(self) -> None:
        while True:
            started = self._clock()
            with contextlib.suppress(StoreUnavailable):
                await self.write()
            await asyncio.sleep(max(INTERVAL, _LAZINESS * (self._clock() - started)))

    async def write(self) -> None:
        """Write the days that have changed. Raises `StoreUnavailable`."""
        machine, ttl = await self._ledger.identity(), (self._days + _RECENT) * _DAY / 1000
        if not await self._store.lease(await self._lease_name(), self._process, 1, _LEASES * INTERVAL):
            self._written.clear()
            return
        if machine not in await self._store.entries(_MACHINES):  # the first time, or the store was emptied
            self._written.clear()
        today = int(self._clock() * 1000) // _DAY
        since = today - _RECENT + 1 if self._written else today - self._days
        found = await self._ledger.run(lambda books: _day_states(books, since))
        changed = [day for day, state in found.items() if self._written.get(day) != state]
        for day in changed:
            parts = await self._ledger.run(partial(read_parts, since=day * _DAY, until=(day + 1) * _DAY))
            await self._store.put(_name(machine, day), _encode(parts), ttl)
            self._written[day] = found[day]
        if changed:
            self._written = {day: state for day, state in self._written.items() if day > today - self._days}
            await self._store.put_entry(_MACHINES, machine, msgspec.json.encode(sorted(self._written)), ttl)

    async def _lease_name(self) -> str:
        return f"usage:{await self._ledger.identity()}:writer"


def _day_states(connection: Connection, since: int) -> dict[int, tuple[int, int]]:
    query = f"SELECT started / {_DAY}, count(*), max(ended) FROM exchanges WHERE started >= ? GROUP BY 1"
    return {day: (count, ended or 0) for day, count, ended in connection.execute(query, (since * _DAY,))}


def _name(machine: str, day: int) -> str:
    return f"usage:{machine}:{day}"


def _day_name(day: int) -> str:
    """
    >>> _day_name(20_773)
    '2026-11-16'
    """
    return time.strftime("%Y-%m-%d", time.gmtime(day * _DAY // 1000))


def _encode(parts: Sequence[UsagePart]) -> bytes:
    return zlib.compress(msgspec.json.encode(_bounded(parts)), 1)


def _decode(data: bytes) -> list[UsagePart]:
    try:
        return msgspec.json.decode(zlib.decompress(data), type=list[UsagePart])
    except (msgspec.MsgspecError, zlib.error):  # of another version
        return []


def _decode_days(value: bytes) -> list[int]:
    try:
        return msgspec.json.decode(value, type=list[int])
    except msgspec.MsgspecError:
        return []


def _bounded(parts: Sequence[UsagePart]) -> list[UsagePart]:
    if len(parts) <= MOST_PARTS:
        return list(parts)
    most_used = sorted(parts, key=lambda part: part.row.requests, reverse=True)
    kept = most_used[: MOST_PARTS // 2]
    others: dict[tuple[str | None, ...], UsagePart] = {}
    for part in most_used[MOST_PARTS // 2 :]:
        names = (part.key, OTHER_SESSIONS, part.client, part.provider, part.model)
        if names not in others:
            others[names] = UsagePart(part.day, *names, UsageRow())
        others[names].row.add(part.row)
    return kept + list(others.values())
