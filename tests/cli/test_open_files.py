"""The limit of open files: raised at the start, kept to, and never taken for a fault of a provider."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Final

import pytest

from moonshim.simulator import Simulator
from tests.support.command import MOONSHIM, environment
from tests.support.gateway.serving import wait_until
from tests.support.servers import DEADLINE, Running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit and /proc are there")
if sys.platform == "linux":
    import resource

ASKED: Final = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}]}
FILE: Final = """
[[providers]]
name = "host"
api_base_url = "{url}/v1"
models = ["kimi-k2.5"]

[retries]
attempts = 1
breaker_failures = 1
"""


@contextmanager
def serving(folder: Path, url: str, *, soft: int, hard: int) -> Iterator[Running]:
    file, errors = folder / "gateway.toml", folder / "stderr"
    file.write_text(FILE.format(url=url))
    command = ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$0" "$@"', *MOONSHIM, "serve"]
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "--port", "0", "--config", str(file)],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    try:
        yield Running(process, errors)
        assert "Traceback" not in errors.read_text()
    finally:
        process.kill()
        process.wait(DEADLINE)
        assert process.stdout is not None
        process.stdout.close()


def limits_of(gateway: Running) -> tuple[int, int]:
    return resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE)


def test_the_soft_limit_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    with serving(tmp_path, "http://127.0.0.1:1", soft=200, hard=1000) as gateway:
        assert limits_of(gateway) == (1000, 1000)


@contextmanager
def asked(gateway: Running) -> Iterator[HTTPResponse]:
    """One request on a connection of its own, which stays open."""
    connection = HTTPConnection(gateway.url.removeprefix("http://"), timeout=DEADLINE)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(ASKED | {"stream": True}))
        with connection.getresponse() as answer:
            yield answer
    finally:
        connection.close()


def test_more_streams_than_descriptors_are_refused_with_an_answer_and_a_log_line(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=200) as host,
        ExitStack() as stack,
        serving(tmp_path, f"http://127.0.0.1:{host.getsockname()[1]}", soft=128, hard=128) as gateway,
    ):
        for _ in range(32):  # these are admitted, and ask a host that says nothing
            connection = HTTPConnection(gateway.url.removeprefix("http://"), timeout=DEADLINE)
            stack.callback(connection.close)
            connection.request("POST", "/v1/chat/completions", json.dumps(ASKED))
            stack.enter_context(host.accept()[0])
        refused: dict[str, HTTPResponse] = {}
        for _ in range(20):
            with asked(gateway) as answer:
                refused[answer.headers["x-request-id"]] = answer
        assert {answer.status for answer in refused.values()} == {503}
        assert {answer.headers["retry-after"] for answer in refused.values()} == {"2"}
        wait_until(partial(is_logged, gateway, set(refused)), "not all are logged")
        assert gateway.get("/health")[0] == 200


def is_logged(gateway: Running, refused: set[str]) -> bool:
    whole = gateway.stderr.rpartition("\n")[0]  # the last line may not be written to its end
    return refused <= {line["request_id"] for line in map(json.loads, whole.splitlines()) if line.get("status") == 503}


def test_connections_that_wait_for_a_next_request_make_room_for_new_ones(tmp_path: Path) -> None:
    with (
        Simulator(behaviour="moonshot").running() as host,
        ExitStack() as stack,
        serving(tmp_path, host.url, soft=128, hard=128) as gateway,
    ):
        for _ in range(100):
            connection = HTTPConnection(gateway.url.removeprefix("http://"), timeout=DEADLINE)
            stack.callback(connection.close)
            connection.request("GET", "/v1/models")
            with connection.getresponse() as answer:
                assert (answer.status, answer.will_close) == (200, False)
                answer.read()


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x"], ids=["nothing", "half a header"]
)
def test_connections_without_a_request_make_room_for_those_that_have_one(tmp_path: Path, sent: bytes) -> None:
    with (
        Simulator(behaviour="moonshot").running() as host,
        ExitStack() as stack,
        serving(tmp_path, host.url, soft=128, hard=128) as gateway,
    ):
        address = gateway.url.removeprefix("http://").split(":")
        for _ in range(3):
            for _ in range(150):
                silent = stack.enter_context(socket.create_connection((address[0], int(address[1]))))
                silent.sendall(sent)
            for _ in range(5):
                assert gateway.post("/v1/chat/completions", ASKED)[0] == 200


def test_our_own_lack_of_descriptors_is_not_blamed_on_the_provider(tmp_path: Path) -> None:
    with (
        Simulator(behaviour="moonshot").running() as host,
        serving(tmp_path, host.url, soft=256, hard=256) as gateway,
    ):
        limits, used = limits_of(gateway), len(list(Path(f"/proc/{gateway.process.pid}/fd").iterdir()))
        # From now on there is a descriptor for a client, and none for a host.
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (used + 1, limits[1]))
        with asked(gateway) as answer:
            body = json.loads(answer.read())
        assert answer.status == 503
        assert answer.headers["retry-after"] == "2"
        assert body["error"]["code"] == "too_many_connections"
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, limits)
        assert gateway.post("/v1/chat/completions", ASKED)[0] == 200
        assert not any(line["event"] == "attempt_failed" for line in gateway.logged)
