"""A recorded request -> a log event with the exact error message, and a line for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moonshim.http_server import log_lines as plain_lines
from moonshim.http_server import logs
from moonshim.http_server.log_lines import painter, safe
from moonshim.simulator.http.recorded import RecordedRequest

__all__ = ["human_line", "log_failure", "log_request"]


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
    if logs.is_configured():
        logs.log_error(error, number=number)


def _log_event(name: str, level: str, **fields: object) -> None:
    # Embedded in a test, logging is usually not configured: log nothing.
    if logs.is_configured():
        logs.event(name, level=level, **{key: value for key, value in fields.items() if value not in (None, [], "")})


_WIRES: Final = {"openai_chat": "Chat", "anthropic": "Messages"}


def human_line(fields: Mapping[str, Any], *, colour: bool) -> str:
    """One line: the request, the response, the faults applied on purpose, and what was wrong with the request.

    >>> asked = {"event": "simulated", "number": 3, "wire": "openai_chat", "model": "kimi-k2.5+cut-off", "round": 2}
    >>> human_line(asked | {"status": 200, "called": ["ls"], "faults": ["cut-off"]}, colour=False)
    '#3 kimi-k2.5+cut-off 200 Chat, round 2 · called ls · faults: cut-off'
    >>> human_line(asked | {"status": 200, "called": ["ls"], "imitated": "call_7"}, colour=False)
    '#3 kimi-k2.5+cut-off 200 Chat, round 2 · called ls · imitated the id call_7 from the history'
    >>> human_line(asked | {"status": 400, "problem": "tool_call_id is not found"}, colour=False)
    '#3 kimi-k2.5+cut-off 400 Chat, round 2 · refused: tool_call_id is not found'
    """
    paint = painter(colour)
    match fields.get("event"):
        case "simulated":
            request = f"#{fields.get('number')} {fields.get('model', '')}"
            way = _WIRES.get(str(fields.get("wire")), "") + (
                f", round {number}" if (number := fields.get("round")) else ""
            )
        case "misused":
            request, way = f"{fields.get('method')} {fields.get('path')}", ""
        case "draining":
            return "shutting down"
        case _:
            return plain_lines.human_line(fields, colour=colour)
    status = fields.get("status", 0)
    shade = "green" if 200 <= status < 400 else "yellow" if 400 <= status < 500 else "red"
    parts = [f"{safe(request)} {paint(shade, str(status or 'dropped'))} {way}".rstrip()]
    if called := fields.get("called"):
        parts.append(safe(f"called {', '.join(called)}"))
    if imitated := fields.get("imitated"):
        parts.append(paint("yellow", safe(f"imitated the id {imitated} from the history")))
    if faults := fields.get("faults"):
        parts.append(paint("yellow", safe(f"faults: {', '.join(faults)}")))
    if missed := fields.get("missed"):
        parts.append(paint("dim", safe(f"not applicable: {', '.join(missed)}")))
    if problem := fields.get("problem"):
        parts.append(paint("red", safe(f"refused: {problem}")))
    if hint := fields.get("hint"):
        parts.append(safe(hint))
    return " · ".join(parts)
