"""A configuration file that changes, or SIGHUP -> the configuration in use; an invalid file changes nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

from moonshim.config import Config
from moonshim.errors import MoonshimError
from moonshim.gateway.observe import logs

__all__ = ["Reloader", "watch"]

POLL_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.2
"""Seconds that a file must stay unchanged: an editor may write it in pieces."""
_UNTIL_RESTART: Final = (
    "host",
    "port",
    "workers",
    "log_dir",
    "log_level",
    "store",
    "secret",
    "memory_bytes",
    "sqlite_bytes",
    "redis_key_bytes",
    "remember_seconds",
    "inspector",
    "inspector_bytes",
    "limits",
    "usage",
    "otel",
)
"""Settings that a running gateway does not change, whatever a new file says."""
MISSED_SECONDS: Final = 5.0
"""A file that is missing for longer than this was removed, not replaced."""

Mark: TypeAlias = tuple[int, int, int] | None


class Reloader:
    """Loads a configuration and applies it, one at a time. An unusable one is reported; the old one stays in use."""

    def __init__(
        self,
        current: Config,
        load: Callable[[], Config],
        use: Callable[[Config], None],
        *,
        refuse: Callable[[Config], str | None] = lambda _: None,
        tell: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._initial, self._load, self._use, self._refuse, self._tell = current, load, use, refuse, tell
        self._in_use = current
        self._one_at_a_time = asyncio.Lock()

    async def reload(self, why: str) -> bool:
        """Reload; return whether the new configuration is in use."""
        async with self._one_at_a_time:
            try:
                # In a thread: a key may be in a file on a slow disk, and streams are running.
                config = await asyncio.to_thread(self._load)
                if (reason := lost_keys_problem(self._in_use, config) or self._refuse(config)) is not None:
                    raise _Unusable(reason)
                self._use(config)
                self._in_use = config
            except Exception as error:  # whatever it is: the gateway keeps serving, and the operator must be informed
                self._tell(False)
                problem = (
                    str(error) if isinstance(error, (MoonshimError, OSError)) else f"{type(error).__name__}: {error}"
                )
                logs.event("configuration_rejected", level="error", trigger=why, problem=problem)
                return False
            self._tell(True)
            unchanged = [name for name in _UNTIL_RESTART if getattr(config, name) != getattr(self._initial, name)]
            logs.event("configuration_loaded", trigger=why, providers=[one.name for one in config.providers])
            if unchanged:
                logs.event("restart_needed", level="warning", settings=unchanged)
            return True


def lost_keys_problem(before: Config, after: Config) -> str | None:
    """Why a running gateway must not apply this file: it would admit clients that were locked out, or its keys are
    gone.

    >>> lost_keys_problem(Config(require_keys=True), Config()).partition(".")[0]
    'the file no longer requires keys'
    """
    if before.needs_keys and (not after.needs_keys or before.require_keys > after.require_keys):
        return (
            "the file no longer requires keys. If this is intended, restart `moonshim serve`; otherwise set "
            "`require_keys = true` in `[gateway]` again"
        )
    if before.keys and not after.keys and not after.keys_emptied:
        return "the file no longer has any keys. If this is intended, set `keys = []` in it or restart `moonshim serve`"
    return None


class _Unusable(MoonshimError):
    """The file can be read, but must not be served here."""


async def watch(
    path: Path,
    on_change: Callable[[], Awaitable[object]],
    *,
    also: Path | None = None,
    seconds: float = POLL_SECONDS,
    settle: float = SETTLE_SECONDS,
    missed: float = MISSED_SECONDS,
) -> None:
    """Call `on_change` whenever the file, or the one beside it (`also`), changes; runs until it is cancelled.

    Polling once a second costs next to nothing, works on every file system, and notices files that are replaced, by an
    editor or by the symlink that Kubernetes swaps. A file that stays away is reported once.
    """

    def look() -> tuple[Mark, Mark]:
        return _mark(path), None if also is None else _mark(also)

    known, gone = look(), 0.0
    while True:
        await asyncio.sleep(seconds)
        found = look()
        if found[0] is None:  # briefly missing: it is being replaced
            gone += seconds
            if gone - seconds < missed <= gone:
                logs.event("configuration_missing", level="warning", file=str(path), in_use="last loaded configuration")
            continue
        gone = 0.0
        if found == known:
            continue
        while True:
            await asyncio.sleep(settle)
            again = look()
            if again == found:
                break
            found = again
        if found[0] is not None:
            known = found
            await on_change()


def _mark(path: Path) -> Mark:
    try:
        seen = os.stat(path)  # noqa: PTH116 - Path.stat creates one more object, each second
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_size
