"""Names -> bytes in one SQLite file, which several processes share and which survives them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from moonshim.errors import InvalidInput
from moonshim.store import FRESH, MOST_ENTRIES, SQLITE_BYTES, tenant_of
from moonshim.store.sqlite_room import FOREVER, SpaceBudget
from moonshim.store.sqlite_thread import NOT_A_DATABASE, DatabaseThread, StoreBusy

__all__ = ["SCHEMA_VERSION", "SqliteStore", "file_problem"]

SCHEMA_VERSION: Final = 1
_OLDEST: Final = (3, 35)
"""RETURNING."""
_SCHEMA: Final = """
CREATE TABLE item (key BLOB PRIMARY KEY, expires REAL, value BLOB NOT NULL);
CREATE TABLE entries (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, expires REAL NOT NULL);
CREATE TABLE entry (
    number INTEGER PRIMARY KEY, of INTEGER NOT NULL, field BLOB NOT NULL, value BLOB NOT NULL, UNIQUE (of, field)
);
CREATE TABLE counter (key BLOB PRIMARY KEY, expires REAL NOT NULL, total INTEGER NOT NULL);
CREATE TABLE lease (
    key BLOB NOT NULL, holder BLOB NOT NULL, expires REAL NOT NULL, PRIMARY KEY (key, holder)
) WITHOUT ROWID;
CREATE INDEX item_expires ON item (expires) WHERE expires IS NOT NULL;
CREATE INDEX entries_expires ON entries (expires);
CREATE INDEX counter_expires ON counter (expires);
CREATE INDEX lease_expires ON lease (expires);
"""
_PUT: Final = "REPLACE INTO item (key, expires, value, tenant, size) VALUES (?, ?, ?, ?, ?)"
_OVER: Final = (
    "DELETE FROM item WHERE rowid IN (SELECT rowid FROM item WHERE expires <= ? LIMIT ?)",
    "DELETE FROM entry WHERE of IN (SELECT id FROM entries WHERE expires <= ? LIMIT ?)",
    "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE expires <= ? ORDER BY expires LIMIT ?)",
    "DELETE FROM counter WHERE rowid IN (SELECT rowid FROM counter WHERE expires <= ? LIMIT ?)",
    "DELETE FROM lease WHERE (key, holder) IN (SELECT key, holder FROM lease WHERE expires <= ? LIMIT ?)",
)
_OPENINGS: Final = 5
"""How often to retry a file that is busy at startup; each try waits as long as `patience`."""
_PAUSE: Final = 0.2
_SWEEP_EVERY: Final = 64
"""In writes."""
_SWEPT: Final = 4 * _SWEEP_EVERY
"""Maximum rows of each table per sweep: more than were written since the last one."""
_ASKED_AT_ONCE: Final = 500
"""SQLite limits the number of placeholders."""


class SqliteStore:
    """When a method returns, its effect is in the file, whatever happens to the process. Create one with `open`."""

    def __init__(self, path: Path, clock: Callable[[], float], patience: float, limit: int) -> None:
        self._clock = clock
        self._writes = 0
        self._room = SpaceBudget(path, limit, clock)
        self._database = DatabaseThread(path, _prepare, patience, self._room.disk_is_full)

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: Callable[[], float] = time.time,
        patience: float = 2.0,
        limit: int = SQLITE_BYTES,
    ) -> SqliteStore:
        """The store in that file, which is created if missing. Another kind of file raises `InvalidInput`.

        `patience`: seconds that a request waits for other processes at most. `limit`: maximum size of the file in
        bytes.
        """
        if sqlite3.sqlite_version_info < _OLDEST:
            raise InvalidInput(
                f"this Python has SQLite {sqlite3.sqlite_version}, but 3.35 or later is required", field="store"
            )
        store = cls(path, clock, patience, limit)
        try:
            for left in range(_OPENINGS, -1, -1):
                try:
                    await store._database.run(_try_to_write, writes=True, opens=True)
                    break
                except StoreBusy:
                    # Several workers create the file at once, and changing its journal mode does not wait for locks.
                    if not left:
                        raise
                    await asyncio.sleep(_PAUSE)
        except BaseException:
            await store.close()
            raise
        return store

    # --- values ------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        return (await self.get_many([key]))[0]

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        names, now = [_bytes(key) for key in keys], self._clock()

        def job(db: sqlite3.Connection) -> list[bytes | None]:
            found = dict[bytes, bytes]()
            for some in _batches(names):
                found |= db.execute(
                    f"SELECT key, value FROM item WHERE key IN ({_marks(some)}) AND (expires IS NULL OR expires > ?)",
                    (*some, now),
                ).fetchall()
            return [found.get(name) for name in names]

        return await self._database.run(job, writes=False)

    async def put(self, key: str, value: bytes, ttl: float | None) -> None:
        row = self._row(key, value, ttl)

        def job(db: sqlite3.Connection) -> None:
            self._sweep(db, key, len(value))
            db.execute(_PUT, row)

        await self._database.run(job, writes=True)

    async def put_new(self, key: str, value: bytes, ttl: float | None) -> bytes:
        row, now = self._row(key, value, ttl), self._clock()

        def job(db: sqlite3.Connection) -> bytes:
            self._sweep(db, key, len(value))
            there = db.execute(
                "SELECT value FROM item WHERE key = ? AND (expires IS NULL OR expires > ?)", (row[0], now)
            ).fetchone()
            if there is not None:
                return bytes(there[0])
            db.execute(_PUT, row)
            return value

        return await self._database.run(job, writes=True)

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        names, now = [_bytes(key) for key in keys], self._clock()

        def job(db: sqlite3.Connection) -> None:
            for some in _batches(names):
                db.execute(
                    f"UPDATE item SET expires = ? WHERE key IN ({_marks(some)}) AND expires BETWEEN ? AND ?",
                    (now + ttl, *some, now, now + FRESH * ttl),
                )

        await self._database.run(job, writes=True)

    async def delete(self, key: str) -> bool:
        name, now = _bytes(key), self._clock()

        def job(db: sqlite3.Connection) -> bool:
            db.execute("DELETE FROM entry WHERE of IN (SELECT id FROM entries WHERE key = ?)", (name,))
            there = False
            for table in ("item", "entries", "counter", "lease"):
                gone = db.execute(f"DELETE FROM {table} WHERE key = ? RETURNING expires", (name,)).fetchall()
                there |= any(until is None or until > now for (until,) in gone)
            return there

        return await self._database.run(job, writes=True)

    # --- entries -----------------------------------------------------------------------------------------------

    async def put_entry(self, key: str, field: str, value: bytes, ttl: float | None) -> None:
        name, entry, now = _bytes(key), _bytes(field), self._clock()
        until = FOREVER if ttl is None else now + ttl

        def job(db: sqlite3.Connection) -> None:
            self._sweep(db, key, len(value))
            old = db.execute("SELECT id FROM entries WHERE key = ? AND expires <= ?", (name, now)).fetchone()
            if old is not None:
                db.execute("DELETE FROM entry WHERE of = ?", old)
            (of,) = db.execute(
                "INSERT INTO entries (key, expires, tenant) VALUES (?, ?, ?) ON CONFLICT (key)"
                " DO UPDATE SET expires = excluded.expires, tenant = excluded.tenant RETURNING id",
                (name, until, _bytes(tenant_of(key))),
            ).fetchone()
            # A replaced row gets a new number, so that numbers show which is the oldest.
            db.execute("REPLACE INTO entry (of, field, value) VALUES (?, ?, ?)", (of, entry, value))
            db.execute(
                "DELETE FROM entry WHERE of = :of AND number <= ("
                "SELECT number FROM entry WHERE of = :of ORDER BY number DESC LIMIT 1 OFFSET :most)",
                {"of": of, "most": MOST_ENTRIES},
            )
            db.execute(
                "UPDATE entries SET size = (SELECT sum(length(value)) FROM entry WHERE of = :of) WHERE id = :of",
                {"of": of},
            )

        await self._database.run(job, writes=True)

    async def entries(self, key: str) -> dict[str, bytes]:
        return (await self.entries_many([key]))[0]

    async def entries_many(self, keys: Sequence[str]) -> list[dict[str, bytes]]:
        names, now = [_bytes(key) for key in keys], self._clock()

        def job(db: sqlite3.Connection) -> list[dict[str, bytes]]:
            found: dict[bytes, dict[str, bytes]] = {name: {} for name in names}
            for some in _batches(names):
                for name, field, value in db.execute(
                    "SELECT key, field, value FROM entries JOIN entry ON of = id"
                    f" WHERE key IN ({_marks(some)}) AND expires > ? ORDER BY number",
                    (*some, now),
                ):
                    found[name][_text(field)] = value
            return [dict(found[name]) for name in names]

        return await self._database.run(job, writes=False)

    # --- counters and leases -----------------------------------------------------------------------------------

    async def add(self, key: str, amount: int, ttl: float) -> int:
        name, now = _bytes(key), self._clock()

        def job(db: sqlite3.Connection) -> int:
            self._sweep(db, key)
            (total,) = db.execute(
                "INSERT INTO counter (key, expires, total) VALUES (:key, :until, :amount)"
                " ON CONFLICT (key) DO UPDATE SET total = iif(expires > :now, total + :amount, :amount),"
                " expires = iif(expires > :now, expires, :until) RETURNING total",
                {"key": name, "until": now + ttl, "amount": amount, "now": now},
            ).fetchone()
            return int(total)

        return await self._database.run(job, writes=True)

    async def lease(self, key: str, holder: str, limit: int, ttl: float) -> bool:
        name, member, now = _bytes(key), _bytes(holder), self._clock()

        def job(db: sqlite3.Connection) -> bool:
            self._sweep(db, key)
            held = db.execute("SELECT holder FROM lease WHERE key = ? AND expires > ?", (name, now)).fetchall()
            if (member,) not in held and len(held) >= limit:
                return False
            db.execute("REPLACE INTO lease (key, holder, expires) VALUES (?, ?, ?)", (name, member, now + ttl))
            return True

        return await self._database.run(job, writes=True)

    async def release(self, key: str, holder: str) -> None:
        row = (_bytes(key), _bytes(holder))

        def job(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM lease WHERE key = ? AND holder = ?", row)

        await self._database.run(job, writes=True)

    # --- whole store -------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        await self._database.run(_try_to_write, writes=True)

    async def close(self) -> None:
        await self._database.close()

    def _until(self, ttl: float | None) -> float | None:
        return None if ttl is None else self._clock() + ttl

    def _row(self, key: str, value: bytes, ttl: float | None) -> tuple[bytes, float | None, bytes, bytes, int]:
        return _bytes(key), self._until(ttl), value, _bytes(tenant_of(key)), len(value)

    def _sweep(self, db: sqlite3.Connection, key: str, size: int = 0) -> None:
        """Make room for a write. Now and then, also delete what has expired."""
        self._writes += 1
        if self._writes % _SWEEP_EVERY == 1:
            now = self._clock()
            for statement in _OVER:
                db.execute(statement, (now, _SWEPT))
        self._room.make(db, key, size)


def _try_to_write(db: sqlite3.Connection) -> None:
    """Detects a full or read-only disk."""
    db.execute("REPLACE INTO item (key, expires, value) VALUES (x'', 0, zeroblob(1))")


def _prepare(db: sqlite3.Connection) -> None:
    """Create the tables of this version. Two processes may do so at once."""
    if db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
        db.execute("BEGIN IMMEDIATE")
        if _version(db) == 0:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                db.execute(statement)
            db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        db.execute("COMMIT")
    SpaceBudget.prepare(db)


def _version(db: sqlite3.Connection) -> int:
    """The schema version of a store, 0 for an empty file; `InvalidInput` for a database that cannot be used."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    foreign = version == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise InvalidInput(
            f"the store file was written by a newer Moonshim (schema {version}, supported: {SCHEMA_VERSION}); update"
            " Moonshim, or use another file",
            field="store",
        )
    if foreign:
        raise InvalidInput("the store file is a SQLite database of another application", field="store")
    return version


def file_problem(path: Path) -> str | None:
    """Why a store cannot be opened at this path, found without creating or changing a file; None: nothing is wrong."""
    folder = path.parent if path.parent.exists() else path.parent.parent
    if not folder.exists():
        return f"store {path}: no such folder: {folder}"
    if not folder.is_dir():
        return f"store {path}: {folder} is not a folder"
    if not os.access(path if path.exists() else folder, os.W_OK):
        return f"store {path}: no write permission"
    if path.is_dir():
        return f"store {path}: expected a file, got a folder"
    if not path.exists():
        return None
    try:
        # Immutable: the file may be in use, and reading it must neither lock it nor leave files beside it.
        db = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)
        try:
            _version(db)
        finally:
            db.close()
    except InvalidInput as error:
        return f"{path}: {error}"
    except sqlite3.DatabaseError as error:
        return f"{path}: {NOT_A_DATABASE}" if error.sqlite_errorname == "SQLITE_NOTADB" else None
    return None


def _bytes(text: str) -> bytes:
    """Lone surrogates and the null character are valid in a key."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _batches(names: list[bytes]) -> list[list[bytes]]:
    return [names[start : start + _ASKED_AT_ONCE] for start in range(0, len(names), _ASKED_AT_ONCE)]


def _marks(names: Sequence[Any]) -> str:
    return ",".join("?" * len(names))
