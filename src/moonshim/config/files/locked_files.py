"""A file that several processes change -> one change after the other, each atomic."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

__all__ = ["locked", "replace_file"]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on a file, which need not exist: read and replace it inside. Its folder is created if missing.

    The lock is a file beside it, which is removed afterwards. The system releases the lock of a process that dies, so a
    leftover lock file does no harm.
    """
    path = path.resolve()
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            _wait_for(descriptor)
            # The previous holder removes it: this may be the lock on a file that is gone.
            if _is_same(descriptor, lock):
                try:
                    yield
                finally:
                    with suppress(OSError):  # Windows does not remove open files
                        lock.unlink()
                return
        finally:
            os.close(descriptor)


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace the file atomically: concurrent readers see the old or the new one.

    An existing file keeps its owner, and its mode unless `mode` is set; only its owner can read a new one.
    """
    before = path.stat() if path.exists() else None
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            if before is not None:
                Path(file.name).chmod(before.st_mode & 0o7777 if mode is None else mode)
                if hasattr(os, "fchown"):
                    with suppress(PermissionError):  # only root may change the owner
                        os.fchown(file.fileno(), before.st_uid, before.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _wait_for(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)

else:
    import fcntl

    def _wait_for(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
