"""Where LiteLLM itself sends a request for each name of `litellm_names.yaml`, and that the converted file agrees.

Seen with LiteLLM 1.106.2: its proxy loaded the file (`ProxyConfig.load_config`), its router was asked for each name,
and the transport of its HTTP client recorded the request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from moonshim.config import Config, Target, parse_config
from moonshim.config.endpoints import endpoint_of
from moonshim.config.problems import display_path
from moonshim.errors import Refused
from moonshim.gateway.outbound.routing import Router
from moonshim.setup.converted import Converted
from moonshim.setup.document import render
from moonshim.setup.from_litellm import convert_litellm

pytest.importorskip("yaml")

FILE: Final = Path(__file__).with_name("litellm_names.yaml")
ENVIRONMENT: Final = {
    "OPENROUTER_API_KEY": "sk-openrouter",
    "FIREWORKS_API_KEY": "sk-fireworks",
    "FIREWORKS_AI_API_KEY": "sk-fireworks-ai",
    "TOGETHER_API_KEY": "sk-together",
    "TOGETHERAI_API_KEY": "sk-togetherai",
    "DEEPINFRA_API_KEY": "sk-deepinfra",
    "GROQ_API_KEY": "sk-groq",
    "NVIDIA_NIM_API_KEY": "sk-nvidia-nim",
    "OPENAI_API_KEY": "sk-openai",
    "ANTHROPIC_API_KEY": "sk-anthropic",
    "HOSTED_VLLM_API_KEY": "sk-hosted-vllm",
    "LITELLM_PROXY_API_KEY": "sk-litellm-proxy",
    "LAB_URL": "http://lab.test/v1",
    "LAB_KEY": "sk-lab",
}
"""The environment of LiteLLM in that run."""

MOONSHOT: Final = "https://api.moonshot.ai/v1/chat/completions"
FIREWORKS: Final = "https://api.fireworks.ai/inference/v1/chat/completions"
OPENROUTER: Final = "https://openrouter.ai/api/v1/chat/completions"
LAB: Final = "http://lab.test/v1/chat/completions"
OTHER: Final = "http://other.test/v1/chat/completions"
MESSAGES: Final = "https://api.moonshot.ai/anthropic/v1/messages"
K2: Final = "accounts/fireworks/models/kimi-k2p5"

SENT: Final = {
    "moonshot": (MOONSHOT, "kimi-k3", "sk-moonshot-of-file"),
    "openrouter": (OPENROUTER, "moonshotai/kimi-k3", "sk-openrouter"),
    "fireworks": (FIREWORKS, K2, "sk-fireworks"),
    "together": ("https://api.together.ai/v1/chat/completions", "moonshotai/Kimi-K2.5", "sk-together"),
    "deepinfra": ("https://api.deepinfra.com/v1/openai/chat/completions", "moonshotai/Kimi-K2.5", "sk-deepinfra"),
    "groq": ("https://api.groq.com/openai/v1/chat/completions", "moonshotai/kimi-k2-instruct", "sk-groq"),
    "nvidia": (
        "https://integrate.api.nvidia.com/v1/chat/completions",
        "moonshotai/kimi-k2-instruct",
        "sk-nvidia-nim",
    ),
    "openai": ("https://api.openai.com/v1/chat/completions", "gpt-5", "sk-openai"),
    "anthropic": ("https://api.anthropic.com/v1/messages", "claude-sonnet-4-5", "sk-anthropic"),
    "fireworks-short": (FIREWORKS, K2, "sk-fireworks"),
    "fireworks-own": (FIREWORKS, "accounts/me/models/mine", "sk-fireworks"),
    "fireworks-deployment": (FIREWORKS, "kimi-k2p5#accounts/me/deployments/1", "sk-fireworks"),
    "custom-provider": (OPENROUTER, "moonshotai/kimi-k3", "sk-openrouter"),
    "custom-provider-twice": (LAB, "kimi-k3", "sk-openai"),
    "base": (LAB, "kimi-k3", "sk-openai"),
    "base-with-slash": (LAB, "kimi-k3", "sk-openai"),
    "base-without-version": ("http://lab.test/chat/completions", "kimi-k3", "sk-openai"),
    "base-with-path": ("http://lab.test/inference/chat/completions", "kimi-k3", "sk-openai"),
    "base-url": (OTHER, "kimi-k3", "sk-openai"),
    "both-bases": (OTHER, "kimi-k3", "sk-hosted-vllm"),
    "both-bases-messages": ("http://other.test/v1/messages", "kimi-k3", "sk-anthropic"),
    "base-of-variable": (LAB, "kimi-k3", "sk-openai"),
    "other-region": ("https://api.moonshot.cn/v1/chat/completions", "kimi-k3", "sk-moonshot-of-file"),
    "proxy": ("http://lab.test/chat/completions", "kimi-k3", "sk-litellm-proxy"),
    "messages": (MESSAGES, "kimi-k3", "sk-anthropic"),
    "messages-endpoint": (MESSAGES, "kimi-k3", "sk-anthropic"),
    "key": (LAB, "kimi-k3", "sk-custom"),
    "no-key-custom": (LAB, "kimi-k3", "sk-openai"),
    "no-key-vllm": (LAB, "kimi-k3", "sk-hosted-vllm"),
    "empty-key": (MOONSHOT, "kimi-k3", "sk-moonshot-of-file"),
    "key-of-variable": (LAB, "kimi-k3", "sk-lab"),
    "ordered": (LAB, "first", "sk-openai"),
    "half-ordered": (LAB, "with", "sk-openai"),
    "kimi-k9": (MOONSHOT, "kimi-k9", "sk-moonshot-of-file"),
    "another": (LAB, "kimi-k3", "sk-openai"),
    "hidden": (LAB, "kimi-k3", "sk-hosted-vllm"),
}
"""Address, model and key of LiteLLM's request for each name."""

CN: Final = "https://api.moonshot.cn/v1/chat/completions"
DIFFERENT: Final[dict[str, tuple[tuple[str, str, str], tuple[str, str, str | None]]]] = {
    # LiteLLM invents a key where none is set; here there is no header.
    "no-key-lm-studio": ((LAB, "kimi-k3", "fake-api-key"), (LAB, "kimi-k3", None)),
    # Addresses that do not work in LiteLLM.
    "version-is-missing": (
        ("https://api.moonshot.cn/chat/completions", "kimi-k3", "sk-moonshot-of-file"),
        (CN, "kimi-k3", "sk-moonshot-of-file"),
    ),
    "endpoint": ((f"{CN}/chat/completions", "kimi-k3", "sk-moonshot-of-file"), (CN, "kimi-k3", "sk-moonshot-of-file")),
    "messages-with-version": (
        ("http://lab.test/v1/v1/messages", "kimi-k3", "sk-anthropic"),
        ("http://lab.test/v1/messages", "kimi-k3", "sk-anthropic"),
    ),
    # LiteLLM reads `os.environ/` before it sets `environment_variables`, and then takes OpenAI's key.
    "key-of-file": ((LAB, "kimi-k3", "sk-openai"), (LAB, "kimi-k3", "sk-of-file")),
    # The same for a variable that is not set: OpenAI's key would go to another host.
    "key-is-not-set": ((LAB, "kimi-k3", "sk-openai"), (LAB, "kimi-k3", None)),
}
"""What LiteLLM sends, and what Moonshim sends on purpose."""

REPORTED: Final = {
    "renamed-k9": ("model_list[42].model_name", "request these models as `moonshot"),
    "nameless": ("model_list[43].model_name", "its provider is not named"),
}
"""Names that lead somewhere in LiteLLM only: the report says so."""


@pytest.fixture(scope="module")
def converted() -> Converted:
    return convert_litellm(FILE.read_text(), source=FILE.name, environ=ENVIRONMENT)


@pytest.fixture(scope="module")
def config(converted: Converted) -> Config:
    return parse_config(render(converted.document), suffix=".toml", environ=ENVIRONMENT, source="moonshim.toml")


def sent_to(target: Target) -> tuple[str, str, str | None]:
    keys = target.provider.keys
    return endpoint_of(target.provider), target.model, keys[0].reveal() if keys else None


@pytest.mark.parametrize("name", SENT)
def test_a_name_leads_where_litellm_leads(name: str, config: Config) -> None:
    assert sent_to(Router(config).targets(name)[0]) == SENT[name]


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_does_not_work_in_litellm_is_not_copied(name: str, config: Config) -> None:
    theirs, ours = DIFFERENT[name]
    found = sent_to(Router(config).targets(name)[0])
    assert found == ours
    assert found != theirs


@pytest.mark.parametrize("name", REPORTED)
def test_a_name_that_leads_nowhere_is_reported(name: str, config: Config, converted: Converted) -> None:
    path, why = REPORTED[name]
    with pytest.raises(Refused):
        Router(config).targets(name)
    (entry,) = [entry for entry in converted.account.entries() if display_path(entry.path) == path]
    assert entry.outcome == "no_counterpart"
    assert why in entry.detail


def test_without_its_variable_a_server_of_your_own_gets_no_key() -> None:
    found = convert_litellm(FILE.read_text(), source=FILE.name, environ={})
    without = [one for one in found.document["providers"] if one["name"].startswith(("vllm", "lm-studio", "litellm"))]
    assert len(without) >= 3
    assert not [one for one in without if "api_key_env" in one or "api_key" in one]


def test_the_address_that_is_not_used_is_reported(converted: Converted) -> None:
    bases = [entry for entry in converted.account.entries() if entry.path[-1] == "api_base"]
    unused = [entry.detail for entry in bases if entry.outcome != "taken"]
    assert unused == ["LiteLLM uses `base_url` instead"] * 2
