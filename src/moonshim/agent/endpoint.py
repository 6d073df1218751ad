"""An address, a model and options -> where a request goes, how it is written, and which values are secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from moonshim.config import ProviderConfig as Host
from moonshim.config import Timeouts, endpoint_of, without_secrets
from moonshim.config.endpoints import dialect_of
from moonshim.engine.formats import TEXT_FORMATS, ToolFormat, detect_tool_format
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.wire.json_codec import encode
from moonshim.errors import InvalidInput
from moonshim.http_client import UpstreamRequest
from moonshim.http_client.headers import headers_for
from moonshim.http_client.request import origin_of

__all__ = ["DialectName", "Endpoint"]

DialectName: TypeAlias = Literal["openai_chat", "anthropic"]
_SHORTEST_SECRET: Final = 4
_KNOWN_TO_ALL: Final = frozenset(
    {"accept", "anthropic-beta", "anthropic-version", "http-referer", "user-agent", "x-title"}
)
"""Headers without secrets; hosts quote their values."""
_KEYS_IN_ADDRESSES: Final = re.compile(r"key|auth|token|secret|sig", re.IGNORECASE)
"""Query parameters that are not secrets: errors quote an `api-version`."""
_UNSENDABLE: Final = re.compile(r"[^\t -~\x80-\xff]")
"""Characters that a header must not contain."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_GRAMMARS: Final[dict[ToolFormat, str]] = {
    "hermes": "hermes",
    "xml": "qwen_xml",
    "llama": "llama_json",
    "qwen": "hermes",
    "deepseek": "deepseek",
    "gemma": "gemma",
    "mistral": "mistral",
}
"""How calls in text are parsed for a chosen format, for models whose family does not determine it."""
_NO_NATIVE_TOOLS: Final[dict[str, Any]] = {
    "tool_name_pattern": None,
    "tool_name_limit": None,
    "tool_limit": None,
    "schema_flavour": None,
}
"""A host's rules for tools do not matter when it is sent none."""


class Endpoint(Struct, frozen=True, kw_only=True, dict=True):
    """One model at one host, as configured. Its repr shows the address and model, but no secrets."""

    base_url: str
    model: str
    api_key: str | None
    dialect: DialectName | None
    host: str | None
    tool_format: str | None
    headers: dict[str, str]
    timeouts: Timeouts
    cells: dict[str, Any]
    proxy: str | None
    ca_bundle: str | None

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise InvalidInput("model must be a non-empty string", field="model")
        _check_address(self.base_url)
        _check_proxy(self.proxy)
        key = self.api_key
        if key is not None and not isinstance(key, str):
            raise InvalidInput(f"api_key must be a string, not {type(key).__name__}", field="api_key")
        if key is not None and (not key.strip() or _UNSENDABLE.search(key.strip())):
            raise InvalidInput("api_key is empty or contains characters that are invalid in a header", field="api_key")
        for name, value in self.headers.items():
            if not isinstance(value, str) or _UNSENDABLE.search(value) or not _HEADER_NAME.fullmatch(name):
                raise InvalidInput(f"header {name!r} has an invalid name or value", field="headers")
        if not isinstance(self.timeouts, Timeouts):
            raise InvalidInput(f"timeouts must be a Timeouts, not {type(self.timeouts).__name__}", field="timeouts")
        self.profile  # noqa: B018 - evaluated now, so that a wrong host or field is reported at once

    def __repr__(self) -> str:
        return f"Endpoint({self.display_url!r}, model={self.model!r})"

    # -- protocol ------------------------------------------------------------------------

    @cached_property
    def _row(self) -> HostProfile:
        """The host profile before the tool format is applied."""
        return self._profile({})

    @cached_property
    def profile(self) -> HostProfile:
        """The host profile, including the overrides that the tool format implies."""
        return self._profile(self._format_overrides) if self._format_overrides else self._row

    @property
    def overrides(self) -> dict[str, Any]:
        """The fields of the host profile that are overridden here.

        The dialect is always among them: a request with overrides is adapted for any host, and ours is not in a dialect
        yet.
        """
        return {"dialect": self.profile.dialect} | self._format_overrides | self.cells

    def _profile(self, cells: dict[str, Any]) -> HostProfile:
        return profile_for(
            model=self.model,
            host=self.host,
            base_url=self.base_url,
            upstream=self.dialect or dialect_of(self.base_url),
            overrides=cells | self.cells,
        )

    @property
    def format_is_set(self) -> bool:
        return self.tool_format is not None and self.tool_format != "auto"

    @property
    def format(self) -> ToolFormat:
        return self._format(self.profile.dialect)

    def _format(self, dialect: str) -> ToolFormat:
        found = detect_tool_format(self.model, override=self.tool_format)
        # Names that reveal nothing use OpenAI's format, or that of the other dialect.
        return "anthropic" if found == "openai" and dialect == "anthropic" and not self.format_is_set else found

    @property
    def is_text(self) -> bool:
        """Whether tools are described in the prompt, and calls parsed from the text."""
        return self.format in TEXT_FORMATS

    @cached_property
    def _format_overrides(self) -> dict[str, Any]:
        """The overrides that follow from a chosen format; a detected format needs none.

        How calls in text look depends on the model's family: a Kimi writes Kimi's markers, whatever format is set. Text
        formats are described in the prompt, so calls come back in them.
        """
        if not self.format_is_set:
            return {}
        found = self._row
        format = self._format(found.dialect)
        if format == "kimi":
            unknown = found.generation == "other"
            return {"id_policy": "k2", "history_ids": "k2", "grammar": "kimi"} if unknown else {}
        cells: dict[str, Any] = {"history_ids": "anthropic" if found.dialect == "anthropic" else "unique"}
        cells["id_policy"] = "unique"
        if format in TEXT_FORMATS or (found.grammar is None and format in _GRAMMARS):
            cells["grammar"] = _GRAMMARS[format]
        return cells | _NO_NATIVE_TOOLS if format in TEXT_FORMATS else cells

    # -- address -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Display name: the host, if it is known, or its address."""
        return self.profile.host if self.profile.host != "generic" else origin_of(self.base_url)

    @property
    def display_url(self) -> str:
        """The address without password and query string."""
        return without_secrets(self.base_url)

    def call(self, body: dict[str, Any], headers: Mapping[str, str]) -> UpstreamRequest:
        """The request with this body, and the headers that the host needs for it."""
        accept = "text/event-stream" if body.get("stream") is True else "application/json"
        dialect, key = self.profile.dialect, self.api_key.strip() if self.api_key is not None else None
        return UpstreamRequest(
            url=endpoint_of(Host(name=self.name, api_base_url=self.base_url, dialect=dialect)),
            headers=headers_for(dialect, key, headers, self.headers, accept=accept),
            body=encode(body),
            timeouts=self.timeouts,
            proxy=self.proxy,
            ca_bundle=self.ca_bundle,
        )

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """Values that a host is sent and that must be masked if it echoes them; the longest first: one may contain
        another."""
        texts = [(self.api_key or "").strip()]
        texts += [value for name, value in self.headers.items() if name.lower() not in _KNOWN_TO_ALL]
        for url in map(urlsplit, (self.base_url, self.proxy or "")):
            # Some keys are the user name of an address, or a value in its query string.
            account = (url.username or "", url.password or "")
            texts += [*account, *map(unquote, account), url.query]
            texts += [value for name, value in parse_qsl(url.query) if _KEYS_IN_ADDRESSES.search(name)]
        return tuple(sorted({text for text in texts if len(text) >= _SHORTEST_SECRET}, key=len, reverse=True))


def _check_address(address: Any) -> None:
    shown = without_secrets(address) if isinstance(address, str) else type(address).__name__
    try:
        parts = urlsplit(address.strip())
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except (ValueError, AttributeError):
        right = False
    if not right:
        raise InvalidInput(
            f"base_url must be a URL such as https://api.moonshot.ai/v1, not {shown!r}", field="base_url"
        )


def _check_proxy(proxy: Any) -> None:
    try:
        right = proxy is None or (isinstance(proxy, str) and urlsplit(proxy) is not None)
    except ValueError:
        right = False
    if not right:
        raise InvalidInput("proxy must be a URL such as http://proxy:3128", field="proxy")
