"""A host that only streams, or never does, is asked as it can answer; the change is told."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.request.parameters import adapt_parameters
from moonshim.engine.values.conversation import Request
from moonshim.engine.values.options import KimiOptions


def asked(streaming: str, stream: bool | None, upstream: str = "openai_chat") -> tuple[dict[str, Any], list[str]]:
    """What is sent, and the rules that changed how it is answered."""
    profile = profile_for(host="vllm", model="kimi-k2.5", upstream=upstream, overrides={"streaming": streaming})
    request = Request(model="kimi-k2.5", stream=stream, include_usage=True if stream else None)
    fitted, changes = adapt_parameters(request, profile, KimiOptions())
    body, _ = dialect_named(upstream).render_request(fitted)
    return body, [change.detail for change in changes if change.rule == "streaming"]


@pytest.mark.parametrize("stream", [True, False, None])
def test_a_host_that_does_both_is_asked_as_the_client_asks(stream: bool | None) -> None:
    body, told = asked("both", stream)
    assert body.get("stream") is stream
    assert told == []


@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("stream", [False, None])
def test_a_host_that_only_streams_is_asked_to(stream: bool | None, upstream: str) -> None:
    body, told = asked("only", stream, upstream)
    assert body["stream"] is True
    assert len(told) == 1
    assert asked("only", True)[1] == []


def test_a_stream_that_the_client_did_not_ask_for_tells_its_usage() -> None:
    assert asked("only", False)[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic"])
def test_a_host_that_never_streams_is_asked_for_all_at_once(upstream: str) -> None:
    body, told = asked("never", True, upstream)
    assert body["stream"] is False
    assert "stream_options" not in body
    assert len(told) == 1
    assert asked("never", None)[1] == []


def test_every_row_streams_both_ways_until_somebody_says_otherwise() -> None:
    assert profile_for(host="moonshot", model="kimi-k3").streaming == "both"
