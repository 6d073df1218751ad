"""The address of a provider and a model -> the price of its tokens and searches: from `[prices]`, else as shipped.

A price that neither has is unknown, never free. The shipped list contains what a source showed on a date; prices change
and differ between hosts, so it goes by the provider's address, not by the name of its host profile: a reseller that
behaves like Moonshot sets its own prices. It has no prices for

- OpenRouter, where the price depends on the provider that serves the request: it reports the cost of each response;
- Kimi Code (`api.kimi.com/coding`, `api.kimi.ai/coding`), where a plan includes the tokens;
- your own vLLM or SGLang server.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from moonshim.config import Price

__all__ = ["LISTED", "ListedPrice", "PriceList", "SearchFee", "reported_currency"]


class SearchFee(Struct, frozen=True):
    """The price of one web search."""

    amount: Decimal
    currency: str


class ListedPrice(Struct, frozen=True, kw_only=True):
    """A price of the shipped list."""

    domains: tuple[str, ...]
    """Of the provider's address; subdomains included."""
    models: tuple[str, ...]
    """Their names at the host, in lower case."""
    price: Price
    seen: str
    """The day on which the source showed it."""
    source: str
    via: str | None = None
    """Who quoted the source, if the figures are second-hand."""


_CATALOG: Final = "https://github.com/anomalyco/models.dev"
_GENAI_PRICES: Final = "https://github.com/pydantic/genai-prices"
_KIMI: Final = "https://platform.kimi.ai/docs/pricing"
_KIMI_CHINA: Final = "https://platform.kimi.com/docs/pricing"
_FIREWORKS: Final = "https://docs.fireworks.ai/serverless/pricing"
_TOGETHER: Final = "https://www.together.ai/pricing"
_BASETEN: Final = "https://www.baseten.co/pricing/"
_SILICONFLOW: Final = "https://www.siliconflow.com/models"
_APIYI: Final = "https://docs.apiyi.com/en/api-capabilities/kimi-k3-1/overview"


def _listed(
    domains: str,
    models: str,
    rates: str,
    seen: str,
    source: str,
    via: str | None = None,
    currency: str = "$",
) -> ListedPrice:
    """`rates`: input, output, cache read and, where they are billed, cache write for five minutes and for an hour."""
    given, returned, read, *written = map(Decimal, rates.split())
    write, write_1h = written or (None, None)
    price = Price(
        input=given, output=returned, cached=read, cache_write=write, cache_write_1h=write_1h, currency=currency
    )
    return ListedPrice(
        domains=tuple(domains.split()), models=tuple(models.split()), price=price, seen=seen, source=source, via=via
    )


LISTED: Final[tuple[ListedPrice, ...]] = (
    # Moonshot, international. The highspeed model reads at the price of the standard one.
    _listed("moonshot.ai", "kimi-k3.1-pro", "2.00 10.00 0.20 2.00 4.00", "2026-10-25", f"{_KIMI}/chat", _APIYI),
    _listed(
        "moonshot.ai", "kimi-k3.1-pro-highspeed", "4.00 20.00 0.20 4.00 8.00", "2026-10-25", f"{_KIMI}/chat", _APIYI
    ),
    _listed(
        "moonshot.ai",
        "kimi-k3",
        "3.00 15.00 0.30 3.00 6.00",
        "2026-09-19",
        f"{_KIMI}/chat-k3",
        "https://github.com/MoonshotAI/kimi-code/issues/3942",
    ),
    _listed(
        "moonshot.ai",
        "kimi-k2.7-code",
        "0.95 4.00 0.19",
        "2026-06-15",
        f"{_KIMI}/chat-k27-code",
        f"{_GENAI_PRICES}/pull/406",
    ),
    _listed(
        "moonshot.ai",
        "kimi-k2.7-code-highspeed",
        "1.90 8.00 0.38",
        "2026-08-27",
        f"{_KIMI}/chat-k27-code",
        f"{_GENAI_PRICES}/pull/626",
    ),
    _listed(
        "moonshot.ai",
        "kimi-k2.6",
        "0.95 4.00 0.16",
        "2026-05-20",
        f"{_KIMI}/chat-k26",
        "https://github.com/simonw/llm-prices/pull/60",
    ),
    _listed(
        "moonshot.ai",
        "kimi-k2.5",
        "0.60 3.00 0.10",
        "2026-03-26",
        "https://platform.moonshot.ai/docs/pricing/chat",
        "https://megalodon.jp/ref/2026-0326-0135-31/https://platform.moonshot.ai:443/docs/pricing/chat",
    ),
    # Moonshot, China. No source showed the prices of K3.1 Pro there.
    _listed(
        "moonshot.cn",
        "kimi-k3",
        "20 100 2 20 40",
        "2026-09-19",
        f"{_KIMI_CHINA}/chat-k3",
        "https://github.com/MoonshotAI/kimi-code/issues/3942",
        "¥",
    ),
    _listed(
        "moonshot.cn",
        "kimi-k2.7-code",
        "6.50 27.00 1.30",
        "2026-08-31",
        f"{_KIMI_CHINA}/chat-k27-code",
        "https://github.com/keros68/metrik/pull/155",
        "¥",
    ),
    _listed(
        "moonshot.cn",
        "kimi-k2.6",
        "6.50 27.00 1.10",
        "2026-08-31",
        f"{_KIMI_CHINA}/chat-k26",
        "https://github.com/keros68/metrik/pull/155",
        "¥",
    ),
    # Other hosts bill no cache writes: what was not read is fresh input.
    _listed(
        "fireworks.ai",
        "accounts/fireworks/models/kimi-k3",
        "3.00 15.00 0.30",
        "2026-07-27",
        _FIREWORKS,
        f"{_CATALOG}/pull/3777",
    ),
    _listed(
        "fireworks.ai",
        "accounts/fireworks/routers/kimi-k3-fast",
        "4.50 22.50 0.45",
        "2026-07-27",
        _FIREWORKS,
        f"{_CATALOG}/pull/3777",
    ),
    _listed(
        "fireworks.ai",
        "accounts/fireworks/models/kimi-k2p7-code",
        "0.95 4.00 0.19",
        "2026-09-26",
        _FIREWORKS,
        _CATALOG,
    ),
    _listed(
        "fireworks.ai",
        "accounts/fireworks/routers/kimi-k2p7-code-fast",
        "1.90 8.00 0.38",
        "2026-06-16",
        _FIREWORKS,
        _CATALOG,
    ),
    _listed(
        "fireworks.ai",
        "accounts/fireworks/models/kimi-k2p6",
        "0.95 4.00 0.16",
        "2026-04-21",
        _FIREWORKS,
    ),
    _listed("together.xyz together.ai", "moonshotai/kimi-k3", "3.00 15.00 0.30", "2026-07-27", _TOGETHER, _CATALOG),
    _listed(
        "together.xyz together.ai", "moonshotai/kimi-k2.7-code", "0.95 4.00 0.19", "2026-06-14", _TOGETHER, _CATALOG
    ),
    _listed("together.xyz together.ai", "moonshotai/kimi-k2.6", "1.20 4.50 0.20", "2026-04-21", _TOGETHER, _CATALOG),
    _listed("siliconflow.com", "moonshotai/kimi-k3", "2.70 13.50 0.27", "2026-09-08", _SILICONFLOW, _CATALOG),
    _listed(
        "siliconflow.com", "moonshotai/kimi-k2.7-code", "0.85916 3.80 0.17993", "2026-09-08", _SILICONFLOW, _CATALOG
    ),
    _listed(
        "novita.ai",
        "moonshotai/kimi-k3.1-pro",
        "2.00 10.00 0.20",
        "2026-11-16",
        "https://novita.ai/models/model-detail/moonshotai-kimi-k3.1-pro",
    ),
    _listed(
        "novita.ai",
        "moonshotai/kimi-k3",
        "3.00 15.00 0.30",
        "2026-07-28",
        "https://novita.ai/pricing",
        "https://github.com/Helicone/helicone/pull/5743",
    ),
    _listed("baseten.co", "moonshotai/kimi-k3", "3.00 15.00 0.30", "2026-09-29", _BASETEN, _GENAI_PRICES),
    _listed(
        "baseten.co",
        "moonshotai/kimi-k2.7-code moonshotai/kimi-k2.6",
        "0.95 4.00 0.16",
        "2026-08-31",
        _BASETEN,
        _GENAI_PRICES,
    ),
    # Nebius has no discount for cached input.
    _listed(
        "nebius.com",
        "moonshotai/kimi-k3",
        "3.00 15.00 3.00",
        "2026-08-02",
        "https://tokenfactory.nebius.com",
        f"{_CATALOG}/pull/3956",
    ),
)
_BY_NAME: Final = {(domain, model): one.price for one in LISTED for domain in one.domains for model in one.models}
_REPORTS_COST: Final = {"openrouter.ai": "$", "openrouter": "$"}
"""Hosts that put the cost into the usage of every response, by domain and by name, and its currency
(https://openrouter.ai/docs/use-cases/usage-accounting)."""
_SEARCH_FEES: Final = {
    "moonshot.ai": SearchFee(Decimal("0.005"), "$"),  # https://platform.kimi.ai/docs/pricing/tools
    "moonshot.cn": SearchFee(Decimal("0.03"), "¥"),  # https://platform.kimi.com/docs/pricing/tools
}
"""What a call of the host's own search costs, beside its tokens (both seen on 2026-11-18)."""
_REMEMBERED: Final = 1024
"""How many answers are remembered: clients can choose the names of models."""


class PriceList:
    """The prices of a configuration, and the shipped ones for what it does not set."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._prices = prices
        self._patterns = sorted(prices, key=len, reverse=True)
        self._found: dict[tuple[str, str, str], Price | None] = {}

    def find(self, model: str, *, provider: str, base_url: str) -> Price | None:
        """The price of a model; None if it is unknown. `[prices]` come first: as `provider/model`, as `model`, then by
        patterns, the longest first.

        >>> prices = PriceList({"kimi-*": Price(input=Decimal(1), output=Decimal(4))})
        >>> prices.find("kimi-k3", provider="mine", base_url="http://localhost:8000/v1").input
        Decimal('1')
        >>> PriceList({}).find("kimi-k3", provider="moonshot", base_url="https://api.moonshot.ai/v1").input
        Decimal('3.00')
        >>> PriceList({}).find("kimi-k3", provider="mine", base_url="http://localhost:8000/v1")
        """
        asked = (provider, base_url, model)
        if asked not in self._found:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[asked] = self._configured(model, provider) or _shipped(model, base_url)
        return self._found[asked]

    def search_fee(self, model: str, *, provider: str, base_url: str) -> SearchFee | None:
        """The price of a web search that the host runs; None if it is unknown.

        >>> PriceList({}).search_fee("kimi-k3", provider="moonshot", base_url="https://api.moonshot.ai/v1").amount
        Decimal('0.005')
        """
        price = self.find(model, provider=provider, base_url=base_url)
        if price is not None and price.search is not None:
            return SearchFee(price.search, price.currency)
        return next((_SEARCH_FEES[domain] for domain in _domains(base_url) if domain in _SEARCH_FEES), None)

    def _configured(self, model: str, provider: str) -> Price | None:
        names = (f"{provider}/{model}", model)
        found = next((self._prices[name] for name in names if name in self._prices), None)
        if found is not None:
            return found
        spelt = [name.lower() for name in names]
        return next(
            (self._prices[one] for one in self._patterns for name in spelt if fnmatchcase(name, one.lower())), None
        )


@lru_cache(1024)
def reported_currency(base_url: str, host: str | None = None) -> str | None:
    """The currency in which this host reports the cost of its responses; None if it reports none.

    >>> reported_currency("https://openrouter.ai/api/v1"), reported_currency("https://api.moonshot.ai/v1")
    ('$', None)
    """
    names = [*_domains(base_url), *([host] if host is not None else [])]
    return next((_REPORTS_COST[name] for name in names if name in _REPORTS_COST), None)


def _shipped(model: str, base_url: str) -> Price | None:
    names = ((domain, model.lower()) for domain in _domains(base_url))
    return next((_BY_NAME[name] for name in names if name in _BY_NAME), None)


def _domains(base_url: str) -> list[str]:
    """The host of an address, and the domains that it belongs to."""
    try:
        host = (urlsplit(base_url.strip()).hostname or "").lower().rstrip(".")
    except ValueError:
        return []
    labels = host.split(".")
    return [".".join(labels[place:]) for place in range(len(labels))]
