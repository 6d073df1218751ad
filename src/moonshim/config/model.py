"""A configuration, as frozen values: the file, the environment and the command line are all converted to these."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.engine.request.extra_body import deep_merge

__all__ = [
    "Config",
    "GatewayKey",
    "KeySource",
    "Limits",
    "Price",
    "ProviderConfig",
    "Retries",
    "Secret",
    "Target",
    "Timeouts",
    "TransformerUse",
]

MEBIBYTE: Final = 1024 * 1024

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


class Secret:
    """A string that must not be shown: only `reveal` returns it. It prints as `***`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long a host may take, in seconds."""

    connect: float = 10.0
    first_byte: float = 600.0
    between_bytes: float = 120.0


class TransformerUse(Struct, frozen=True):
    """One link of a chain: the name of a transformer (`Kimi`, `Log`, a plug-in's name or path) and its options."""

    name: str
    options: dict[str, Any] = {}
    source: bytes | None = None
    """The code of a trusted plug-in, which is run even if its file has changed since; None: read its file."""


class KeySource(Struct, frozen=True):
    """Where a provider's key was looked for, for display: never the key itself."""

    place: str
    """`MOONSHOT_API_KEY`, `the file keys/moonshot`, `the configuration`."""
    found: bool = True


class ProviderConfig(Struct, frozen=True, kw_only=True):
    """A host as configured. Its repr is its name: headers and addresses can contain secrets."""

    name: str
    api_base_url: str
    keys: tuple[Secret, ...] = ()
    """Used in turn; one conversation stays with one of them."""
    models: tuple[str, ...] = ()
    """As the host calls them. Empty: any name is passed on if the provider is named (`provider/model`)."""
    dialect: Literal["openai_chat", "anthropic"] = "openai_chat"
    host: str | None = None
    """A row of the host table; None: determined by the address."""
    overrides: dict[str, Any] = {}
    """Overrides of fields in its row."""
    model_overrides: dict[str, dict[str, Any]] = {}
    """Overrides for single models. `overrides_for` combines both."""
    body: dict[str, Any] = {}
    """Fields that are merged into every request, and override what the client sent."""
    model_bodies: dict[str, dict[str, Any]] = {}
    """Such fields for single models. `body_for` combines both."""
    headers: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()
    transformers: tuple[TransformerUse, ...] | None = None
    """The chain for all its models; None: not configured, and a Kimi gets all repairs."""
    model_transformers: dict[str, tuple[TransformerUse, ...]] = {}
    """Chains of single models, run after that of the provider."""
    passes_client_key: bool = False
    """Forward the client's own key to the host, if there are no gateway keys."""
    retry_empty_answer: bool = False
    """Retry a response of only reasoning once."""
    ca_bundle: str | None = None
    """A file of certificates for this host."""
    proxy: str | None = None
    """None: use HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""
    key_sources: tuple[KeySource, ...] = ()
    """Where `keys` were found, and where none was."""

    def overrides_for(self, model: str) -> dict[str, Any]:
        """The fields of the host profile that are overridden for this model: its own take precedence over the
        provider's."""
        own = self.model_overrides.get(model)
        return self.overrides | own if own else self.overrides

    def body_for(self, model: str) -> dict[str, Any]:
        """The fields merged into requests for this model: its own take precedence over the provider's."""
        own = self.model_bodies.get(model)
        return deep_merge(self.body, own) if own else self.body

    def uses_for(self, model: str) -> tuple[TransformerUse, ...] | None:
        """The chain for this model: that of the provider, then its own; None: not configured."""
        own = self.model_transformers.get(model)
        return self.transformers if own is None else (*(self.transformers or ()), *own)

    def __repr__(self) -> str:
        return f"Provider({self.name!r})"


class Target(Struct, frozen=True):
    """One model at one provider."""

    provider: ProviderConfig
    model: str
    """As the host calls it."""


class GatewayKey(Struct, frozen=True, kw_only=True):
    """A client of the gateway. The key itself is not stored; `digest` is its hash."""

    name: str
    digest: str
    models: tuple[str, ...] = ()
    """Names or patterns (`kimi-*`) that this key may use; empty: all."""
    expires: datetime | None = None
    """Always with a time zone."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_streams: int | None = None


class Retries(Struct, frozen=True, kw_only=True):
    """When to retry a host before anything was sent to the client."""

    attempts: int = 3
    """Maximum attempts per target."""
    longest_wait: float = 20.0
    """Seconds. If a host asks for a longer delay, the next target is tried, or the error is sent to the client."""
    budget: float = 0.2
    """Retries per request, averaged over a while: a retry storm must not feed itself."""
    breaker_failures: int = 5
    """How many more failures than successes a tenant sees before its requests to a provider pause."""
    breaker_seconds: float = 30.0


class Limits(Struct, frozen=True, kw_only=True):
    """The gateway's limits."""

    body_bytes: int = 64 * MEBIBYTE
    """After decompression."""
    header_bytes: int = 64 * 1024
    header_seconds: float = 20.0
    """How long a client may take to send its headers; its body may take `body_seconds`."""
    body_seconds: float = 120.0
    body_values: int = 200_000
    """JSON values in a body of more than 256 KiB: a message with one text has three. Small values cost far more memory
    than bytes."""
    key_bytes_in_flight: int = 128 * MEBIBYTE
    """Bytes of request bodies that the requests of one key hold at once."""
    bytes_in_flight: int = 512 * MEBIBYTE
    """The same for all keys together."""
    queue_seconds: float = 10.0
    """How long a request waits for these before it is refused."""
    max_answer_bytes: int = 64 * MEBIBYTE
    """Size of a host's response, streamed or not. A larger one ends in an error."""


class Price(Struct, frozen=True, kw_only=True):
    """The price of a million tokens of a model."""

    input: float
    output: float
    cached: float | None = None
    """For input that the host has cached; None: the same as `input`."""
    currency: str = "$"


class Config(Struct, frozen=True, kw_only=True):
    """The whole configuration. Its repr shows names only: a store's address can contain a password."""

    providers: tuple[ProviderConfig, ...] = ()
    aliases: dict[str, tuple[str, ...]] = {}
    """From a name or pattern (`claude-*`) to the models tried in turn, each `model` or `provider/model`."""
    keys: tuple[GatewayKey, ...] = ()
    prices: dict[str, Price] = {}
    """By the name of a model, `provider/model` or a pattern. Other prices are unknown."""
    store: str = "memory:"
    """`memory:`, `sqlite:PATH` or `redis://…`."""
    secret: Secret | None = None
    """Keys everything that the gateway signs or encrypts; None: generated once, and stored in the store."""
    heartbeat_seconds: float = 10.0
    remember_seconds: float = 7 * 24 * 3600.0
    """How long reasoning and Responses state are stored."""
    memory_bytes: int = 256 * MEBIBYTE
    """Maximum size of the `memory:` store."""
    sqlite_bytes: int = 4096 * MEBIBYTE
    """Maximum size of the `sqlite:` file."""
    allowed_hosts: tuple[str, ...] = ()
    """Names besides those of loopback that the `Host` header may have when there are no keys."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages that may call the gateway."""
    open_without_keys: bool = False
    """Whether an address other than loopback may be served without keys."""
    require_keys: bool = False
    """Whether every request needs a key, even if there are none left."""
    keys_emptied: bool = False
    """Whether the file has `keys = []`: all keys were removed on purpose, not lost."""
    limits: Limits = Limits()
    retries: Retries = Retries()
    host: str | None = None
    """The address to serve on; None: the command line's, or loopback."""
    port: int | None = None
    workers: int | None = None
    log_dir: str | None = None
    """Folder for the stream logs; None: no logs."""
    log_level: LogLevel | None = None
    source: str = "nothing"
    """Where this came from, for display: a path, or `environment`."""
    notes: tuple[str, ...] = ()
    """What was ignored while loading. `warnings_of` has these and more."""

    @property
    def needs_keys(self) -> bool:
        """Whether a request without a key is refused."""
        return self.require_keys or bool(self.keys)

    def __repr__(self) -> str:
        return f"Config(from {self.source!r}, providers={self.providers!r})"
