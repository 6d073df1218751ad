"""A key whose region is not known -> the region that accepts it, by asking each one for its models, once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from moonshim.config import Config, ProviderConfig, Secret, Timeouts
from moonshim.config.regions import remember_region, remembered_region
from moonshim.engine.hosts.detect import host_of
from moonshim.errors import UpstreamError
from moonshim.gateway.outbound.request_headers import headers_of_test
from moonshim.http_client import UpstreamClient, UpstreamRequest
from moonshim.http_client.headers import headers_for

__all__ = ["region_of", "settle_regions"]

REGION_SECONDS: Final = 3.0
ALL_SECONDS: Final = 5.0
"""Without a network, a command starts this much later, with the default region."""
_TIMEOUTS: Final = Timeouts(connect=REGION_SECONDS, first_byte=REGION_SECONDS)
_ACCEPTED: Final = 200
_KEY_REFUSED: Final = 401
_KEY_KNOWN: Final = (402, 403)
"""The subscription or the User-Agent is refused, which Kimi Code checks after the key."""


def settle_regions(config: Config, environ: Mapping[str, str]) -> Config:
    """The configuration, with the region that accepts the key of each provider. A provider whose region cannot be found
    out now stays as it is. Waits for the network, so it must not be called in an event loop."""
    if not any(provider.regions for provider in config.providers):
        return config
    return replace(config, providers=tuple(_settled(provider, environ) for provider in config.providers))


def _settled(provider: ProviderConfig, environ: Mapping[str, str]) -> ProviderConfig:
    found = region_of(provider.keys[0], provider.regions, environ) if provider.regions else None
    return provider if found is None else replace(provider, api_base_url=found, regions=())


def region_of(key: Secret, regions: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """The region of a key: as remembered, or found out and remembered. None: it cannot be found out now."""
    known = remembered_region(key, regions, environ)
    if known is not None:
        return known
    found = asyncio.run(_find(key, regions))
    if found is not None:
        remember_region(key, found, environ)
    return found


async def _find(key: Secret, regions: Sequence[str]) -> str | None:
    """Ask in order, so that a region gets the key only if the ones before it do not accept it."""
    upstream, statuses = UpstreamClient(), dict[str, int | None]()
    try:
        async with asyncio.timeout(ALL_SECONDS):
            for region in regions:
                statuses[region] = await _status(upstream, key, region)
                if statuses[region] == _ACCEPTED:
                    return region
    except TimeoutError:
        return None
    finally:
        await upstream.close()
    knowing = [region for region, status in statuses.items() if status in _KEY_KNOWN]
    refused = [region for region, status in statuses.items() if status == _KEY_REFUSED]
    return knowing[0] if len(knowing) == 1 and len(refused) == len(regions) - 1 else None


async def _status(upstream: UpstreamClient, key: Secret, region: str) -> int | None:
    """The status of the list of models; None: no response."""
    headers = headers_for("openai_chat", key.reveal(), headers_of_test(host_of(region)), {}, accept="application/json")
    try:
        answer = await upstream.open(UpstreamRequest(f"{region}/models", headers, b"", _TIMEOUTS, method="GET"))
    except UpstreamError:
        return None
    answer.close()
    return answer.status
