"""What the inspector holds of a request, beside what it counts."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType
from typing import Any

import aiohttp
import pytest

from moonshim.gateway.inspector import trace
from moonshim.gateway.inspector.trace import ExchangeTrace, Tracer
from tests.support.gateway.counting_host import streaming
from tests.support.gateway.hosts import Host, run
from tests.support.gateway.running import MODEL, config_for, running

WORDS = "x" * 100_000


def longest_string(start: Any) -> int:
    """The length of the longest string that an object holds, however deep."""
    longest, seen, waiting = 0, set[int](), [start]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(one))
        if isinstance(one, (str, bytes, bytearray)):
            longest = max(longest, len(one))
        else:
            waiting += gc.get_referents(one)
    return longest


async def record(path: str) -> tuple[Tracer, ExchangeTrace]:
    """What the inspector has after a request."""
    async with Host(streaming("Thanks.")) as host, running(config_for(host.url)) as gateway:
        messages = [{"role": "user", "content": WORDS}]
        body = {"model": MODEL, "max_tokens": 9, "messages": messages, "stream": True}
        async with aiohttp.ClientSession(gateway.url) as client, client.post(path, json=body) as answer:
            assert answer.status == 200
            await answer.read()
        inspector = gateway.state.inspector
        assert inspector is not None
        (recorded,) = inspector.tracer
        return inspector.tracer, recorded


PATHS = ("/v1/chat/completions", "/v1/messages")


@pytest.mark.parametrize("path", PATHS)
def test_of_a_request_that_is_too_large_to_record_nothing_is_held(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(trace, "BODY_BYTES", len(WORDS))
    tracer, recorded = run(record(path))
    assert longest_string(recorded.attempts) < len(WORDS)
    assert tracer.held_bytes < len(WORDS)


@pytest.mark.parametrize("path", PATHS)
def test_the_conversation_that_a_recorded_attempt_holds_is_counted(path: str) -> None:
    tracer, recorded = run(record(path))
    assert longest_string(recorded.attempts[0].plan) >= len(WORDS)
    assert tracer.held_bytes > 3 * len(WORDS)  # the client's request, the host's, and the parsed one
