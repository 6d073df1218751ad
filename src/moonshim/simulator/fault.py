"""One way in which hosts go wrong: a name, what is known of it, and the function that does it, at one of five places.

The walk of an answer, and where a fault can act on it:

    status   instead of any answer
    speech   Answer -> Answer                       what is said, in which channel, under which ids
    chunks   [payload] -> [payload]                 the stream, parsed
    whole    payload -> payload                     the answer that comes at once
    frames   [bytes] -> [bytes | Stall | CUT]       the stream on its way out; an answer that comes at once is one frame

Beside any of them, `headers` are what the answer's headers say instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.simulator.request import Json, Wire
from moonshim.simulator.response import HostResponse

__all__ = ["CUT", "Chunks", "Fault", "Frames", "Group", "Piece", "Speech", "Stall", "Status", "Whole"]


class Stall(Struct, frozen=True):
    """Nothing comes for so long, and then it goes on."""

    seconds: float


CUT: Final = "cut"
"""The connection is dropped here."""

Piece: TypeAlias = "bytes | Stall | Literal['cut']"
Group: TypeAlias = Literal["leaks", "ids", "calls", "arguments", "reasoning", "endings", "frames", "errors", "messages"]
Speech: TypeAlias = Callable[[HostResponse], HostResponse]
Chunks: TypeAlias = Callable[[list[Json], HostResponse], list[Json]]
Whole: TypeAlias = Callable[[Json, HostResponse], Json]
Frames: TypeAlias = Callable[[list[bytes], HostResponse], list[Piece]]


class Status(Struct, frozen=True, kw_only=True):
    """What is sent instead of an answer. `body` is bytes as they are, or JSON; None drops the connection."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes | Json | None = None
    messages_body: Json | None = None
    """The same in Anthropic's dialect, where it differs."""


class Fault(Struct, frozen=True, kw_only=True):
    """A row of the table of faults."""

    name: str
    group: Group
    about: str
    """One sentence: what the host does."""
    seen: str = ""
    """Where it was seen: `vllm#38274`, or the host."""
    wires: tuple[Wire, ...] = ("openai_chat", "anthropic")
    families: tuple[str, ...] = ("k2", "k3")
    """Whose models do it."""
    ways: tuple[Literal["stream", "whole"], ...] = ("stream", "whole")
    needs: Literal["", "calls", "reasoning", "parallel"] = ""
    """What an answer must have for the fault to show; without it the answer is as it should be."""
    fatal: bool = False
    """Nobody can mend it: an error is the right end."""
    lost: bool = False
    """What was meant is gone, and nothing shows it: the answer is well formed, and not what it should be."""
    headers: dict[str, str] = {}
    status: Status | None = None
    speech: Speech | None = None
    chunks: Chunks | None = None
    whole: Whole | None = None
    frames: Frames | None = None

    def applies(self, *, wire: Wire, family: str, stream: bool) -> bool:
        return wire in self.wires and family in self.families and ("stream" if stream else "whole") in self.ways
