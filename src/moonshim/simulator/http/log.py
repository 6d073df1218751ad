"""A recorded request -> a log event, with the exact text of the error."""

from __future__ import annotations

import structlog

from moonshim.http_server import logs
from moonshim.simulator.http.recorded import RecordedRequest

__all__ = ["log_failure", "log_request"]


def log_request(recorded: RecordedRequest) -> None:
    """One line for every request."""
    level = "info" if recorded.problem is None else "warning"
    if recorded.place:
        method, _, path = recorded.place.partition(" ")
        _log_event(
            "misused",
            level,
            method=method,
            path=path,
            status=recorded.status,
            problem=recorded.problem,
            hint=recorded.hint,
        )
        return
    _log_event(
        "simulated",
        level,
        number=recorded.number,
        wire=recorded.wire,
        model=recorded.asked_model,
        round=recorded.round,
        status=recorded.status,
        faults=list(recorded.faults),
        missed=list(recorded.missed),
        imitated=recorded.imitated,
        called=[call.name for call in recorded.intended.calls] if recorded.intended else [],
        problem=recorded.problem,
    )


def log_failure(error: BaseException, number: int) -> None:
    """Log an exception raised by a plug-in model or by the simulator."""
    if structlog.is_configured():
        logs.fault(error, number=number)


def _log_event(name: str, level: str, **fields: object) -> None:
    # Embedded in a test, logging is usually not configured: log nothing.
    if structlog.is_configured():
        logs.event(name, level=level, **{key: value for key, value in fields.items() if value not in (None, [], "")})
