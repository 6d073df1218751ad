"""What became of a request -> a line in the log, in the exact words of the error."""

from __future__ import annotations

import structlog

from moonshim.http_server import logs
from moonshim.simulator.http.seen import RecordedRequest

__all__ = ["tell_failure", "tell_seen"]


def tell_seen(seen: RecordedRequest) -> None:
    """One line for every request."""
    level = "info" if seen.problem is None else "warning"
    if seen.place:
        method, _, path = seen.place.partition(" ")
        _event("misused", level, method=method, path=path, status=seen.status, problem=seen.problem, hint=seen.hint)
        return
    _event(
        "simulated",
        level,
        number=seen.number,
        wire=seen.wire,
        model=seen.asked_model,
        round=seen.round,
        status=seen.status,
        faults=list(seen.faults),
        missed=list(seen.missed),
        imitated=seen.imitated,
        called=[call.name for call in seen.intended.calls] if seen.intended else [],
        problem=seen.problem,
    )


def tell_failure(error: BaseException, number: int) -> None:
    """A model of the user's raised, or something of ours did."""
    if structlog.is_configured():
        logs.fault(error, number=number)


def _event(name: str, level: str, **fields: object) -> None:
    # In somebody's own test nobody has said where a log should go, and it goes nowhere.
    if structlog.is_configured():
        logs.event(name, level=level, **{key: value for key, value in fields.items() if value not in (None, [], "")})
