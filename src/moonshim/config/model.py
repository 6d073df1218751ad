"""A configuration, as frozen values: the file, the environment and the command line are all converted to these."""

from __future__ import annotations

import hashlib
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from moonshim.engine.request.extra_body import deep_merge

__all__ = [
    "ROUTE_NAMES",
    "SEARCH_PROVIDERS",
    "Budget",
    "BudgetPeriod",
    "ClaudeCode",
    "Config",
    "GatewayKey",
    "KeySource",
    "Limits",
    "OtelExport",
    "Price",
    "ProviderConfig",
    "Retries",
    "RouteName",
    "Routes",
    "Secret",
    "Target",
    "Timeouts",
    "TransformerUse",
    "UsageBooks",
    "WebSearch",
    "digest_of",
]

MEBIBYTE: Final = 1024 * 1024

RouteName: TypeAlias = Literal["image", "web_search", "long_context", "background", "think"]
ROUTE_NAMES: Final[tuple[RouteName, ...]] = get_args(RouteName)
"""In order of precedence."""

BudgetPeriod: TypeAlias = Literal["day", "month", "total"]
"""Days and months begin at midnight UTC."""

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


class Secret:
    """A string that must not be shown: only `reveal` returns it. It prints as `***`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    @property
    def problem(self) -> str | None:
        """Why it cannot be used now, for people; None if it can."""
        return None

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class Timeouts(Struct, frozen=True, kw_only=True):
    """Timeouts for requests to a provider, in seconds."""

    connect: float = 10.0
    """Until a connection is established."""
    first_byte: float = 600.0
    """Until the response starts."""
    between_bytes: float = 120.0
    """Longest pause within a response."""


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
    """API keys, used in turn; one conversation stays with one of them."""
    models: tuple[str, ...] = ()
    """Model names of the host. Empty: clients can request any model as `provider/model`."""
    dialect: Literal["openai_chat", "anthropic"] = "openai_chat"
    host: str | None = None
    """Name of the host profile; None: detected from the address."""
    overrides: dict[str, Any] = {}
    """Overrides of host profile fields."""
    model_overrides: dict[str, dict[str, Any]] = {}
    """Overrides for single models. `overrides_for` combines both."""
    body: dict[str, Any] = {}
    """Fields merged into every request; they override those of the client."""
    model_bodies: dict[str, dict[str, Any]] = {}
    """The same for single models. `body_for` combines both."""
    headers: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()
    transformers: tuple[TransformerUse, ...] | None = None
    """Transformers for all its models; None: not configured, so Kimi models get all repairs."""
    model_transformers: dict[str, tuple[TransformerUse, ...]] = {}
    """Transformers for single models, run after those of the provider."""
    passes_client_key: bool = False
    """Forward the client's own key to the host, if there are no gateway keys."""
    retry_empty_answer: bool = True
    """Ask once more for a response that failed because of what the model wrote: one of only reasoning, or with a call
    that is missing or cannot be read."""
    ca_bundle: str | None = None
    """File with the certificates to verify this host with."""
    proxy: str | None = None
    """None: use HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""
    key_sources: tuple[KeySource, ...] = ()
    """Where keys were looked for, and whether one was found."""
    regions: tuple[str, ...] = ()
    """Addresses that the key may belong to, as long as that is not known; `api_base_url` is the default one of them."""

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


def digest_of(key: str) -> str:
    """The digest of a gateway key, which is what the configuration stores.

    One round of SHA-256, without salt: slow hashes protect passwords, which people choose and attackers guess. A key is
    256 random bits, which cannot be guessed at any speed, and every request would pay for a slow hash.

    >>> digest_of("msk_example")[:15]
    'sha256:80367261'
    """
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class Budget(Struct, frozen=True, kw_only=True):
    """What a key may spend in a period: either money (`limit`) or tokens."""

    period: BudgetPeriod
    limit: Decimal | None = None
    currency: str = "$"
    """Of `limit`. Only models whose price is in this currency count."""
    tokens: int | None = None
    soft: bool = False
    """Whether it only warns; a hard budget refuses requests."""


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
    budgets: tuple[Budget, ...] = ()
    rights: tuple[str, ...] = ()
    """`usage`: see the usage of all keys, not only its own."""

    @property
    def is_limited(self) -> bool:
        """Whether a field of a request could go beyond what the key may use: its models, or what it may spend."""
        return bool(self.models or self.budgets)


class Retries(Struct, frozen=True, kw_only=True):
    """When to retry a host before anything was sent to the client."""

    attempts: int = 3
    """Maximum attempts per target."""
    longest_wait: float = 20.0
    """Seconds. If a host asks for a longer delay, the next target is tried, or the error is sent to the client."""
    budget: float = 0.2
    """Retries per request, averaged over a while: a retry storm must not feed itself."""
    breaker_failures: int = 5
    """How many more failures than successes open the circuit breaker of a provider for a tenant."""
    breaker_seconds: float = 30.0
    """How long an open breaker stops requests to the provider."""


class Limits(Struct, frozen=True, kw_only=True):
    """The gateway's limits."""

    body_bytes: int = 64 * MEBIBYTE
    """Size of a request body, after decompression."""
    header_bytes: int = 64 * 1024
    """Size of the request headers."""
    header_seconds: float = 20.0
    """Time for a client to send its headers."""
    body_seconds: float = 120.0
    """Time for a client to send its body."""
    body_values: int = 200_000
    """JSON values in a body of more than 256 KiB: a message with one text has three. Small values cost far more memory
    than bytes."""
    key_bytes_in_flight: int = 128 * MEBIBYTE
    """Bytes of request bodies that the requests of one key hold at once."""
    bytes_in_flight: int = 512 * MEBIBYTE
    """The same for all keys together."""
    queue_seconds: float = 10.0
    """How long a request waits for this memory before it is rejected."""
    max_answer_bytes: int = 64 * MEBIBYTE
    """Size of a host's response, streamed or not. A larger one ends in an error."""
    hang_seconds: float = 10.0
    """CPU time that a process may use without a turn of its event loop. Then it is ended, and replaced."""


class Price(Struct, frozen=True, kw_only=True):
    """The price of a million tokens of a model, exactly as it was written."""

    input: Decimal
    output: Decimal
    """Including reasoning."""
    cached: Decimal | None = None
    """For input that the host read from its cache; None: the same as `input`."""
    cache_write: Decimal | None = None
    """For input that the host wrote to its cache for five minutes; None: the same as `input`."""
    cache_write_1h: Decimal | None = None
    """For input that it wrote for an hour; None: twice `input`."""
    search: Decimal | None = None
    """For one web search that the host runs; None: the shipped fee of the host."""
    currency: str = "$"


OnUnknownBudget: TypeAlias = Literal["count", "refuse"]


class BudgetRules(Struct, frozen=True, kw_only=True):
    """What holds for the budgets of all keys."""

    on_unknown: OnUnknownBudget = "count"
    """While neither the store nor the usage records say what was used before a process started: `count` from zero, so
    that a process start gives at most one more budget, or `refuse` what a hard budget limits."""


class UsageBooks(Struct, frozen=True, kw_only=True):
    """Where the use of models is recorded, and how much of it is kept."""

    file: str | None = None
    """A path, or `memory:`; None: `usage.db` in the user's state folder."""
    days: int = 90
    """Older records are deleted."""
    max_bytes: int = 256 * MEBIBYTE
    """Maximum size of the file; the oldest records are deleted first."""


class OtelExport(Struct, frozen=True, kw_only=True):
    """Where traces are sent. Its repr shows no values: headers and addresses can contain secrets."""

    endpoint: str | None = None
    """Base URL of the collector; None: OTEL_EXPORTER_OTLP_ENDPOINT and the variables like it."""
    headers: dict[str, str] = {}
    service_name: str | None = None
    """None: OTEL_SERVICE_NAME, or `moonshim`."""
    text: bool = False
    """Whether spans contain the text of prompts and responses."""

    def __repr__(self) -> str:
        return "OtelExport()"


SearchProvider: TypeAlias = Literal["brave", "tavily", "exa", "searxng", "command"]
SEARCH_PROVIDERS: Final[tuple[SearchProvider, ...]] = get_args(SearchProvider)


class WebSearch(Struct, frozen=True, kw_only=True):
    """Who runs the web searches that clients declare. Its repr shows no values."""

    provider: SearchProvider
    key: Secret | None = None
    base_url: str | None = None
    """None: the provider's own address."""
    command: tuple[str, ...] = ()
    """A program and its arguments, run without a shell."""
    results: int = 8
    """The number of results for each search."""
    seconds: float = 15.0
    """How long a search may take."""
    price: Decimal | None = None
    """Of one search; None: unknown."""
    currency: str = "$"

    def __repr__(self) -> str:
        return f"WebSearch({self.provider!r})"


class ClaudeCode(Struct, frozen=True, kw_only=True):
    """What the gateway does for Claude Code only."""

    judge_model: str | None = None
    """The model that decides in auto mode whether a tool may run; None: the gateway does not judge."""
    judge_seconds: float = 10.0
    """How long it may take. After that, calls are flagged."""


class Routes(Struct, frozen=True, kw_only=True):
    """Models for kinds of requests, each tried in turn; an empty tuple: no route of this kind."""

    image: tuple[str, ...] = ()
    web_search: tuple[str, ...] = ()
    long_context: tuple[str, ...] = ()
    background: tuple[str, ...] = ()
    think: tuple[str, ...] = ()
    long_context_tokens: int = 60_000
    """A request with more tokens than this, as estimated, has a long context."""
    background_models: tuple[str, ...] = ("*haiku*",)
    """Names or patterns, in any case: requests for these models are background work."""

    @property
    def targets(self) -> dict[str, tuple[str, ...]]:
        """The routes that are configured, by name, in order of precedence."""
        return {name: targets for name in ROUTE_NAMES if (targets := getattr(self, name))}


class Config(Struct, frozen=True, kw_only=True):
    """The whole configuration. Its repr shows names only: a store's address can contain a password."""

    providers: tuple[ProviderConfig, ...] = ()
    aliases: dict[str, tuple[str, ...]] = {}
    """From a name or pattern (`claude-*`) to the models tried in turn, each `model` or `provider/model`."""
    routes: Routes = Routes()
    """Other models for some kinds of requests, if their name matched an alias that is a pattern."""
    keys: tuple[GatewayKey, ...] = ()
    prices: dict[str, Price] = {}
    """By the name of a model, `provider/model` or a pattern. They override the shipped prices (`usage.prices`)."""
    budgets: BudgetRules = BudgetRules()
    usage: UsageBooks = UsageBooks()
    otel: OtelExport | None = None
    """None: no traces."""
    web_search: WebSearch | None = None
    """None: the host's own search, if it has one."""
    claude_code: ClaudeCode = ClaudeCode()
    store: str = "memory:"
    """`memory:`, `sqlite:PATH` or `redis://…`."""
    secret: Secret | None = None
    """Signs the tokens that the gateway gives to clients; None: generated once, and saved in the store."""
    heartbeat_seconds: float = 10.0
    """Interval of the heartbeats to a client that waits for a stream."""
    remember_seconds: float = 7 * 24 * 3600.0
    """How long reasoning and Responses state are stored."""
    memory_bytes: int = 256 * MEBIBYTE
    """Maximum size of the `memory:` store."""
    sqlite_bytes: int = 4096 * MEBIBYTE
    """Maximum size of the `sqlite:` file."""
    redis_key_bytes: int = 64 * MEBIBYTE
    """How much the conversations of one gateway key may take in Redis."""
    allowed_hosts: tuple[str, ...] = ()
    """Values of the `Host` header, other than those of loopback, that are accepted without gateway keys."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may call the gateway."""
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
    inspector: bool | Literal["private"] = True
    """Whether `/inspector` is served; `private`: it records shapes and times, no text."""
    inspector_bytes: int = 64 * MEBIBYTE
    """How much each process records for the inspector, in memory."""
    source: str = "nothing"
    """Where this came from, for display: a path, or `environment`."""
    notes: tuple[str, ...] = ()
    """Settings that were ignored while loading. `warnings_of` returns these and more."""

    @property
    def needs_keys(self) -> bool:
        """Whether a request without a key is refused."""
        return self.require_keys or bool(self.keys)

    def __repr__(self) -> str:
        return f"Config(from {self.source!r}, providers={self.providers!r})"
