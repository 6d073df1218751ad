"""The providers -> what their hosts report about models in `GET /models`, read in the background."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct

from moonshim.config import ProviderConfig, Timeouts
from moonshim.config.endpoints import endpoint_of, models_url
from moonshim.engine.hosts.profile import MediaKind
from moonshim.errors import MoonshimError
from moonshim.gateway.outbound.request_headers import host_headers
from moonshim.http_client import UpstreamClient, UpstreamRequest

__all__ = ["HostModels", "ReportedModel"]

REFRESH_SECONDS: Final = 3600.0
_LARGEST: Final = 8 * 1024 * 1024
_FIELDS: Final = ("context_length", "context_window", "max_model_len", "max_input_tokens")
"""Moonshot's and OpenRouter's name of the window, and those of other hosts."""
_MEDIA_FIELDS: Final = {"image": "supports_image_in", "video": "supports_video_in"}
"""Moonshot's names."""
_TIMEOUTS: Final = Timeouts(connect=5.0, first_byte=15.0, between_bytes=15.0)


class ReportedModel(Struct, frozen=True):
    """What a host reports about one model; None: nothing."""

    window: int | None = None
    """The context window, in tokens."""
    media: dict[str, bool] = {}
    """Whether the model accepts each kind of media, as far as the host reports it."""
    thinks: bool | None = None


_NOTHING: Final = ReportedModel()


class HostModels:
    """What hosts report about their models. Reading it never waits, and a host that reports nothing is no error."""

    def __init__(self, upstream: UpstreamClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._upstream, self._clock = upstream, clock
        self._reported: dict[str, Mapping[str, ReportedModel]] = {}
        self._asked: dict[tuple[str, str], float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def reported(self, provider: ProviderConfig, model: str) -> ReportedModel:
        """What the host reported last about a model; empty: nothing is known."""
        return self._reported.get(provider.name, {}).get(model, _NOTHING)

    def refresh(self, providers: Iterable[ProviderConfig]) -> None:
        """Start to ask the providers whose list is older than an hour, or was never read."""
        now = self._clock()
        for provider in providers:
            place = (provider.name, provider.api_base_url)
            if now - self._asked.get(place, float("-inf")) >= REFRESH_SECONDS:
                self._asked[place] = now
                task = asyncio.get_running_loop().create_task(self._read(provider))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _read(self, provider: ProviderConfig) -> None:
        key = provider.keys[0] if provider.keys else None
        if key is not None and key.problem is not None:
            return
        request = UpstreamRequest(
            method="GET",
            url=models_url(endpoint_of(provider)),
            headers=host_headers(provider, key, {}, accept="application/json"),
            body=b"",
            timeouts=_TIMEOUTS,
            proxy=provider.proxy,
            ca_bundle=provider.ca_bundle,
        )
        with contextlib.suppress(MoonshimError, ValueError):
            answer = await self._upstream.open(request)
            try:
                if answer.status == 200:
                    body = msgspec.json.decode(await answer.read_all(_LARGEST))
                    self._reported[provider.name] = _read_models(body)
            finally:
                answer.close()


def _read_models(body: Any) -> dict[str, ReportedModel]:
    """The models in a list, by their ids.

    >>> read = _read_models({"data": [{"id": "a", "context_length": 10}, {"id": "c", "context_window": "9"}, 4]})
    >>> [(name, model.window) for name, model in read.items()]
    [('a', 10), ('c', None)]
    """
    entries = body.get("data") if isinstance(body, dict) else body
    return {
        entry["id"]: _read_model(entry)
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    }


def _read_model(entry: Mapping[str, Any]) -> ReportedModel:
    """One entry, as Moonshot, OpenRouter and others write it; values of other types are ignored.

    >>> _read_model({"supports_image_in": True, "supports_reasoning": False, "context_length": 8})
    ReportedModel(window=8, media={'image': True}, thinks=False)
    >>> _read_model({"architecture": {"input_modalities": ["text", "file"]}}).media
    {'image': False, 'audio': False, 'video': False, 'file': True}
    """
    sizes = (entry.get(field) for field in _FIELDS)
    architecture, parameters = entry.get("architecture"), entry.get("supported_parameters")
    modalities = architecture.get("input_modalities") if isinstance(architecture, dict) else None
    media = {kind: entry.get(field) for kind, field in _MEDIA_FIELDS.items()}
    if isinstance(modalities, list):
        media = {kind: kind in modalities for kind in get_args(MediaKind)}
    thinks = entry.get("supports_reasoning")
    if not isinstance(thinks, bool):
        thinks = "reasoning" in parameters if isinstance(parameters, list) else None
    return ReportedModel(
        window=next((size for size in sizes if type(size) is int and size > 0), None),
        media={kind: value for kind, value in media.items() if isinstance(value, bool)},
        thinks=thinks,
    )
