"""Hosts that die, fall silent or answer what is no answer: every client hears of it in its own words, and can go on."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
from types import SimpleNamespace
from typing import Any, Final

import pytest
from anthropic import APIError as AnthropicError
from openai import APIError

from moonshim.config import Timeouts
from tests.support.gateway.hosts import HostRequest, Peer, Script, chunked_head, chunks, run, whole
from tests.support.gateway.leaks import resident, scene
from tests.support.gateway.raw_client import (
    CLIENTS,
    UPSTREAMS,
    Reply,
    answer_of,
    body_of,
    content_of,
    error_of,
    read_stream,
    short_stream,
)

pytestmark = pytest.mark.usefixtures("both_paths")

HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
_AT: Final = re.compile(rb"die at (\d+) by (\w+)")
WAYS: Final = ("close", "chunk", "reset")
"""The end of a body that has no length; the middle of one in chunks; a reset."""
AT_ONCE: Final = 12


def dying(stream: bytes) -> Any:
    """A host that dies where the prompt says so."""

    async def script(peer: Peer, asked: HostRequest) -> None:
        found = _AT.search(asked.body)
        assert found is not None
        at, way = int(found[1]), found[2].decode()
        if way == "close":
            await peer.send(HEAD + b"connection: close\r\n\r\n" + stream[:at])
            peer.writer.close()
            return
        # One byte more is promised than comes.
        await peer.send(HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n" % (at + 1) + stream[:at])
        if way == "reset":
            peer.reset()
        else:
            peer.writer.close()

    return script


def check_cut(client: str, stream: bytes, at: int, reply: Reply) -> bool:
    """Whether it was told as whole, which it may only be once the host has said how it ends."""
    last = b'"finish_reason":"tool_calls"}]}' if b'"choices"' in stream else b'"stop_reason":"tool_use"}'
    assert reply.ended, "the client's own connection is always ended properly"
    if reply.status != 200:
        # Nothing had been sent: then it is a plain error, with a status.
        assert reply.status == 502
        error_of(client, reply.json)
        assert at <= stream.index(b"\n\n", stream.index(b"Hm.")) + 2
        return False
    ended = read_stream(client, reply.body)
    assert "Hi.".startswith(ended.text)
    if ended.error is not None:
        assert ended.reason is None
        assert at < len(stream) - 1
        return False
    assert at >= stream.index(last) + len(last), "it had not said how it ends"
    assert ended.calls == [("ls", '{"n":0}'), ("ls", '{"n":1}')]
    return True


@pytest.mark.parametrize("client", CLIENTS)
def test_a_host_of_chat_may_die_at_every_byte_of_a_stream(client: str) -> None:
    run(_dies_everywhere("openai_chat", (client,)))


def test_a_host_of_messages_may_die_at_every_byte_of_a_stream_whoever_reads_it() -> None:
    run(_dies_everywhere("anthropic", CLIENTS))


async def _dies_everywhere(upstream: str, clients: tuple[str, ...]) -> None:
    stream = short_stream(upstream)
    # All clients and all three ways at every boundary of a frame; between them in turn.
    ends = {found.end() for found in re.finditer(rb"\n\n", stream)}
    several = [(client, way) for way in WAYS for client in clients]
    cases = [
        (at, *case)
        for at in range(len(stream) + 1)
        for case in (several if at in ends else [several[at % len(several)]])
    ]
    async with scene(dying(stream), dialect=upstream) as one:

        async def cut(at: int, client: str, way: str) -> bool:
            reply = await one.ask(client, body_of(client, f"die at {at} by {way}"))
            return check_cut(client, stream, at, reply)

        whole: list[bool] = []
        grown: list[int] = []
        for start in range(0, len(cases), AT_ONCE):
            whole += await asyncio.gather(*(cut(*case) for case in cases[start : start + AT_ONCE]))
            grown.append(resident())
        # What is needed at all is there after a third of it; the rest of the faults costs nothing more.
        assert grown[-1] - grown[len(grown) // 3] < 16 * 1024 * 1024
        assert 0 < sum(whole) < len(whole) / 4
        assert len(one.host.requests) == len(cases)
        await one.settles()
        outcomes = [record.outcome for record in one.records]
        assert outcomes.count("ok") == sum(whole)
        assert set(outcomes) == {"ok", "broken", "upstream_error"}
        for client in clients:
            await one.works(client)


# --- what is no answer ------------------------------------------------------------------------------------------

HTML: Final = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
JSON: Final = ("content-type: application/json",)
EVENTS: Final = ("content-type: text/event-stream",)
PAGE: Final = ("content-type: text/html",)


def told(kind: str, message: str = "no way", **more: Any) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, **more}}).encode()


OVERFLOW: Final = told(
    "invalid_request_error", "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)"
)
WRONG: Final[dict[str, tuple[bytes, int]]] = {
    "a page with status 502": (whole(HTML, status="502 Bad Gateway", headers=PAGE), 502),
    "a page with status 200": (whole(HTML, headers=PAGE), 502),
    "an error with status 200": (whole(told("server_error")), 502),
    "an overload with status 200": (whole(told("engine_overloaded_error")), 503),
    "an error as the first event": (whole(b"data: " + told("server_error") + b"\n\n", headers=EVENTS), 502),
    "nothing with status 200": (whole(b""), 502),
    "no event at all": (whole(b"", headers=EVENTS), 502),
    "half a JSON": (whole(b'{"id":"c","choices":[{"index":0,"mess'), 502),
    "JSON of something else": (whole(b'["a"]'), 502),
    "429": (whole(told("rate_limit_reached_error"), status="429 No"), 429),
    "429 with a pause": (
        whole(told("rate_limit_reached_error"), status="429 No", headers=(*JSON, "retry-after: 7")),
        429,
    ),
    "429 without a body": (whole(b"", status="429 No", headers=()), 429),
    "an engine that is overloaded": (whole(told("engine_overloaded_error"), status="429 No"), 429),
    "503": (whole(b"upstream connect error", status="503 No", headers=()), 503),
    "401": (whole(told("invalid_authentication_error"), status="401 No"), 401),
    "404": (whole(told("resource_not_found_error"), status="404 No"), 404),
    "413": (whole(HTML, status="413 No", headers=PAGE), 413),
    "a quota": (whole(told("exceeded_current_quota_error"), status="429 No"), 429),
    "a prompt that is too long": (whole(OVERFLOW, status="400 No"), 400),
    "a redirect": (whole(b"", status="302 Found", headers=("location: http://127.0.0.1:1/",)), 502),
    "garbage": (b"\x00\x01SSH-2.0-OpenSSH_9.6\r\n\r\n", 502),
    "silence and a close": (b"", 502),
    "half a header": (b"HTTP/1.1 200 OK\r\ncontent-ty", 502),
}


def sending_bytes(data: bytes) -> Script:
    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(data)
        peer.writer.close()

    return script


def test_what_is_no_answer_is_told_with_its_status_in_the_words_of_every_client() -> None:
    async def test() -> None:
        async with scene(sending_bytes(b"")) as one:
            for name, (data, status) in WRONG.items():
                one.play(sending_bytes(data))
                for client in CLIENTS:
                    for stream in (True, False):
                        one.host.requests.clear()
                        reply = await one.ask(client, body_of(client, stream=stream))
                        assert (reply.status, reply.ended) == (status, True), (name, client, reply)
                        assert reply.headers["content-type"] == "application/json"
                        error = error_of(client, reply.json)
                        assert "<" not in error["message"], (name, error)
                        assert len(one.host.requests) == 1
                        passes = status in (429, 503) and name != "a quota"  # which no waiting refills
                        assert ("retry-after" in reply.headers) == passes, (name, reply.headers)
                        if name == "429 with a pause":
                            assert reply.headers["retry-after"] == "7"
                        if name == "a prompt that is too long" and client == "anthropic":
                            assert error["message"] == "prompt is too long: 300000 tokens > 262144 maximum"
                        assert one.records[-1].outcome == "upstream_error"
                await one.settles()
            await one.works()

    run(test())


def test_nobody_at_the_address_is_told_with_the_address() -> None:
    async def test() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and nobody listens
            url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
            async with scene(sending_bytes(b""), api_base_url=url) as one:
                for client in CLIENTS:
                    for stream in (True, False):
                        reply = await one.ask(client, body_of(client, stream=stream))
                        assert reply.status == 502
                        assert "refused" in error_of(client, reply.json)["message"]
                await one.settles()

    run(test())


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_what_comes_in_an_odd_way_is_read_all_the_same(upstream: str) -> None:
    answer = answer_of(upstream)
    stream, body = answer.stream, json.dumps(answer.whole).encode()
    odd = {
        "a stream that is called text": whole(stream, headers=("content-type: text/plain",)),
        "a stream that is called nothing": whole(stream, headers=()),
        "a stream that is packed": whole(packed(stream), headers=(*EVENTS, "content-encoding: gzip")),
        "a whole answer that is packed": whole(packed(body), headers=(*JSON, "content-encoding: gzip")),
        "a whole answer": whole(body),
        "hints before the answer": b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + whole(stream, headers=EVENTS),
    }

    async def test() -> None:
        async with scene(sending_bytes(b""), dialect=upstream) as one:
            for name, data in odd.items():
                one.play(sending_bytes(data))
                for client in CLIENTS:
                    for streams in (True, False):
                        reply = await one.ask(client, body_of(client, stream=streams))
                        assert reply.status == 200, (name, reply.body)
                        said = content_of(client, reply)
                        calls = [(call, json.loads(arguments)) for call, arguments in said.calls]
                        assert (said.text, calls) == ("Hi.", [("ls", {"n": 0}), ("ls", {"n": 1})]), name
            await one.settles()

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_an_event_of_a_hundred_megabytes_ends_the_answer_and_not_the_memory(stream: bool) -> None:
    megabyte = b"a" * 1024 * 1024
    seen = SimpleNamespace(sent=0, peak=0)

    async def endless(peer: Peer, asked: HostRequest) -> None:
        first = short_stream("openai_chat").partition(b"\n\n")[0] + b"\n\n"
        await peer.send(HEAD + b"connection: close\r\n\r\n" + first + b'data: {"choices":[{"delta":{"content":"')
        for sent in range(100):
            await peer.send(megabyte)
            seen.sent, seen.peak = sent, max(seen.peak, resident())

    async def test() -> None:
        async with scene(endless, inspector=False) as one:  # it records a part, within its own limit
            before = resident()
            for client in CLIENTS:
                reply = await one.ask(client, body_of(client, stream=stream))
                assert content_of(client, reply).error is not None
                await one.settles()
                assert seen.sent < 90, "the host was listened to for nothing"
            # An event may have 16 MiB, an answer that has to be put together 64, and what is kept may be copied.
            assert seen.peak - before < (64 if stream else 256) * len(megabyte)
            await one.works()

    run(test())


# --- the official packages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_the_official_packages_raise_an_error_of_the_api_and_never_one_of_parsing(upstream: str) -> None:
    stream = short_stream(upstream)
    places = [0, 30, stream.index(b"Hi.") + 40, stream.index(b"0}") - 60, stream.index(b"0}") + 30]

    async def test() -> None:
        async with scene(dying(stream), dialect=upstream) as one:
            openai: Any
            anthropic: Any
            async with one.gateway.openai() as openai, one.gateway.anthropic() as anthropic:
                for way in WAYS:
                    for at in places:
                        prompt = f"die at {at} by {way}"
                        with pytest.raises(APIError) as raised:
                            async for _ in await openai.chat.completions.create(**body_of("openai_chat", prompt)):
                                pass
                        assert raised.value.message
                        with pytest.raises(AnthropicError):
                            async for _ in await anthropic.messages.create(**body_of("anthropic", prompt)):
                                pass
                        try:
                            events = await openai.responses.create(**body_of("openai_responses", prompt))
                        except APIError:
                            assert at < stream.index(b"Hm."), "something had been said"
                            continue
                        last = [event async for event in events][-1]
                        assert last.type == "response.failed"
                        assert last.response.error is not None
            await one.settles()

    run(test())


# --- silence ----------------------------------------------------------------------------------------------------


def test_silence_before_the_first_byte_is_a_504() -> None:
    async def silent(peer: Peer, asked: HostRequest) -> None:
        await peer.gone()

    async def test() -> None:
        async with scene(silent, timeouts=Timeouts(first_byte=0.1)) as one:
            for client in CLIENTS:
                for stream in (True, False):
                    reply = await one.ask(client, body_of(client, stream=stream))
                    assert reply.status == 504
                    assert "sent no response" in error_of(client, reply.json)["message"]
            await one.settles()
            await one.works()

    run(test())


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_silence_in_the_middle_closes_what_is_open_and_tells_the_error(upstream: str) -> None:
    stream = short_stream(upstream)
    half = stream[: stream.index(b'{\\"n\\":"') + 20]

    async def stalling(peer: Peer, asked: HostRequest) -> None:
        await peer.send(
            chunked_head() + chunks(half[: half.rindex(b"\n\n") + 2], half[half.rindex(b"\n\n") + 2 :], end=False)
        )
        await peer.gone()

    async def test() -> None:
        async with scene(stalling, dialect=upstream, timeouts=Timeouts(between_bytes=0.1)) as one:
            for client in CLIENTS:
                reply = await one.ask(client, body_of(client))
                said = read_stream(client, reply.body)
                assert (reply.status, said.text, said.reason) == (200, "Hi.", None)
                assert said.error is not None
                assert "sent nothing for" in said.error["message"]
                assert one.records[-1].outcome == "broken"
                whole_reply = await one.ask(client, body_of(client, stream=False))
                assert whole_reply.status == 504
                assert "sent nothing for" in error_of(client, whole_reply.json)["message"]
            await one.settles()
            await one.works()

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_a_host_that_has_said_all_and_stays_on_the_line_is_not_waited_for(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moonshim.gateway.upstream_attempt.LAST_WORDS_SECONDS", 0.05)

    async def staying(peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head() + chunks(short_stream("openai_chat"), end=False))
        await peer.gone()

    async def test() -> None:
        async with scene(staying) as one:
            for client in CLIENTS:
                said = content_of(client, await one.ask(client, body_of(client, stream=stream)))
                assert (said.text, len(said.calls), said.error) == ("Hi.", 2, None)
                assert one.records[-1].outcome == "ok"
            await one.settles()

    run(test())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_a_host_that_ends_its_message_but_not_its_stream_is_not_waited_for(
    upstream: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moonshim.gateway.upstream_attempt.LAST_WORDS_SECONDS", 0.05)
    frames = short_stream(upstream).removesuffix(b"\n\n").split(b"\n\n")

    async def staying(peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head(), *(chunks(frame + b"\n\n", end=False) for frame in frames[:-1]))
        await peer.gone()

    async def test() -> None:
        async with scene(staying, dialect=upstream, timeouts=Timeouts(between_bytes=3600.0)) as one:
            for client in CLIENTS:
                said = content_of(client, await one.ask(client, body_of(client, stream=stream)))
                assert (said.text, len(said.calls), said.error) == ("Hi.", 2, None)
                assert one.records[-1].outcome == "ok"
            await one.settles()

    run(test())
