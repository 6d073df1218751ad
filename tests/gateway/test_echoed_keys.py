"""A host repeats the key that it was sent, in every spelling and place: no client and no log gets to see it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from moonshim.gateway.observe.stream_log import StreamLogs
from tests.support.gateway.hosts import HostRequest, Peer, Script, chunked_head, chunks, run, whole
from tests.support.gateway.leaks import scene
from tests.support.gateway.raw_client import CLIENTS, UPSTREAMS, body_of

KEYS = {
    "digits": "k3y-0123456789/abcdef",
    "letters": "quiteasecretofletters",
    "few letters": "secretly",
    "word": "failed",
}
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "header": lambda key: f"Bearer {key}",
    "url": lambda key: quote(key, safe=""),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
}


def echoes(key: str) -> list[str]:
    return [write(KEYS[key]) for write in FORMS.values()]


def sent(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[key]}"}


def text_chunk(upstream: str, *texts: str, ends: bool = False) -> bytes:
    """Deltas of an answer that has begun."""
    deltas: list[dict[str, Any]]
    end: list[dict[str, Any]]
    if upstream == "openai_chat":
        deltas = [{"choices": [{"index": 0, "delta": {"content": text}}], "model": "kimi-k2.5"} for text in texts]
        end = [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "model": "kimi-k2.5"}]
        return b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in [*deltas, *(end if ends else [])])
    start: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [],
                                              "model": "kimi-k2.5", "usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]  # fmt: skip
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts
    ]
    end = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    events = [*start, *deltas, *(end if ends else [])]
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events)


def error_chunk(upstream: str, words: str) -> bytes:
    error = {"error": {"message": words, "type": "server_error", "param": words, "code": 500}}
    return (b"event: error\n" if upstream == "anthropic" else b"") + b"data: %b\n\n" % json.dumps(
        error if upstream == "openai_chat" else {"type": "error"} | error
    ).encode()


def streaming(*pieces: bytes, headers: tuple[str, ...] = ()) -> Script:
    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head(headers=("content-type: text/event-stream", *headers)))
        for piece in pieces:
            await peer.send(chunks(piece, end=False))
        await peer.send(chunks())

    return script


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_an_error_in_the_middle_of_a_stream_shows_no_key(key: str, upstream: str) -> None:
    async def test() -> None:
        async with scene(streaming(), dialect=upstream, headers=sent(key)) as stage:
            for client, said in product(CLIENTS, echoes(key)):
                stage.play(streaming(text_chunk(upstream, "Hello."), error_chunk(upstream, f"who is {said}?")))
                reply = await stage.ask(client, body_of(client))
                assert b"Hello." in reply.body
                assert b"who is" in reply.body
                shown = reply.body.replace(b"response.failed", b"").replace(b'"failed"', b"")
                assert said.encode() not in shown, (client, said)
                assert said not in (stage.records[-1].error or ""), (client, said)

    run(test())


ECHOING = ("x-request-id", "request-id", "cf-ray", "x-trace-id", "openai-model", "x-ratelimit-remaining-tokens")


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("key", KEYS)
def test_a_frame_of_unknown_shape_shows_no_key(key: str, upstream: str) -> None:
    async def test() -> None:
        for words in echoes(key):
            notice = b"data: %b\n\n" % json.dumps({"type": "notice", "message": f"who is {words}?"}).encode()
            pieces = text_chunk(upstream, "Hello.", f"I am {words}."), notice, text_chunk(upstream, "Bye.", ends=True)
            for sent_as in (pieces, (b"".join(pieces),)):
                async with scene(streaming(*sent_as), dialect=upstream, headers=sent(key)) as one:
                    reply = await one.ask(upstream, body_of(upstream))
                    assert words not in reply.body.decode().partition("who is")[2], reply.body
                    assert f"I am {words}." in reply.body.decode(), "the text of a model is left alone"

    run(test())


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_header_that_repeats_the_key_stays_behind(key: str, streamed: bool) -> None:
    message = {"role": "assistant", "content": "Hello."}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()

    def answering(headers: tuple[str, ...]) -> Script:
        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(whole(body, headers=("content-type: application/json", *headers)))

        return script

    async def test() -> None:
        async with scene(streaming(), headers=sent(key)) as stage:
            for said in echoes(key):
                headers = (*(f"{name}: v-{said}" for name in ECHOING), "msh-request-id: r1")
                stream = streaming(text_chunk("openai_chat", "Hello.", ends=True), headers=headers)
                stage.play(stream if streamed else answering(headers))
                reply = await stage.ask("openai_chat", body_of("openai_chat", stream=streamed))
                assert reply.status == 200
                assert said not in str(reply.headers)
                assert reply.headers["msh-request-id"] == "r1"

    run(test())


def cuts(data: bytes, said: str) -> list[list[bytes]]:
    """The same bytes: whole, cut in the middle of the key, and into single bytes around it."""
    at = data.find(said.encode())
    assert at > 0
    middle, end = at + len(said) // 2, at + len(said)
    single = [data[i : i + 1] for i in range(at, end)]
    return [[data], [data[:middle], data[middle:]], [data[:at], *single, data[end:]]]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_the_log_of_a_stream_keeps_no_key(key: str, upstream: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with scene(streaming(), dialect=upstream, headers=sent(key)) as stage:

            async def logged(*pieces: bytes) -> bytes:
                folder = tmp_path / str(len(list(tmp_path.iterdir())))
                logs = stage.gateway.state.stream_logs = StreamLogs(folder)
                stage.play(streaming(*pieces))
                await stage.ask("openai_chat", body_of("openai_chat"))
                logs.close()
                (file,) = folder.glob("*.log")
                return file.read_bytes().partition(b"\n\n")[2]

            for said in echoes(key):
                data = text_chunk(upstream, f"You are {said}.", "Bye.", ends=True)
                for pieces in cuts(data, said):
                    assert await logged(*pieces) == data.replace(said.encode(), b"*" * len(said)), said
                # The tokens of a model: each piece of the key is an event of its own.
                tokens = [said[i : i + 3] for i in range(0, len(said), 3)]
                blank = ["*" * len(token) for token in tokens]
                log = await logged(text_chunk(upstream, "You are ", *tokens, ".", ends=True))
                assert log == text_chunk(upstream, "You are ", *blank, ".", ends=True), said
                assert said.encode() not in await logged(error_chunk(upstream, f"who is {said}?"))

    run(test())


def test_the_log_of_an_answer_without_the_key_has_every_byte(tmp_path: Path) -> None:
    data = text_chunk("openai_chat", *("a", "secretl", "s", "secret", "failed", "\u00e4"), ends=True)
    logs = StreamLogs(tmp_path)

    async def test() -> None:
        pieces = [data[i : i + 7] for i in range(0, len(data), 7)]
        async with scene(streaming(*pieces, b"data: [DONE]"), headers=sent("few letters")) as stage:
            stage.gateway.state.stream_logs = logs
            await stage.ask("openai_chat", body_of("openai_chat"))

    run(test())
    logs.close()
    (file,) = tmp_path.glob("*.log")
    assert file.read_bytes().partition(b"\n\n")[2] == data + b"data: [DONE]"
