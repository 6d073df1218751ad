"""Every usual form of an address leads to the URL that is posted to."""

from __future__ import annotations

from typing import Literal

import pytest

from moonshim.config import ProviderConfig, endpoint_of, without_secrets
from tests.config.texts import toml

CHAT = "/chat/completions"
ADDRESSES = {
    "https://api.moonshot.ai/v1": f"https://api.moonshot.ai/v1{CHAT}",
    "https://api.moonshot.ai/v1/": f"https://api.moonshot.ai/v1{CHAT}",
    f"https://api.moonshot.ai/v1{CHAT}": f"https://api.moonshot.ai/v1{CHAT}",
    "https://api.moonshot.cn": f"https://api.moonshot.cn/v1{CHAT}",
    "https://api.moonshot.ai/anthropic": "https://api.moonshot.ai/anthropic/v1/messages",
    "https://api.moonshot.ai/anthropic/": "https://api.moonshot.ai/anthropic/v1/messages",
    "https://api.moonshot.ai/anthropic/v1": "https://api.moonshot.ai/anthropic/v1/messages",
    "https://api.moonshot.ai/anthropic/v1/messages": "https://api.moonshot.ai/anthropic/v1/messages",
    "https://api.kimi.com/coding": f"https://api.kimi.com/coding/v1{CHAT}",
    "https://api.kimi.com/coding/v1": f"https://api.kimi.com/coding/v1{CHAT}",
    "https://api.kimi.ai/coding": f"https://api.kimi.ai/coding/v1{CHAT}",
    "https://api.kimi.ai/coding/v1": f"https://api.kimi.ai/coding/v1{CHAT}",
    "https://openrouter.ai": f"https://openrouter.ai/api/v1{CHAT}",
    "https://openrouter.ai/api": f"https://openrouter.ai/api/v1{CHAT}",
    "https://openrouter.ai/api/v1": f"https://openrouter.ai/api/v1{CHAT}",
    f"https://openrouter.ai/api/v1{CHAT}": f"https://openrouter.ai/api/v1{CHAT}",
    "https://api.siliconflow.cn/v1": f"https://api.siliconflow.cn/v1{CHAT}",
    "https://api.together.xyz": f"https://api.together.xyz/v1{CHAT}",
    "https://api.fireworks.ai": f"https://api.fireworks.ai/inference/v1{CHAT}",
    "https://api.fireworks.ai/inference/v1": f"https://api.fireworks.ai/inference/v1{CHAT}",
    "https://api.deepinfra.com": f"https://api.deepinfra.com/v1/openai{CHAT}",
    "https://api.deepinfra.com/v1": f"https://api.deepinfra.com/v1/openai{CHAT}",
    "https://api.deepinfra.com/v1/openai": f"https://api.deepinfra.com/v1/openai{CHAT}",
    "https://api.groq.com/openai/v1": f"https://api.groq.com/openai/v1{CHAT}",
    "https://integrate.api.nvidia.com/v1": f"https://integrate.api.nvidia.com/v1{CHAT}",
    "http://localhost:8000": f"http://localhost:8000/v1{CHAT}",
    "http://localhost:8000/v1": f"http://localhost:8000/v1{CHAT}",
    "http://[::1]:8000/v1": f"http://[::1]:8000/v1{CHAT}",
    f"https://api.deepseek.com{CHAT}": f"https://api.deepseek.com{CHAT}",
    f"https://ark.cn-beijing.volces.com/api/v3{CHAT}": f"https://ark.cn-beijing.volces.com/api/v3{CHAT}",
    "https://generativelanguage.googleapis.com/v1beta/openai": (
        f"https://generativelanguage.googleapis.com/v1beta/openai{CHAT}"
    ),
    "https://my.proxy/kimi": f"https://my.proxy/kimi/v1{CHAT}",
    f"https://x.azure.com/openai/deployments/k{CHAT}?api-version=1": (
        f"https://x.azure.com/openai/deployments/k{CHAT}?api-version=1"
    ),
    "https://host.example/messages": "https://host.example/messages",
}


@pytest.mark.parametrize(("address", "endpoint"), ADDRESSES.items())
def test_an_address_leads_to_its_endpoint(address: str, endpoint: str) -> None:
    (provider,) = toml(f'[[providers]]\nname = "p"\napi_base_url = "{address}"').providers
    assert endpoint_of(provider) == endpoint


SAID: list[tuple[str, Literal["openai_chat", "anthropic"], str]] = [
    ("https://api.kimi.com/coding/", "anthropic", "https://api.kimi.com/coding/v1/messages"),
    ("https://api.anthropic.com", "anthropic", "https://api.anthropic.com/v1/messages"),
    ("http://localhost:8000/v1", "anthropic", "http://localhost:8000/v1/messages"),
    ("https://h/anthropic", "openai_chat", f"https://h/anthropic/v1{CHAT}"),
    (f"https://h/v1{CHAT}", "anthropic", "https://h/v1/messages"),
]


@pytest.mark.parametrize(("address", "dialect", "endpoint"), SAID)
def test_a_dialect_that_was_said_counts_more_than_the_address(
    address: str, dialect: Literal["openai_chat", "anthropic"], endpoint: str
) -> None:
    assert endpoint_of(ProviderConfig(name="p", api_base_url=address, dialect=dialect)) == endpoint


def test_the_row_of_a_messages_host_means_its_dialect() -> None:
    (provider,) = toml('[[providers]]\nname = "p"\napi_base_url = "https://h"\nhost = "moonshot-anthropic"').providers
    assert provider.dialect == "anthropic"


@pytest.mark.parametrize("url", ["redis://:p@ss@h:1/0", "redis://user:p@ss@h:1/0", "https://h/v1?key=p@ss"])
def test_an_address_is_shown_without_what_is_secret_in_it(url: str) -> None:
    assert "ss" not in without_secrets(url)
    assert "h" in without_secrets(url)
