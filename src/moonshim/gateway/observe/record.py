"""Everything known about one request when it is over, for the log, the metrics and observers."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

__all__ = ["Outcome", "RequestRecord"]

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
    requested_model: str = ""
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
    repairs: dict[str, int] = field(default_factory=dict)
    """Repairs in the response, by rule."""
    changes: dict[str, int] = field(default_factory=dict)
    """Changes to the request, by rule."""
    store_failures: list[str] = field(default_factory=list)
    """Store operations that failed: `recall`, `remember`, `limits`, `responses`."""
