"""Events in a server -> one line each: for people on a terminal, JSON in a pipe."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Any, Final, Protocol

from moonshim.http_server.line_writer import LineWriter
from moonshim.http_server.log_lines import human_line, json_line, painter, without_secrets

__all__ = ["LEVELS", "HumanLine", "bind_request", "close", "configure", "event", "is_configured", "log_error"]

LEVELS: Final = ("debug", "info", "warning", "error")

_CHATTY: Final = ("uvicorn", "uvicorn.error", "asyncio")
"""Informational messages of libraries are of no use here; uvicorn even queries its logger for every connection."""


class HumanLine(Protocol):
    """Formats fields as a line for people."""

    def __call__(self, fields: Mapping[str, Any], *, colour: bool) -> str: ...


_current_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
_LOGGER: Final = logging.getLogger("moonshim")
_level = logging.INFO
_render: Callable[[dict[str, Any]], str] | None = None
"""Formats the fields of an event; None: logging is not configured."""
_writer: LineWriter | None = None


def configure(
    level: str = "info", stream: IO[str] | None = None, *, worker: int | None = None, human: HumanLine = human_line
) -> None:
    """Send all log output of this process to `stream` (standard error).

    `worker` is added to every line, if there are several; `human` writes the lines for people.
    """
    global _level, _render, _writer
    close()
    stream = stream or sys.stderr
    on_terminal = stream is not None and stream.isatty()
    colour = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    _level = logging.getLevelName(level.upper())

    def render(fields: dict[str, Any]) -> str:
        if on_terminal:
            now = painter(colour)("dim", f"{datetime.now():%H:%M:%S}")
            line = human(without_secrets(fields), colour=colour)
            return f"{now} {line}" if worker is None else f"{now} [worker {worker}] {line}"
        head = {"time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        return json_line(head | ({} if worker is None else {"worker": worker}) | without_secrets(fields))

    def report_dropped(count: int) -> str:
        return render({"event": "log_lines_dropped", "count": count, "level": "warning"})

    if stream is not None:
        encoding = (getattr(stream, "encoding", None) if on_terminal else None) or "utf-8"
        _writer = LineWriter(stream.fileno(), encoding=encoding, report_dropped=report_dropped)
    _render = render
    _take_over(_level)


def is_configured() -> bool:
    """Whether `configure` was called. Until then, events go to the logger `moonshim` of the standard library."""
    return _render is not None


def bind_request(request_id: str) -> None:
    """Attach the request's id to everything that this task, and the tasks it starts, log from now on."""
    _current_request_id.set(request_id)


def event(name: str, *, level: str = "info", **fields: Any) -> None:
    """Log any other event."""
    if (request := _current_request_id.get()) is not None:
        fields.setdefault("request_id", request)
    _emit(logging.getLevelName(level.upper()), name, fields)


def log_error(error: BaseException, **fields: Any) -> None:
    """Log an internal error with its location."""
    _emit(logging.ERROR, "internal_error", fields, error)


def close() -> None:
    """Write what was logged, as far as it is read."""
    global _writer
    writer, _writer = _writer, None
    if writer is not None:
        writer.close()


def _emit(level: int, name: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
    if not (_LOGGER.isEnabledFor(level) if _render is None else level >= _level):
        return
    fields["event"], fields["level"] = name, logging.getLevelName(level).lower()
    if error is not None:
        fields["exception"] = "".join(traceback.format_exception(error)).rstrip()
    if _render is None:
        _LOGGER.log(level, "%s", json_line(without_secrets(fields)))
    elif _writer is not None:
        _writer.write(_render(fields))


class _Bridge(logging.Handler):
    """Sends what libraries log through the standard library to the same place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = {"message": record.getMessage(), "logger": record.name}
            _emit(record.levelno, "library", fields, record.exc_info[1] if record.exc_info else None)
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
