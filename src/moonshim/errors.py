"""The exception tree: every error has a code, an HTTP status, and says whether a retry can help.

MoonshimError
├── InvalidInput             an argument cannot be used; `field` says which part
│   ├── InvalidOption        an option's name or value is wrong
│   ├── UnknownFormat        there is no tool format of that name
│   ├── CannotExpress        the target format cannot express this
│   ├── ThreadUnsupported    a request that belongs to another API (engine)
│   ├── InvalidSignature     a signed reasoning token was altered (engine)
│   ├── PluginError          a simulated model cannot be loaded (simulator)
│   ├── UnknownName          no fault or scenario has that name (simulator)
│   └── WrongSettings        a setting of the simulator has an unusable value (simulator)
├── Refused                  a request is not served; its `problem` is sent to the client
├── UpstreamError            the host could not be reached, or its response is incomplete
│   ├── UpstreamUnreachable  no connection
│   ├── TooManyOpenFiles     no connection, because this process has no file descriptor left
│   ├── UpstreamStalled      nothing came before the deadline
│   ├── UpstreamBroke        the connection ended in the middle
│   └── AnswerFailed         a provider's response ended in an error (agent)
├── ConfigError              a configuration has mistakes; `problems` lists them (config)
│   ├── NoSuchConfig         the file does not exist
│   ├── NotTrusted           the file was found in the current folder, and is not trusted
│   ├── TrustRecordError     the list of trusted files cannot be read or written
│   └── ScenarioError        a scenario has mistakes (simulator)
├── StoreUnavailable         the store cannot be reached (store)
│   └── StoreBusy            SQLite is locked by another process
├── TransformerFailed        a transformer raised (engine)
├── AgentStopped             a run ended without an answer (agent)
├── AgentBusy                the agent is already running (agent)
├── ToolFailed               a tool's error message for the model (agent)
├── HistoryError             a conversation cannot be read (agent)
│   ├── HistoryInUse         another process is writing it
│   └── HistoryNotSaved      it cannot be written
├── ModelFailed              a simulated model raised (simulator)
├── UnknownBehaviour         the simulator has no host of that name (simulator)
├── BindError                an address cannot be listened on (servers)
├── WorkersFailed            the workers of a gateway do not start (gateway)
└── NoSuchModel, ChatSetupError, UsageError  messages for the chat's user (chat)
"""

from __future__ import annotations

from math import ceil
from typing import ClassVar, Final, Literal, TypeAlias

from msgspec import Struct

__all__ = [
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


SHORT_LIMIT: Final = 300
_TRANSIENT_KINDS: Final[frozenset[ProblemKind]] = frozenset({"rate_limit", "overloaded", "timeout", "server"})
_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425})
"""Conflicts and requests that came too early are temporary, whatever their kind; the SDKs retry them too."""


class MoonshimError(Exception):
    """Base of all errors raised on purpose by Moonshim."""

    code: ClassVar[str] = "moonshim_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False


class InvalidInput(MoonshimError, ValueError):
    """An argument cannot be used; `field` names the part that is wrong."""

    code = "invalid_input"
    status = 400

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidOption(InvalidInput):
    """An option has an unknown name or an invalid value."""

    code = "invalid_option"


class UnknownFormat(InvalidInput):
    """There is no tool format of that name; the message lists those that exist."""

    code = "unknown_format"


class CannotExpress(InvalidInput):
    """The target format cannot express what was asked of it."""

    code = "cannot_express"


class UpstreamError(MoonshimError):
    """The host could not be reached, or its response is incomplete. The message contains no secrets."""

    code = "upstream_error"
    status = 502
    retryable = True


class UpstreamUnreachable(UpstreamError):
    """No connection: the name, the port, the certificate or the proxy is wrong, or the host is down."""

    code = "upstream_unreachable"


class TooManyOpenFiles(UpstreamError):
    """No connection, because this process has no file descriptor left: the host is not at fault."""

    code = "too_many_open_files"
    status = 503


class UpstreamStalled(UpstreamError):
    """The host sent nothing before the deadline."""

    code = "upstream_stalled"
    status = 504


class UpstreamBroke(UpstreamError):
    """The connection ended in the middle of a response."""

    code = "upstream_broke"


class Problem(Struct, frozen=True, kw_only=True):
    """An error on its way to a client, in no dialect yet: each dialect has a function that writes it."""

    status: int
    kind: ProblemKind
    message: str
    code: str | None = None
    """The host's own code for it, if it has one."""
    param: str | None = None
    """The field of the request that is wrong."""
    request_id: str | None = None
    retry_after: float | None = None
    """Seconds."""
    tokens: int | None = None
    limit: int | None = None
    """For an overflow: the tokens of the prompt, and the maximum, as far as the host reported them."""
    permanent: bool = False
    """A retry cannot help, whatever the kind suggests: a plug-in raised, for example."""

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
    def retry_headers(self) -> dict[str, str]:
        """Response headers that say when to retry, or not to.

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
    def in_short(self) -> str:
        """For a log line."""
        return f"{self.code or self.kind}: {self.message}"[:SHORT_LIMIT]


class Refused(MoonshimError):
    """A request is not served; `problem` is sent to its client. A plain string becomes a bad request (400).

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
    """What a client is sent for one of our own errors.

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
