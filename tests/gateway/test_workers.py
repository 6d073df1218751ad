"""Several processes that share a port: all serve, the dead are replaced, signals reach all, and all end together."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from moonshim.gateway.process.settings import ServeSettings
from tests.support.gateway.serving import Serving, serving, wait_until


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


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


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


def test_workers_that_cannot_start_end_it_all(tmp_path: Path) -> None:
    settings = small(tmp_path, factory="tests.support.gateway.small_service:fail_to_open")
    with serving(settings, tmp_path, ready=False) as server:
        assert server.wait() == 1
        assert "the store cannot be reached" in server.stderr
        assert "could not start" in server.stderr
