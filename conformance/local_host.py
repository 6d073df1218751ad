"""Prepared answers -> a host on this machine that gives them one after another, and keeps what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from msgspec import Struct

from conformance.replies import Json

__all__ = ["LocalHost", "local_host"]


class LocalHost(Struct):
    """`url` ends in `/v1`; `bodies` are the requests so far."""

    url: str
    bodies: list[Json] = []


@contextmanager
def local_host(answers: Sequence[Sequence[bytes]]) -> Iterator[LocalHost]:
    """Each answer is the events of a stream; the last one is given again and again."""
    host = LocalHost("", [])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            host.bodies.append(msgspec.json.decode(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"".join(answers[min(len(host.bodies), len(answers)) - 1]))

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    host.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
