"""What an operator and a key are told: whose fault it was, what counts against a limit, and which request it was."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from moonshim.config import GatewayKey, TransformerUse
from moonshim.gateway.inbound.auth import new_key
from moonshim.http_server import logs
from tests.support.gateway.hosts import HostRequest, Peer, chunked_head, chunks, run
from tests.support.gateway.leaks import scene
from tests.support.gateway.raw_client import CLIENTS, answer_of, body_of, content_of, sending, short_stream

GOOD: Final = sending(answer_of("openai_chat"))
UNCOUNTED: Final = b"".join(
    b"data: " + json.dumps({"id": "x", "choices": [choice]}).encode() + b"\n\n"
    for choice in (
        {"index": 0, "delta": {"role": "assistant", "content": "Half past nine. " * 40}},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
    )
)
RAISES: Final = """\
class Raises:
    def stages(self, plan): return [Stage()]
class Stage:
    def feed(self, event):
        if 'Hi' in getattr(event, 'text', ''): raise ValueError('the reason')
        return [event]
    def flush(self): return []
"""


def with_key(**limits: Any) -> tuple[str, GatewayKey]:
    text, digest = new_key()
    return f"authorization: Bearer {text}\r\n", GatewayKey(name="ana", digest=digest, **limits)


@pytest.mark.parametrize("thought", ["", "Hm."])
def test_a_plug_in_that_raises_is_a_fault_of_ours_and_the_log_says_where(
    thought: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything was sent, and in the middle of an answer."""
    (plugin := tmp_path / "mine.py").write_text(RAISES)
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(logs, "_emit", lambda level, name, fields, *_: told.append({"event": name} | fields))
    uses = (TransformerUse("Log"), TransformerUse(f"{plugin}:Raises"))

    async def test() -> None:
        async with scene(sending(answer_of("openai_chat", thought=thought)), transformers=uses) as one:
            for client in CLIENTS:
                for stream in (True, False):
                    told.clear()
                    error = content_of(client, await one.ask(client, body_of(client, stream=stream))).error
                    assert error is not None
                    assert "transformer mine.py:Raises failed" in error["message"]
                    assert str(tmp_path) not in json.dumps(error)
                    await one.settles()
                    record = one.records[-1]
                    assert (record.outcome, "transformer_failed" in str(record.error)) == ("failed", True)
                    fault = next(line for line in told if line["event"] == "transformer_failed")
                    assert (fault["at"], fault["raised"]) == (f"{plugin}:5", "ValueError: the reason")
                    named = {line["request_id"] for line in told}
                    assert named == {record.request_id}, told

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_tokens_that_a_host_does_not_count_are_charged_all_the_same(stream: bool) -> None:
    header, key = with_key(tokens_per_minute=150)

    async def uncounted(peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head() + chunks(UNCOUNTED, b"data: [DONE]\n\n"))
        peer.writer.close()

    async def test() -> None:
        async with scene(uncounted) as one:
            one.gateway.state.reload(replace(one.gateway.state.snapshot.config, keys=(key,)))
            body = body_of("openai_chat", stream=stream)
            assert (await one.ask("openai_chat", body, headers=header)).status == 200
            await one.settles()
            refused = await one.ask("openai_chat", body, headers=header)
            assert (refused.status, refused.json["error"]["code"]) == (429, "tokens_per_minute")

    run(test())


def test_whoever_leaves_before_the_tokens_are_told_has_used_them() -> None:
    header, key = with_key(tokens_per_minute=150)

    async def waiting(peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head() + chunks(UNCOUNTED.partition(b"\n\n")[0] + b"\n\n", end=False))
        await peer.gone()

    async def test() -> None:
        async with scene(waiting) as one:
            one.gateway.state.reload(replace(one.gateway.state.snapshot.config, keys=(key,)))
            async with one.connected() as connection:
                connection.send("openai_chat", body_of("openai_chat"), headers=header)
                await connection.head()
                await connection.until(lambda data: b"nine" in data)
                connection.hang_up()
                await one.until(lambda: bool(one.records), "it is not noticed")
            assert (await one.ask("openai_chat", body_of("openai_chat"), headers=header)).status == 429

    run(test())


def test_a_whole_answer_takes_a_place_as_a_stream_does() -> None:
    header, key = with_key(concurrent_streams=1)

    async def waiting(peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head() + chunks(short_stream("openai_chat")[:200], end=False))
        await peer.gone()

    async def test() -> None:
        async with scene(waiting) as one:
            one.gateway.state.reload(replace(one.gateway.state.snapshot.config, keys=(key,)))
            async with one.connected() as connection:
                connection.send("openai_chat", body_of("openai_chat", stream=False), headers=header)
                await one.until(lambda: len(one.host.requests) == 1, "it is not asked")
                refused = await one.ask("openai_chat", body_of("openai_chat", stream=False), headers=header)
                assert (refused.status, refused.json["error"]["code"]) == (429, "concurrent_streams")
                connection.hang_up()
                await one.until(lambda: one.records[-1].outcome == "client_gone", "it is not noticed")
            one.play(GOOD)
            assert (await one.ask("openai_chat", body_of("openai_chat"), headers=header)).status == 200

    run(test())


def test_who_asks_for_the_numbers_is_not_one_of_them() -> None:
    async def test() -> None:
        async with scene(GOOD) as one:
            reader, writer = await asyncio.open_connection("127.0.0.1", one.gateway.port)
            writer.write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            data = await reader.read()
            while not reader.at_eof():
                data += await reader.read()
            writer.close()
            assert b"\nmoonshim_requests_open 0.0\n" in data

    run(test())
