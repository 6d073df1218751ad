"""The query of `GET /v1/usage` -> a report from the usage books: of all keys, or of the client's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from typing import Any, Final

from moonshim.errors import InvalidInput, Problem, Refused
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.state import GatewayState
from moonshim.store import StoreUnavailable
from moonshim.usage.budgets import BudgetState, budgets_in_books
from moonshim.usage.report import GROUPINGS, Grouping, UsageReport, as_document, parse_time, summarize
from moonshim.usage.shared import UsagePart, read_other_machines, read_parts, report_of_parts

__all__ = ["usage_document", "usage_report"]

_PARAMETERS: Final = ("by", "since", "until", "key", "limit")
_DEFAULT_SINCE: Final = "30d"
_DEFAULT_ROWS: Final = 100
_MOST_ROWS: Final = 1000
_MOST_KEYS: Final = 100
"""Keys whose budgets are listed."""


async def usage_report(state: GatewayState, call: ClientCall) -> dict[str, Any]:
    """Raises `InvalidInput` for a wrong parameter, and `Refused` (403) for the usage of others."""
    for name in call.query:
        if name not in _PARAMETERS:
            near = get_close_matches(name, _PARAMETERS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known parameters: {', '.join(_PARAMETERS)}"
            raise InvalidInput(f"unknown parameter {name[:80]!r} ({hint})", field=name[:80])
    return await usage_document(state, call.query, _visible_key(state, call), call.record.store_failures)


async def usage_document(
    state: GatewayState, query: Mapping[str, str], key: str | None, failures: list[str]
) -> dict[str, Any]:
    """The report that a query asks for, of this key or of all. What a store did not answer is noted in `failures`."""
    by, limit, now = _grouping(query), _rows(query), datetime.now(UTC)
    since = _time(query, "since", now, _DEFAULT_SINCE)
    until = _time(query, "until", now, None)
    if since is not None and until is not None and until <= since:
        raise InvalidInput("until must be after since", field="until")
    report = await _report(state, failures, by=by, since=since, until=until, key=key)
    return as_document(report, await _budgets(state, failures, key), limit=limit)


async def _report(
    state: GatewayState, failures: list[str], *, by: Grouping, since: int | None, until: int | None, key: str | None
) -> UsageReport:
    """Of this machine's books, and of those of other machines that share the store."""
    others: list[UsagePart] = []
    if state.shared_usage is not None:
        try:
            own_name = await state.ledger.identity()
            others = await read_other_machines(state.store, own_name, since=since, until=until)
        except StoreUnavailable:
            failures.append("usage")
    if not others:
        return await state.ledger.run(partial(summarize, by=by, since=since, until=until, key=key))
    parts = await state.ledger.run(partial(read_parts, since=since, until=until)) + others
    return await asyncio.to_thread(report_of_parts, parts, by=by, since=since, until=until, key=key)


async def _budgets(state: GatewayState, failures: list[str], name: str | None) -> list[BudgetState]:
    keys = [key for key in state.snapshot.config.keys if key.budgets and name in (None, key.name)][:_MOST_KEYS]
    try:
        return await state.spending.keeper.states(keys)
    except StoreUnavailable:
        failures.append("budgets")
        return await state.ledger.run(partial(budgets_in_books, keys=keys, now=time.time()))


def _visible_key(state: GatewayState, call: ClientCall) -> str | None:
    """The key whose usage is shown; None: all of them."""
    own, wanted = call.key, call.query.get("key")
    if own is None:
        if not state.bound_to_loopback:
            raise _forbidden("Usage is shown only to clients with a gateway key. Create one with `moonshim keys new`.")
        return wanted
    if "usage" in own.rights:
        return wanted
    if wanted not in (None, own.name):
        raise _forbidden(
            f'The key {own.name!r} can see only its own usage. To see that of other keys, it needs rights = ["usage"].'
        )
    return own.name


def _forbidden(message: str) -> Refused:
    return Refused(Problem(status=403, kind="permission", message=message, code="usage_not_allowed"))


def _grouping(query: Mapping[str, str]) -> Grouping:
    wanted = query.get("by", "day")
    found = next((by for by in GROUPINGS if by == wanted), None)
    if found is None:
        raise InvalidInput(f"by must be one of {', '.join(GROUPINGS)}", field="by")
    return found


def _rows(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(_DEFAULT_ROWS))
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= _MOST_ROWS):
        raise InvalidInput(f"limit must be an integer from 1 to {_MOST_ROWS:,}", field="limit")
    return int(text)


def _time(query: Mapping[str, str], name: str, now: datetime, default: str | None) -> int | None:
    text = query.get(name, default)
    if text is None:
        return None
    try:
        return parse_time(text, now, is_end=name == "until")
    except ValueError as error:
        raise InvalidInput(f"{name}: {error}", field=name) from None
