"""What is logged inside a block -> a list of its events."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from moonshim.http_server import logs

__all__ = ["logged_events"]


class _Events(logging.Handler):
    def __init__(self, events: list[Any]) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        self._events.append(json.loads(record.getMessage()))


@contextmanager
def logged_events() -> Iterator[list[Any]]:
    """The events from now on, as an application gets them that has not configured our logs."""
    events: list[Any] = []
    logger, handler = logging.getLogger("moonshim"), _Events(events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "_render", None)
        patch.setattr(logger, "propagate", False)
        before = logger.level
        logger.setLevel(logging.DEBUG)
        logger.addHandler(handler)
        try:
            yield events
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)
