"""What a host has against a request: a value."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Objection"]


class Objection(Struct, frozen=True):
    """One reason to refuse a request, in the words of the host where these are known."""

    message: str
    status: int = 400
    kind: str = "invalid_request_error"
    assumed: str = ""
    """The name in `settings.ASSUMPTIONS` under which the rule is switched on; empty: it always is."""
    ours: bool = False
    """No host says so. The tests of the engine demand it, and the simulator takes the request."""
    about: str = ""
    """The model that it is about, for hosts that say so in other words."""
