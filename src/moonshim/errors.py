"""The exception tree: every error has a code, an HTTP status, and says whether trying again can help.

MoonshimError
└── InvalidInput          what the caller passed cannot be used; `field` says which part
    ├── InvalidOption     an option's name or value is wrong
    ├── UnknownFormat     no tool format has that name
    └── CannotExpress     the target format has no way to say this
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "CannotExpress",
    "InvalidInput",
    "InvalidOption",
    "MoonshimError",
    "Problem",
    "ProblemKind",
    "UnknownFormat",
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


class MoonshimError(Exception):
    """Base of all errors raised on purpose by Moonshim."""

    code: ClassVar[str] = "moonshim_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False


class InvalidInput(MoonshimError, ValueError):
    """What the caller passed cannot be used; `field` names the part that is wrong."""

    code = "invalid_input"
    status = 400

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidOption(InvalidInput):
    """An option has an unknown name or a value that it cannot take."""

    code = "invalid_option"


class UnknownFormat(InvalidInput):
    """No tool format has that name; the message lists those that exist."""

    code = "unknown_format"


class CannotExpress(InvalidInput):
    """The target format has no way to say what was asked of it."""

    code = "cannot_express"


class Problem(Struct, frozen=True, kw_only=True):
    """An error on its way to a client, in no dialect yet: each dialect has a function that writes it."""

    status: int
    kind: ProblemKind
    message: str
    code: str | None = None
    """The host's own word for it, where it has one."""
    param: str | None = None
    """Which field of the request is wrong."""
    request_id: str | None = None
    retry_after: float | None = None
    """Seconds."""
    tokens: int | None = None
    limit: int | None = None
    """Of an overflow: how many tokens the prompt has, and how many it may have, as far as the host said."""


def problem_of(error: MoonshimError) -> Problem:
    """What a client is told of an error of our own.

    >>> problem_of(InvalidInput("a message must be an object", field="messages[3]")).param
    'messages[3]'
    """
    kind: ProblemKind = "invalid_request" if error.status < 500 else "server"
    return Problem(
        status=error.status, kind=kind, message=str(error), code=error.code, param=getattr(error, "field", None)
    )
