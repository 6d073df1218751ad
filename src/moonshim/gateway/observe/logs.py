"""What happens in the gateway -> the log that every server of ours has, and a line for each request that is over."""

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
    """From now on everything that is logged in this process goes to `stream` (standard error)."""
    logs.configure(level, stream, worker=worker, human=human_line)


def log_request(record: RequestRecord) -> None:
    """A request is over."""
    logs.event(REQUEST, level=_LOUDNESS.get(record.outcome, "info"), **fields_of(record))


def bind_request(record: RequestRecord) -> None:
    """What is logged in this task from now on, and in those that it starts, is about this request, and names it."""
    logs.bind_request(record.request_id)


def log_error(record: RequestRecord, error: BaseException) -> None:
    """Something of ours failed: where, for whoever mends it. The request's own line follows."""
    logs.log_error(error, request_id=record.request_id, path=record.path)
