"""The exception tree: every error has a code, an HTTP status, and says whether trying again can help.

MoonshimError
└── InvalidInput          what the caller passed cannot be used; `field` says which part
    ├── InvalidOption     an option's name or value is wrong
    ├── UnknownFormat     no tool format has that name
    └── CannotExpress     the target format has no way to say this
"""

from __future__ import annotations

from typing import ClassVar

__all__ = ["CannotExpress", "InvalidInput", "InvalidOption", "MoonshimError", "UnknownFormat"]


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
