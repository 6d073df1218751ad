"""Several processes that share a port: all serve, the dead are replaced, signals reach all, and all end together."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from functools import partial
from http.client import HTTPException
from pathlib import Path

import pytest

from moonshim.gateway.process.settings import ServeSettings
from moonshim.http_server.hang import BEAT_SECONDS, HUNG_EXIT_CODE
from tests.support.gateway.serving import DEADLINE, Serving, serving, wait_until
from tests.support.gateway.small_service import HANG_SECONDS


def small(folder: Path, **changes: object) -> ServeSettings:
    given: dict[str, object] = {
        "factory": "tests.support.gateway.small_service:open_small_service",
        "port": 0,
        "workers": 2,
        "log_dir": str(folder),
    }
    return ServeSettings(**(given | changes))  # type: ignore[arg-type]


def pids(server: Serving, count: int = 40) -> set[int]:
    return {int(server.get("/pid")[1]) for _ in range(count)}


def hang_one(server: Serving) -> None:
    """Send a request that never ends to one of the workers. The answer is that the connection closes."""
    with pytest.raises((ConnectionError, HTTPException)):
        server.get("/hang")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_both_serve_and_one_that_is_killed_is_replaced(tmp_path: Path) -> None:
    with serving(small(tmp_path), tmp_path) as server:
        before = wait_until(lambda: len(found := pids(server)) == 2 and found, "both take connections")
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: not is_alive(victim), "it is dead")
        after = wait_until(lambda: len(found := pids(server)) == 2 and found, "another took its place")
        assert victim not in after
        assert len(after & before) == 1
        assert '"event":"worker_exited"' in server.stderr
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert not any(map(is_alive, after))


def test_sighup_reaches_every_worker(tmp_path: Path) -> None:
    with serving(small(tmp_path), tmp_path) as server:
        server.signal(signal.SIGHUP)
        wait_until(lambda: {server.get("/reloads")[1] for _ in range(20)} == {"1"}, "all have reloaded")


def test_streams_finish_and_then_all_end(tmp_path: Path) -> None:
    with serving(small(tmp_path), tmp_path) as server:
        streams = [server.open_stream() for _ in range(8)]
        server.signal(signal.SIGTERM)
        wait_until(lambda: {server.get("/ready")[0] for _ in range(10)} == {503}, "all drain")
        (tmp_path / "finish").touch()
        assert [stream.read() for _, stream in streams] == [b"ended"] * 8
        for connection, _ in streams:
            connection.close()
        assert server.wait() == 0


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with serving(small(tmp_path), tmp_path) as server:
        workers = wait_until(lambda: len(found := pids(server)) == 2 and found, "both take connections")
        server.signal(signal.SIGKILL)
        server.wait()
        wait_until(lambda: not any(map(is_alive, workers)), "nobody is left behind")


def test_a_worker_that_hangs_is_killed_and_replaced_and_the_metrics_and_the_log_say_so(tmp_path: Path) -> None:
    settings = small(tmp_path, factory="tests.support.gateway.small_service:open_counting_service")
    with serving(settings, tmp_path) as server:
        hang_one(server)
        wait_until(lambda: "worker_hung" in server.stderr, "the supervisor reports it")
        assert "in _hang" in server.stderr, "where it was"
        metrics = wait_until(
            lambda: 'reason="hung"' in (text := server.get("/metrics")[1]) and text, "another took its place"
        )
        assert 'moonshim_worker_restarts_total{reason="hung"} 1.0' in metrics
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_sigterm_ends_workers_that_hang(tmp_path: Path) -> None:
    with serving(small(tmp_path), tmp_path) as server:
        workers = wait_until(lambda: len(found := pids(server)) == 2 and found, "both take connections")
        connections = [server.send("/hang") for _ in range(8)]
        server.signal(signal.SIGTERM)
        server.wait()
        assert not any(map(is_alive, workers))
        for connection in connections:
            connection.close()


def test_a_worker_that_hangs_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    with serving(small(tmp_path), tmp_path) as server:
        workers = wait_until(lambda: len(found := pids(server)) == 2 and found, "both take connections")
        connections = [server.send("/hang") for _ in range(8)]
        server.signal(signal.SIGKILL)
        server.wait()
        wait_until(lambda: not any(map(is_alive, workers)), "nobody is left behind")
        for connection in connections:
            connection.close()


def test_one_process_that_hangs_ends_with_the_code_by_which_a_service_manager_restarts_it(tmp_path: Path) -> None:
    with serving(small(tmp_path, workers=1), tmp_path) as server:
        hang_one(server)
        assert server.wait() == HUNG_EXIT_CODE
        assert "in _hang" in server.stderr


def test_a_process_that_was_stopped_for_long_is_no_hang(tmp_path: Path) -> None:
    """As a laptop that sleeps: wall time passes, and no CPU time is used."""
    with serving(small(tmp_path, workers=1), tmp_path) as server:
        server.signal(signal.SIGSTOP)
        wait_until(partial(is_stopped, server.process.pid), "it is stopped")
        time.sleep(3 * HANG_SECONDS)
        server.signal(signal.SIGCONT)
        assert server.get("/pid") == (200, str(server.process.pid))


def test_a_worker_that_is_stopped_ends_after_the_deadline_of_its_responses(tmp_path: Path) -> None:
    """It uses no CPU time, and takes no signal: only the supervisor can end it."""
    with serving(small(tmp_path, graceful_seconds=0.1), tmp_path) as server:
        workers = wait_until(lambda: len(found := pids(server)) == 2 and found, "both take connections")
        os.kill(min(workers), signal.SIGSTOP)
        server.signal(signal.SIGTERM)
        server.wait()
        assert not any(map(is_alive, workers))


def test_systemd_hears_from_the_process_that_it_started_as_long_as_that_responds(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(DEADLINE)
        address = tmp_path / "notify"
        systemd.bind(str(address))
        watched = {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "30000000"}
        for workers in (1, 2):
            with serving(small(tmp_path, workers=workers), tmp_path, environ=watched) as server:
                assert [systemd.recv(64) for _ in range(2)] == [b"WATCHDOG=1"] * 2
                server.signal(signal.SIGSTOP)
                wait_until(partial(is_stopped, server.process.pid), "it is stopped")
                while select.select([systemd], [], [], 0)[0]:
                    systemd.recv(64)
                assert select.select([systemd], [], [], 3 * BEAT_SECONDS)[0] == []
                server.signal(signal.SIGCONT)


def test_workers_that_cannot_start_end_it_all(tmp_path: Path) -> None:
    settings = small(tmp_path, factory="tests.support.gateway.small_service:fail_to_open")
    with serving(settings, tmp_path, ready=False) as server:
        assert server.wait() == 1
        assert "the store cannot be reached" in server.stderr
        assert "could not start" in server.stderr
