"""The response that a model intends, and the host's version of it before it is split into chunks: values."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from moonshim.simulator.request import SimRequest

__all__ = ["Cut", "HostResponse", "IntendedCall", "IntendedResponse", "Model", "NativeCall", "TokenTotals"]

Cut: TypeAlias = Literal["tokens", "characters", "lumps", "whole"]
"""How text is split into chunks: a token each, a character each, several tokens at once, or not at all."""


class IntendedCall(Struct, frozen=True):
    """A tool call that the model intends. `arguments` is a JSON string, which is sent verbatim."""

    name: str
    arguments: str


class IntendedResponse(Struct, frozen=True, kw_only=True):
    """The response that a model intends, before any fault changes it."""

    reasoning: str = ""
    text: str = ""
    calls: tuple[IntendedCall, ...] = ()


class Model(Protocol):
    """Interface of custom models: `moonshim simulate --model my_model.py:Parrot`."""

    def reply(self, request: SimRequest, /) -> IntendedResponse:
        """Return the next response. A model is stateless: the same request must always get the same response."""


class TokenTotals(Struct, frozen=True):
    """Estimated tokens. `cached`: those of the prompt that an earlier prompt also started with; `written`: those that
    were added to the cache, `hourly` of them for an hour (None: the host does not report them)."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    written: int | None = None
    hourly: int = 0


class NativeCall(Struct, frozen=True):
    """A call that the host's parser has found."""

    id: str
    name: str
    arguments: str


class HostResponse(Struct, frozen=True, kw_only=True):
    """One response as the host will send it: faults of speech change it, then it is written in a dialect."""

    id: str
    created: int
    model: str
    reasoning: str = ""
    text: str = ""
    calls: tuple[NativeCall, ...] = ()
    finish: str = "stop"
    """In Chat's terms: `stop`, `tool_calls`, `length`, or whatever else a host sends."""
    tally: TokenTotals = TokenTotals()
    cut: Cut = "tokens"
    reasoning_field: str = "reasoning_content"
    """Chat: `reasoning_content`, `reasoning`, `reasoning_details`, or `reasoning_summary` (as for Kimi Code's K3)."""
    usage_in: tuple[str, ...] = ("choice", "last", "cached_tokens", "details")
    """Chat: where usage is reported. `choice`: with the finish; `last`: in a separate chunk, if requested."""
    signature: str = ""
    """The signature of the reasoning; empty: none."""
    stopped_by: str | None = None
    """The stop sequence that ended the text."""
    request: SimRequest
    intended: IntendedResponse
    extra: dict[str, Any] = {}
    """State that a fault leaves for its own later stage; nothing else reads it."""
