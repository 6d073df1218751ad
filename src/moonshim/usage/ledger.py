"""Exchanges, as they start and end -> the books: first a copy that survives the process, then rows in a database.

The event loop only copies a record into mapped memory and appends it to a list. Seven times a second at most, a thread
writes the list.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from moonshim.config import Config, UsageBooks
from moonshim.store import StoreUnavailable
from moonshim.usage.database import Job, UsageDatabase, WriteResult
from moonshim.usage.record import UsageRecord
from moonshim.usage.running import MOST_SLOTS, RunningFile, dead_files

__all__ = ["UsageLedger", "books_path", "books_warnings", "default_file"]

Result = TypeVar("Result")

DAYS: Final = 90
MAX_BYTES: Final = 256 * 1024 * 1024
_LATE_SECONDS: Final = 0.15
"""How long a record waits for others to be written with."""


class Report(Protocol):
    """Logs an event."""

    def __call__(self, name: str, *, level: str = "info", **fields: Any) -> None: ...


def default_file(environ: Mapping[str, str], platform: str = os.name) -> Path | None:
    """Where the books are if nothing is configured; None: there is no such folder.

    >>> str(default_file({"HOME": "/home/me"}, "posix"))
    '/home/me/.local/state/moonshim/usage.db'
    """
    for variable, rest in (
        ("XDG_STATE_HOME", ()),
        ("LOCALAPPDATA" if platform == "nt" else "HOME", () if platform == "nt" else (".local", "state")),
    ):
        folder = Path(environ.get(variable, ""))
        if folder.is_absolute():
            return folder.joinpath(*rest, "moonshim", "usage.db")
    return None


def books_path(books: UsageBooks, environ: Mapping[str, str]) -> Path | None:
    """The file of the books; None: they are in memory."""
    if books.file == "memory:":
        return None
    return default_file(environ) if books.file is None else Path(books.file)


def books_warnings(config: Config, environ: Mapping[str, str]) -> list[str]:
    """What budgets lose because the books do not survive the process. Lines for people; creates nothing to find out."""
    if not any(key.budgets for key in config.keys):
        return []
    path = books_path(config.usage, environ)
    if path is None:
        problem = "are in memory only"
    else:
        there = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
        if os.access(there, os.W_OK) and (there == path or there.is_dir()):
            return []
        problem = f"cannot be written to {path}"
    line = (
        f"keys have budgets, but usage records {problem}: budgets count from zero when the gateway is restarted after "
        "the store has lost its data; mount a volume, and set XDG_STATE_HOME or `file` in `[usage]` to a folder in it"
    )
    return [line]


class UsageLedger:
    """The books of one process. Nothing here fails or delays a request: problems are logged, once each.

    If the process is killed, the next one books what was opened and not written as `in_flight`.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        days: int = DAYS,
        max_bytes: int = MAX_BYTES,
        report: Report | None = None,
        count_unsaved: Callable[[int], None] | None = None,
    ) -> None:
        """`path`: None for books in memory. `count_unsaved` gets the number of records that the file did not take."""
        self.path = path
        self._report: Report = report or _ignore
        self._count_unsaved = count_unsaved
        self._database = UsageDatabase(path, days=days, max_bytes=max_bytes)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moonshim-usage")
        self._running: RunningFile | None = None
        self._settled: list[UsageRecord] = []
        self._unsaved: list[str] = []
        """Ids of settled records that are in memory, and in the file of running exchanges."""
        self._timer: asyncio.TimerHandle | None = None
        self._process = secrets.token_hex(4)
        self._numbers = itertools.count(10**9)  # ids are sorted as strings
        self._is_closed = False
        self._context = copy_context()
        """For what is logged later: it does not belong to the request that happens to be settled then."""
        self._identity: str | None = None

    async def start(self) -> None:
        """Open the file, and book what dead processes left."""
        if self.path is not None:
            result, self._running, recovered = await self._in_thread(self._open)
            self._tell(result, 0)
            if recovered:
                in_flight = sum(record.state == "in_flight" for record in recovered)
                self._report(
                    "usage_recovered", level="warning", in_flight=in_flight, settled=len(recovered) - in_flight
                )

    def new_id(self, started: int) -> str:
        """An id for a record; those of later records are greater, which keeps the database's writes together."""
        return f"{started}-{self._process}-{next(self._numbers)}"

    def open_record(self, record: UsageRecord) -> None:
        """An exchange starts, or goes on at another host. It is listed as in flight if the process is killed."""
        if self._running is not None:
            try:
                self._running.put(record)
            except ValueError:  # a name that is not valid Unicode
                return

    def settle(self, record: UsageRecord) -> None:
        """An exchange is over: it will be in the books within 200 ms."""
        record.state = "settled"
        self._settled.append(record)
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(_LATE_SECONDS, self._flush, context=self._context)

    async def run(self, job: Job[Result], *, whole: bool = False) -> Result:
        """The result of a job that reads the table `exchanges`, which has everything that was settled before.

        Raises `StoreUnavailable` if the books cannot be read. While their file cannot be opened, the job sees only what
        this process has settled since; `whole`: that is an error.
        """
        self._flush()
        try:
            return await self._in_thread(partial(self._database.run, job, whole=whole))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the usage books cannot be read: {error}") from error

    async def identity(self) -> str:
        """A name for these books, which they keep for as long as their file exists. Raises `StoreUnavailable`."""
        if self._identity is None:
            try:
                self._identity = await self._in_thread(self._database.identity)
            except sqlite3.Error as error:
                raise StoreUnavailable(f"the usage books cannot be named: {error}") from error
        return self._identity

    async def close(self) -> None:
        """Write everything, and remove the file of running exchanges unless it is needed for what could not be."""
        if self._is_closed:
            return
        self._is_closed = True
        self._flush()
        if self.path is not None:
            self._written([], await self._in_thread(self._write, [], True))
        await self._in_thread(self._database.close)
        if self._running is not None:
            self._running.close()
            self._running = None
        self._thread.shutdown(wait=False)

    # --- records -----------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Hand over what was settled to the thread."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._settled:
            return
        batch, self._settled = self._settled, []
        writing = self._in_thread(self._write, batch, self._is_closed)
        writing.add_done_callback(lambda done: self._written(batch, done.result()), context=self._context)

    def _written(self, batch: Sequence[UsageRecord], result: WriteResult) -> None:
        self._unsaved += [record.id for record in batch]
        self._tell(result, len(batch))
        if self._running is None:
            self._unsaved.clear()
        elif result.is_saved:
            self._running.remove(self._unsaved)
            self._unsaved.clear()
        else:
            for record in batch:
                self.open_record(record)
            # What is in memory must not take all slots: exchanges that run need them more.
            spare = max(0, len(self._unsaved) - MOST_SLOTS // 2)
            self._running.remove(self._unsaved[:spare])
            del self._unsaved[:spare]

    def _tell(self, result: WriteResult, count: int) -> None:
        where = str(self.path)
        if result.problem is not None:
            self._report("usage_not_saved", level="warning", file=where, problem=result.problem)
        if result.is_restored:
            self._report("usage_saved_again", file=where)
        if not result.is_saved and self.path is not None and count and self._count_unsaved is not None:
            self._count_unsaved(count)

    # --- on the thread -----------------------------------------------------------------------------------------

    def _in_thread(self, work: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def _write(self, batch: Sequence[UsageRecord], now: bool) -> WriteResult:
        return self._database.write(batch, now=now)

    def _open(self) -> tuple[WriteResult, RunningFile | None, list[UsageRecord]]:
        assert self.path is not None
        result, running, recovered = self._database.write([]), None, list[UsageRecord]()
        with contextlib.suppress(OSError):  # without it, what is running when the process is killed is not listed
            running = RunningFile.create(self.path)
        if result.is_saved:
            for dead in dead_files(self.path):
                # Some may be in the books already: the process was killed before it could remove them here.
                known = self._database.run(partial(_known_ids, dead.records))
                missing = [record for record in dead.records if record.id not in known]
                for record in missing:
                    if record.state == "open":
                        record.state = "in_flight"
                if not self._database.write(missing).is_saved:
                    break
                recovered += missing
                dead.remove()
        return result, running, recovered


def _known_ids(records: Sequence[UsageRecord], db: sqlite3.Connection) -> set[str]:
    ids = msgspec.json.encode([record.id for record in records]).decode()
    rows = db.execute("SELECT id FROM exchanges WHERE id IN (SELECT value FROM json_each(?))", (ids,))
    return {id for (id,) in rows}


def _ignore(name: str, *, level: str = "info", **fields: Any) -> None: ...
