"""A host's objection to a request: a value."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Objection"]


class Objection(Struct, frozen=True):
    """One reason to refuse a request, in the host's own words where these are known."""

    message: str
    status: int = 400
    kind: str = "invalid_request_error"
    assumed: str = ""
    """The name in `settings.ASSUMPTIONS` that enables the rule; empty: it is always on."""
    ours: bool = False
    """No host refuses this: the simulator accepts it, but the tests of the engine require it."""
    about: str = ""
    """The model that it is about, for hosts that phrase it differently."""
