"""One exchange as it is booked: who asked which model, the tokens, the cost. No text of the conversation."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["COST_UNITS", "BookingState", "UsageRecord"]

COST_UNITS: Final = 10**12
"""Costs are integers, in units of a trillionth: a price of $0.15 per million tokens is 150,000 units per token. Floats
would not add up."""

BookingState: TypeAlias = Literal["open", "settled", "in_flight"]
"""`open`: the exchange runs; `settled`: it is over; `in_flight`: its process was killed before it was over."""


class UsageRecord(Struct, kw_only=True, omit_defaults=True, gc=False):
    """Opened when the request is sent to a host, settled when the response is over. None: unknown."""

    id: str
    """Unique, chosen by the gateway; clients may choose `request_id`."""
    request_id: str
    started: int
    """Milliseconds since 1970."""
    ended: int | None = None
    state: BookingState = "open"
    key: str | None = None
    """Name of the gateway key."""
    session: str | None = None
    """The client's session, or an id of the conversation."""
    client: str = "unknown"
    dialect: str = ""
    requested_model: str = ""
    provider: str = ""
    model: str = ""
    outcome: str = "ok"
    status: int = 0
    attempts: int = 1
    """Requests sent to hosts for it, including retries."""
    fallbacks: int = 0
    """How many other providers or models had failed before this one."""
    choices: int = 1
    """Responses that were requested at once (`n`)."""
    input_tokens: int | None = None
    """All input, including what was read from the host's cache or written to it."""
    output_tokens: int | None = None
    """All output, including reasoning."""
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    """Of all TTL classes."""
    cache_write_1h_tokens: int | None = None
    """The part of them that is cached for an hour."""
    reasoning_tokens: int | None = None
    estimated: bool = False
    """Whether some of the counts are estimates, because the response was cut off or its host reported none."""
    cost: int | None = None
    """Of tokens and searches, in units of `COST_UNITS`; None: the price of the tokens is unknown."""
    currency: str | None = None
    """None: the price is unknown, or nothing was used."""
    prefix_lost: str | None = None
    """Why the host could not use its prompt cache, if it could before: what changed, by index and kind."""
    searches: int = 0
    """Web searches that the gateway or the host ran for it, failed ones not counted."""
    unpriced_searches: int = 0
    """Those that `cost` does not contain, since their price is unknown."""
