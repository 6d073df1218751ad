"""A request as it runs -> its record in the usage books: opened before a host is called, settled when it is over."""

from __future__ import annotations

import time
from typing import Final

from moonshim.config import Target
from moonshim.engine.exchange import Exchange
from moonshim.engine.hosts.errors.body import mask_secrets
from moonshim.engine.values.conversation import MOST_CHOICES, Usage
from moonshim.gateway.observe.record import RequestRecord
from moonshim.usage.cost import add_searches, billed
from moonshim.usage.ledger import UsageLedger
from moonshim.usage.record import UsageRecord

__all__ = ["book_tokens", "open_booking", "settle_booking"]

_LONGEST_NAME: Final = 128


def open_booking(ledger: UsageLedger, record: RequestRecord, target: Target, exchange: Exchange) -> None:
    """The request is about to be sent to this host: a new record for the first one, a change for others.

    A failed attempt that was billed has a record of its own: another host may have other prices.
    """
    usage, fallbacks, started = record.booking, 0, int(record.started * 1000)
    provider, model = target.provider.name, _masked(target.model)
    if usage is not None and usage.input_tokens is not None:
        fallbacks = usage.fallbacks + ((usage.provider, usage.model) != (provider, model))
        started = _settle_attempt(ledger, record, usage)
        usage = None
    if usage is None:
        choices = exchange.prepared.body.get("n")
        usage = record.booking = UsageRecord(
            id=ledger.new_id(started),
            request_id=_masked(record.request_id),
            started=started,
            key=None if record.key is None else _name(record.key),
            session=record.session,
            client=record.client,
            dialect=record.dialect,
            requested_model=_masked(record.requested_model),
            provider=provider,
            model=model,
            fallbacks=fallbacks,
            choices=min(choices, MOST_CHOICES) if type(choices) is int and choices > 0 else 1,
        )
    elif (usage.provider, usage.model) != (provider, model):
        usage.provider, usage.model = provider, model
        usage.fallbacks += 1
    usage.attempts = _attempts(record)
    record.is_listed = target.model in target.provider.models
    ledger.open_record(usage)


def book_tokens(record: RequestRecord, tokens: Usage, target: Target, *, estimated: bool) -> None:
    """The tokens of the response of this host are known, or `estimated`."""
    record.input_tokens, record.output_tokens = tokens.input_tokens, tokens.output_tokens
    record.cached_tokens, record.estimated = tokens.cached_tokens, estimated
    if (usage := record.booking) is not None:
        usage.input_tokens, usage.output_tokens = tokens.input_tokens, tokens.output_tokens
        usage.cache_read_tokens, usage.reasoning_tokens = tokens.cached_tokens, tokens.reasoning_tokens
        usage.cache_write_tokens, usage.cache_write_1h_tokens = tokens.cache_write_tokens, tokens.cache_write_1h_tokens
        usage.estimated, usage.searches = estimated, record.searches
        provider = target.provider
        cost, usage.currency = billed(tokens, record.price, provider.api_base_url, provider.host)
        usage.cost, usage.unpriced_searches = add_searches(cost, usage.currency, record.searches, record.search_fee)


def settle_booking(ledger: UsageLedger, record: RequestRecord) -> None:
    """The request is over, however it ended. One that no host was sent is not booked."""
    usage, record.booking = record.booking, None
    if usage is None:
        return
    if usage.input_tokens is None:  # no host accepted it
        usage.input_tokens = usage.output_tokens = usage.cost = 0
    usage.ended = max(usage.started, int((record.started + record.seconds) * 1000))
    usage.attempts = _attempts(record)
    usage.outcome, usage.status = record.outcome, record.status
    usage.prefix_lost = None if record.prefix_lost is None else _name(record.prefix_lost)
    record.booked = usage
    ledger.settle(usage)


def _settle_attempt(ledger: UsageLedger, record: RequestRecord, usage: UsageRecord) -> int:
    """An attempt that was billed has failed, and another follows. Returns when it was over."""
    usage.ended = max(usage.started, int(time.time() * 1000))
    usage.outcome = "upstream_error"
    record.booked_earlier.append((usage, record.is_listed))
    record.input_tokens = record.output_tokens = record.cached_tokens = None
    record.estimated, record.searches = False, 0
    ledger.settle(usage)
    return usage.ended


def _attempts(record: RequestRecord) -> int:
    """The attempts that are in no earlier record."""
    return record.attempts - sum(usage.attempts for usage, _ in record.booked_earlier)


def _masked(text: str) -> str:
    """A name that a client has chosen, without a key that it may contain."""
    return _name(mask_secrets(text[: 2 * _LONGEST_NAME]))


def _name(text: str) -> str:
    """A name that a client may have chosen, as it can be stored."""
    text = text[:_LONGEST_NAME]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
