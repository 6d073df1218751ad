"""A provider's key settings -> the keys, and where each was found or not."""

from __future__ import annotations

import os
from pathlib import Path as File
from urllib.parse import urlsplit

from moonshim.config.endpoints import is_loopback
from moonshim.config.files.variables import variable_of
from moonshim.config.kimi_login import KIMI_LOGIN, LOGIN_HOSTS, LoginKey, login_file
from moonshim.config.model import KeySource, Secret
from moonshim.config.tables.table import Table, existing_file

__all__ = ["key_fault", "read_keys"]


def read_keys(
    table: Table, folder: File | None, address: str | None
) -> tuple[tuple[Secret, ...], tuple[KeySource, ...]]:
    """The keys from all sources, without duplicates. `address` is the provider's."""
    found: dict[str, None] = {}
    sources: list[KeySource] = []

    def take(text: str | None, place: str, field: str) -> None:
        text = text.strip() if text else ""
        if wrong := key_fault(text):
            table.error(field, f"the key from {place} is not valid: {wrong}")
            return
        sources.append(KeySource(place, bool(text)))
        if text in found:
            table.problems.note(table.path, f"duplicate key (from {place})")
        if text:
            found[text] = None

    written = table.raw("api_key") if "api_key" in table else table.raw("apiKey")
    key = table.text("api_key", also=("apiKey",), empty=True)
    if isinstance(written, str) and written.strip():
        variable, field = variable_of(written), "api_key" if "api_key" in table else "apiKey"
        take(key, variable or "the configuration file", field)
        if key == "":
            table.note(field, f"environment variable {variable} is empty")
    several = table.raw("api_keys")
    spelled = [one for one in several if isinstance(one, str)] if isinstance(several, list) else []
    for place, text in enumerate(table.texts("api_keys", empty=True) or ()):
        variable = variable_of(spelled[place])
        if text.strip() or variable:
            take(text, variable or "the configuration file", "api_keys")
        if not text.strip() and variable:
            table.problems.note((*table.at("api_keys"), place), f"environment variable {variable} is empty")
        elif not text.strip():
            table.problems.add((*table.at("api_keys"), place), "expected a string, got an empty string")
    in_environment, called = table.variable("api_key_env")
    if in_environment is not None:
        take(in_environment, called, "api_key_env")
        if not in_environment:
            table.note("api_key_env", f"environment variable {called} is not set")
    if (file := existing_file(table, "api_key_file", folder)) is not None:
        take(_first_line(table, file), f"the file {file}", "api_key_file")
    keys: list[Secret] = [Secret(text) for text in found]
    if table.choice("api_key_from", (KIMI_LOGIN,)) is not None and address is not None:
        keys += _login(table, address, sources)
    return tuple(keys), tuple(sources)


def _login(table: Table, address: str, sources: list[KeySource]) -> list[Secret]:
    """The login of kimi-code, which is sent to its own hosts only."""
    if urlsplit(address).hostname not in LOGIN_HOSTS and not is_loopback(address):
        table.error("api_key_from", f"the login of kimi-code is only for {' and '.join(LOGIN_HOSTS)}")
        return []
    path = None if table.environ is None else login_file(address, table.environ)
    if path is None:
        return []
    sources.append(KeySource("the login of kimi-code", path.exists()))
    return [LoginKey(path)]


def key_fault(key: str) -> str | None:
    """What makes a key unusable in a header; the key is not repeated.

    >>> key_fault("sk-1"), key_fault("sk-1\\nsk-2")
    (None, 'it contains a line break or another unprintable character')
    """
    if not key.isprintable():
        return "it contains a line break or another unprintable character"
    return None if key.isascii() else "it contains a non-ASCII character"


def _first_line(table: Table, file: str) -> str | None:
    path = File(file)
    try:
        with path.open(encoding="utf-8-sig") as opened:
            line = opened.readline().strip()
        if path.stat().st_mode & 0o077 and os.name == "posix":
            table.note("api_key_file", f"{file} is readable by other users; run `chmod 600` on it")
    except (OSError, UnicodeDecodeError) as error:
        table.error("api_key_file", f"cannot read {file}: {getattr(error, 'strerror', None) or 'not a text file'}")
        return None
    if not line:
        table.error("api_key_file", f"the first line of {file} is empty")
    return line
