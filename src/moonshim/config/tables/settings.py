"""`[gateway]`, `[limits]`, `[retries]`, `[budgets]` and `[usage]` -> the fields of a `Config`, each checked."""

from __future__ import annotations

import re
from pathlib import Path as File
from typing import Any, Final, TypeVar, cast, get_args

import msgspec
from msgspec import Struct

from moonshim.config.model import BudgetRules, LogLevel, OnUnknownBudget, Secret, UsageBooks
from moonshim.config.tables.table import Table, resolve_path

__all__ = [
    "GATEWAY_KEYS",
    "SHORTEST_SECRET",
    "read_budgets",
    "read_gateway",
    "read_numbers",
    "read_usage",
    "secret_fault",
    "store_fault",
]

_Numbers = TypeVar("_Numbers", bound=Struct)

GATEWAY_KEYS: Final = (
    "host",
    "port",
    "workers",
    "log_dir",
    "log_level",
    "store",
    "secret",
    "secret_env",
    "heartbeat_seconds",
    "remember_seconds",
    "memory_bytes",
    "sqlite_bytes",
    "redis_key_bytes",
    "allowed_hosts",
    "allowed_origins",
    "open_without_keys",
    "require_keys",
    "inspector",
    "inspector_bytes",
)
_STORES: Final = re.compile(r"memory:|sqlite:.+|(?:(?:rediss?|valkeys?)(?:\+cluster)?|unix)://.+")
SHORTEST_SECRET: Final = 16
_MAY_BE_ZERO: Final = frozenset({"longest_wait", "budget", "breaker_seconds"})


def read_gateway(table: Table | None, folder: File | None) -> dict[str, Any]:
    """The settings of `[gateway]`; only those that are set."""
    if table is None:
        return {}
    given: dict[str, Any] = {
        "host": table.text("host"),
        "port": table.integer("port", most=65535),
        "workers": table.integer("workers", most=1024),
        "log_dir": table.text("log_dir"),
        "log_level": table.choice("log_level", get_args(LogLevel)),
        "store": _store(table, folder),
        "secret": _secret(table),
        "heartbeat_seconds": table.number("heartbeat_seconds", above=True),
        "remember_seconds": table.number("remember_seconds", above=True),
        "memory_bytes": table.integer("memory_bytes"),
        "sqlite_bytes": table.integer("sqlite_bytes"),
        "redis_key_bytes": table.integer("redis_key_bytes"),
        "allowed_hosts": table.texts("allowed_hosts"),
        "allowed_origins": table.texts("allowed_origins"),
        "open_without_keys": table.flag("open_without_keys"),
        "require_keys": table.flag("require_keys"),
        "inspector": _inspector(table),
        "inspector_bytes": table.integer("inspector_bytes"),
    }
    if given["log_dir"] is not None:
        given["log_dir"] = resolve_path(given["log_dir"], folder)
    table.close()
    return {name: value for name, value in given.items() if value is not None}


def _inspector(table: Table) -> bool | str | None:
    value = table.any_value("inspector")
    if value is not None and value is not True and value is not False and value != "private":
        table.error("inspector", 'expected true, false or "private"')
        return None
    return value  # type: ignore[no-any-return]


def read_numbers(table: Table | None, default: _Numbers) -> _Numbers:
    """A table whose keys are the numeric fields of a struct, on top of the defaults."""
    if table is None:
        return default
    given: dict[str, float | int | None] = {}
    for field in msgspec.structs.fields(default):
        name = field.name
        if field.type is int:
            given[name] = table.integer(name)
        else:
            given[name] = table.number(name, above=name not in _MAY_BE_ZERO)
    table.close()
    return msgspec.structs.replace(default, **{name: value for name, value in given.items() if value is not None})


def read_budgets(table: Table | None) -> BudgetRules:
    if table is None:
        return BudgetRules()
    on_unknown = cast("OnUnknownBudget | None", table.choice("on_unknown", get_args(OnUnknownBudget)))
    table.close()
    return BudgetRules(on_unknown=on_unknown or BudgetRules().on_unknown)


def read_usage(table: Table | None, folder: File | None) -> UsageBooks:
    default = UsageBooks()
    if table is None:
        return default
    file, days = table.text("file"), table.integer("days", most=36_500)
    max_bytes = table.integer("max_bytes", least=1024 * 1024)
    table.close()
    return UsageBooks(
        file=file if file is None or file == "memory:" else resolve_path(file, folder),
        days=days or default.days,
        max_bytes=max_bytes or default.max_bytes,
    )


def _store(table: Table, folder: File | None) -> str | None:
    store = table.text("store")
    if store is None:
        return None
    if wrong := store_fault(store):
        table.error("store", wrong)
        return None
    if store.startswith("sqlite:") and not store.startswith(("sqlite:/", "sqlite::memory:")):
        return f"sqlite:{resolve_path(store.removeprefix('sqlite:'), folder)}"
    return store


def store_fault(store: str) -> str | None:
    """What is wrong with a store's address. It is not repeated, since it could contain a password."""
    forms = "`memory:`, `sqlite:PATH`, `redis://HOST` or `redis+cluster://HOST`"
    return None if _STORES.fullmatch(store) else f"expected {forms}"


def secret_fault(secret: str) -> str | None:
    """What is wrong with a signing secret: one that can be guessed protects nothing."""
    return None if len(secret) >= SHORTEST_SECRET else f"must have at least {SHORTEST_SECRET} characters"


def _secret(table: Table) -> Secret | None:
    secret = table.text("secret")
    in_environment, called = table.variable("secret_env")
    if secret is not None and "secret_env" in table:
        table.error("secret_env", "set only one of `secret` and `secret_env`")
    if in_environment == "":
        table.error("secret_env", f"environment variable {called} is not set")
    text = in_environment or secret
    if text and (wrong := secret_fault(text)):
        table.error("secret_env" if in_environment else "secret", wrong)
    return Secret(text) if text else None
