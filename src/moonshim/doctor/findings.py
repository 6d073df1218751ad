"""The result of a check, as values without secrets."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from moonshim.doctor.subscription import LoginReport, Quota

__all__ = ["TOPICS", "Finding", "ProviderReport", "State", "Topic"]

State: TypeAlias = Literal["right", "wrong", "unknown"]
Topic: TypeAlias = Literal["chain", "address", "login", "key", "model", "dialect", "call", "answer", "reasoning"]
TOPICS: Final[tuple[Topic, ...]] = get_args(Topic)
"""In the order of a report."""


class Finding(Struct, frozen=True):
    """One thing that was checked. Contains no secrets."""

    topic: Topic
    state: State
    said: str
    cause: str | None = None
    """If it is wrong: the cause, stable across releases (docs/operations/doctor.md lists them)."""
    hint: str | None = None
    """The correct value, if it was found: lines of the configuration, names of models, or seconds."""


class ProviderReport(Struct, frozen=True, kw_only=True):
    """The result of one tool round with a provider. Contains no secrets."""

    provider: str
    right: bool
    """Nothing that was checked is wrong."""
    model: str
    address: str
    """Where the requests were sent."""
    dialect: str
    findings: tuple[Finding, ...] = ()
    call: Literal["native", "markers", "none"] | None = None
    """How the tool call arrived; None if the check did not get that far."""
    call_id: str | None = None
    """Its id, as a client gets it."""
    repairs: dict[str, int] = {}
    """Repairs in the responses, by rule (docs/reference/repairs.md)."""
    changes: dict[str, int] = {}
    """Changes to the requests, by rule (docs/reference/requests.md)."""
    first_token_seconds: float | None = None
    seconds: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    login: LoginReport | None = None
    """The login of kimi-code, if the provider uses it."""
    quota: tuple[Quota, ...] = ()
    """The limits of the subscription, if the host reports them."""
