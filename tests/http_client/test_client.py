"""Asking hosts over real sockets: what is sent, which connection is used, how it fails, and what is left behind."""

from __future__ import annotations

import asyncio
import socket
import traceback
from importlib.util import find_spec
from typing import Any, Final

import pytest

from moonshim.errors import UpstreamBroke, UpstreamUnreachable
from moonshim.http_client import UpstreamClient, UpstreamRequest
from tests.http_client.asking import PATIENT, call, read_out, sending, silent, with_host
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, chunked_head, chunks, run, whole

UNKNOWN_HERE: Final = next(
    (
        name
        for name, modules in {"br": ("brotli", "brotlicffi"), "zstd": ("compression", "backports")}.items()
        if not any(map(find_spec, modules))
    ),
    None,
)
"""An encoding that no module of this machine decompresses."""
SECRETS: Final = ("sk-secret", "hidden-user", "hidden-word", "hidden-query", "hidden-body")


class TestWhatIsSent:
    def asked(self, headers: dict[str, str] | None = None, body: bytes = b'{"model": "m"}') -> HostRequest:
        out: list[HostRequest] = []

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(f"{host.url}/v1/chat/completions?beta=true", headers, body=body))
            assert await answer.read_all(1000) == b"{}"
            out.extend(host.requests)

        with_host(sending(whole(b"{}")), test)
        (one,) = out
        return one

    def test_the_request_arrives_as_it_was_given(self) -> None:
        asked = self.asked({"Authorization": "Bearer sk-1", "content-type": "application/json"})
        assert (asked.method, asked.path) == ("POST", "/v1/chat/completions?beta=true")
        assert asked.body == b'{"model": "m"}'
        assert asked.headers["authorization"] == "Bearer sk-1"
        assert asked.headers["content-type"] == "application/json"

    def test_the_clients_user_agent_is_the_only_one(self) -> None:
        assert self.asked({"User-Agent": "claude-cli/9"}).headers["user-agent"] == "claude-cli/9"
        assert self.asked().headers["user-agent"] == "moonshim"

    def test_hosts_are_asked_not_to_compress_unless_the_call_says_otherwise(self) -> None:
        assert self.asked().headers["accept-encoding"] == "identity"
        assert self.asked({"Accept-Encoding": "gzip"}).headers["accept-encoding"] == "gzip"

    def test_nothing_else_is_added(self) -> None:
        assert set(self.asked().headers) == {"host", "user-agent", "accept", "accept-encoding", "content-length"}

    def test_a_body_of_megabytes_arrives_whole(self) -> None:
        body = bytes(range(256)) * 4096 * 5
        assert self.asked(body=body).body == body

    def test_a_key_with_a_line_break_in_it_is_told_and_not_shown(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            asked = call(host.url, {"authorization": f"Bearer {SECRETS[0]}\r\nx: y"})
            with pytest.raises(UpstreamUnreachable, match="line break") as caught:
                await upstream.open(asked)
            assert "sk-secret" not in "".join(traceback.format_exception(caught.value))

        with_host(silent, test)


class TestConnections:
    def test_one_that_was_read_to_its_end_is_used_again(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            for _ in range(3):
                answer = await upstream.open(call(host.url))
                assert await read_out(answer) == b"{}"
                answer.close()
            assert (host.connections, len(host.requests)) == (1, 3)

        with_host(sending(whole(b"{}")), test)

    def test_one_that_was_not_is_dropped(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            for _ in range(2):
                answer = await upstream.open(call(host.url))
                answer.close()
                answer.close()
                with pytest.raises(UpstreamBroke, match="closed before its end"):
                    await answer.read()
                await host.until(lambda: host.open == 0)
            assert host.connections == 2

        with_host(sending(chunked_head(), chunks(b"a", end=False)), test)

    def test_one_on_which_the_host_sent_more_than_it_was_asked_for_is_dropped(self) -> None:
        """Otherwise the next request, of another client, would get that as its response."""

        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head() + chunks(b"yours", end=False))
            await peer.host.resumed.wait()
            await peer.send(chunks() + whole(b"not yours"))

        async def test(upstream: UpstreamClient, host: Host) -> None:
            for count in (1, 2):
                host.resumed.clear()
                answer = await upstream.open(call(host.url))
                assert await answer.read() == b"yours"
                host.resumed.set()
                assert await answer.read() == b""
                assert host.connections == len(host.requests) == count

        with_host(script, test)

    def test_hundreds_of_streams_go_at_once(self) -> None:
        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head(), chunks(b"a", end=False))
            await all_are_here.wait()
            await peer.send(chunks(b"b"))

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answers = await asyncio.gather(*(upstream.open(call(host.url)) for _ in range(300)))
            assert host.open == 300
            all_are_here.set()
            assert await asyncio.gather(*map(read_out, answers)) == [b"ab"] * 300

        all_are_here = asyncio.Event()
        with_host(script, test)

    def test_one_that_the_host_gives_up_while_it_is_asked_is_replaced_once(self) -> None:
        async def script(peer: Peer, asked: HostRequest) -> None:
            if peer.requests == 2:
                peer.reset()
            else:
                await peer.send(whole(b"{}"))

        async def test(upstream: UpstreamClient, host: Host) -> None:
            for _ in range(2):
                answer = await upstream.open(call(host.url))
                assert await answer.read_all(10) == b"{}"
            assert (host.connections, len(host.requests)) == (2, 3)

        with_host(script, test)

    def test_a_new_one_that_is_lost_is_not_tried_again_here(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            with pytest.raises(UpstreamUnreachable):
                await upstream.open(call(host.url))
            assert host.connections == 1

        with_host(sending(close=True), test)

    def test_one_that_the_host_has_closed_meanwhile_is_not_used(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            for count in (1, 2):
                answer = await upstream.open(call(host.url))
                assert await answer.read_all(10) == b"{}"
                await host.until(lambda: host.open == 0)
                assert host.connections == len(host.requests) == count

        with_host(sending(whole(b"{}"), close=True), test)


async def resetting(peer: Peer, asked: HostRequest) -> None:
    peer.reset()


def failure(url: str, ca_bundle: str | None = None) -> str:
    """What is said when this address is asked."""

    async def test() -> str:
        upstream = UpstreamClient()
        try:
            with pytest.raises(UpstreamUnreachable) as caught:
                await upstream.open(UpstreamRequest(url, {}, b"", PATIENT, None, ca_bundle))
        finally:
            await upstream.close()
        return str(caught.value)

    return run(test())


class TestNoAnswer:
    @pytest.mark.parametrize(
        ("script", "words"),
        [
            (sending(close=True), "closed the connection without a response"),
            (sending(b"HTTP/1.1 200 OK\r\ncontent-ty", close=True), "closed the connection without a response"),
            (resetting, "reset by peer"),
            (sending(b"SSH-2.0-OpenSSH_9.6\r\n"), "did not send a valid HTTP response"),
            (sending(b"<html>sk-secret</html>\r\n\r\n"), "did not send a valid HTTP response"),
            (sending(b"\x16\x03\x01\x00\x00" * 10), "did not send a valid HTTP response"),
            (sending(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 40_000 + b"\r\n\r\n"), "too long"),
            (sending(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5_000 + b"\r\n"), "are too many or too long"),
            pytest.param(
                sending(whole(b"???", headers=[f"content-encoding: {UNKNOWN_HERE}"])),
                "unsupported Content-Encoding",
                marks=pytest.mark.skipif(UNKNOWN_HERE is None, reason="a module for every encoding is installed"),
            ),
        ],
    )
    def test_it_is_told_in_words_with_host_and_port(self, script: Script, words: str) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            url = f"http://hidden-user:hidden-word@127.0.0.1:{host.port}/v1?key=hidden-query"
            asked = call(url, {"x-api-key": "sk-secret"}, body=b"hidden-body")
            with pytest.raises(UpstreamUnreachable, match=words) as caught:
                await upstream.open(asked)
            assert f"127.0.0.1:{host.port}" in str(caught.value)
            shown = "".join(traceback.format_exception(caught.value)) + repr(asked) + str(asked)
            assert not [secret for secret in SECRETS if secret in shown]
            assert caught.value.__cause__ is caught.value.__context__ is None

        with_host(script, test)

    def test_nobody_listens(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            assert f"127.0.0.1:{port}: connection refused" in failure(f"http://127.0.0.1:{port}/v1")

    def test_there_is_no_such_name(self) -> None:
        assert "no-such-host.invalid:443" in failure("https://no-such-host.invalid/v1")

    @pytest.mark.parametrize("url", ["ftp://example.test/", "http://", "https:///v1", "api.test/v1", "http://[::1", ""])
    def test_the_address_is_none(self, url: str) -> None:
        assert "address" in failure(url)

    def test_the_certificates_cannot_be_read(self, tmp_path: Any) -> None:
        empty = tmp_path / "empty.pem"
        empty.write_text("")
        assert f"cannot read the certificates in {empty}: it contains no certificates" in failure(
            "https://127.0.0.1:1/", str(empty)
        )
        missing = str(tmp_path / "missing.pem")
        assert f"cannot read the certificates in {missing}: No such file" in failure("https://127.0.0.1:1/", missing)

    def test_it_is_closed(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            await upstream.close()
            with pytest.raises(UpstreamUnreachable, match="the client is closed"):
                await upstream.open(call(host.url))

        with_host(silent, test)


class TestGivingUp:
    async def streaming(self, peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head(), chunks(b"a", end=False))
        await peer.gone()

    def test_closing_wakes_a_read_that_waits(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url))
            assert await answer.read() == b"a"
            reading = asyncio.create_task(answer.read())
            await asyncio.sleep(0)
            answer.close()
            with pytest.raises(UpstreamBroke, match="closed before its end"):
                await reading
            await host.until(lambda: host.open == 0)

        with_host(self.streaming, test)

    def test_closing_everything_wakes_every_read(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            answers = [await upstream.open(call(host.url)) for _ in range(3)]
            for answer in answers:
                assert await answer.read() == b"a"
            readings = [asyncio.create_task(answer.read()) for answer in answers]
            await asyncio.sleep(0)
            await upstream.close()
            ends = await asyncio.gather(*readings, return_exceptions=True)
            assert [type(end) for end in ends] == [UpstreamBroke] * 3

        with_host(self.streaming, test)

    def test_a_cancelled_read_leaves_the_answer_as_it_was(self) -> None:
        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head(), chunks(b"a", end=False))
            await peer.host.resumed.wait()
            await peer.send(chunks(b"b"))

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url))
            assert await answer.read() == b"a"
            reading = asyncio.create_task(answer.read())
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            host.resumed.set()
            assert await read_out(answer) == b"b"

        with_host(script, test)

    @pytest.mark.parametrize("turns", range(0, 40, 3))
    def test_opening_can_be_cancelled_at_any_point(self, turns: int) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            opening = asyncio.create_task(upstream.open(call(host.url, body=b"x" * 2_000_000)))
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await host.until(lambda: host.open == 0)

        with_host(silent, test)
