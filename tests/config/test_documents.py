"""The JSON that people already have works as it is: every shape of a provider, of a file, and of a chain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moonshim.config import TransformerUse, endpoint_of
from tests.config.texts import json_, problems

OPENROUTER = """{
  "name": "openrouter",
  "api_base_url": "https://openrouter.ai/api",
  "api_key": "your-openrouter-key",
  "models": ["moonshotai/Kimi-K2-Instruct"],
  "transformer": {
    "use": ["Kimi"]
  }
}
"""
SILICONFLOW = """{
  "name": "siliconflow",
  "api_base_url": "https://api.siliconflow.cn/v1",
  "api_key": "your-siliconflow-key",
  "models": ["moonshotai/Kimi-K2-Instruct"],
  "transformer": {
    "use": ["Kimi"]
  }
}
"""

FILES = {
    "one provider": OPENROUTER,
    "two providers, one behind the other": f"{OPENROUTER}\n{SILICONFLOW}",
    "two providers, with a comma between them": f"{OPENROUTER},\n{SILICONFLOW}",
    "a list": f"[{OPENROUTER}, {SILICONFLOW}]",
    "providers": f'{{"providers": [{OPENROUTER}, {SILICONFLOW}]}}',
    "Providers": f'{{"Providers": [{OPENROUTER}, {SILICONFLOW}]}}',
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_a_file_may_have_any_of_the_usual_shapes(text: str) -> None:
    config = json_(text)
    names = [provider.name for provider in config.providers]
    assert names == ["openrouter", "siliconflow"][: len(names)]
    assert len(names) == text.count('"name"')
    first = config.providers[0]
    assert [key.reveal() for key in first.keys] == ["your-openrouter-key"]
    assert first.models == ("moonshotai/Kimi-K2-Instruct",)
    assert first.transformers == (TransformerUse("Kimi"),)
    assert endpoint_of(first) == "https://openrouter.ai/api/v1/chat/completions"


def test_the_hosts_of_the_document_lead_to_their_endpoints() -> None:
    config = json_(f"[{OPENROUTER}, {SILICONFLOW}]")
    assert [endpoint_of(provider) for provider in config.providers] == [
        "https://openrouter.ai/api/v1/chat/completions",
        "https://api.siliconflow.cn/v1/chat/completions",
    ]


KIMI = TransformerUse("Kimi", {"manualToolParsing": True})
LINKS: dict[str, tuple[Any, tuple[TransformerUse, ...]]] = {
    "a name": (["Kimi"], (TransformerUse("Kimi"),)),
    "a name in a list": ([["Kimi"]], (TransformerUse("Kimi"),)),
    "a pair": ([["Kimi", {"manualToolParsing": True}]], (KIMI,)),
    "a table": ([{"Kimi": {"manualToolParsing": True}}], (KIMI,)),
    "several": (["Log", {"Kimi": {"manualToolParsing": True}}], (TransformerUse("Log"), KIMI)),
    "none": ([], ()),
}


@pytest.mark.parametrize(("use", "expected"), LINKS.values(), ids=LINKS.keys())
def test_a_link_of_a_chain_may_be_written_in_three_ways(use: Any, expected: tuple[TransformerUse, ...]) -> None:
    provider = {"name": "p", "api_base_url": "https://h/v1", "models": ["k2", "k3"]}
    config = json_(json.dumps(provider | {"transformer": {"use": use, "k3": {"use": use}}}))
    assert config.providers[0].transformers == expected
    assert config.providers[0].model_transformers == ({"k3": expected} if expected else {})


def test_a_chain_of_a_model_that_is_not_there_is_a_mistake() -> None:
    provider = {"name": "p", "api_base_url": "https://h/v1", "models": ["kimi-k2"], "transformer": {"kimi-k2x": {}}}
    (problem,) = problems(json.dumps(provider), suffix=".json")
    assert problem == (
        "moonshim.json:1: transformer.kimi-k2x: this provider has no model 'kimi-k2x' (did you mean 'kimi-k2'?)"
    )


def test_a_transformer_that_nobody_knows_is_a_mistake_that_names_the_nearest() -> None:
    provider = {
        "name": "p",
        "api_base_url": "https://h/v1",
        "transformer": {"use": ["Kimmi", ["Kimi", {"idPrefx": 1}]]},
    }
    first, second = problems(json.dumps(provider), suffix=".json")
    assert "transformer.use[0]" in first
    assert "did you mean 'Kimi'?" in first
    assert "transformer.use[1]" in second
    assert "did you mean 'idPrefix'?" in second
