"""With nothing but the key of a host in the environment, usual names of models reach a Kimi in that host's spelling."""

from __future__ import annotations

import json

import pytest

from moonshim.config import config_from_environment
from tests.support.gateway.hosts import Host, run
from tests.support.gateway.raw_client import ask, body_of, sending, text_answer
from tests.support.gateway.running import running

SPELLINGS = {
    "OPENROUTER": ("moonshotai/kimi-k2.6", "moonshotai/kimi-k3"),
    "TOGETHER": ("moonshotai/Kimi-K2.6", "moonshotai/Kimi-K3"),
    "DEEPINFRA": ("moonshotai/Kimi-K2.6", "moonshotai/Kimi-K2.6"),
    "GROQ": ("moonshotai/kimi-k2-instruct-0905", "moonshotai/kimi-k2-instruct-0905"),
    "FIREWORKS": ("accounts/fireworks/models/kimi-k2p6", "accounts/fireworks/models/kimi-k3"),
    "NVIDIA": ("moonshotai/kimi-k2.6", "moonshotai/kimi-k2.6"),
}


@pytest.mark.parametrize("variable", SPELLINGS)
def test_usual_names_reach_the_hosts_own_spelling_of_a_kimi(variable: str) -> None:
    named, default = SPELLINGS[variable]
    wanted = {"kimi-k2.6": named, "Kimi-K2.6": named, "claude-sonnet-5": default, "gpt-5.5": default}

    async def test() -> None:
        async with Host(sending(text_answer("openai_chat", "hi"))) as host:
            config = config_from_environment({f"{variable}_API_KEY": "k", f"{variable}_BASE_URL": f"{host.url}/v1"})
            assert config is not None
            async with running(config) as gateway:
                for name, model in wanted.items():
                    reply = await ask(gateway.port, "openai_chat", body_of("openai_chat", model=name))
                    assert reply.status == 200, (name, reply.body)
                    assert json.loads(host.requests[-1].body)["model"] == model, name

    run(test())


@pytest.mark.parametrize("variable", ["OPENROUTER", "TOGETHER", "DEEPINFRA", "GROQ"])
def test_a_kimi_that_the_host_does_not_have_is_answered_by_the_one_it_has(variable: str) -> None:
    async def test() -> None:
        async with Host(sending(text_answer("openai_chat", "hi"))) as host:
            config = config_from_environment({f"{variable}_API_KEY": "k", f"{variable}_BASE_URL": f"{host.url}/v1"})
            assert config is not None
            async with running(config) as gateway:
                reply = await ask(gateway.port, "anthropic", body_of("anthropic", model="kimi-k2-0905-preview"))
                assert reply.status == 200
                assert json.loads(host.requests[-1].body)["model"] == SPELLINGS[variable][1]

    run(test())
