"""Exchanges that run -> a file in which they survive the death of their process; files of dead processes -> records.

Each process has one file, mapped into memory: to write a record is to copy it there, without a system call, and what
was copied stays when the process is killed. The process holds a lock on its file as long as it lives. Space is reserved
before it is mapped, so a full disk is an error here and not a signal later.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import stat
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from glob import escape
from pathlib import Path
from typing import Final
from zlib import adler32

import msgspec

from moonshim.usage.record import UsageRecord

__all__ = ["DeadFile", "RunningFile", "dead_files"]

_MIDDLE: Final = "-running-"
_MAGIC: Final = b"moonshim usage 1"
SLOT: Final = 4096
"""Bytes of a record; the first slot holds the magic number. Longer records are not written."""
_FIRST_SLOTS: Final = 256
MOST_SLOTS: Final = 16_384
_HEAD: Final = struct.Struct("<II")
"""Length of the record, 0 for a free slot, and its checksum: a process may be killed while it copies.
Adler-32 needs no table, which would have to be read from memory for each request."""
_UNFINISHED_SECONDS: Final = 3600.0
"""A file without a magic number is being created, or its process died just then."""

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(UsageRecord)


class RunningFile:
    """The records of this process that are not in the books yet. Used by one thread at a time."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._map = mmap.mmap(descriptor, 0)
        self._free = list(range(len(self._map) // SLOT - 1, 0, -1))
        self._slots: dict[str, int] = {}
        """By the id of the record."""

    @classmethod
    def create(cls, books: Path) -> RunningFile:
        """A file beside these books. Raises `OSError`: no permission, no space, no locks."""
        path = books.with_name(f"{books.name}{_MIDDLE}{os.getpid()}-{secrets.token_hex(4)}")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if not _lock(descriptor):
                raise OSError("the file is locked")
            _reserve(descriptor, 0, _FIRST_SLOTS * SLOT)
            # Others leave it alone until this is written, and by then it is locked.
            os.pwrite(descriptor, _MAGIC, 0)
            return cls(path, descriptor)
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                path.unlink()
            raise

    def put(self, record: UsageRecord) -> bool:
        """Write a record in place of an earlier one with its id. False: there is no room, and the earlier one stays."""
        data = _encoder.encode(record)
        size = _HEAD.size + len(data)
        if size > SLOT or not (self._free or self._grow()):
            return False
        # In another slot: if the process is killed now, the earlier record is still complete.
        slot, before = self._free.pop(), self._slots.get(record.id)
        start = slot * SLOT
        self._map[start : start + size] = _HEAD.pack(len(data), adler32(data)) + data
        self._slots[record.id] = slot
        if before is not None:
            self._clear(before)
        return True

    def remove(self, ids: Iterable[str]) -> None:
        """These records are in the books, or need not be."""
        for id in ids:
            if (slot := self._slots.pop(id, None)) is not None:
                self._clear(slot)

    def __len__(self) -> int:
        return len(self._slots)

    def close(self) -> None:
        """Remove the file, unless it has records that are in no books: the next process finds them."""
        self._map.close()
        if not self._slots:
            with contextlib.suppress(OSError):
                self.path.unlink()
        os.close(self._descriptor)

    def _clear(self, slot: int) -> None:
        _HEAD.pack_into(self._map, slot * SLOT, 0, 0)
        self._free.append(slot)

    def _grow(self) -> bool:
        before = len(self._map)
        after = min(before * 2, MOST_SLOTS * SLOT)
        if after == before:
            return False
        try:
            _reserve(self._descriptor, before, after - before)
            self._map.close()
            self._map = mmap.mmap(self._descriptor, after)
        except OSError:
            if self._map.closed:
                self._map = mmap.mmap(self._descriptor, before)
            return False
        self._free.extend(range(after // SLOT - 1, before // SLOT - 1, -1))
        return True


class DeadFile:
    """What a process left behind. Locked, so that one process at a time books it."""

    def __init__(self, path: Path, records: list[UsageRecord]) -> None:
        self.path, self.records = path, records

    def remove(self) -> None:
        """Its records are in the books."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def dead_files(books: Path) -> Iterator[DeadFile]:
    """The files of processes that wrote these books and have ended, each locked until the next one is asked for."""
    for path in sorted(books.parent.glob(f"{escape(books.name)}{_MIDDLE}*")):
        try:
            descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            continue
        try:
            # Another process may have booked and removed it in the meantime.
            if _could_be_ours(descriptor) and _lock(descriptor) and _is_same(descriptor, path):
                records = _records(descriptor)
                if records is not None:
                    yield DeadFile(path, records)
                elif time.time() - os.fstat(descriptor).st_mtime > _UNFINISHED_SECONDS:
                    path.unlink()
        except OSError:
            continue
        finally:
            os.close(descriptor)


def _could_be_ours(descriptor: int) -> bool:
    """Whether it is a file of a size that a process writes: another one may block, or not fit into memory."""
    found = os.fstat(descriptor)
    return stat.S_ISREG(found.st_mode) and found.st_size <= MOST_SLOTS * SLOT


def _records(descriptor: int) -> list[UsageRecord] | None:
    """The records in a file, the settled one of two with the same id; None: it is not one of ours."""
    found: dict[str, UsageRecord] = {}
    with open(descriptor, "rb", closefd=False) as file:
        if not file.read(SLOT).startswith(_MAGIC):
            return None
        while slot := file.read(SLOT):
            length, checksum = _HEAD.unpack_from(slot) if len(slot) == SLOT else (0, 0)
            data = slot[_HEAD.size : _HEAD.size + length]
            if not length or adler32(data) != checksum:
                continue
            with contextlib.suppress(msgspec.MsgspecError):
                record = _decoder.decode(data)
                known = found.get(record.id)
                if known is None or known.state == "open":
                    found[record.id] = record
    return list(found.values())


def _reserve(descriptor: int, start: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, size)
    else:
        os.lseek(descriptor, start, os.SEEK_SET)
        os.write(descriptor, bytes(size))


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> bool:
        os.lseek(descriptor, MOST_SLOTS * SLOT, os.SEEK_SET)  # beyond what is mapped
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        """Whether this process has the lock now. The system releases it when the process ends."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
