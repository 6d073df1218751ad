"""A size limit for the SQLite file: when it is reached, the oldest rows of the tenant that holds the most are deleted.

The new value counts as its tenant's, as in `memory`. On a full disk, the current size of the file is the limit: old
values make room for new ones, and the file does not have to grow. Getting there needs some space: the database's log
has to be written back, and deletions have to be logged. So a file beside it (`PATH-reserve`) takes up space, and
releases it when the disk is full.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from moonshim.store import StoreUnavailable, tenant_of

__all__ = ["SpaceBudget"]

_RESERVE: Final = 8 * 1024 * 1024
_PIECE: Final = 1024 * 1024
_SPARE: Final = 64 * 1024
"""Bytes that stay free for indexes, counters and leases."""
_UNCHECKED: Final = 1024 * 1024
"""Bytes written between two checks of the file's size."""
_FULL_SECONDS: Final = 60.0
"""How long a full disk is assumed to stay full."""
_BATCH: Final = 16
_OWN_BYTES: Final = 100
"""Overhead of a row besides its value."""
FOREVER: Final = 1e15
"""When entries without a time to live expire, since the column cannot be empty."""
_TABLES: Final = ("item", "entries")
_UPGRADE: Final = tuple(
    statement
    for table in _TABLES
    for statement in (
        f"ALTER TABLE {table} ADD COLUMN tenant BLOB",
        f"ALTER TABLE {table} ADD COLUMN size INTEGER",
        f"CREATE INDEX {table}_tenant ON {table} (tenant, expires, size)",
    )
)
"""Older versions can read and write tables with these columns. Their rows have no tenant, and are deleted first."""


class SpaceBudget:
    """Keeps the file within `limit` bytes. All methods run on the database's thread."""

    def __init__(self, path: Path, limit: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._reserve = path.with_name(f"{path.name}-reserve")
        self._is_reserved = False
        self._written = 0
        """Bytes since the last check of the file's size."""
        self._full_size = 0
        self._full_until = 0.0

    @staticmethod
    def prepare(db: sqlite3.Connection) -> None:
        """Add what a file of an older version lacks. Two processes may do so at once."""
        if not _is_prepared(db):
            db.execute("BEGIN IMMEDIATE")
            if not _is_prepared(db):
                for statement in _UPGRADE:
                    db.execute(statement)
            db.execute("COMMIT")

    def disk_is_full(self, db: sqlite3.Connection) -> None:
        """The file, or its log, could not grow."""
        self._release()
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # so that the log is written from its start again
        self._full_size = _pragma(db, "page_count") * _pragma(db, "page_size")
        self._full_until = self._clock() + _FULL_SECONDS

    def _take_reserve(self) -> None:
        size = min(_RESERVE, self._limit // 4)
        piece = os.urandom(min(_PIECE, size))  # which a file system cannot compress
        try:
            with open(self._reserve, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                while file.tell() < size:
                    file.write(piece)
            self._is_reserved = True
        except OSError:
            self._release()
            self._full_until = self._clock() + _FULL_SECONDS
            self._full_size = self._full_size or self._limit

    def _release(self) -> None:
        self._is_reserved = False
        with contextlib.suppress(OSError):
            os.truncate(self._reserve, 0)

    def make(self, db: sqlite3.Connection, key: str, size: int = 0) -> None:
        """Delete enough for a value of this size; `StoreUnavailable` if its tenant would hold too much."""
        is_full = self._clock() < self._full_until
        if not is_full and not self._is_reserved:
            self._take_reserve()
        self._written += size + _OWN_BYTES
        if not is_full and self._written < min(_UNCHECKED, self._limit // 64):
            return
        self._written = 0
        limit = min(self._limit, self._full_size) if is_full else self._limit
        size += _SPARE
        if _used_bytes(db) + size <= limit:
            return
        tenant = tenant_of(key).encode("utf-8", "surrogatepass")
        held = _bytes_by_tenant(db)
        held[tenant] = held.get(tenant, 0) + size
        # A little more than needed, since finding out which tenant holds the most takes time.
        while _used_bytes(db) + size > limit - limit // 16:
            largest = max(held, key=lambda one: (one is None, held[one]))
            if (freed := _delete_oldest(db, largest)) or largest != tenant:
                held[largest] -= freed
                if not freed:
                    del held[largest]
            elif size == _SPARE or _used_bytes(db) + size <= self._limit:  # the disk may have space again
                return
            else:
                raise StoreUnavailable("the value does not fit in the store")


def _is_prepared(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'entries_tenant'").fetchone() is not None


def _used_bytes(db: sqlite3.Connection) -> int:
    return (_pragma(db, "page_count") - _pragma(db, "freelist_count")) * _pragma(db, "page_size")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    value: int = db.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _bytes_by_tenant(db: sqlite3.Connection) -> dict[bytes | None, int]:
    """Bytes by tenant; None stands for rows of an older version, whose tenant and size are unknown."""
    held = dict[bytes | None, int]()
    for table in _TABLES:
        for tenant, size, count in db.execute(
            f"SELECT tenant, total(size), count(*) FROM {table} WHERE expires < {FOREVER} GROUP BY tenant"
        ):
            held[tenant] = held.get(tenant, 0) + int(size) + count * _OWN_BYTES
    return held


def _delete_oldest(db: sqlite3.Connection, tenant: bytes | None) -> int:
    """Delete a few rows of a tenant, those that expire first; return about how many bytes they had, 0 if there are
    none."""
    rows: list[tuple[float, int, int, str]] = []
    for table in _TABLES:
        rows += db.execute(
            f"SELECT expires, rowid, ifnull(size, 0), '{table}' FROM {table}"
            f" WHERE tenant IS ? AND expires < {FOREVER} ORDER BY expires LIMIT {_BATCH}",
            (tenant,),
        )
    oldest = sorted(rows)[:_BATCH]
    for _, id, _, table in oldest:
        if table == "entries":
            db.execute("DELETE FROM entry WHERE of = ?", (id,))
        db.execute(f"DELETE FROM {table} WHERE rowid = ?", (id,))
    return sum(size + _OWN_BYTES for _, _, size, _ in oldest)
