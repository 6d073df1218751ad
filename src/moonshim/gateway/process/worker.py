"""Orders in the environment -> one of several processes that serve a port."""

from __future__ import annotations

import os
import socket

import msgspec

from moonshim.errors import MoonshimError
from moonshim.gateway.observe import logs
from moonshim.gateway.process.settings import service_opener
from moonshim.gateway.process.workers import ENVIRONMENT, READY, WorkerOrders
from moonshim.http_server.server import run
from moonshim.http_server.sockets import bind

__all__ = ["main"]


def main() -> int:
    """Serve as ordered; return the exit code."""
    orders = msgspec.json.decode(os.environ.pop(ENVIRONMENT, "null"), type=WorkerOrders)
    settings = orders.settings
    lifeline = socket.socket(fileno=orders.lifeline)
    logs.configure(settings.log_level, worker=orders.number)
    try:
        sockets = bind(settings.host, settings.port, shared=True)
        return run(
            service_opener(settings, orders.number),
            sockets,
            graceful_seconds=settings.graceful_seconds,
            ready=lambda: lifeline.sendall(READY),
            lifeline=lifeline,
        )
    except MoonshimError as error:
        logs.event("startup_failed", level="error", reason=str(error))
        return 1
    finally:
        logs.close()
        lifeline.close()
