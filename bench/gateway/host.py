"""A host that streams at a steady pace and costs next to nothing itself: `python -m bench.gateway.host PORT`.

What it answers is said in the model's name: `kimi-k2.5` gives plain text, `…+markers` a call as markers, `…+stamps`
text that says when each chunk was sent.
`x-bench-chunks` and `x-bench-gap-ms` in its own arguments set how many chunks, and how far apart.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import sys
import time
from typing import Final, cast

__all__ = ["STAMP", "frames_of", "main"]

STAMP: Final = "@%016.6f@"
"""When a chunk was sent, on the clock that all processes of a machine share."""
_UNSTAMPED: Final = (STAMP % 0).encode()

_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_MODEL: Final = re.compile(rb'"model": ?"([^"]*)"')
_STREAMS: Final = re.compile(rb'"stream": ?true')
_TEXT: Final = "The quick brown fox jumps over the lazy dog, and then it does so again. "


def frames_of(model: str, count: int) -> list[bytes]:
    """The frames of one answer: the first says the role, the last two say that it is over."""

    def frame(delta: dict[str, object], finish: str | None = None) -> bytes:
        chunk = {
            "id": "chatcmpl-bench",
            "object": "chat.completion.chunk",
            "created": 1760000000,
            "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"

    pieces = [_TEXT[at % 60 : at % 60 + 4] for at in range(0, 4 * (count - 3), 4)]
    if model.endswith("+markers"):
        head = [
            "<|tool_calls_section_begin|>",
            "<|tool_call_begin|>",
            "functions.read:0",
            "<|tool_call_argument_begin|>",
        ]
        tail = ['"}', "<|tool_call_end|>", "<|tool_calls_section_end|>"]
        pieces = [*head, '{"path": "', *pieces[: count - 3 - len(head) - len(tail) - 1], *tail]
    if model.endswith("+stamps"):
        pieces = [STAMP % 0] * len(pieces)
    return [
        frame({"role": "assistant", "content": ""}),
        *(frame({"content": piece}) for piece in pieces),
        frame({}, "stop"),
        b"data: [DONE]\n\n",
    ]


class Host(asyncio.Protocol):
    """Answers each request with the same frames, one at each tick."""

    count = 200
    gap = 0.01
    _known: dict[str, list[bytes]] = {}  # noqa: RUF012  (shared on purpose)

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends = 0
        """Where the request ends; 0 before its head is complete."""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self._ends and (body_at := self._data.find(b"\r\n\r\n") + 4) > 3:
            length = _LENGTH.search(self._data, 0, body_at)
            self._ends = body_at + (int(length[1]) if length else 0)
        if not self._ends or len(self._data) < self._ends:
            return
        body, self._data, self._ends = self._data, bytearray(), 0
        model = _MODEL.search(body)
        name = model[1].decode() if model else "kimi-k2.5"
        assert self._transport is not None
        if not _STREAMS.search(body):
            self._transport.write(_whole(name))
            return
        frames = self._known.get(name)
        if frames is None:
            frames = [b"%x\r\n%b\r\n" % (len(one), one) for one in frames_of(name, self.count)]
            self._known[name] = frames = [*frames, b"0\r\n\r\n"]
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self._tick(iter(frames), asyncio.get_running_loop().time())

    def _tick(self, frames: object, due: float) -> None:
        frame = next(frames, None)  # type: ignore[call-overload]
        if frame is None or self._transport is None:
            return
        self._transport.write(frame.replace(_UNSTAMPED, (STAMP % time.monotonic()).encode()))
        due += self.gap
        self._timer = asyncio.get_running_loop().call_at(due, self._tick, frames, due)


def _whole(model: str) -> bytes:
    body = json.dumps(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1760000000,
            "model": model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": _TEXT * 4}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 20, "completion_tokens": 80, "total_tokens": 100},
        }
    ).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Host, "127.0.0.1", port, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="A host for the benchmark.")
    parser.add_argument("port", type=int)
    parser.add_argument("--chunks", type=int, default=200)
    parser.add_argument("--gap-ms", type=float, default=10.0)
    given = parser.parse_args()
    Host.count, Host.gap = given.chunks, given.gap_ms / 1000
    with contextlib.suppress(KeyboardInterrupt):
        if sys.platform == "win32":
            asyncio.run(_serve(given.port))
        else:
            import uvloop

            uvloop.run(_serve(given.port))


if __name__ == "__main__":
    main()
