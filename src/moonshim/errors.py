"""The exceptions of Moonshim. Each has a code, an HTTP status, and a flag that says whether a retry can help.

MoonshimError
├── InvalidInput             an argument is invalid; `field` names it
│   ├── InvalidOption        an option has an unknown name or an invalid value
│   ├── UnknownFormat        unknown tool format
│   ├── CannotExpress        the target format cannot express this
│   ├── ThreadUnsupported    a request that belongs to another API (engine)
│   ├── InvalidSignature     a signed reasoning token was altered (engine)
│   ├── PluginError          a simulated model cannot be loaded (simulator)
│   ├── UnknownName          unknown fault or scenario (simulator)
│   ├── TokenizerError       a vocabulary cannot be used (simulator)
│   └── WrongSettings        a setting of the simulator has an invalid value (simulator)
├── Refused                  a request is rejected; its `problem` is sent to the client
│   └── BudgetRefusal        a budget does not allow it now (gateway)
├── UpstreamError            the host could not be reached, or its response is incomplete
│   ├── UpstreamUnreachable, UpstreamUnresolved  no connection; no address for the host's name
│   ├── TooManyOpenFiles     no connection, because this process has no file descriptor left
│   ├── UpstreamStalled      no data before the deadline
│   ├── UpstreamBroke        the connection ended during the response
│   └── AnswerFailed         a provider's response ended in an error (agent)
├── ConfigError              a configuration is invalid; `problems` lists the mistakes (config)
│   ├── NoSuchConfig         the file does not exist
│   ├── NotTrusted           the file was found in the current folder, and is not trusted
│   ├── TrustRecordError     the list of trusted files cannot be read or written
│   └── ScenarioError        a scenario is invalid (simulator)
├── StoreUnavailable         the store cannot be reached (store)
│   └── StoreBusy            SQLite is locked by another process
├── TransformerFailed        a transformer raised (engine)
├── AgentStopped             a run ended without an answer (agent)
├── AgentBusy                the agent is already running (agent)
├── ToolFailed               a tool's error message for the model (agent)
├── HistoryError             a conversation file cannot be used (agent)
│   ├── HistoryInUse         another process is writing it
│   └── HistoryNotSaved      it cannot be written
├── ModelFailed              a simulated model raised (simulator)
├── UnknownBehaviour         unknown host name (simulator)
├── BindError                an address cannot be listened on (servers)
├── WorkersFailed            the workers of a gateway failed to start (gateway)
├── CannotLaunch             a client cannot be started (launch)
│   ├── NotInstalled         it is not on the PATH
│   └── GatewayFailed        there is no gateway for it
└── NoSuchModel, ChatSetupError, UsageError  messages for the chat's user (chat)
"""

from __future__ import annotations

from math import ceil
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

__all__ = [
    "BUDGET_CODES",
    "BUDGET_EXCEEDED",
    "OWN_ERRORS",
    "Blame",
    "CannotExpress",
    "InvalidInput",
    "InvalidOption",
    "MoonshimError",
    "Problem",
    "ProblemKind",
    "Refused",
    "UnknownFormat",
    "UpstreamBroke",
    "UpstreamError",
    "UpstreamStalled",
    "UpstreamUnreachable",
    "blame_of",
    "problem_of",
]

ProblemKind: TypeAlias = Literal[
    "invalid_request",
    "context_overflow",
    "too_large",
    "authentication",
    "permission",
    "not_found",
    "rate_limit",
    "quota",
    "overloaded",
    "timeout",
    "server",
]

Blame: TypeAlias = Literal["host", "answer", "client", "us"]
"""Whose fault an error is. `answer`: the model's, whose next answer to the same request may be right. `client`: the
request, or the key and account that it is made with. `us`: this program or its operator."""


class ErrorRule(NamedTuple):
    """What is known about an error from its code."""

    blame: Blame
    status: int
    permanent: bool = False


OWN_ERRORS: Final[dict[str, ErrorRule]] = {
    "arguments_cut_off": ErrorRule("answer", 502),
    "arguments_invalid": ErrorRule("answer", 502),
    "call_in_content": ErrorRule("answer", 502),
    "call_lost": ErrorRule("answer", 502),
    "call_missing": ErrorRule("answer", 502),
    "call_not_allowed": ErrorRule("answer", 502),
    "call_unreadable": ErrorRule("answer", 502),
    "compaction_failed": ErrorRule("answer", 502),
    "empty_answer": ErrorRule("answer", 502),
    "forced_call_missing": ErrorRule("answer", 502),
    "answer_too_large": ErrorRule("host", 502, permanent=True),
    "event_too_large": ErrorRule("host", 502, permanent=True),
    "not_json": ErrorRule("host", 502),
    "provider_unavailable": ErrorRule("host", 503),
    "stream_ended": ErrorRule("host", 502),
    "upstream_broke": ErrorRule("host", 502),
    "upstream_error": ErrorRule("host", 502),
    "upstream_stalled": ErrorRule("host", 504),
    "upstream_unreachable": ErrorRule("host", 502),
    "upstream_unresolved": ErrorRule("host", 502),
    "budget_unknown": ErrorRule("us", 503),
    "gateway_busy": ErrorRule("us", 503),
    "gateway_stopping": ErrorRule("us", 503),
    "login_expired": ErrorRule("us", 401),
    "store_unavailable": ErrorRule("us", 503),
    "too_many_connections": ErrorRule("us", 503),
    "too_many_open_files": ErrorRule("us", 503),
    "transformer_failed": ErrorRule("us", 500, permanent=True),
}
"""The errors that begin here and not in a host's words, by code: whose fault they are, and their HTTP status."""
_BLAMES: Final[dict[ProblemKind, Blame]] = {
    "invalid_request": "client",
    "context_overflow": "client",
    "too_large": "client",
    "authentication": "client",
    "permission": "client",
    "not_found": "client",
    "quota": "client",
    "rate_limit": "client",
    "overloaded": "host",
    "timeout": "host",
    "server": "host",
}
"""Whose fault any other error is."""


def blame_of(code: str | None, kind: ProblemKind = "server") -> Blame:
    """Whose fault an error is: what its code says, or else its category.

    >>> blame_of("arguments_invalid"), blame_of("engine_overloaded", "overloaded"), blame_of(None, "not_found")
    ('answer', 'host', 'client')
    """
    own = None if code is None else OWN_ERRORS.get(code)
    return _BLAMES[kind] if own is None else own.blame


BUDGET_EXCEEDED: Final = "budget_exceeded"
"""The code of a request that the gateway refuses because its key has used up a budget; the same in every dialect."""
BUDGET_CODES: Final = frozenset({BUDGET_EXCEEDED, "budget_reserved", "budget_unknown", "price_unknown"})
"""The codes of requests that the gateway refuses because of a budget."""
SHORT_LIMIT: Final = 300
_TRANSIENT_KINDS: Final[frozenset[ProblemKind]] = frozenset({"rate_limit", "overloaded", "timeout", "server"})
_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425})
"""Conflicts and requests that came too early are temporary, whatever their kind; the SDKs retry them too."""


class MoonshimError(Exception):
    """Base class of all exceptions that Moonshim raises on purpose."""

    code: ClassVar[str] = "moonshim_error"
    """The error code, stable across releases."""
    status: ClassVar[int] = 500
    """The HTTP status of the error in a response."""
    retryable: ClassVar[bool] = False
    """Whether the same request can succeed later."""


class InvalidInput(MoonshimError, ValueError):
    """An argument is invalid."""

    code = "invalid_input"
    status = 400

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        """The path of the invalid field, such as `messages[3]`."""

    def relocated(self, field: str) -> InvalidInput:
        """The same error for a value that is part of a larger input, where it has another path.

        >>> str(InvalidInput("tools[0] is required", field="tools[0]").relocated("messages[1].tools[0]"))
        'messages[1].tools[0] is required'
        """
        message = str(self)
        if self.field and message.startswith(self.field):
            message = field + message[len(self.field) :]
        return InvalidInput(message, field=field)


class InvalidOption(InvalidInput):
    """An option has an unknown name or an invalid value."""

    code = "invalid_option"


class UnknownFormat(InvalidInput):
    """The tool format is unknown; the message lists the known ones."""

    code = "unknown_format"


class CannotExpress(InvalidInput):
    """The target format has no way to express the input."""

    code = "cannot_express"


class UpstreamError(MoonshimError):
    """The host could not be reached, or its response is incomplete. The message contains no secrets."""

    code = "upstream_error"
    status = 502
    retryable = True


class UpstreamUnreachable(UpstreamError):
    """No connection to the host: the name, port, certificate or proxy is wrong, or the host is down."""

    code = "upstream_unreachable"


class UpstreamUnresolved(UpstreamUnreachable):
    """No connection to the host: its name cannot be resolved, because it is wrong or this machine is offline."""

    code = "upstream_unresolved"


class TooManyOpenFiles(UpstreamError):
    """No connection, because this process has no file descriptors left. The host is not the cause."""

    code = "too_many_open_files"
    status = 503


class UpstreamStalled(UpstreamError):
    """The host sent nothing before the deadline."""

    code = "upstream_stalled"
    status = 504


class UpstreamBroke(UpstreamError):
    """The connection ended during a response."""

    code = "upstream_broke"


class Problem(Struct, frozen=True, kw_only=True):
    """An error for a client, independent of the dialect. `render_problem` writes it in a dialect."""

    status: int
    """The HTTP status."""
    kind: ProblemKind
    """The category of the error."""
    message: str
    """The message for the client."""
    code: str | None = None
    """The host's own error code, if there is one."""
    param: str | None = None
    """The invalid field of the request."""
    request_id: str | None = None
    """The request id of the host."""
    retry_after: float | None = None
    """Seconds to wait before a retry."""
    tokens: int | None = None
    """If the context is too long: the tokens of the prompt, if the host reported them."""
    limit: int | None = None
    """If the context is too long: the maximum number of tokens, if the host reported it."""
    permanent: bool = False
    """Whether a retry cannot help although the kind suggests it, for example because a plug-in raised."""

    @property
    def retryable(self) -> bool:
        """Whether the same request can succeed later.

        >>> Problem(status=429, kind="rate_limit", message="slow down").retryable
        True
        >>> Problem(status=429, kind="quota", message="out of credit").retryable
        False
        """
        return not self.permanent and (self.kind in _TRANSIENT_KINDS or self.status in _TRANSIENT_STATUSES)

    @property
    def blame(self) -> Blame:
        """Whose fault the error is.

        >>> Problem(status=502, kind="server", message="no call", code="call_missing").blame
        'answer'
        """
        return blame_of(self.code, self.kind)

    @property
    def counts_against_host(self) -> bool:
        """Whether the host failed, rather than refused. Moonshot sends 429 when its engine is overloaded."""
        is_failure = self.blame == "host" and not self.permanent
        return is_failure and (self.status >= 500 or self.kind == "overloaded")

    @property
    def retry_headers(self) -> dict[str, str]:
        """The response headers that say when to retry, or not to retry.

        Without `x-should-retry: false`, Claude Code retries a 401 for minutes and shows nothing, and the openai and
        anthropic SDKs retry every 429 and 5xx.

        >>> Problem(status=401, kind="authentication", message="wrong key").retry_headers
        {'x-should-retry': 'false'}
        >>> Problem(status=429, kind="rate_limit", message="slow down", retry_after=2.4).retry_headers
        {'retry-after': '3'}
        """
        if not self.retryable:
            return {"x-should-retry": "false"}
        return {} if self.retry_after is None else {"retry-after": str(max(1, ceil(self.retry_after)))}

    @property
    def located_message(self) -> str:
        """The message including the invalid field, for where that has no place of its own.

        >>> Problem(status=400, kind="invalid_request", message="duplicate tool name", param="tools[1]").located_message
        'tools[1]: duplicate tool name'
        """
        if self.param is None or self.message.startswith(self.param):
            return self.message
        return f"{self.param}: {self.message}"

    @property
    def in_short(self) -> str:
        """A short description for a log line."""
        return f"{self.code or self.kind}: {self.message}"[:SHORT_LIMIT]


class Refused(MoonshimError):
    """Raised to reject a request. The `problem` is sent to the client; a plain string becomes a 400 error.

    >>> Refused("not on Sundays").problem.status
    400
    """

    code = "refused"

    def __init__(self, problem: Problem | str) -> None:
        if isinstance(problem, str):
            problem = Problem(status=400, kind="invalid_request", message=problem, code=self.code)
        super().__init__(problem.message)
        self.problem = problem


def problem_of(error: MoonshimError) -> Problem:
    """Convert an exception to the `Problem` that is sent to the client.

    >>> problem_of(InvalidInput("a message must be an object", field="messages[3]")).param
    'messages[3]'
    """
    if isinstance(error, Refused):
        return error.problem
    kind: ProblemKind = "invalid_request" if error.status < 500 else "timeout" if error.status == 504 else "server"
    return Problem(
        status=error.status,
        kind=kind,
        message=str(error),
        code=error.code,
        param=getattr(error, "field", None),
        permanent=not error.retryable,
    )
