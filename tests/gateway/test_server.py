"""One process that serves: it says when it is ready, lets answers finish, reloads, and names what is wrong."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from moonshim.gateway.listening import CannotListen, bind, free_port, is_loopback
from moonshim.gateway.settings import ServeSettings
from tests.gateway.serving import serving, wait_until


def small(folder: Path, **changes: object) -> ServeSettings:
    given = {"factory": "tests.gateway.small_service:open_small_service", "port": 0, "log_dir": str(folder)} | changes
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
        assert '"event":"draining"' in server.told
        assert list(tmp_path.glob("closed_*")), "the service was closed"


def test_a_second_sigterm_ends_at_once(tmp_path: Path) -> None:
    with serving(small(tmp_path), tmp_path) as server:
        connection, _ = server.open_stream()
        server.signal(signal.SIGTERM)
        wait_until(lambda: server.get("/ready")[0] == 503, "it drains")
        server.signal(signal.SIGTERM)
        server.wait()
        connection.close()
        assert '"event":"cut_off"' in server.told
        assert "Traceback" not in server.told


def test_a_stream_that_outlives_the_deadline_is_cut_off(tmp_path: Path) -> None:
    with serving(small(tmp_path, graceful_seconds=0.2), tmp_path) as server:
        connection, _ = server.open_stream()
        server.signal(signal.SIGINT)
        assert server.wait() == 0
        connection.close()
        assert '"event":"cut_off"' in server.told


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
    settings = small(tmp_path, factory="tests.gateway.small_service:fail_to_open")
    with serving(settings, tmp_path, ready=False) as server:
        assert server.wait() == 1
        assert "the store cannot be reached" in server.told


class TestListening:
    def test_a_port_in_use_is_told_in_a_sentence(self) -> None:
        (taken,) = bind("127.0.0.1", 0)
        with taken:
            taken.listen()
            with pytest.raises(CannotListen, match=r"in use.*--port"):
                bind("127.0.0.1", taken.getsockname()[1])

    def test_a_port_that_another_program_shares_is_in_use_too(self) -> None:
        (shared,) = bind("127.0.0.1", 0, shared=True)
        with shared:
            shared.listen()
            with pytest.raises(CannotListen, match="in use"):
                free_port("127.0.0.1", shared.getsockname()[1])

    def test_all_addresses_of_a_name_get_the_same_port(self) -> None:
        sockets = bind("localhost", 0)
        assert len({one.getsockname()[1] for one in sockets}) == 1
        for one in sockets:
            one.close()

    @pytest.mark.parametrize("host", ["no-such-host.invalid", "1.2.3.4.5", "a" * 300])
    def test_a_name_without_an_address_is_told(self, host: str) -> None:
        with pytest.raises(CannotListen, match="no address"):
            bind(host, 0)

    def test_an_address_of_another_machine_is_told(self) -> None:
        with pytest.raises(CannotListen, match="no address of this machine"):
            bind("192.0.2.1", 0)

    def test_loopback_is_told_from_the_rest(self) -> None:
        assert [is_loopback(host) for host in ("127.0.0.1", "127.3.2.1", "::1", "localhost", "0.0.0.0", "::")] == [
            True, True, True, True, False, False,
        ]  # fmt: skip
