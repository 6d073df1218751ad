"""Events in the gateway -> the log that all our servers share, with one line per finished request."""

from __future__ import annotations

from typing import IO, Final

from moonshim.gateway.observe.log_lines import REQUEST, fields_of, human_line
from moonshim.gateway.observe.record import RequestRecord
from moonshim.http_server import logs
from moonshim.http_server.logs import close, event

__all__ = ["bind_request", "close", "configure", "event", "log_error", "log_request"]

_LOUDNESS: Final = {
    "ok": "info",
    "refused": "info",
    "client_gone": "info",
    "upstream_error": "warning",
    "broken": "warning",
    "failed": "error",
}


def configure(level: str = "info", stream: IO[str] | None = None, *, worker: int | None = None) -> None:
    """Send all log output of this process to `stream` (standard error)."""
    logs.configure(level, stream, worker=worker, human=human_line)


def log_request(record: RequestRecord) -> None:
    """Log a finished request."""
    logs.event(REQUEST, level=_LOUDNESS.get(record.outcome, "info"), **fields_of(record))


def bind_request(record: RequestRecord) -> None:
    """Attach the request's id to everything that this task, and the tasks it starts, log from now on."""
    logs.bind_request(record.request_id)


def log_error(record: RequestRecord, error: BaseException) -> None:
    """Log an internal error with its traceback. The request's own line follows."""
    logs.log_error(error, request_id=record.request_id, path=record.path)
