"""A `GatewayState` -> the ASGI application, for our own server or to be mounted in another application."""

from __future__ import annotations

from starlette.routing import Router

from moonshim.gateway.routes import not_found_app, routes_of
from moonshim.gateway.state import GatewayState

__all__ = ["build_app"]


def build_app(state: GatewayState) -> Router:
    """Every path that is served. A bare router: the middleware of a full Starlette application would see every chunk.

    The caller opens the state before, and closes it afterwards.
    """
    return Router(routes=routes_of(state), default=not_found_app(state), redirect_slashes=False)
