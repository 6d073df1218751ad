"""What a server refuses before any route is reached can be found in its log."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.support.gateway.serving import wait_until
from tests.support.servers import DEADLINE, Running, running

FILE: Final = """
[limits]
header_seconds = 0.3

[[providers]]
name = "host"
api_base_url = "http://127.0.0.1:1/v1"
models = ["kimi-k2.5"]
"""
WEBSOCKET: Final = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
REFUSED: Final = {
    "not HTTP": (400, b"hello there\r\n\r\n"),
    "two hosts": (400, b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"),
    "large headers": (431, b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 70_000),
    "late headers": (408, b"GET / HTTP/1.1\r\nhost: "),
    "websocket": (426, WEBSOCKET),
    "with an id": (426, WEBSOCKET.replace(b"\r\n", b"\r\nx-request-id: my-own.id\r\n", 1)),
}


def answer_to(gateway: Running, data: bytes) -> tuple[int, dict[str, str]]:
    address = urlsplit(gateway.url)
    with socket.create_connection((address.hostname, address.port), DEADLINE) as client:
        client.sendall(data)
        head = b""
        while b"\r\n\r\n" not in head:
            more = client.recv(4096)
            assert more, head
            head += more
    first, *lines = head.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return int(first.split()[1]), {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


def is_logged(gateway: Running, status: int, id: str) -> bool:
    return any(f'"request_id":"{id}","status":{status}' in line for line in gateway.stderr.splitlines())


def test_what_is_refused_before_any_route_has_a_request_id_that_is_logged(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text(FILE)
    with running("serve", "--config", tmp_path / "gateway.toml", cwd=tmp_path) as gateway:
        ids = {}
        for name, (status, data) in REFUSED.items():
            told, headers = answer_to(gateway, data)
            assert told == status, name
            ids[name] = headers["x-request-id"]
            wait_until(partial(is_logged, gateway, status, ids[name]), name)
        assert ids["with an id"] == "my-own.id"
        assert len(set(ids.values())) == len(ids)
