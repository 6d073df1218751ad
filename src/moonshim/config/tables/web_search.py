"""`[web_search]` -> who runs a web search that a client declares."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from moonshim.config.model import SEARCH_PROVIDERS, Secret, WebSearch
from moonshim.config.tables.prices import read_amount, read_currency
from moonshim.config.tables.provider_keys import key_fault
from moonshim.config.tables.providers import address_fault
from moonshim.config.tables.table import Table

__all__ = ["read_web_search"]

_WITH_KEY: Final = ("brave", "tavily", "exa")
_FREE: Final = ("searxng", "command")
"""Your own: a search costs nothing unless you say so."""
_KEY_FIELDS: Final = ("api_key", "api_key_env")
_MOST_RESULTS: Final = 20


def read_web_search(table: Table | None) -> WebSearch | None:
    """None without the table: then no search is run."""
    if table is None:
        return None
    provider = table.choice("provider", SEARCH_PROVIDERS)
    if "provider" not in table:
        table.error("provider", f"required: one of {', '.join(SEARCH_PROVIDERS)}")
    base_url, command = table.text("base_url"), table.texts("command")
    key = _read_key(table)
    default = WebSearch(provider="brave")
    results = table.integer("results", most=_MOST_RESULTS) or default.results
    seconds = table.number("seconds", above=True) or default.seconds
    price, currency = read_amount(table, "price"), read_currency(table)
    table.close()
    if base_url is not None and (wrong := address_fault(base_url)):
        table.error("base_url", wrong)
    if provider is None:
        return None
    if provider in _WITH_KEY and not any(field in table for field in _KEY_FIELDS):
        table.error("api_key_env", f"required: {provider} needs a key")
    if provider == "searxng" and base_url is None and not table.inert:
        table.error("base_url", "required: the address of your SearXNG instance")
    if provider == "command" and not command and not table.inert:
        table.error("command", 'required: a list, such as ["/usr/local/bin/search", "--json"]')
    if provider != "command" and "command" in table:
        table.error("command", 'only used with provider = "command"')
    return WebSearch(
        provider=provider,  # type: ignore[arg-type]
        key=Secret(key) if key else None,
        base_url=base_url,
        command=command or (),
        results=results,
        seconds=seconds,
        price=Decimal(0) if price is None and provider in _FREE else price,
        currency=currency,
    )


def _read_key(table: Table) -> str | None:
    key = table.text("api_key")
    in_environment, name = table.variable("api_key_env")
    if in_environment == "":
        table.note("api_key_env", f"environment variable {name} is not set")
    key = (key or in_environment or "").strip()
    if wrong := key_fault(key):
        table.error("api_key", f"the key is not valid: {wrong}")
    return key
