"""`[[keys]]` -> the gateway's keys. Only digests are accepted: a key itself must not be in a file."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from hashlib import sha256
from typing import Final

from moonshim.config.model import GatewayKey
from moonshim.config.problems import nearest
from moonshim.config.tables.budgets import read_budgets
from moonshim.config.tables.table import Table, kind_of

__all__ = ["RIGHTS", "gateway_key_of", "read_gateway_keys"]

RIGHTS: Final = ("usage", "inspect")
"""What a key can be allowed beyond using models."""

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.IGNORECASE)
_LIMITS: Final = ("requests_per_minute", "tokens_per_minute", "concurrent_streams")
_LONGEST_NAME: Final = 128
"""The usage books have no longer names."""
_MAKE_ONE: Final = "`moonshim keys new` creates a key and its digest"


def read_gateway_keys(tables: list[Table]) -> tuple[GatewayKey, ...]:
    keys: list[GatewayKey] = []
    for table in tables:
        key = _read_key(table)
        if key is None:
            continue
        for other in keys:
            if other.name == key.name:
                table.error("name", f"duplicate key name '{key.name}'")
            elif other.digest == key.digest:
                table.error("digest", f"same digest as the key '{other.name}'")
        keys.append(key)
    return tuple(keys)


def gateway_key_of(name: str, text: str) -> GatewayKey:
    """The entry for a key in plain text (claude-code-router's APIKEY); the text itself is not stored."""
    return GatewayKey(name=name, digest="sha256:" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def _read_key(table: Table) -> GatewayKey | None:
    name, digest = table.text("name"), table.text("digest")
    models = table.texts("models")
    if models == () and table.raw("models") == []:
        table.error(
            "models",
            "an empty list allows no models; remove `models` to allow all, or run `moonshim keys revoke` to disable "
            "the key",
        )
    expires = _expires(table)
    limits = {limit: table.integer(limit) for limit in _LIMITS}
    budgets = read_budgets(table)
    rights = table.texts("rights") or ()
    for place, right in enumerate(rights):
        if right not in RIGHTS:
            table.problems.add(
                (*table.at("rights"), place), f"expected one of {', '.join(RIGHTS)}{nearest(right, RIGHTS)}"
            )
    plain = next((key for key in ("key", "api_key", "secret", "token") if key in table), None)
    if plain is not None:
        table.knows(plain)
        table.error(plain, f"do not store the key in plain text, only its `digest`; {_MAKE_ONE}")
    elif "digest" not in table:
        table.problems.add(table.path, f"`digest` is required; {_MAKE_ONE}")
    if "name" not in table:
        table.problems.add(table.path, "`name` is required")
    if name is not None and len(name) > _LONGEST_NAME:
        table.error("name", f"must have at most {_LONGEST_NAME} characters")
    if digest is not None and _DIGEST.fullmatch(digest.strip()) is None:
        table.error(
            "digest", f"expected a digest (`sha256:` and 64 hexadecimal digits), not the key itself; {_MAKE_ONE}"
        )
        digest = None
    table.close()
    if name is None or digest is None:
        return None
    return GatewayKey(
        name=name,
        digest=digest.strip().lower(),
        models=models or (),
        expires=expires,
        budgets=budgets,
        rights=tuple(dict.fromkeys(rights)),
        **limits,
    )


def _expires(table: Table) -> datetime | None:
    """A point in time: with its time zone, without one as UTC; a date is valid until the end of the day."""
    value = table.any_value("expires")
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value) if len(value) == len("2026-01-31") else datetime.fromisoformat(value)
        except ValueError:
            table.error("expires", "expected a date (2026-12-31) or a date and time (2026-12-31T18:00:00Z)")
            return None
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime.combine(value, time.max, UTC)
    if value is not None:
        table.error("expires", f"expected a date, got {kind_of(value)}")
    return None
