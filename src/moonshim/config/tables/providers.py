"""One table of `[[providers]]` -> a `ProviderConfig`, with every key, address, model, header and override checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path as File
from typing import Final, cast, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from moonshim.config.endpoints import dialect_of, is_loopback
from moonshim.config.model import ProviderConfig, Timeouts, TransformerUse
from moonshim.config.tables.models import override_names, read_body, read_models, read_overrides
from moonshim.config.tables.provider_keys import read_keys
from moonshim.config.tables.table import Table, existing_file
from moonshim.config.tables.transformers import Chains, read_chains
from moonshim.engine.hosts.profile import UpstreamDialect
from moonshim.engine.hosts.table import HOSTS
from moonshim.engine.request.extra_body import deep_merge

__all__ = ["Defaults", "address_fault", "read_headers", "read_provider", "read_timeouts"]

_ADDRESS: Final = ("base_url", "baseUrl")
_CHAT_ADDRESSES: Final = {
    "https://generativelanguage.googleapis.com/v1beta/models": "https://generativelanguage.googleapis.com/v1beta/openai",
}
"""Addresses of other protocols in files of claude-code-router, and where the same host has Chat Completions."""
_FOREIGN_KEYS: Final = ("auth", "id", "enabled", "type", "tokenizer")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS: Final = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection"})
"""Headers that follow from the request itself."""


class Defaults(Struct, frozen=True, kw_only=True):
    """Settings for every provider of a file."""

    folder: File | None = None
    """Paths are relative to it."""
    code: Mapping[File, bytes | None] | None = None
    """The plug-in files that were trusted; None: any may be loaded."""
    timeouts: Timeouts = Timeouts()
    proxy: str | None = None
    plug_ins: dict[str, TransformerUse] = field(default_factory=dict)
    lenient: bool = False
    """Written for claude-code-router: what it ignores is ignored here."""
    javascript: bool = False
    """It has plug-ins that cannot be run here."""


def read_provider(table: Table, defaults: Defaults) -> ProviderConfig | None:
    """The provider, or None if it is invalid; the problems have been reported."""
    name = _name(table)
    address = _address(table, lenient=defaults.lenient)
    keys, sources = read_keys(table, defaults.folder, address)
    models, model_overrides, model_bodies = read_models(table)
    host = table.choice("host", HOSTS)
    dialect = table.choice("dialect", get_args(UpstreamDialect))
    headers = read_headers(table)
    chains = Chains()
    is_empty = defaults.lenient and table.raw("transformer") is None
    table.knows("transformer")
    if not is_empty and (transformer := table.table("transformer")) is not None:
        chains = read_chains(
            transformer,
            models=models,
            plug_ins=defaults.plug_ins,
            folder=defaults.folder,
            code=defaults.code,
            lenient=defaults.lenient,
            javascript=defaults.javascript,
        )
    overrides = chains.overrides | read_overrides(table)
    for model, theirs in chains.model_overrides.items():
        model_overrides[model] = theirs | model_overrides.get(model, {})
    body = deep_merge(chains.body, read_body(table))
    for model, theirs in chains.model_bodies.items():
        model_bodies[model] = deep_merge(theirs, model_bodies.get(model, {}))
    timeouts = read_timeouts(table.table("timeouts"), defaults.timeouts)
    passes_client_key, retry_empty_answer = table.flag("passes_client_key"), table.flag("retry_empty_answer")
    ca_bundle = existing_file(table, "ca_bundle", defaults.folder)
    # A proxy elsewhere cannot reach a server on this machine.
    near = address is not None and is_loopback(address)
    proxy = _proxy(table) or (None if near else defaults.proxy)
    if defaults.lenient:
        _leave(table, *_FOREIGN_KEYS, *table.unlike(*_FOREIGN_KEYS, *override_names()))
    table.close(more=override_names())
    if name is None or address is None:
        return None
    if dialect is None:
        dialect = chains.dialect or ("anthropic" if host == "moonshot-anthropic" else dialect_of(address))
    return ProviderConfig(
        name=name,
        api_base_url=address,
        keys=keys,
        key_sources=sources,
        models=models,
        dialect=cast(UpstreamDialect, dialect),
        host=host,
        overrides=overrides,
        model_overrides=model_overrides,
        body=body,
        model_bodies=model_bodies,
        headers=chains.headers | headers,
        timeouts=timeouts,
        transformers=chains.shared,
        model_transformers=chains.by_model,
        ca_bundle=ca_bundle,
        proxy=proxy,
        regions=(),  # the file decides
        passes_client_key=passes_client_key is True,
        retry_empty_answer=retry_empty_answer is not False,
    )


def read_timeouts(table: Table | None, default: Timeouts) -> Timeouts:
    """Timeouts, on top of others."""
    if table is None:
        return default
    given = {name: table.number(name, above=True) for name in Timeouts.__struct_fields__}
    table.close()
    return msgspec.structs.replace(default, **{name: value for name, value in given.items() if value is not None})


def _name(table: Table) -> str | None:
    name = table.text("name")
    if name is None:
        if "name" not in table:
            table.problems.add(table.path, "`name` is required")
        return None
    if "/" in name or "," in name:
        table.error("name", "must not contain `/` or `,`, which separate a provider from its model")
        return None
    return name.strip()


def _address(table: Table, *, lenient: bool = False) -> str | None:
    address = table.text("api_base_url", also=_ADDRESS)
    key = next((key for key in ("api_base_url", *_ADDRESS) if key in table), None)
    if key is None:
        table.problems.add(table.path, "`api_base_url` is required")
    if address is None or key is None:
        return None
    wrong = address_fault(address.strip())
    if wrong:
        table.error(key, wrong)
        return None
    address = address.strip()
    return _CHAT_ADDRESSES.get(address.rstrip("/"), address) if lenient else address


def address_fault(address: str) -> str | None:
    """What is wrong with an address; it is not repeated, since it could contain a password."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return "not a valid URL: cannot parse its host or port"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or any(char <= " " for char in address):
        return "expected an http:// or https:// URL"
    if parts.username is not None or parts.password is not None:
        return "the URL must not contain a user name or password; set an `Authorization` header under `headers` instead"
    return None


def read_headers(table: Table) -> dict[str, str]:
    """Headers, whose values are secret."""
    inner = table.table("headers")
    headers: dict[str, str] = {}
    for name in inner or ():
        assert inner is not None
        value = inner.text(name, empty=True)
        if _HEADER_NAME.fullmatch(name) is None:
            inner.error(name, "not a valid header name")
        elif name.lower() in _OWN_HEADERS:
            inner.error(name, "this header is set from the request and cannot be configured")
        elif value is not None and not value.isprintable():
            inner.error(name, "a header value must be a single line of printable characters")
        elif value is not None:
            headers[name] = value
    return headers


def _proxy(table: Table) -> str | None:
    proxy = table.text("proxy", empty=True)
    if proxy and not re.match(r"https?://[^/]", proxy):
        table.error("proxy", "expected an http:// or https:// URL")
        return None
    return proxy or None


def _leave(table: Table, *keys: str) -> None:
    for key in keys:
        if key in table:
            table.knows(key)
            table.note(key, "not supported, ignored")
