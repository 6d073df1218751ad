"""Events in a server -> structlog -> one line each: for people on a terminal, JSON in a pipe."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Any, Final, Protocol

import structlog

from moonshim.http_server.line_writer import LineWriter
from moonshim.http_server.log_lines import human_line, json_line, painter, without_secrets

__all__ = ["LEVELS", "HumanLine", "bind_request", "close", "configure", "event", "log_error"]

LEVELS: Final = ("debug", "info", "warning", "error")

_CHATTY: Final = ("uvicorn", "uvicorn.error", "aiohttp", "asyncio")
"""Informational messages of libraries are of no use here; uvicorn even queries its logger for every connection."""


class HumanLine(Protocol):
    """Formats fields as a line for people."""

    def __call__(self, fields: Mapping[str, Any], *, colour: bool) -> str: ...


_current_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
_log: Any = structlog.get_logger("moonshim")
_writer: LineWriter | None = None


def configure(
    level: str = "info", stream: IO[str] | None = None, *, worker: int | None = None, human: HumanLine = human_line
) -> None:
    """Send all log output of this process to `stream` (standard error).

    `worker` is added to every line, if there are several; `human` writes the lines for people.
    """
    global _log, _writer
    close()
    stream = stream or sys.stderr
    on_terminal = stream is not None and stream.isatty()
    colour = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    number = logging.getLevelName(level.upper())

    def render(logger: Any, method: str, fields: MutableMapping[str, Any]) -> str:
        if on_terminal:
            now = painter(colour)("dim", f"{datetime.now():%H:%M:%S}")
            line = human(without_secrets(fields), colour=colour)
            return f"{now} {line}" if worker is None else f"{now} [worker {worker}] {line}"
        head = {"time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        return json_line(head | ({} if worker is None else {"worker": worker}) | without_secrets(fields))

    def report_dropped(count: int) -> str:
        return render(None, "", {"event": "log_lines_dropped", "count": count, "level": "warning"})

    if stream is not None:
        encoding = (getattr(stream, "encoding", None) if on_terminal else None) or "utf-8"
        _writer = LineWriter(stream.fileno(), encoding=encoding, report_dropped=report_dropped)
    structlog.configure(
        processors=[structlog.processors.add_log_level, _with_traceback, render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _Lines(),
        cache_logger_on_first_use=False,
    )
    # Bound here, not again for every line.
    _log = structlog.get_logger("moonshim").bind()
    _take_over(number)


def bind_request(request_id: str) -> None:
    """Attach the request's id to everything that this task, and the tasks it starts, log from now on."""
    _current_request_id.set(request_id)


def event(name: str, *, level: str = "info", **fields: Any) -> None:
    """Log any other event."""
    if (request := _current_request_id.get()) is not None:
        fields.setdefault("request_id", request)
    _log.log(logging.getLevelName(level.upper()), name, **fields)


def log_error(error: BaseException, **fields: Any) -> None:
    """Log an internal error with its location."""
    _log.error("internal_error", **fields, exc_info=error)


def close() -> None:
    """Write what was logged, as far as it is read."""
    global _writer
    writer, _writer = _writer, None
    if writer is not None:
        writer.close()


class _Lines:
    """Where structlog sends a finished line: the current writer, or nowhere."""

    def msg(self, line: str) -> None:
        if _writer is not None:
            _writer.write(line)

    debug = info = warning = error = critical = log = msg


def _with_traceback(logger: Any, method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    error = fields.pop("exc_info", None)
    if error is True:
        error = sys.exception()
    if isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        fields["exception"] = "".join(traceback.format_exception(error)).rstrip()
    return fields


class _Bridge(logging.Handler):
    """Sends what libraries log through the standard library to the same place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = {"logger": record.name} | ({"exc_info": record.exc_info} if record.exc_info else {})
            _log.log(record.levelno, "library", message=record.getMessage(), **fields)
        except Exception:
            self.handleError(record)


def _take_over(level: int) -> None:
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, _Bridge)]:
        root.removeHandler(handler)
    root.addHandler(_Bridge())
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING) if level > logging.DEBUG else logging.DEBUG)
