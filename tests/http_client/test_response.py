"""Answers read over real sockets: as they come, to their end, and where they end too early."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from collections.abc import Callable

import pytest

from moonshim.config import Timeouts
from moonshim.errors import UpstreamBroke, UpstreamStalled, UpstreamUnreachable
from moonshim.http_client import UpstreamClient
from tests.http_client.asking import call, read_out, sending, silent, with_host
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, chunked_head, chunks, run, whole


def answered(*pieces: bytes, close: bool = False) -> tuple[int, dict[str, str], bytes]:
    """What comes of an answer of these bytes."""
    out: list[tuple[int, dict[str, str], bytes]] = []

    async def test(upstream: UpstreamClient, host: Host) -> None:
        answer = await upstream.open(call(host.url))
        out.append((answer.status, dict(answer.headers), await read_out(answer)))
        answer.close()

    with_host(sending(*pieces, close=close), test)
    return out[0]


class TestWhatComesBack:
    def test_status_headers_and_body(self) -> None:
        lines = ["Content-Type: text/html", "X-Request-Id: r1", "Via: one", "via: two"]
        status, headers, body = answered(whole(b"oh no", status="429 Slow Down", headers=lines))
        assert (status, body) == (429, b"oh no")
        assert (headers["content-type"], headers["x-request-id"], headers["via"]) == ("text/html", "r1", "one, two")

    @pytest.mark.parametrize("size", [1, 2, 7, 1000])
    def test_chunks_are_put_together_however_they_are_cut(self, size: int) -> None:
        text = b'data: {"content": "hello"}\n\ndata: [DONE]\n\n'
        answer = chunked_head() + chunks(*(text[at : at + 9] for at in range(0, len(text), 9)))
        pieces = (answer[at : at + size] for at in range(0, len(answer), size))
        assert answered(*pieces)[2] == text

    def test_an_answer_without_a_length_ends_with_its_connection(self) -> None:
        assert answered(b"HTTP/1.1 200 OK\r\n\r\n", b"all of it", close=True)[2] == b"all of it"

    def test_an_empty_answer_ends_at_once(self) -> None:
        assert answered(b"HTTP/1.1 204 No Content\r\n\r\n")[::2] == (204, b"")

    def test_early_hints_are_passed_over(self) -> None:
        hints = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
        assert answered(hints, whole(b"{}"))[::2] == (200, b"{}")

    @pytest.mark.parametrize(
        ("name", "pack"),
        [
            ("gzip", gzip.compress),
            ("deflate", zlib.compress),
        ],
    )
    def test_compressed_answers_are_unpacked_all_the_same(self, name: str, pack: Callable[[bytes], bytes]) -> None:
        text = b"data: again and again\n\n" * 10_000
        assert answered(whole(pack(text), headers=[f"content-encoding: {name}"]))[2] == text

    def test_while_more_is_there_than_one_read_takes_others_have_their_turn_between_reads(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            turns = [0]

            async def other() -> None:
                while True:
                    turns[0] += 1
                    await asyncio.sleep(0)

            answer = await upstream.open(call(host.url))
            task = asyncio.create_task(other())
            reads, size = 0, 0
            while data := await answer.read():
                reads, size = reads + 1, size + len(data)
            task.cancel()
            assert size == 1_000_000
            assert turns[0] >= reads - 1
            assert reads >= 100  # each is small, so that no turn takes long

        with_host(sending(whole(b"x" * 1_000_000)), test)

    def test_a_compressed_stream_is_unpacked_as_it_comes(self) -> None:
        first, second = b"data: 1\n\n", b"data: 2\n\n"
        packer = zlib.compressobj(wbits=31)
        packed = [packer.compress(first) + packer.flush(zlib.Z_SYNC_FLUSH), packer.compress(second) + packer.flush()]

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url))
            assert await answer.read() == first
            read.set()
            assert await read_out(answer) == second

        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head(headers=["content-encoding: gzip"]), chunks(packed[0], end=False))
            await read.wait()
            await peer.send(chunks(packed[1]))

        read = asyncio.Event()
        with_host(script, test)

    def test_text_is_there_while_the_host_pauses(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url))
            for word in (b"one", b"two", b"three"):
                assert await answer.read() == word
                goes_on.set()
            assert await answer.read() == b""
            assert await answer.read() == b""

        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head())
            for word in (b"one", b"two", b"three"):
                await peer.send(chunks(word, end=False))
                await goes_on.wait()
                goes_on.clear()
            await peer.send(b"0\r\n\r\n")

        goes_on = asyncio.Event()
        with_host(script, test)

    def test_redirects_are_not_followed_and_cookies_not_kept(self) -> None:
        lines = ["location: http://127.0.0.1:1/", "set-cookie: session=1"]

        async def test(upstream: UpstreamClient, host: Host) -> None:
            for _ in range(2):
                answer = await upstream.open(call(host.url))
                assert answer.status == 307
                assert await answer.read_all(10) == b""
            assert "cookie" not in host.requests[1].headers

        with_host(sending(whole(b"", status="307 Over There", headers=lines)), test)

    def test_too_much_is_not_gathered(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url))
            with pytest.raises(UpstreamBroke, match="larger than 99 bytes"):
                await answer.read_all(99)
            answer = await upstream.open(call(host.url))
            assert await answer.read_all(99, cut=True) == b"x" * 99
            answer = await upstream.open(call(host.url))
            assert await answer.read_all(100) == b"x" * 100

        with_host(sending(whole(b"x" * 100)), test)

    def test_a_reader_who_is_slow_holds_the_host_back(self) -> None:
        piece, sent = b"x" * 16384, [0]

        async def script(peer: Peer, asked: HostRequest) -> None:
            peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            await peer.send(chunked_head())
            for _ in range(2000):
                await peer.send(chunks(piece, end=False))
                sent[0] += len(piece)
            await peer.send(b"0\r\n\r\n")

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url))
            read = len(await answer.read())
            seen = -1
            while seen != sent[0]:  # until the host gets rid of nothing more
                seen = sent[0]
                await asyncio.sleep(0.1)
            assert seen < 1000 * len(piece)
            while data := await answer.read():
                read += len(data)
            assert read == 2000 * len(piece)

        with_host(script, test)


async def resetting_in_the_middle(peer: Peer, asked: HostRequest) -> None:
    await peer.send(chunked_head(), chunks(b"data: 1\n\n", end=False))
    await peer.host.resumed.wait()
    peer.reset()


async def breaking_its_framing(peer: Peer, asked: HostRequest) -> None:
    await peer.send(chunked_head(), chunks(b"data: 1\n\n", end=False))
    await peer.host.resumed.wait()
    await peer.send(b"no length\r\nat all\r\n")
    await peer.gone()


class TestAnswersThatEndInTheMiddle:
    @pytest.mark.parametrize(
        "script",
        [
            sending(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ndata: 1\n\n", close=True),
            sending(chunked_head(), chunks(b"data: 1\n\n", end=False), close=True),
            sending(chunked_head(), chunks(b"data: 1\n\n", end=False), b"5\r\nabc", close=True),
            resetting_in_the_middle,
            breaking_its_framing,
        ],
    )
    def test_what_came_is_given_and_then_it_broke(self, script: Script) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url, {"x-api-key": "sk-secret"}))
            assert (await answer.read())[:9] == b"data: 1\n\n"
            host.resumed.set()
            with pytest.raises(UpstreamBroke, match="in the middle of the response") as caught:
                await read_out(answer)
            assert caught.value.__context__ is None
            with pytest.raises(UpstreamBroke):
                await answer.read()

        with_host(script, test)

    def test_what_came_before_the_end_is_not_lost_on_a_slow_reader(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url))
            await host.until(lambda: host.open == 0)
            await asyncio.sleep(0.05)  # the end has come as well, before anything was read
            assert await answer.read() == b"data: 1\n\ndata: 2\n\n"
            with pytest.raises(UpstreamBroke):
                await answer.read()

        with_host(sending(chunked_head(), chunks(b"data: 1\n\n", b"data: 2\n\n", end=False), close=True), test)

    def test_what_was_read_of_a_piece_before_the_end_does_not_come_again(self) -> None:
        piece = b"".join(b"%d;" % number for number in range(20_000))

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url))
            data = await answer.read()
            assert len(data) < len(piece)
            await host.until(lambda: host.open == 0)
            while len(data) < len(piece):
                data += await answer.read()
            assert data == piece
            with pytest.raises(UpstreamBroke):
                await answer.read()

        with_host(sending(chunked_head(), chunks(piece, end=False), close=True), test)

    def test_bytes_that_cannot_be_unpacked_are_told(self) -> None:
        head = chunked_head(headers=["content-encoding: gzip"])

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url))
            with pytest.raises(UpstreamBroke, match="cannot decompress the response"):
                await answer.read()

        with_host(sending(head, chunks(b"this is no gzip at all")), test)


class TestSilence:
    def test_before_the_answer(self) -> None:
        async def test(upstream: UpstreamClient, host: Host) -> None:
            with pytest.raises(UpstreamStalled, match=r"sent no response within 0\.05 seconds"):
                await upstream.open(call(host.url, timeouts=Timeouts(first_byte=0.05)))

        with_host(silent, test)

    def test_in_the_middle(self) -> None:
        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head(), chunks(b"a", end=False))
            await peer.gone()

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url, timeouts=Timeouts(between_bytes=0.05)))
            assert await answer.read() == b"a"
            for _ in range(2):
                with pytest.raises(UpstreamStalled, match=r"sent nothing for 0\.05 seconds"):
                    await answer.read()

        with_host(script, test)

    def test_of_a_host_that_does_not_take_the_request(self) -> None:
        async def script(peer: Peer, asked: HostRequest) -> None:
            raise AssertionError("it never comes to its end")

        async def refusing_to_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport reads too
            await over.wait()
            writer.transport.abort()

        async def test() -> None:
            server = await asyncio.start_server(refusing_to_read, "127.0.0.1", 0)
            upstream = UpstreamClient()
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(UpstreamStalled):
                await upstream.open(call(url, body=b"x" * 32 * 1024 * 1024, timeouts=Timeouts(first_byte=0.1)))
            over.set()
            await upstream.close()
            server.close()

        over = asyncio.Event()
        run(test())

    def test_a_name_or_a_port_that_does_not_answer_is_no_connection(self) -> None:
        async def test() -> None:
            with socket.socket() as full:
                full.bind(("127.0.0.1", 0))
                full.listen(0)
                waiting = [socket.socket() for _ in range(4)]
                for one in waiting:  # they fill the queue, so that nobody else is let in
                    one.setblocking(False)
                    one.connect_ex(full.getsockname())
                upstream = UpstreamClient()
                url = f"http://127.0.0.1:{full.getsockname()[1]}/?key=hidden-query"
                with pytest.raises(
                    UpstreamUnreachable, match=r"no connection to 127\.0\.0\.1:\d+ within 0\.05 seconds"
                ):
                    await upstream.open(call(url, timeouts=Timeouts(connect=0.05)))
                await upstream.close()
                for one in waiting:
                    one.close()

        run(test())

    def test_a_host_that_sends_now_and_then_is_not_silent(self) -> None:
        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head())
            for _ in range(18):
                await peer.send(chunks(b"a", end=False))
                await asyncio.sleep(0.05)
            await peer.send(b"0\r\n\r\n")

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url, timeouts=Timeouts(between_bytes=0.8)))
            assert await read_out(answer) == b"a" * 18

        with_host(script, test)

    def test_not_reading_is_no_silence_of_the_hosts(self) -> None:
        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head(), chunks(b"a", end=False))
            await peer.host.resumed.wait()
            await peer.send(chunks(b"b"))

        async def test(upstream: UpstreamClient, host: Host) -> None:
            answer = await upstream.open(call(host.url, timeouts=Timeouts(between_bytes=0.1)))
            assert await answer.read() == b"a"
            await asyncio.sleep(0.35)  # the deadline passes three times, and nobody waits for the host
            host.resumed.set()
            assert await read_out(answer) == b"b"

        with_host(script, test)
