"""A configuration file that changes, or SIGHUP -> the configuration in use; a broken file changes nothing."""

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
"""How long a file must stay as it is: an editor may write it in pieces."""
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
    "remember_seconds",
    "limits",
)
"""What a running gateway keeps, whatever a new file says."""
MISSED_SECONDS: Final = 5.0
"""A file that is gone for so long is not being replaced: somebody took it away."""

Mark: TypeAlias = tuple[int, int, int] | None


class Reloader:
    """Loads a configuration and puts it to use, one at a time. What cannot be used leaves the old one, and is told."""

    def __init__(
        self,
        current: Config,
        load: Callable[[], Config],
        use: Callable[[Config], None],
        *,
        refuse: Callable[[Config], str | None] = lambda _: None,
        tell: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._begun_with, self._load, self._use, self._refuse, self._tell = current, load, use, refuse, tell
        self._in_use = current
        self._one_at_a_time = asyncio.Lock()

    async def reload(self, why: str) -> bool:
        """Whether the new configuration is in use."""
        async with self._one_at_a_time:
            try:
                # In a thread: a key may lie in a file on a slow disk, and streams are running.
                config = await asyncio.to_thread(self._load)
                if (reason := keys_lost(self._in_use, config) or self._refuse(config)) is not None:
                    raise _Unusable(reason)
                self._use(config)
                self._in_use = config
            except Exception as error:  # whatever it is: the gateway serves, and somebody has to know
                self._tell(False)
                problem = (
                    str(error) if isinstance(error, (MoonshimError, OSError)) else f"{type(error).__name__}: {error}"
                )
                logs.event("configuration_rejected", level="error", trigger=why, problem=problem)
                return False
            self._tell(True)
            kept = [name for name in _UNTIL_RESTART if getattr(config, name) != getattr(self._begun_with, name)]
            logs.event("configuration_loaded", trigger=why, providers=[one.name for one in config.providers])
            if kept:
                logs.event("restart_needed", level="warning", settings=kept)
            return True


def keys_lost(before: Config, after: Config) -> str | None:
    """Why a running gateway must not take this file: it would let in who was kept out, or its keys got lost.

    >>> keys_lost(Config(require_keys=True), Config()).partition(":")[0]
    'it no longer asks for keys'
    """
    if before.needs_keys and (not after.needs_keys or before.require_keys > after.require_keys):
        return (
            "it no longer asks for keys: restart `moonshim serve` if that is meant, or put `require_keys = true` back "
            "under `[gateway]`"
        )
    if before.keys and not after.keys and not after.keys_emptied:
        return "all keys are gone from it: restart `moonshim serve` if that is meant, or say `keys = []` in it"
    return None


class _Unusable(MoonshimError):
    """It can be read, but must not be served here."""


async def watch(
    path: Path,
    on_change: Callable[[], Awaitable[object]],
    *,
    also: Path | None = None,
    seconds: float = POLL_SECONDS,
    settle: float = SETTLE_SECONDS,
    missed: float = MISSED_SECONDS,
) -> None:
    """Call `on_change` whenever the file, or the one beside it (`also`), is another one; runs until it is cancelled.

    A look at it each second costs nothing, works on every file system, and sees a file that was replaced, by an
    editor or by the link that Kubernetes turns around. One that stays away is told of, once.
    """

    def look() -> tuple[Mark, Mark]:
        return _mark(path), None if also is None else _mark(also)

    known, gone = look(), 0.0
    while True:
        await asyncio.sleep(seconds)
        found = look()
        if found[0] is None:  # for a moment: somebody is replacing it
            gone += seconds
            if gone - seconds < missed <= gone:
                logs.event("configuration_missing", level="warning", file=str(path), in_use="what it said last")
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
        seen = os.stat(path)  # noqa: PTH116 - Path.stat makes an object more, each second
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_size
