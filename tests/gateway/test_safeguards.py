"""`safeguards` of Claude Code's auto mode: refused with an error that names the field, or answered by another host."""

from __future__ import annotations

from typing import Any, Final

import anthropic
import pytest

from moonshim.config import ClaudeCode, ProviderConfig
from moonshim.simulator import Simulator
from tests.support.gateway.hosts import run
from tests.support.gateway.running import config_for, running

SAFEGUARDS: Final = [
    {"type": "dangerous_tool_use", "classifier_context": {"v": 1, "permission_mode": "auto", "live_cwd": "/work"}}
]
BETA: Final = {"anthropic-beta": "dangerous-tool-use-2026-09-03"}


async def ask(client: anthropic.AsyncAnthropic, *, stream: bool, model: str, **more: Any) -> str:
    body: dict[str, Any] = {"model": model, "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}
    if not stream:
        message: anthropic.types.Message = await client.messages.create(**body, extra_headers=BETA, extra_body=more)
        return message.type
    async with client.messages.stream(**body, extra_headers=BETA, extra_body=more) as streamed:
        return (await streamed.get_final_message()).type


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_request_for_a_kimi_gets_400_that_names_the_field_and_works_without_it(dialect: str, stream: bool) -> None:
    async def test() -> None:
        async with Simulator() as host:
            config = config_for(host.url, dialect=dialect, models=("kimi-k3",))
            async with running(config) as gateway, gateway.anthropic() as client:
                with pytest.raises(anthropic.BadRequestError) as refused:
                    await ask(client, stream=stream, model="kimi-k3", safeguards=SAFEGUARDS)
                assert await ask(client, stream=stream, model="kimi-k3") == "message"
                assert await ask(client, stream=stream, model="kimi-k3", safeguards=[]) == "message"
            assert not any(request.body.get("safeguards") for request in host.requests)
            assert len(host.requests) == 2
        error: Any = refused.value.body
        assert error["error"]["type"] == "invalid_request_error"
        assert "safeguards" in error["error"]["message"]

    run(test())


@pytest.mark.parametrize("judge", [None, "claude-opus"], ids=["no judge", "a judge"])
def test_another_model_behind_messages_gets_them_unchanged_and_is_not_judged(judge: str | None) -> None:
    async def test() -> None:
        async with Simulator() as host:
            claude_code = ClaudeCode(judge_model=judge)
            config = config_for(host.url, dialect="anthropic", models=("claude-opus",), claude_code=claude_code)
            async with running(config) as gateway, gateway.anthropic() as client:
                # The simulator has no such model; what counts is what it was sent.
                with pytest.raises(anthropic.NotFoundError):
                    await ask(client, stream=False, model="claude-opus", safeguards=SAFEGUARDS)
            assert [request.body.get("safeguards") for request in host.requests] == [SAFEGUARDS]

    run(test())


def test_a_kimi_among_the_fallbacks_is_enough_for_the_judge() -> None:
    async def test() -> None:
        async with Simulator() as host:
            config = config_for(
                host.url,
                dialect="anthropic",
                models=("claude-opus",),
                aliases={"best": ("claude-opus", "kimi/kimi-k3")},
                claude_code=ClaudeCode(judge_model="kimi/kimi-k3"),
            )
            kimi = ProviderConfig(name="kimi", api_base_url=f"{host.url}/v1", models=("kimi-k3",), host="moonshot")
            async with running(config, providers=(kimi,)) as gateway, gateway.anthropic() as client:
                assert await ask(client, stream=False, model="best", safeguards=SAFEGUARDS) == "message"
            assert {request.body.get("model") for request in host.requests} == {"claude-opus", "kimi-k3"}
            assert not any("safeguards" in request.body for request in host.requests)

    run(test())


def test_a_kimi_among_the_fallbacks_is_enough_to_refuse_them() -> None:
    async def test() -> None:
        async with Simulator() as host:
            config = config_for(
                host.url,
                dialect="anthropic",
                models=("claude-opus",),
                aliases={"best": ("claude-opus", "kimi/kimi-k3")},
            )
            kimi = ProviderConfig(name="kimi", api_base_url=f"{host.url}/v1", models=("kimi-k3",), host="moonshot")
            async with running(config, providers=(kimi,)) as gateway, gateway.anthropic() as client:
                with pytest.raises(anthropic.BadRequestError, match="safeguards"):
                    await ask(client, stream=False, model="best", safeguards=SAFEGUARDS)
            assert not host.requests

    run(test())
