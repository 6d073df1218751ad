"""The workloads of `make bench-gateway`."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from bench.gateway.traffic import Request

__all__ = ["WORKLOADS", "Workload"]


class Workload(Struct, frozen=True, kw_only=True):
    """One kind of traffic. CPU time is counted per 10,000 chunks or per request."""

    name: str
    title: str
    request: Request
    total: int
    concurrent: int
    spread_us: int = 10_000
    per: Literal["chunk", "request"] = "chunk"
    rounds: int | None = None
    """At most so many rounds, for a workload that takes long."""
    memory: bool = False
    """Whether the memory of an open stream is measured."""

    def cost(self, cpu_s: float, total: int) -> float:
        """Seconds of CPU per 10,000 chunks of the host, or milliseconds per request."""
        return cpu_s / (total * self.request.chunks) * 1e4 if self.per == "chunk" else cpu_s / total * 1e3

    @property
    def is_paced(self) -> bool:
        return self.per == "chunk" and self.request.gap_us > 0

    @property
    def unit(self) -> str:
        return "CPU s per 10,000 chunks" if self.per == "chunk" else "CPU ms per request"


def _paced(name: str, title: str, request: Request) -> Workload:
    return Workload(
        name=name, title=f"50 streams, a chunk every 10 ms: {title}", request=request, total=50, concurrent=50
    )


WORKLOADS: Final = (
    # The first one, because its memory is compared with that of an idle process.
    Workload(
        name="streams-1000",
        title="1,000 streams at once, a chunk every 200 ms each: text",
        request=Request(chunks=50, gap_us=200_000, slots=1000),
        total=1000,
        concurrent=1000,
        spread_us=4_000_000,
        rounds=2,
        memory=True,
    ),
    _paced("text", "text", Request()),
    _paced("tools", "text, tools declared", Request(tools=True)),
    _paced("markers", "a tool call as raw markers", Request(kind="markers", tools=True)),
    _paced("messages", "Messages over Chat", Request(dialect="messages")),
    _paced(
        "messages-markers",
        "Messages over Chat, a tool call as raw markers",
        Request(dialect="messages", kind="markers", tools=True),
    ),
    _paced("renamed", "text, and a model name to rewrite", Request(model="renamed")),
    Workload(
        name="firehose",
        title="streams of 1,000 chunks without a pause, 4 at a time",
        request=Request(chunks=1000, gap_us=0),
        total=40,
        concurrent=4,
    ),
    Workload(
        name="first-token",
        title="first token, one stream after another",
        request=Request(chunks=3, gap_us=1000, slots=1),
        total=300,
        concurrent=1,
        per="request",
    ),
    Workload(
        name="request-1",
        title="requests without a stream, 1 at a time",
        request=Request(stream=False),
        total=1000,
        concurrent=1,
        per="request",
    ),
    Workload(
        name="request-32",
        title="requests without a stream, 32 at a time",
        request=Request(stream=False),
        total=2000,
        concurrent=32,
        per="request",
    ),
    Workload(
        name="request-1mb",
        title="requests of 1 MB without a stream, 1 at a time",
        request=Request(stream=False, padding=1_000_000),
        total=40,
        concurrent=1,
        per="request",
    ),
)
