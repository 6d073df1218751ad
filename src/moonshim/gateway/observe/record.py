"""What is known of one request when it is over: for the log, the metrics and whoever looks on."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

__all__ = ["Outcome", "RequestRecord"]

Outcome: TypeAlias = Literal["ok", "refused", "upstream_error", "broken", "client_gone", "failed"]
"""`refused`: an error before any host was asked; `upstream_error`: a host's error reached the client; `broken`: an
answer that had begun did not end well; `failed`: a fault of ours."""


class RequestRecord(Struct, kw_only=True):
    """Filled in while the request runs. Nothing in it is secret, and no text of a conversation."""

    request_id: str
    path: str
    dialect: str
    client: str = "unknown"
    """The client's name, from its User-Agent."""
    key: str | None = None
    """The name of the gateway key."""
    requested_model: str = ""
    provider: str | None = None
    model: str | None = None
    streamed: bool = False
    status: int = 0
    outcome: Outcome = "ok"
    error: str | None = None
    """A code and a short message, when it did not end well."""
    attempts: int = 0
    started: float = 0.0
    """By the wall clock, in seconds since 1970."""
    first_byte_seconds: float | None = None
    """Until the first byte of the answer went to the client, heartbeats aside."""
    seconds: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    repairs: dict[str, int] = field(default_factory=dict)
    """By rule, in the answer."""
    changes: dict[str, int] = field(default_factory=dict)
    """By rule, in the request."""
    store_failures: list[str] = field(default_factory=list)
    """What the store could not do: `recall`, `remember`, `limits`, `responses`."""
