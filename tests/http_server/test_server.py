"""One process that serves: it says when it is ready, lets answers finish, reloads, and names what is wrong."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from moonshim.gateway.process.settings import ServeSettings
from tests.support.gateway.serving import serving, wait_until


def small(folder: Path, **changes: object) -> ServeSettings:
    given = {
        "factory": "tests.support.gateway.small_service:open_small_service",
        "port": 0,
        "log_dir": str(folder),
    } | changes
    return ServeSettings(**given)  # type: ignore[arg-type]


def test_a_stream_that_runs_at_sigterm_finishes_and_the_exit_code_is_zero(tmp_path: Path) -> None:
    with serving(small(tmp_path), tmp_path) as server:
        assert server.get("/ready")[0] == 200
        connection, stream = server.open_stream()
        server.signal(signal.SIGTERM)
        wait_until(lambda: server.get("/ready")[0] == 503, "/ready says that it drains")
        assert server.process.poll() is None
        (tmp_path / "finish").touch()
        assert stream.read() == b"ended"
        connection.close()
        assert server.wait() == 0
        assert '"event":"draining"' in server.stderr
        assert list(tmp_path.glob("closed_*")), "the service was closed"


def test_a_second_sigterm_ends_at_once(tmp_path: Path) -> None:
    with serving(small(tmp_path), tmp_path) as server:
        connection, _ = server.open_stream()
        server.signal(signal.SIGTERM)
        wait_until(lambda: server.get("/ready")[0] == 503, "it drains")
        server.signal(signal.SIGTERM)
        server.wait()
        connection.close()
        assert '"event":"requests_aborted"' in server.stderr
        assert "Traceback" not in server.stderr


def test_a_stream_that_outlives_the_deadline_is_cut_off(tmp_path: Path) -> None:
    with serving(small(tmp_path, graceful_seconds=0.2), tmp_path) as server:
        connection, _ = server.open_stream()
        server.signal(signal.SIGINT)
        assert server.wait() == 0
        connection.close()
        assert '"event":"requests_aborted"' in server.stderr


def test_an_idle_connection_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with serving(small(tmp_path), tmp_path) as server, socket.create_connection(("127.0.0.1", server.port)):
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_sighup_reloads_and_the_process_lives_on(tmp_path: Path) -> None:
    with serving(small(tmp_path), tmp_path) as server:
        pid = server.get("/pid")
        server.signal(signal.SIGHUP)
        wait_until(lambda: server.get("/reloads")[1] == "1", "it was told to reload")
        assert server.get("/pid") == pid


def test_what_cannot_start_says_so_in_a_line(tmp_path: Path) -> None:
    settings = small(tmp_path, factory="tests.support.gateway.small_service:fail_to_open")
    with serving(settings, tmp_path, ready=False) as server:
        assert server.wait() == 1
        assert "the store cannot be reached" in server.stderr
