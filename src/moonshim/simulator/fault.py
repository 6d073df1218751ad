"""One way in which hosts misbehave: a name, a description, and the function that does it, at one of five stages.

The stages of a response at which a fault can act:

    status   instead of a response
    speech   HostResponse -> HostResponse           content, channels and ids
    chunks   [payload] -> [payload]                 the stream, parsed
    whole    payload -> payload                     the non-streaming response
    frames   [bytes] -> [bytes | Stall | CUT]       the stream as sent; a non-streaming response is one frame

With any of them, `headers` replaces headers of the response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.simulator.request import Json, Wire
from moonshim.simulator.response import HostResponse

__all__ = ["CUT", "Chunks", "Fault", "Frames", "Group", "Piece", "Speech", "Stall", "Status", "Whole"]


class Stall(Struct, frozen=True):
    """Nothing is sent for this long, then the stream continues."""

    seconds: float


CUT: Final = "cut"
"""The connection is dropped here."""

Piece: TypeAlias = "bytes | Stall | Literal['cut']"
Group: TypeAlias = Literal[
    "leaks", "ids", "calls", "arguments", "reasoning", "answers", "messages", "endings", "frames", "errors"
]
Speech: TypeAlias = Callable[[HostResponse], HostResponse]
Chunks: TypeAlias = Callable[[list[Json], HostResponse], list[Json]]
Whole: TypeAlias = Callable[[Json, HostResponse], Json]
Frames: TypeAlias = Callable[[list[bytes], HostResponse], list[Piece]]


class Status(Struct, frozen=True, kw_only=True):
    """Sent instead of a response. `body` is raw bytes, or JSON; None drops the connection."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes | Json | None = None
    messages_body: Json | None = None
    """The same in Anthropic's dialect, where it differs."""


class Fault(Struct, frozen=True, kw_only=True):
    """One fault: what the host does wrong, where it was seen, and which responses it applies to."""

    name: str
    group: Group
    about: str
    """One sentence, capitalised, without a full stop: what the host does wrong."""
    seen: str = ""
    """Where it was seen: an issue such as `vllm#38274`, or a host."""
    wires: tuple[Wire, ...] = ("openai_chat", "anthropic")
    families: tuple[str, ...] = ("k2", "k3")
    """The model families that it applies to."""
    ways: tuple[Literal["stream", "whole"], ...] = ("stream", "whole")
    needs: Literal["", "calls", "reasoning", "parallel"] = ""
    """What a response needs for the fault to apply; without it the response is correct."""
    fatal: bool = False
    """It cannot be repaired: an error is the right outcome."""
    lost: bool = False
    """The intended content is lost without a trace: the response is well formed, but wrong."""
    headers: dict[str, str] = {}
    status: Status | None = None
    speech: Speech | None = None
    chunks: Chunks | None = None
    whole: Whole | None = None
    frames: Frames | None = None

    def applies(self, *, wire: Wire, family: str, stream: bool) -> bool:
        return wire in self.wires and family in self.families and ("stream" if stream else "whole") in self.ways
