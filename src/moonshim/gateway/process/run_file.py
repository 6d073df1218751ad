"""A running gateway -> a file by which other programs of the same user find it; the files -> the gateways that run."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from moonshim.config.files.find import state_folder

__all__ = ["RunningGateway", "announce_run", "is_alive", "run_folder", "running_gateways"]

_PREFIX: Final = "gateway-"
_LARGEST: Final = 64 * 1024


class RunningGateway(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a gateway. Its file is private, because it can contain a key."""

    pid: int
    url: str
    demo: bool = False
    source: str = ""
    """Where its configuration came from, for display."""
    key: str | None = None
    """A key that this gateway accepts, if it was started with one (`MOONSHIM_LOCAL_KEY`)."""
    needs_key: bool = False
    temporary: bool = False
    """Whether it ends with the launcher that started it: no other client should depend on it."""

    def __repr__(self) -> str:
        return f"RunningGateway({self.url!r}, pid={self.pid})"


def run_folder(environ: Mapping[str, str], platform: str = sys.platform) -> Path | None:
    """The folder of run files: private, and emptied by the system at logout or reboot where it has such a folder.

    >>> str(run_folder({"HOME": "/home/me"}, "linux"))
    '/home/me/.local/state/moonshim/run'
    """
    runtime = Path(environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute():
        return runtime / "moonshim"
    state = state_folder(environ, platform)
    return None if state is None else state / "run"


@contextlib.contextmanager
def announce_run(gateway: RunningGateway, environ: Mapping[str, str]) -> Iterator[None]:
    """Write the file of a gateway, and remove it at the end. A folder that cannot be written is no reason to fail."""
    folder = run_folder(environ)
    path = None if folder is None else folder / f"{_PREFIX}{gateway.pid}.json"
    with contextlib.suppress(OSError):
        if path is not None:
            _write(path, msgspec.json.encode(gateway))
    try:
        yield
    finally:
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # of an earlier process with the same number
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)


def running_gateways(environ: Mapping[str, str]) -> list[RunningGateway]:
    """The gateways of this user, the newest first. Files of processes that have ended are removed."""
    folder = run_folder(environ)
    found: list[tuple[float, RunningGateway]] = []
    if folder is None:
        return []
    for path in sorted(folder.glob(f"{_PREFIX}*.json")):
        try:
            status = path.lstat()
            if not _is_own(status):
                continue
            gateway = msgspec.json.decode(path.read_bytes(), type=RunningGateway)
        except (OSError, msgspec.MsgspecError):
            continue
        if is_alive(gateway.pid):
            found.append((status.st_mtime, gateway))
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    return [gateway for _, gateway in sorted(found, key=lambda one: one[0], reverse=True)]


def _is_own(status: os.stat_result) -> bool:
    """Whether it is a small file that only this user can have written: it says where a client sends its prompts."""
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
        return False
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o077)


def is_alive(pid: int) -> bool:
    """Whether a process with this number runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
