"""Connections that are shared, refused and abused: over real sockets, what one response leaves to the next request."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import threading
import tracemalloc
from typing import Any

import pytest
import trustme

from moonshim.errors import UpstreamBroke, UpstreamUnreachable
from moonshim.http_client import UpstreamClient, UpstreamRequest
from moonshim.http_client.connect import Names
from tests.http_client.asking import PATIENT, call, read_out, sending, with_host
from tests.support.gateway.hosts import Host, HostRequest, Peer, Proxy, chunked_head, chunks, run, whole


async def numbered(peer: Peer, asked: HostRequest) -> None:
    """Answers with the body of the request."""
    await peer.send(whole(asked.body))


def test_a_name_server_that_does_not_answer_is_an_error_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries wait for the same lookup, and not once more for as long."""
    answers, asked = threading.Event(), list[str]()

    def silent(host: str, port: int, **_: Any) -> Any:
        asked.append(host)
        assert answers.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", silent)

    async def test() -> None:
        names = Names(seconds=0.05)
        for _ in range(3):
            with pytest.raises(OSError, match=r"no answer from a name server within 0\.05 s"):
                await names.find("slow.example", 80)
        (_, lookup) = names._lookups["slow.example", 80]
        answers.set()
        await lookup
        assert (await names.find("slow.example", 80))[0][4] == ("127.0.0.1", 80)
        assert asked == ["slow.example"]
        names.close()

    run(test())


class TestSharedConnections:
    def test_many_requests_at_once_get_their_own_responses(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            async def one(name: int) -> None:
                for number in range(25):
                    body = f"{name}.{number}".encode()
                    answer = await upstream.open(call(host.url, body=body))
                    assert await read_out(answer) == body

            await asyncio.gather(*map(one, range(40)))
            assert len(host.requests) == 1000
            assert host.connections <= 40

        with_host(numbered, test)

    def test_a_cancelled_request_never_closes_the_connection_of_another(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            async def one(name: int) -> None:
                for number in range(20):
                    body = f"{name}.{number}".encode()
                    answer = await upstream.open(call(host.url, body=body))
                    assert await read_out(answer) == body

            async def cancelled(turns: int) -> None:
                task = asyncio.create_task(upstream.open(call(host.url, body=b"cancelled")))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                answer = (await asyncio.gather(task, return_exceptions=True))[0]
                if not isinstance(answer, BaseException):
                    answer.close()

            await asyncio.gather(*map(one, range(10)), *(cancelled(turns % 30) for turns in range(150)))

        with_host(numbered, test)

    @pytest.mark.parametrize("extra", [b"garbage", whole(b"a second response"), b"\r\n\r\nHTTP"])
    def test_bytes_after_a_response_do_not_reach_the_next_request(self, extra: bytes) -> None:
        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(whole(asked.body) + extra)

        async def test(upstream: UpstreamClient, host: Host) -> None:
            for body in (b"first", b"second", b"third"):
                answer = await upstream.open(call(host.url, body=body))
                assert await read_out(answer) == body

        with_host(script, test)

    def test_bytes_that_arrive_while_a_connection_is_idle_end_it(self) -> None:
        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(whole(asked.body))
            await peer.host.resumed.wait()
            await peer.send(whole(b"to nobody"))

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url, body=b"first"))
            assert await read_out(answer) == b"first"
            host.resumed.set()
            await host.until(lambda: host.open == 0)
            answer = await upstream.open(call(host.url, body=b"second"))
            assert await read_out(answer) == b"second"

        with_host(script, test)

    @pytest.mark.parametrize(
        "response",
        [
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}",
            b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        ],
    )
    def test_a_connection_that_the_host_will_close_is_not_used_again(self, response: bytes) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            for _ in range(2):
                assert await read_out(await upstream.open(call(host.url))) == b"{}"
            assert host.connections == 2

        with_host(sending(response), test)

    def test_a_host_that_answers_before_it_has_read_the_request_is_heard(self) -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(whole(b"too large", status="413 Too Large"))
            await writer.drain()
            await over.wait()
            writer.transport.abort()

        async def test() -> None:
            server = await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1024)
            upstream = UpstreamClient()
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            for _ in range(2):
                answer = await upstream.open(call(url, body=b"x" * 32 * 1024 * 1024))
                assert (answer.status, await read_out(answer)) == (413, b"too large")
            over.set()
            await upstream.close()
            server.close()

        over = asyncio.Event()
        run(test())


class TestHostileResponses:
    @pytest.mark.parametrize(
        "response",
        [
            chunked_head() + b"5;" + b"x" * 200_000,
            chunked_head() + chunks(b"a", end=False) + b"0\r\n" + b"x: y\r\n" * 50_000,
            b"HTTP/1.1 100 Continue\r\nx: " + b"y" * 40_000,
        ],
    )
    def test_endless_metadata_is_not_gathered(self, response: bytes) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            with pytest.raises((UpstreamBroke, UpstreamUnreachable)):
                await read_out(await upstream.open(call(host.url)))
            await host.until(lambda: host.open == 0)

        with_host(sending(response), test)

    def test_a_switch_to_another_protocol_is_no_response(self) -> None:
        switch = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"

        async def test(upstream: UpstreamClient, host: Host) -> None:
            with pytest.raises(UpstreamUnreachable, match="did not send a valid HTTP response"):
                await upstream.open(call(host.url))

        with_host(sending(switch), test)

    def test_a_zip_bomb_is_unpacked_a_little_at_a_time(self) -> None:
        bomb = gzip.compress(b"\0" * 100_000_000)

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url))
            tracemalloc.start()
            try:
                with pytest.raises(UpstreamBroke, match="larger than"):
                    await answer.read_all(1_000_000)
                assert tracemalloc.get_traced_memory()[1] < 8_000_000
            finally:
                tracemalloc.stop()

        with_host(sending(whole(bomb, headers=["content-encoding: gzip"])), test)

    def test_a_body_of_several_gzip_members_is_unpacked_whole(self) -> None:
        body = b"".join(gzip.compress(b"%d," % number) for number in range(100))

        async def test(upstream: UpstreamClient, host: Host) -> None:
            assert await read_out(await upstream.open(call(host.url))) == b"".join(b"%d," % n for n in range(100))

        with_host(sending(whole(body, headers=["content-encoding: gzip"])), test)

    def test_a_compressed_body_without_its_end_is_broken(self) -> None:
        body = gzip.compress(bytes(range(256)) * 1000)[:-20]

        async def test(upstream: UpstreamClient, host: Host) -> None:
            with pytest.raises(UpstreamBroke, match="cannot decompress"):
                await read_out(await upstream.open(call(host.url)))

        with_host(sending(whole(body, headers=["content-encoding: gzip"])), test)


class TestAddresses:
    def test_a_name_is_looked_up_and_the_port_is_in_the_host_header(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            answers = await asyncio.gather(
                *(upstream.open(call(f"http://localhost:{host.port}/v1")) for _ in range(20))
            )
            assert await asyncio.gather(*map(read_out, answers)) == [b"{}"] * 20
            assert {one.headers["host"] for one in host.requests} == {f"localhost:{host.port}"}

        with_host(numbered, test)

    def test_an_ipv6_address_stands_in_brackets(self) -> None:
        async def test() -> None:
            async with Host(numbered) as host:
                server = await asyncio.start_server(host._serve, "::1", 0)
                port = server.sockets[0].getsockname()[1]
                upstream = UpstreamClient()
                assert await read_out(await upstream.open(call(f"http://[::1]:{port}/v1"))) == b"{}"
                assert host.requests[0].headers["host"] == f"[::1]:{port}"
                await upstream.close()
                server.close()

        if not socket.has_ipv6:
            pytest.skip("this machine has no IPv6")
        run(test())

    @pytest.mark.parametrize("name", ["a..b", "a" * 70 + ".test", "x." * 200 + "y", "exa mple.test"])
    def test_a_name_that_cannot_exist_is_reported(self, name: str) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            with pytest.raises(UpstreamUnreachable, match="cannot resolve"):
                await upstream.open(call(f"http://{name}/v1"))

        with_host(numbered, test)

    def test_what_a_path_may_not_contain_is_encoded(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            await read_out(await upstream.open(call(f"{host.url}/v1/a b/%2Fé?q=ü x")))
            assert host.requests[0].path == "/v1/a%20b/%2F%C3%A9?q=%C3%BC%20x"

        with_host(numbered, test)

    def test_a_request_without_a_body_says_nothing_about_its_length(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            asked = UpstreamRequest(f"{host.url}/v1/models", {}, b"", PATIENT, method="GET")
            await read_out(await upstream.open(asked))
            assert host.requests[0].method == "GET"
            assert "content-length" not in host.requests[0].headers

        with_host(sending(whole(b"{}")), test)

    @pytest.mark.parametrize("target_is_tls", [False, True])
    def test_a_proxy_may_be_reached_over_tls(self, target_is_tls: bool) -> None:
        authority = trustme.CA()

        def served_as(name: str) -> ssl.SSLContext:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            authority.issue_cert(name).configure_cert(context)
            return context

        async def test(bundle: str) -> None:
            tls = served_as("host.test") if target_is_tls else None
            async with Host(sending(whole(b"{}")), tls=tls) as host, Proxy(host, tls=served_as("127.0.0.1")) as proxy:
                upstream = UpstreamClient()
                url = f"{'https' if target_is_tls else 'http'}://host.test/v1"
                asked = UpstreamRequest(url, {}, b"{}", PATIENT, proxy.url, bundle)
                assert await read_out(await upstream.open(asked)) == b"{}"
                await upstream.close()

        with authority.cert_pem.tempfile() as bundle:
            run(test(bundle))
