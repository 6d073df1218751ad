"""Where a server listens, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import socket

import pytest

from moonshim.http_server.sockets import BindError, bind, free_port, is_loopback


def test_a_port_in_use_is_told_in_a_sentence() -> None:
    (taken,) = bind("127.0.0.1", 0)
    with taken:
        taken.listen()
        with pytest.raises(BindError, match=r"in use.*--port"):
            bind("127.0.0.1", taken.getsockname()[1])


def test_a_port_that_another_program_shares_is_in_use_too() -> None:
    (shared,) = bind("127.0.0.1", 0, shared=True)
    with shared:
        shared.listen()
        with pytest.raises(BindError, match="in use"):
            free_port("127.0.0.1", shared.getsockname()[1])


def test_all_addresses_of_a_name_get_the_same_port() -> None:
    sockets = bind("localhost", 0)
    assert len({one.getsockname()[1] for one in sockets}) == 1
    for one in sockets:
        one.close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "1.2.3.4.5", "a" * 300])
def test_a_name_without_an_address_is_told(host: str) -> None:
    with pytest.raises(BindError, match="cannot resolve the host"):
        bind(host, 0)


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(BindError, match="not an address of this machine"):
        bind("192.0.2.1", 0)


def test_loopback_is_told_from_the_rest() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.3.2.1", "::1", "localhost", "0.0.0.0", "::")] == [
        True, True, True, True, False, False,
    ]  # fmt: skip


def test_small_writes_to_a_client_do_not_wait_for_each_other() -> None:
    delays: list[bool] = []

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        delays.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0)
        writer.close()

    async def ask() -> None:
        (listening,) = bind("127.0.0.1", 0)
        async with await asyncio.start_server(served, sock=listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            await reader.read()
            writer.close()

    asyncio.run(ask())
    assert delays == [False]
