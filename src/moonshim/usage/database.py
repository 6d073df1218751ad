"""Settled records -> the table `exchanges` in a SQLite file, bounded by age and size; in memory while that fails.

One connection has both: the file is attached as `books`, and `main` is the memory in which records wait while the file
cannot be written. The view `exchanges` shows the records of both.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from moonshim.usage.record import UsageRecord

if sys.platform != "win32":
    import fcntl

__all__ = ["SCHEMA_VERSION", "Job", "UsageDatabase", "WriteResult"]

Result = TypeVar("Result")
Job: TypeAlias = Callable[[sqlite3.Connection], Result]

SCHEMA_VERSION: Final = 2
_FIELDS: Final = UsageRecord.__struct_fields__
_COLUMNS: Final = {
    field.name: "INTEGER" if field.type in (int, bool, int | None) else "TEXT"
    for field in msgspec.structs.fields(UsageRecord)
}
_NAMES: Final = ", ".join(f'"{name}"' for name in _FIELDS)
_ESTIMATED: Final = _FIELDS.index("estimated")
_MOST_ROWS: Final = 128
"""Rows of one statement; a power of two."""
_MOST_STATEMENTS: Final = 32
"""Compiled statements; the largest takes 300 KB."""
_PATIENCE: Final = 5.0
"""Seconds to wait for another process that writes."""
_RETRY_SECONDS: Final = 5.0
"""Time between two attempts at a file that cannot be written."""
_MOST_HELD: Final = 50_000
"""Records in memory: about 20 MB."""
_TRIM_SECONDS: Final = 600.0
_TRIM_RECORDS: Final = 500
_TRIMMED: Final = 500
"""Records deleted at a time."""
_DAY: Final = 24 * 3600 * 1000
_SPARE_BYTES: Final = 4 * 1024 * 1024
"""Room for what is added between two checks of the size."""
_JOURNAL_BYTES: Final = 4 * 1024 * 1024
_STAYS_OPEN: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR})
"""Errors after which the file can still be read."""


class WriteResult(msgspec.Struct, frozen=True):
    """What became of a batch."""

    is_saved: bool
    """Whether these and all earlier records are in the file."""
    problem: str | None = None
    """Why not. Only the first time: the next one comes after the file worked again."""
    is_restored: bool = False
    """Whether the file works again after a problem."""
    lost: int = 0
    """The oldest records in memory that were dropped to make room."""


class UsageDatabase:
    """The books. All methods run on one thread, and none but `run` raises."""

    def __init__(self, path: Path | None, *, days: int, max_bytes: int) -> None:
        """`path`: None for books in memory only."""
        self._path, self._days, self._max_bytes = path, days, max_bytes
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Identity of the attached file."""
        self._shows_file = False
        """Whether `exchanges` has the records of the file."""
        self._is_failing = False
        self._retry_at = 0.0
        self._trim_at = 0.0
        self._untrimmed = 0

    def write(self, records: Sequence[UsageRecord], *, now: bool = False) -> WriteResult:
        """Add records that are over; those with a known id are skipped. `now`: also if the file failed a moment ago."""
        rows = [msgspec.structs.astuple(record) for record in records]
        if self._path is None:
            self._hold(rows)
            return WriteResult(is_saved=False)
        if self._is_failing and not now and time.monotonic() < self._retry_at:
            return WriteResult(is_saved=False, lost=self._hold(rows))
        try:
            self._attach()
            self._save(rows)
        except (sqlite3.Error, OSError, _Unusable) as error:
            problem = None if self._is_failing else _describe(error)
            self._is_failing, self._retry_at = True, time.monotonic() + _RETRY_SECONDS
            self._recover_from(error)
            return WriteResult(is_saved=False, problem=problem, lost=self._hold(rows))
        was_failing, self._is_failing = self._is_failing, False
        return WriteResult(is_saved=True, is_restored=was_failing)

    def run(self, job: Job[Result], *, whole: bool = False) -> Result:
        """Run a job that reads `exchanges`. Raises what the job raises; if `whole`, also without the file."""
        if whole and self._path is not None and not self._shows_file:
            raise sqlite3.OperationalError("the file is not open")
        return job(self._db())

    def identity(self) -> str:
        """A random name, saved in the file; in memory, a new one each time. Raises `sqlite3.Error`."""
        chosen = secrets.token_hex(8)
        if self._path is None:
            return chosen
        if self._file is None:
            raise sqlite3.OperationalError("the file is not open")
        db = self._db()
        db.execute("CREATE TABLE IF NOT EXISTS books.identity (id TEXT NOT NULL)")
        db.execute("INSERT INTO books.identity SELECT ? WHERE NOT EXISTS (SELECT 1 FROM books.identity)", (chosen,))
        (saved,) = db.execute("SELECT id FROM books.identity").fetchone()
        return str(saved)

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    # --- the file ----------------------------------------------------------------------------------------------

    def _attach(self) -> None:
        assert self._path is not None
        if self._file is not None:
            with contextlib.suppress(OSError):
                if self._shows_file and _identity(self._path) == self._file:
                    return
            self._detach()  # deleted, replaced (SQLite would go on writing to what is gone), or not opened completely
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(self._path.parent):
            _create(self._path)
            db = self._db()
            db.execute("ATTACH ? AS books", (str(self._path),))
            try:
                self._file = _identity(self._path)
                _check(db)
                db.execute("PRAGMA books.journal_mode=WAL").fetchall()
                db.execute("PRAGMA books.synchronous=NORMAL")
                db.execute(f"PRAGMA books.journal_size_limit={_JOURNAL_BYTES}")
                _prepare(db)
                self._show("main", "books")
            except (sqlite3.Error, OSError, _Unusable):
                with contextlib.suppress(sqlite3.Error):
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                self._detach()
                raise
        self._trim_at = 0.0

    def _detach(self) -> None:
        if self._file is None:
            return
        self._file = None
        try:
            self._show("main")
            self._db().execute("DETACH books")
        except sqlite3.Error:
            self.close()  # what was in memory is lost; the file of running exchanges may still have it

    def _save(self, rows: list[tuple[Any, ...]]) -> None:
        db = self._db()
        self._untrimmed += len(rows)
        trims = self._untrimmed >= _TRIM_RECORDS or time.monotonic() >= self._trim_at
        if len(rows) <= _MOST_ROWS and not self._is_failing and not trims:
            _insert(db, "books", rows)  # one statement, which is a transaction by itself
            return
        db.execute("BEGIN IMMEDIATE")
        if self._is_failing:
            db.execute(f"INSERT OR IGNORE INTO books.exchanges ({_NAMES}) SELECT {_NAMES} FROM main.exchanges")
            db.execute("DELETE FROM main.exchanges")
        _insert(db, "books", rows)
        if trims:
            self._trim(db)
        db.execute("COMMIT")

    def _trim(self, db: sqlite3.Connection) -> None:
        """Delete what is too old, and the oldest records if there are too many."""
        self._untrimmed = 0
        if time.monotonic() >= self._trim_at:
            self._trim_at = time.monotonic() + _TRIM_SECONDS
            db.execute("DELETE FROM books.exchanges WHERE started < ?", (int(time.time() * 1000) - self._days * _DAY,))
        most = self._max_bytes - min(self._max_bytes // 4, _SPARE_BYTES)
        while _used_bytes(db) > most and db.execute(_DELETE_OLDEST).rowcount > 0:
            pass

    def _recover_from(self, error: Exception) -> None:
        db = self._db()
        with contextlib.suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) not in _STAYS_OPEN:
            self._detach()

    # --- memory ------------------------------------------------------------------------------------------------

    def _db(self) -> sqlite3.Connection:
        if self._connection is None:
            db = self._connection = sqlite3.connect(
                ":memory:", timeout=_PATIENCE, isolation_level=None, cached_statements=_MOST_STATEMENTS
            )
            db.execute("PRAGMA temp_store=MEMORY")
            db.execute(_table("main"))
            self._show("main")
        return self._connection

    def _hold(self, rows: list[tuple[Any, ...]]) -> int:
        """Add records in memory; the number of those that were dropped."""
        db = self._db()
        _insert(db, "main", rows)
        (count,) = db.execute("SELECT count(*) FROM main.exchanges").fetchone()
        if count <= _MOST_HELD:
            return 0
        lost: int = count - _MOST_HELD
        oldest = "SELECT id FROM main.exchanges ORDER BY started, id LIMIT ?"
        db.execute(f"DELETE FROM main.exchanges WHERE id IN ({oldest})", (lost,))
        return lost

    def _show(self, *schemas: str) -> None:
        db = self._db()
        db.execute("DROP VIEW IF EXISTS temp.exchanges")
        selects = " UNION ALL ".join(f"SELECT {_NAMES} FROM {schema}.exchanges" for schema in schemas)
        db.execute(f"CREATE TEMP VIEW exchanges AS {selects}")
        self._shows_file = "books" in schemas


class _Unusable(Exception):
    """The file is a database, but not one that this version can write."""


_DELETE_OLDEST: Final = (
    f"DELETE FROM books.exchanges WHERE id IN (SELECT id FROM books.exchanges ORDER BY started LIMIT {_TRIMMED})"
)


def _table(schema: str) -> str:
    columns = ", ".join(f'"{name}" {kind}{" PRIMARY KEY" if name == "id" else ""}' for name, kind in _COLUMNS.items())
    return f"CREATE TABLE IF NOT EXISTS {schema}.exchanges ({columns}) WITHOUT ROWID"


def _insert(db: sqlite3.Connection, schema: str, rows: list[tuple[Any, ...]]) -> None:
    """Many rows per statement: between two statements, Python may have to wait for other threads."""
    for start in range(0, len(rows), _MOST_ROWS):
        chunk = rows[start : start + _MOST_ROWS]
        # Python's module takes longest for what is neither a number nor a string: null, and booleans.
        columns = list(zip(*chunk, strict=True))
        columns[_ESTIMATED] = tuple(map(int, columns[_ESTIMATED]))
        used = tuple(place for place, values in enumerate(columns) if values.count(None) < len(chunk))
        values = list(chain.from_iterable(zip(*(columns[place] for place in used), strict=True)))
        room = 1 << (len(chunk) - 1).bit_length()
        padding = [0] * (len(used) * (room - len(chunk)))
        try:
            db.execute(_inserting(schema, used, room), [*values, *padding, len(chunk)])
        except (ValueError, OverflowError):  # a value that SQLite cannot store must not cost the others
            if len(chunk) > 1:
                for row in chunk:
                    _insert(db, schema, [row])


@lru_cache(_MOST_STATEMENTS)
def _inserting(schema: str, columns: tuple[int, ...], room: int) -> str:
    """A statement that inserts as many rows as its last parameter says. Only a few sizes, as SQLite compiles each."""
    names = ", ".join(f'"{_FIELDS[place]}"' for place in columns)
    rows = ", ".join([f"({', '.join('?' * len(columns))})"] * room)
    return f"INSERT OR IGNORE INTO {schema}.exchanges ({names}) SELECT * FROM (VALUES {rows}) LIMIT ?"


def _check(db: sqlite3.Connection) -> int:
    """The schema version, 0 for a new file. Raises `_Unusable` before anything was changed."""
    version: int = db.execute("PRAGMA books.user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise _Unusable(
            f"written by a newer version of Moonshim (schema {version}, supported: {SCHEMA_VERSION}); update Moonshim,"
            " or set another `file` in `[usage]`"
        )
    if version == 0 and db.execute("SELECT count(*) FROM books.sqlite_master").fetchone()[0]:
        raise _Unusable("a SQLite database of another application; set another `file` in `[usage]`")
    return version


def _prepare(db: sqlite3.Connection) -> None:
    """Create the table, or add the columns that an older version lacks. Two processes may do so at once."""
    if _check(db) == SCHEMA_VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    if _check(db) == SCHEMA_VERSION:
        db.execute("ROLLBACK")
        return
    db.execute(_table("books"))
    there = {row[1] for row in db.execute("PRAGMA books.table_info(exchanges)")}
    for name, kind in _COLUMNS.items():
        if name not in there:
            db.execute(f'ALTER TABLE books.exchanges ADD COLUMN "{name}" {kind}')
    db.execute("CREATE INDEX IF NOT EXISTS books.exchanges_started ON exchanges (started)")
    db.execute(f"PRAGMA books.user_version={SCHEMA_VERSION}")
    db.execute("COMMIT")


def _used_bytes(db: sqlite3.Connection) -> int:
    def read(name: str) -> int:
        value: int = db.execute(f"PRAGMA books.{name}").fetchone()[0]
        return value

    return (read("page_count") - read("freelist_count")) * read("page_size")


def _create(path: Path) -> None:
    """Create the file if it is missing, without the journal of one that was deleted: SQLite would read that."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    if path.stat().st_size == 0:  # a file that has a journal of its own is not empty
        for end in ("-wal", "-shm"):
            with contextlib.suppress(OSError):
                path.with_name(path.name + end).unlink()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time opens a file in this folder, as far as the system can lock folders.

    Not the file itself: to close it would release the locks that SQLite has on it.
    """
    descriptor = -1
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error)
