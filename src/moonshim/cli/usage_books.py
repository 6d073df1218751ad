"""The configuration, or a file -> the usage report and the budgets that `moonshim usage` shows."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from moonshim.cli import console
from moonshim.config import Config, ConfigError, GatewayKey, load_config, look_for_config
from moonshim.config.trust import NotTrusted, trusted_snapshot
from moonshim.errors import MoonshimError
from moonshim.store import Store, open_store, store_kind
from moonshim.usage.budgets import BudgetState, budgets_in_books, budgets_in_store
from moonshim.usage.ledger import default_file
from moonshim.usage.report import Grouping, UsageReport, summarize
from moonshim.usage.shared import UsagePart, read_other_machines, read_parts, report_of_parts

__all__ = ["ShownBooks", "UnreadableBooks", "read_books"]

_LAUNCHER: Final = "local"
"""The key of gateways that `moonshim launch` starts. It has no budgets."""


class UnreadableBooks(Exception):
    """There are no books, or they cannot be read; the message is for the user."""


class ShownBooks(Struct, frozen=True):
    """What the command shows."""

    report: UsageReport
    budgets: list[BudgetState]
    has_unknown_budgets: bool
    """Whether there are keys, and no configuration that says what their budgets are."""


def read_books(
    file: str | None, config_file: str | None, *, by: Grouping, since: int, until: int | None, key: str | None
) -> ShownBooks:
    """The books in this file; None: those of the gateway, with those of other machines and the budgets."""
    config = None if file is not None else _config(config_file)
    keys = [one for one in config.keys if one.budgets and key in (None, one.name)] if config is not None else []
    others: list[UsagePart] = []
    states: list[BudgetState] | None = None
    path = Path(file) if file is not None else _own_file(config)
    if config is not None and store_kind(config.store) == "redis":
        own = _identity(path) if path.is_file() else None
        try:
            others, states = asyncio.run(_read_store(config, own, keys, since=since, until=until))
        except MoonshimError as error:
            console.print_note(f"moonshim usage: {console.safe(str(error))}; only the usage of this machine is shown")
    with _reading(path, required=not others) as books:
        if books is None:
            report = report_of_parts(others, by=by, since=since, until=until, key=key)
            return ShownBooks(report, states or [], has_unknown_budgets=False)
        if states is None:
            states = budgets_in_books(books, keys, time.time())
        if others:
            parts = read_parts(books, since=since, until=until) + others
            report = report_of_parts(parts, by=by, since=since, until=until, key=key)
        else:
            report = summarize(books, by=by, since=since, until=until, key=key)
        return ShownBooks(report, states, has_unknown_budgets=config is None and file is None and _has_keys(books))


def _has_keys(books: sqlite3.Connection) -> bool:
    found = books.execute("SELECT 1 FROM exchanges WHERE key IS NOT NULL AND key <> ? LIMIT 1", (_LAUNCHER,))
    return found.fetchone() is not None


async def _read_store(
    config: Config, own: str | None, keys: list[GatewayKey], *, since: int, until: int | None
) -> tuple[list[UsagePart], list[BudgetState]]:
    store: Store = await open_store(config.store, memory_bytes=0)
    try:
        parts = await read_other_machines(store, own, since=since, until=until)
        return parts, await budgets_in_store(store, keys, time.time())
    finally:
        await store.close()


def _config(path: str | None) -> Config | None:
    """This configuration, or the one that `moonshim serve` loads, unless it is not trusted: then it does not count."""
    try:
        found = look_for_config(path, os.environ, Path.cwd())
        if found is None:
            return None
        if found.needs_trust:
            trusted_snapshot(found.path, os.environ)
        try:
            return load_config(found.path, os.environ)
        except ConfigError:  # a variable of the gateway may not be set here
            return load_config(found.path, None)
    except NotTrusted:
        return None
    except ConfigError as error:
        raise UnreadableBooks(f"invalid configuration: {error.problems[0]}; or pass --file PATH") from error


def _own_file(config: Config | None) -> Path:
    """Where `moonshim serve` keeps the books."""
    configured = None if config is None else config.usage.file
    if configured == "memory:":
        raise UnreadableBooks(
            "the configuration keeps usage records in memory only; request GET /v1/usage from the gateway"
        )
    found = Path(configured) if configured is not None else default_file(os.environ)
    if found is None:
        raise UnreadableBooks(
            "cannot tell where the usage records are: set XDG_STATE_HOME or HOME, or pass --file PATH"
        )
    return found


# -- one file --------------------------------------------------------------------------------------------------------


@contextmanager
def _reading(path: Path, *, required: bool = True) -> Iterator[sqlite3.Connection | None]:
    if not path.is_file():
        if not required:
            yield None
            return
        what = "is not a file" if path.exists() else "does not exist"
        raise UnreadableBooks(
            f"no usage records: {path} {what}. `moonshim serve` creates it; with --demo, the records are in memory and "
            "GET /v1/usage returns them"
        )
    try:
        connection = _open(path)
        try:
            yield connection
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise UnreadableBooks(_explain(path, error)) from error


def _identity(path: Path) -> str | None:
    """The name under which the machine of these books writes to the store."""
    try:
        with _reading(path) as books:
            assert books is not None
            found = books.execute("SELECT id FROM identity").fetchone()
            return None if found is None else str(found[0])
    except UnreadableBooks:
        return None


def _open(path: Path) -> sqlite3.Connection:
    """The file, opened so that it cannot be changed."""
    address = path.absolute().as_uri()
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=5)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # In a folder that cannot be written, a log that is not there cannot be created either, nor is it needed.
        connection.close()
        if (
            path.with_name(path.name + "-wal").exists()
            or os.access(path.parent, os.W_OK)
            or not os.access(path, os.R_OK)
        ):
            raise
        connection = sqlite3.connect(f"{address}?immutable=1", uri=True)
    return connection


def _explain(path: Path, error: sqlite3.DatabaseError) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return f"{path} is not a usage database; pass another file with --file"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"{path} is locked by another process; try again"
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM) or not os.access(path, os.R_OK):
        return f"{path}: permission denied; give yourself read access with `chmod` or `chown`"
    if code == sqlite3.SQLITE_ERROR:  # no such table or column
        return f"{path} is not a usage database of this version of Moonshim; pass another file with --file"
    return f"{path} cannot be read: {error}"
