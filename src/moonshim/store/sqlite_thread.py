"""Jobs on a database -> their results, on a separate thread, committed in groups.

The event loop never waits for a disk: it queues a job and awaits a future. The thread takes all queued jobs and commits
them together, so that a hundred concurrent writes cost one commit. A result is returned only after the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from moonshim.errors import InvalidInput
from moonshim.store import StoreUnavailable

__all__ = ["NOT_A_DATABASE", "DatabaseThread", "Job", "StoreBusy"]

Result = TypeVar("Result")
Job: TypeAlias = Callable[[sqlite3.Connection], Result]

NOT_A_DATABASE: Final = "the store file is not a SQLite database"
_GROUP: Final = 256
"""Maximum number of jobs per commit."""
_JOURNAL_BYTES: Final = 16 * 1024 * 1024
"""Size that the write-ahead log is truncated to."""


class _Job(Struct):
    """A queued job, and the future that waits for it."""

    job: Job[Any]
    writes: bool
    opens: bool
    """Errors that are passed on unchanged: opening a store must report that the file is not the intended one."""
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class StoreBusy(StoreUnavailable):
    """Another process is using the file right now, usually to create it."""


class DatabaseThread:
    """Runs jobs in the order in which they came. A job's errors become `StoreUnavailable`, without values in them.

    After an error the file is reopened, so the store recovers when a file was moved away. Not when the disk is full: a
    new connection needs space for its log, and stored values could not be read either.
    """

    def __init__(self, path: Path, prepare: Job[None], patience: float, when_full: Job[None]) -> None:
        """`when_full`: called when the disk is full. The jobs are then retried, one by one."""
        self._path = path
        self._prepare = prepare
        self._when_full = when_full
        self._patience = patience
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="moonshim-store", daemon=True)
        self._thread.start()

    async def run(self, job: Job[Result], *, writes: bool, opens: bool = False) -> Result:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._jobs.put(_Job(job, writes, opens, loop, future))
        return await future

    async def close(self) -> None:
        """Jobs queued before this are still done."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    # --- on the thread -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            group, ended = [first], False
            with contextlib.suppress(queue.Empty):
                while len(group) < _GROUP and not ended:
                    more = self._jobs.get_nowait()
                    ended = more is None
                    if more is not None:
                        group.append(more)
            self._run(group)
            if ended:
                break
        self._drop_connection()

    def _run(self, group: list[_Job], *, again: bool = False) -> None:
        results: list[Any]
        try:
            connection = self._connect()
            if any(job.writes for job in group):
                connection.execute("BEGIN IMMEDIATE")
                results = [job.job(connection) for job in group]
                connection.execute("COMMIT")
            else:
                results = [job.job(connection) for job in group]
        except Exception as error:  # whatever it is, each of these jobs has a waiter
            if not self._is_connection_usable(error):
                self._drop_connection()
            elif not again:
                for job in group:
                    self._run([job], again=True)
                return
            self._fail(group, error)
            return
        for job, result in zip(group, results, strict=True):
            _resolve(job, result, None)

    def _is_connection_usable(self, error: Exception) -> bool:
        """Whether the connection is still usable: the disk is full, or the store has no room for a value."""
        if self._connection is None or not (_is_full(error) or isinstance(error, StoreUnavailable)):
            return False
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if _is_full(error):
                self._when_full(self._connection)
        except sqlite3.Error:
            return False
        return True

    def _fail(self, group: list[_Job], error: Exception) -> None:
        """A job that cannot be done (a number beyond 64 bits) does not affect others: each is retried alone."""
        # A file that is locked, full or gone is so for all, so waiting for it again is pointless.
        if len(group) > 1 and not isinstance(error, (sqlite3.OperationalError, OSError)):
            for job in group:
                self._run([job])
            return
        failed = (
            error
            if isinstance(error, StoreUnavailable)
            else StoreUnavailable(f"the store failed: {_error_text(error)}")
        )
        for job in group:
            _resolve(job, None, self._open_error(error) if job.opens else failed)

    def _open_error(self, error: Exception) -> Exception:
        """For operators, with the path; clients, who see later errors, never get it."""
        if isinstance(error, InvalidInput):
            return InvalidInput(f"{self._path}: {error}", field=error.field)
        if isinstance(error, FileNotFoundError):
            folder = self._path.parent
            missing = next((one for one in (*reversed(folder.parents), folder) if not one.exists()), None)
            why = f"cannot create a file in {folder}" if missing is None else f"no such folder: {missing}"
            return StoreUnavailable(f"store {self._path}: {why}")
        busy = getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        return (StoreBusy if busy else StoreUnavailable)(f"store {self._path} failed: {_error_text(error)}")

    def _connect(self) -> sqlite3.Connection:
        if self._connection is not None and not self._is_there():
            self._drop_connection()
        if self._connection is None:
            _make_file(self._path)
            self._file = _identity(self._path)
            self._connection = sqlite3.connect(
                self._path, timeout=self._patience, isolation_level=None, cached_statements=256
            )
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorname == "SQLITE_NOTADB":
                    raise InvalidInput(NOT_A_DATABASE, field="store") from None
                raise
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute(f"PRAGMA journal_size_limit={_JOURNAL_BYTES}")
            self._prepare(self._connection)
        return self._connection

    def _is_there(self) -> bool:
        """Whether the path still leads to the open file: SQLite would keep writing to one that was deleted."""
        try:
            return _identity(self._path) == self._file
        except OSError:
            return False

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()  # an open transaction is rolled back


def _make_file(path: Path) -> None:
    """Create the file readable by its owner only: it contains conversations. SQLite gives its log the same mode."""
    # At most one folder: a longer missing path is a mistake.
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _is_full(error: Exception) -> bool:
    """No space left, or (a failed write) a quota or a limit on the size of files."""
    return getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)


def _error_text(error: Exception) -> str:
    """The message of SQLite or of the system, which contains no values."""
    if isinstance(error, InvalidInput):
        return str(error)
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorname", None) or type(error).__name__
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else type(error).__name__


def _resolve(job: _Job, result: Any, error: Exception | None) -> None:
    with contextlib.suppress(RuntimeError):  # its loop is closed: no one waits any more
        job.loop.call_soon_threadsafe(_settle, job.future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():  # cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
