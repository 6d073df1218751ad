"""Everything known about one request when it is over, for the log, the metrics and observers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct, field

from moonshim.config import Price
from moonshim.engine.values.conversation import Usage
from moonshim.errors import Blame
from moonshim.usage.prices import SearchFee
from moonshim.usage.record import UsageRecord

if TYPE_CHECKING:
    from moonshim.gateway.observe.otel_spans import RequestSpans

__all__ = ["NO_ROUTE", "BilledTotal", "Outcome", "RequestRecord"]

NO_ROUTE: Final = "default"
"""The route of a request that could be routed, and matches none."""

Outcome: TypeAlias = Literal["ok", "refused", "upstream_error", "broken", "client_gone", "failed"]
"""`refused`: an error before any host was called; `upstream_error`: a host's error reached the client; `broken`: a
response that had started did not end properly; `failed`: an internal error."""


class BilledTotal(Struct, frozen=True, kw_only=True):
    """What all attempts of a request used that a host bills; None: unknown."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    cache_write_1h_tokens: int | None
    searches: int
    estimated: bool
    cost: int | None
    """In trillionths of `currency`; unknown if that of one attempt is, or if they have several currencies."""
    currency: str | None


class RequestRecord(Struct, kw_only=True):
    """Filled in while the request runs. Holds no secrets and no conversation text."""

    request_id: str
    path: str
    dialect: str
    client: str = "unknown"
    """The client's name, derived from its User-Agent."""
    key: str | None = None
    """Name of the gateway key."""
    session: str | None = None
    """The client's session, or an id of the conversation."""
    requested_model: str = ""
    route: str | None = None
    """The route of `[routes]` that was taken, or `default`; None: the request could not be routed."""
    provider: str | None = None
    model: str | None = None
    streamed: bool = False
    status: int = 0
    outcome: Outcome = "ok"
    error: str | None = None
    """Error code and a short message, if the request did not succeed."""
    blame: Blame | None = None
    """Whose fault that is."""
    attempts: int = 0
    asked_again: str | None = None
    """Why the answer was asked for again: the code of the failure; None: it was not, and did not have to be."""
    is_ask_again_limited: bool = False
    """It would have been, but its key has reached the limit."""
    asked_again_tokens: Usage = Usage()
    """What the answer before that cost. The other counts include it."""
    started: float = 0.0
    """Wall-clock time, in seconds since 1970."""
    first_byte_seconds: float | None = None
    """Seconds until the first byte of the response went to the client, not counting heartbeats."""
    seconds: float = 0.0
    input_tokens: int | None = None
    """These and the other counts are those of the last attempt. `total` has all of them."""
    output_tokens: int | None = None
    cached_tokens: int | None = None
    searches: int = 0
    """Web searches that the gateway or the host ran for it, failed ones not counted."""
    judged: dict[str, int] = field(default_factory=dict)
    """Verdicts about its calls, by outcome; empty: it asked for none, or has no calls."""
    estimated: bool = False
    """Whether some of the tokens are estimates, because the response was cut off or its host reported none."""
    spans: RequestSpans | None = None
    """Its spans while it runs; None: `[otel]` is not configured."""
    booking: UsageRecord | None = None
    """Its record in the usage books while it runs, once it is sent to a host."""
    booked: UsageRecord | None = None
    """The same when it is over."""
    booked_earlier: list[tuple[UsageRecord, bool]] = field(default_factory=list)
    """Failed attempts that were billed, each with its `is_listed`."""
    price: Price | None = None
    """Of the model that was called last; None: unknown."""
    search_fee: SearchFee | None = None
    """Of one web search; None: unknown."""
    is_listed: bool = False
    """Whether the configuration lists this model: clients can choose other names, which must not label metrics."""
    repairs: dict[str, int] = field(default_factory=dict)
    """Repairs in the response, by rule."""
    changes: dict[str, int] = field(default_factory=dict)
    """Changes to the request, by rule."""
    store_failures: list[str] = field(default_factory=list)
    """Store operations that failed: `recall`, `remember`, `limits`, `budgets`, `responses`, `routes`,
    `prefixes`."""
    prefix_lost: str | None = None
    """Why the host could not use its prompt cache, if it could before: what changed, by index and kind."""

    @property
    def total(self) -> BilledTotal:
        """What all its attempts used, those before the last one too."""
        earlier = [usage for usage, _ in self.booked_earlier]
        booked = earlier if self.booked is None else [*earlier, self.booked]
        currencies = {usage.currency for usage in booked if usage.currency is not None}
        is_priced = bool(booked) and len(currencies) < 2 and all(usage.cost is not None for usage in booked)
        return BilledTotal(
            input_tokens=_sum(self.input_tokens, *(usage.input_tokens for usage in earlier)),
            output_tokens=_sum(self.output_tokens, *(usage.output_tokens for usage in earlier)),
            cached_tokens=_sum(self.cached_tokens, *(usage.cache_read_tokens for usage in earlier)),
            cache_write_tokens=_sum(*(usage.cache_write_tokens for usage in booked)),
            cache_write_1h_tokens=_sum(*(usage.cache_write_1h_tokens for usage in booked)),
            searches=self.searches + sum(usage.searches for usage in earlier),
            estimated=self.estimated or any(usage.estimated for usage in earlier),
            cost=_sum(*(usage.cost for usage in booked)) if is_priced else None,
            currency=next(iter(currencies), None) if is_priced else None,
        )


def _sum(*counts: int | None) -> int | None:
    """None: not one of them is known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
