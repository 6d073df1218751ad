"""A host that sends what a test tells it, when it tells it: pages are driven synchronously, so it has threads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread
from typing import Any


def delta(**fields: Any) -> bytes:
    finish = fields.pop("finish_reason", None)
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({"id": "c", "model": "kimi-k2.6", "choices": [choice]}).encode()


class SteeredHost:
    """Every request gets a stream of what is put into `pieces`, up to None."""

    def __init__(self, url: str, pieces: SimpleQueue[bytes | None]) -> None:
        self.url, self._pieces = url, pieces

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._pieces.put(piece)

    def end(self) -> None:
        self.send(delta(finish_reason="stop"), b"data: [DONE]\n\n")
        self._pieces.put(None)


@contextmanager
def steered_host(echo: Callable[[str], bytes] | None = None) -> Iterator[SteeredHost]:
    """With `echo`, a request is answered with what that makes of its Authorization header."""
    pieces: SimpleQueue[bytes | None] = SimpleQueue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            if echo is not None:
                self.wfile.write(echo(self.headers["authorization"]))
                return
            while (piece := pieces.get()) is not None:
                self.wfile.write(piece)
                self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield SteeredHost(f"http://127.0.0.1:{server.server_port}", pieces)
        finally:
            pieces.put(None)
            server.shutdown()
