"""A service with its own small application, to test the server without a gateway."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Final

from moonshim.config import Limits
from moonshim.errors import MoonshimError
from moonshim.gateway.observe.metrics import Metrics
from moonshim.gateway.observe.record import RequestRecord
from moonshim.gateway.process.settings import RestartReason, ServeSettings

HANG_SECONDS: Final = 1.0
"""CPU time, for `hang_seconds`."""


class SmallService:
    """`/health`, `/ready`, `/pid`, `/reloads`, `/hang`, and `/stream`, which ends when a file exists.

    `log_dir` is the folder of that file, and of files that record what happened.
    """

    def __init__(self, folder: Path) -> None:
        self.limits = Limits(hang_seconds=HANG_SECONDS)
        self._folder = folder
        self._draining = False
        self._reloads = 0

    def drain(self) -> None:
        self._draining = True

    async def reload(self) -> None:
        self._reloads += 1

    async def close(self) -> None:
        (self._folder / f"closed_{os.getpid()}").touch()

    async def app(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        path = scope["path"]
        if path == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
            while not (self._folder / "finish").exists():
                await asyncio.sleep(0.01)
            await send({"type": "http.response.body", "body": b"ended"})
            return
        if path == "/hang":
            _hang()
        text, status = {"/pid": str(os.getpid()), "/reloads": str(self._reloads)}.get(path, "fine"), 200
        if path == "/ready" and self._draining:
            status = 503
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})


class CountingService(SmallService):
    """`/count` counts a retry and leaves a request open; `/metrics` reports it."""

    def __init__(self, folder: Path, replaces: RestartReason | None = None) -> None:
        super().__init__(folder)
        self._metrics = Metrics()
        if replaces is not None:
            self._metrics.count_worker_restart(replaces)
        self._count = 0

    async def app(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        text = b"fine"
        if scope["path"] == "/hang":
            _hang()
        if scope["path"] == "/count":
            self._count += 1
            self._metrics.count_retry("host")
            self._metrics.count_started(RequestRecord(request_id="r", path="/count", dialect="openai_chat"))
            text = json.dumps({"pid": os.getpid(), "count": self._count}).encode()
        if scope["path"] == "/metrics":
            text = self._metrics.render()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text})


def _hang() -> None:
    """One call of C code, which lets no other thread and no signal handler run."""
    re.match(r"(a+)+$", "a" * 60 + "!")


async def open_counting_service(settings: ServeSettings, worker: int) -> CountingService:
    assert settings.log_dir is not None
    return CountingService(Path(settings.log_dir), settings.replaces)


async def open_small_service(settings: ServeSettings, worker: int) -> SmallService:
    assert settings.log_dir is not None
    return SmallService(Path(settings.log_dir))


async def fail_to_open(settings: ServeSettings, worker: int) -> SmallService:
    raise MoonshimError("the store cannot be reached")
