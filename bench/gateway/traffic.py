"""What the clients of a benchmark ask for, and one run of the load generator: a request and a port -> what arrived."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from bench.gateway.programs import Percentiles, load_program

__all__ = ["MODEL", "Request", "Result", "send"]

MODEL: Final = "kimi-k2.5"
_PATHS: Final = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
_ENDS: Final = {"chat": "[DONE]", "messages": '"message_stop"'}
_SCHEMA: Final = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_MARKER_CHUNKS: Final = 8
"""Chunks of a leaked call around its arguments: they carry no stamp."""


class Request(Struct, frozen=True, kw_only=True):
    """One request, and the stream that the host sends for it."""

    dialect: Literal["chat", "messages"] = "chat"
    stream: bool = True
    kind: Literal["text", "markers"] = "text"
    chunks: int = 200
    gap_us: int = 10_000
    """Time between two chunks; 0: all at once."""
    slots: int = 50
    """Streams among which the host divides the gap, so that no two chunks leave together."""
    tools: bool = False
    padding: int = 0
    """Bytes of conversation before the question."""
    model: str = MODEL

    @property
    def path(self) -> str:
        return _PATHS[self.dialect]

    @property
    def stamps(self) -> int:
        """Chunks whose arrival is checked, in each response."""
        if not self.stream:
            return 1
        return self.chunks - 2 - (_MARKER_CHUNKS if self.kind == "markers" else 0)

    @property
    def end(self) -> str:
        return _ENDS[self.dialect] if self.stream else ""

    def body(self) -> bytes:
        question = f"Say something, please. bench:{self.kind},{self.chunks},{self.gap_us},{self.slots};"
        body: dict[str, Any] = {
            "model": self.model,
            "stream": self.stream,
            "messages": [*_conversation(self.padding), {"role": "user", "content": question}],
        }
        if self.dialect == "messages":
            body["max_tokens"] = 4096
        if self.tools:
            body["tools"] = [_tool(self.dialect)]
        return json.dumps(body).encode()

    def http(self, headers: Mapping[str, str]) -> bytes:
        """The request as it is sent."""
        body = self.body()
        lines = [f"POST {self.path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
        lines += [f"content-length: {len(body)}", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body


def _tool(dialect: str) -> dict[str, Any]:
    if dialect == "messages":
        return {"name": "read", "description": "Read a file", "input_schema": _SCHEMA}
    return {"type": "function", "function": {"name": "read", "description": "Read a file", "parameters": _SCHEMA}}


def _conversation(size: int) -> list[dict[str, str]]:
    """Turns of 5 KB, as an agent that reads files has them."""
    text = "def read(path: str) -> str:\n    return open(path).read()\n" * 90
    turns = [{"role": role, "content": text[:5000]} for role in ("user", "assistant")]
    return turns * (size // 10_000)


class Result(Struct, frozen=True):
    """What the clients saw."""

    requests: int
    complete: int
    """Responses with every chunk in order, a finish reason and a proper end."""
    stamps: int
    reads: int
    leaked: int
    """Lines with raw markers."""
    peak_open: int
    """Streams that were open at the same time."""
    wall_s: float
    cpu_s: float
    """CPU time of the load generator itself."""
    first_ms: Percentiles | None
    """From the request to the first token."""
    took_ms: Percentiles | None
    delay_ms: Percentiles | None
    """From the host to the client, for each chunk."""
    failures: dict[str, int]
    sample: str
    """The first failure, with the start of its body."""


def send(
    port: int,
    request: Request,
    total: int,
    concurrent: int,
    *,
    spread_us: int = 10_000,
    headers: Mapping[str, str] | None = None,
    timeout: int = 300,
) -> Result:
    """Send `total` requests over `concurrent` connections, which start over `spread_us` microseconds."""
    options = [port, total, concurrent, spread_us, request.stamps, request.end, timeout]
    done = subprocess.run(
        [str(load_program()), *map(str, options)],
        input=request.http(headers or {}),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the load generator failed: {done.stderr.decode(errors='replace').strip()}")
    return msgspec.json.decode(done.stdout, type=Result)
