"""Everything known about one request when it is over, for the log, the metrics and observers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct, field

from moonshim.config import Price
from moonshim.usage.record import UsageRecord

if TYPE_CHECKING:
    from moonshim.gateway.observe.otel_spans import RequestSpans

__all__ = ["NO_ROUTE", "Outcome", "RequestRecord"]

NO_ROUTE: Final = "default"
"""The route of a request that could be routed, and matches none."""

Outcome: TypeAlias = Literal["ok", "refused", "upstream_error", "broken", "client_gone", "failed"]
"""`refused`: an error before any host was called; `upstream_error`: a host's error reached the client; `broken`: a
response that had started did not end properly; `failed`: an internal error."""


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
    attempts: int = 0
    started: float = 0.0
    """Wall-clock time, in seconds since 1970."""
    first_byte_seconds: float | None = None
    """Seconds until the first byte of the response went to the client, not counting heartbeats."""
    seconds: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    searches: int = 0
    """Web searches that the gateway ran for it, failed ones not counted."""
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
