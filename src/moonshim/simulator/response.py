"""What a model means, and what its host makes of it before it is cut into chunks: values."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from moonshim.simulator.request import SimRequest

__all__ = ["Cut", "HostResponse", "IntendedCall", "IntendedResponse", "Model", "NativeCall", "TokenTotals"]

Cut: TypeAlias = Literal["tokens", "characters", "lumps", "whole"]
"""How texts are cut into chunks: a token each, a character each, several tokens at once, or not at all."""


class IntendedCall(Struct, frozen=True):
    """A call as the model means it. `arguments` is JSON text, and is sent as it stands."""

    name: str
    arguments: str


class IntendedResponse(Struct, frozen=True, kw_only=True):
    """What a model means to say, before anything goes wrong with it."""

    reasoning: str = ""
    text: str = ""
    calls: tuple[IntendedCall, ...] = ()


class Model(Protocol):
    """What can be plugged in: `moonshim simulate --model my_model.py:Parrot`."""

    def reply(self, request: SimRequest, /) -> IntendedResponse:
        """The next answer. The same request must get the same response: a model keeps no state between requests."""


class TokenTotals(Struct, frozen=True):
    """Tokens, estimated. `cached`: of the prompt, those that an earlier prompt began with."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0


class NativeCall(Struct, frozen=True):
    """A call that the host's parser has found."""

    id: str
    name: str
    arguments: str


class HostResponse(Struct, frozen=True, kw_only=True):
    """One answer as the host will tell it: faults of speech change it, then it is written in a dialect."""

    id: str
    created: int
    model: str
    reasoning: str = ""
    text: str = ""
    calls: tuple[NativeCall, ...] = ()
    finish: str = "stop"
    """In the words of Chat: `stop`, `tool_calls`, `length`, or whatever else a host says."""
    tally: TokenTotals = TokenTotals()
    cut: Cut = "tokens"
    reasoning_field: str = "reasoning_content"
    """Chat: `reasoning_content`, `reasoning`, `reasoning_details`, or `reasoning_summary` (as of Kimi Code's K3)."""
    usage_in: tuple[str, ...] = ("choice", "last", "cached_tokens", "details")
    """Chat: where tokens are told. `choice`: in that of the finish; `last`: in a chunk of their own, when asked for."""
    signature: str = ""
    """What signs the thoughts; empty: nothing does."""
    stopped_by: str | None = None
    """The stop sequence that ended the text."""
    request: SimRequest
    intended: IntendedResponse
    extra: dict[str, Any] = {}
    """What a fault leaves for its own later part; nobody else looks at it."""
