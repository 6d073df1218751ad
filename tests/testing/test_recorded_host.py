"""A recorded host replays what it was given, and says what it cannot do."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest
from openai import OpenAI

from moonshim.agent import Agent, Provider, tool
from moonshim.errors import InvalidInput
from moonshim.testing import RecordedHost, RecordedResponse

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
RECORDING: Final = EXAMPLES / "leaked_markers.sse"


def post(url: str, body: bytes = b"{}") -> tuple[int, str, bytes]:
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["content-type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read()


@pytest.mark.parametrize("size", [None, 1, 7, 100_000])
def test_a_recording_is_replayed_byte_for_byte(size: int | None) -> None:
    with RecordedHost(RECORDING, chunk_size=size).running() as host:
        status, kind, body = post(host.url, b'{"model": "kimi-k2.5"}')
    assert (status, kind) == (200, "text/event-stream; charset=utf-8")
    assert body == RECORDING.read_bytes()
    assert host.requests == [{"model": "kimi-k2.5"}]


def test_each_request_gets_the_next_recording_and_then_an_error() -> None:
    lines = b'{"a": 1}\n{"b": 2}\n'
    with RecordedHost(b'{"whole": true}', lines).running() as host:
        assert post(host.url)[1:] == ("application/json", b'{"whole": true}')
        assert post(host.url)[1:] == ("application/x-ndjson", lines)
        status, _, body = post(host.url)
    assert status == 500
    assert "all recorded responses" in json.loads(body)["error"]["message"]
    assert len(host.requests) == 3


def test_the_last_recording_can_be_repeated() -> None:
    with RecordedHost(b"{}", b'{"last": 1}', repeat=True).running() as host:
        assert [post(host.url)[2] for _ in range(4)] == [b"{}", *[b'{"last": 1}'] * 3]


def test_status_and_headers_can_be_recorded_too() -> None:
    headers = {"Content-Type": "text/plain", "content-length": "3"}
    busy = RecordedResponse(body=b'{"error": "busy"}', status=429, headers=headers)
    with RecordedHost(busy).running() as host:
        assert post(host.url) == (429, "text/plain", b'{"error": "busy"}')


def test_what_is_no_post_or_no_json_is_told() -> None:
    with RecordedHost(b"{}").running() as host:
        assert post(host.url, b"no")[0] == 400
        with pytest.raises(urllib.error.HTTPError, match="405") as caught:
            urllib.request.urlopen(f"{host.url}/v1/models", timeout=30)
        caught.value.close()


@pytest.mark.parametrize("arguments", [((), {}), ((b"",), {"chunk_size": 0}), ((5,), {})])
def test_arguments_that_mean_nothing_are_refused(arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    with pytest.raises(InvalidInput):
        RecordedHost(*arguments[0], **arguments[1])


def test_it_has_an_address_only_while_it_runs() -> None:
    host = RecordedHost(b"{}")
    with pytest.raises(RuntimeError, match="not running"):
        _ = host.url

    async def inside() -> str:
        async with host as entered:
            return entered.url

    assert asyncio.run(inside()).startswith("http://127.0.0.1:")


def test_an_agent_reads_leaked_markers_from_a_recording() -> None:
    choice = b'{"index":0,"delta":{"content":"It is 18 degrees."},"finish_reason":"stop"}'
    done = b'data: {"choices":[%b]}\n\ndata: [DONE]\n\n' % choice
    called: list[str] = []

    @tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(city)
        return "18 degrees"

    @tool
    def get_time(city: str) -> str:
        """The time in a city."""
        return "noon"

    with RecordedHost(RECORDING, done).running() as host:
        agent = Agent(Provider(f"{host.url}/v1", model="kimi-k2.5"), tools=[get_weather, get_time])
        assert agent.run("What is the weather?") == "It is 18 degrees."
    assert called
    assert [message["role"] for message in host.requests[1]["messages"]][-1] == "tool"


def test_the_openai_package_reads_a_recording() -> None:
    with RecordedHost(RECORDING).running() as host:
        client = OpenAI(base_url=f"{host.url}/v1", api_key="any", max_retries=0)
        stream = client.chat.completions.create(
            model="kimi-k2.5", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        client.close()
    assert "<|tool_call_begin|>" in text
