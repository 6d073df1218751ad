"""URLs and names of models find their row, and every cell of it can be set by hand."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.hosts.detect import family_of, generation_of, host_of, profile_for
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.hosts.table import DIALECTS, GENERATIONS, HOSTS, RULES
from moonshim.errors import InvalidInput, InvalidOption
from tests.support.looped import looped

URLS = {
    "https://api.moonshot.ai/v1": "moonshot",
    "https://API.Moonshot.CN/v1/": "moonshot",
    "https://api.moonshot.ai/anthropic": "moonshot-anthropic",
    "https://api.moonshot.cn/anthropic/v1/messages": "moonshot-anthropic",
    "https://api.kimi.com/coding/v1": "kimi-coding",
    "https://api.kimi.com/coding/": "kimi-coding",
    "https://api.kimi.com/v1": "moonshot",
    "https://api.kimi.ai/coding": "kimi-coding",
    "https://api.kimi.ai/coding/v1": "kimi-coding",
    "https://api.kimi.ai/coding/v1/messages": "kimi-coding",
    "https://api.kimi.ai/v1": "moonshot",
    "https://openrouter.ai/api/v1": "openrouter",
    "https://api.fireworks.ai/inference/v1": "fireworks",
    "https://api.together.xyz/v1": "together",
    "https://api.together.ai/v1": "together",
    "https://api.siliconflow.cn/v1": "siliconflow",
    "https://api.siliconflow.com/v1": "siliconflow",
    "https://api.deepinfra.com/v1/openai": "deepinfra",
    "https://api.groq.com/openai/v1": "groq",
    "https://integrate.api.nvidia.com/v1": "nim",
    "https://opencode.ai/zen/v1": "opencode",
    "https://opencode.ai/zen/go/v1": "opencode",
    "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1": "bedrock",
    "https://bedrock-mantle.eu-west-1.api.aws/v1": "bedrock",
    "https://bedrock-runtime-fips.us-west-2.amazonaws.com/openai/v1": "bedrock",
    "https://my-vllm.us-east-1.elb.amazonaws.com/v1": "generic",
    "https://inference.baseten.co/v1": "baseten",
    "https://api.novita.ai/openai": "novita",
    "https://api.novita.ai/v3/openai": "novita",
    "https://api.tokenfactory.nebius.com/v1": "nebius",
    "https://api.studio.nebius.ai/v1": "nebius",
    "https://me--kimi-serve.modal.run/v1": "modal",
    "https://api.us-west-2.modal.direct/v1": "modal",
    "https://api.cloudflare.com/client/v4/accounts/0a1b/ai/v1": "cloudflare",
    "https://gateway.ai.cloudflare.com/v1/0a1b/gate/workers-ai/v1": "cloudflare",
    "https://gateway.ai.cloudflare.com/v1/0a1b/gate/openrouter": "generic",
    "https://ai-gateway.vercel.sh/v1": "vercel",
    "https://ollama.com/v1": "ollama",
    "http://localhost:11434/v1": "generic",
    "https://ark.cn-beijing.volces.com/api/v3": "volcengine",
    "https://ark.cn-beijing.volces.com/api/coding/v3": "volcengine",
    "https://ark.ap-southeast.bytepluses.com/api/v3": "volcengine",
    "https://dashscope.aliyuncs.com/compatible-mode/v1": "alibaba",
    "https://coding-intl.dashscope.aliyuncs.com/v1": "alibaba",
    "https://mine.oss-cn-beijing.aliyuncs.com/v1": "generic",
    "https://mine.services.ai.azure.com/openai/v1": "azure",
    "https://mine.openai.azure.com/openai/v1": "azure",
    "https://mine.azurewebsites.net/v1": "generic",
    "api.moonshot.ai/v1": "moonshot",
    "//api.groq.com": "groq",
    "https://user:secret@api.moonshot.ai:443/v1?x=1#y": "moonshot",
    "https://api.moonshot.ai./v1": "moonshot",
    "http://localhost:8000/v1": "generic",
    "http://[::1]:8000/v1": "generic",
    "https://api.moonshot.ai.example.com/v1": "generic",
    "https://notmoonshot.ai/v1": "generic",
    "https://example.com/?u=https://api.moonshot.ai": "generic",
    "https://example.com/api.moonshot.ai": "generic",
    "": "generic",
    "   ": "generic",
    "://": "generic",
    "http://": "generic",
}

MODELS = {
    "kimi-k2-0711-preview": "k2",
    "kimi-k2-0905-preview": "k2",
    "kimi-k2-turbo-preview": "k2",
    "moonshotai/Kimi-K2-Instruct-0905": "k2",
    "moonshotai/kimi-k2:free": "k2",
    "kimi-k2-thinking": "k2-thinking",
    "moonshotai/Kimi-K2-Thinking": "k2-thinking",
    "kimi-k2-thinking-turbo": "k2-thinking",
    "kimi-k2.5": "k2.5",
    "accounts/fireworks/models/kimi-k2p5": "k2.5",
    "k2p5": "k2.5",
    "moonshotai.kimi-k2-5": "k2.5",
    "nvidia/Kimi-K2.5-NVFP4": "k2.5",
    "kimi-k2p6": "k2.6",
    "kimi-k2.6-thinking": "k2.6",
    "kimi-k2.7-code-highspeed": "k2.7",
    "accounts/fireworks/models/kimi-k2p7-code": "k2.7",
    "kimi-k2.9": "k2.7",
    "k3": "k3",
    "k3-256k": "k3",
    "accounts/fireworks/models/kimi-k3": "k3",
    "kimi-k3.1-pro": "k3.1",
    "k3.1-pro": "k3.1",
    "kimi-k3p1-pro-highspeed": "k3.1",
    "kimi-k3.4": "k3.1",
    "kimi-for-coding": "k2.7",
    "kimi-for-coding-highspeed": "k2.7",
    "kimi-latest": "k2.7",
    "kimi-vl-a3b-thinking": "kimi",
    "moonshot-v1-128k": "other",
    "gpt-5": "other",
    "mk2-model": "other",
    "k20": "other",
    "": "other",
}


@pytest.mark.parametrize(("url", "host"), URLS.items())
def test_a_base_url_finds_its_host(url: str, host: str) -> None:
    assert host_of(url) == host


@given(st.text() | st.none())
def test_no_url_is_too_odd(url: str | None) -> None:
    assert host_of(url) in HOSTS


@pytest.mark.parametrize(("model", "generation"), MODELS.items())
def test_a_name_tells_the_generation(model: str, generation: str) -> None:
    assert generation_of(model) == generation


@given(st.text())
def test_any_name_has_a_generation_and_a_family(model: str) -> None:
    assert generation_of(model) in GENERATIONS
    assert (generation_of(model) == "other") or family_of(model) == "kimi"


def test_families_are_told_by_the_name() -> None:
    names = ("Qwen/QwQ-32B", "deepseek-chat", "gemma-3", "glm-4.7", "devstral-small", "llama-3.3", "claude-sonnet-5")
    assert [family_of(name) for name in names] == ["qwen", "deepseek", "gemma", "glm", "mistral", "llama", "claude"]


@pytest.mark.parametrize("host", HOSTS)
@looped("generation, dialect", [*product(GENERATIONS, DIALECTS)])
def test_every_row_has_every_cell_in_its_type(host: str, generation: str, dialect: str) -> None:
    row = profile_for(host=host, model="m", upstream=dialect, overrides={"generation": generation})
    assert msgspec.convert(msgspec.to_builtins(row), HostProfile) == row


def test_rows_set_only_cells_that_exist() -> None:
    names = set(HostProfile.__struct_fields__)
    assert [sorted(row.fields.keys() - names) for row in RULES if row.fields.keys() - names] == []


def test_a_named_host_counts_more_than_the_url() -> None:
    assert profile_for(host="vllm", base_url="https://api.moonshot.ai/v1", model="k3").host == "vllm"
    assert profile_for(base_url="https://api.moonshot.ai/v1", model="k3").host == "moonshot"
    assert profile_for(model="k3").host == "generic"


def test_messages_have_rows_of_their_own() -> None:
    row = profile_for(host="moonshot", model="kimi-k2.6", upstream="anthropic")
    assert (row.host, row.dialect, row.history_ids, row.thinking) == (
        "moonshot-anthropic",
        "anthropic",
        "anthropic",
        "anthropic",
    )
    assert row == profile_for(host="moonshot-anthropic", model="kimi-k2.6")
    assert profile_for(host="kimi-coding", model="k3", upstream="anthropic").thinking == "output_config"
    assert profile_for(host="generic", model="claude-sonnet-5", upstream="anthropic").merges_roles
    # The pattern of Messages has no dots, but vLLM and SGLang show K2 the identifiers as they are.
    everywhere = {host: profile_for(host=host, model="kimi-k2.6", upstream="anthropic") for host in HOSTS}
    assert {host for host, row in everywhere.items() if row.history_ids == "k2"} == {"vllm", "sglang"}
    assert everywhere["generic"].history_ids == "k2_messages"
    assert {row.history_ids for row in everywhere.values()} == {"anthropic", "k2", "k2_messages"}


def test_of_a_foreign_model_at_an_unknown_host_only_identifiers_are_looked_at() -> None:
    row = profile_for(model="gpt-5")
    assert (row.thinking, row.history_ids, row.id_policy, row.grammar) == ("passed", "standard", "keep", None)


def test_a_name_without_a_generation_lets_the_first_marker_decide() -> None:
    names = ("kimi-for-coding", "kimi-latest", "kimi-vl-a3b", "kimi-k2.5", "k3", "qwen3")
    grammars = [profile_for(host="kimi-coding", model=name).grammar for name in names]
    assert grammars == ["kimi", "kimi", "kimi", "kimi_k2", "kimi_k3", None]


OVERRIDES: dict[str, tuple[Any, Any]] = {
    "tool_limit": (12, 12),
    "media": (["image"], frozenset({"image"})),
    "stop_limit": ([4, 16], (4, 16)),
    "lost_reasoning": (" ", " "),
    "grammar": ("hermes", "hermes"),
    "efforts": ({"low": "little"}, {"low": "little"}),
    "thinking": (None, None),
}


@pytest.mark.parametrize(("cell", "value", "expected"), [(cell, *pair) for cell, pair in OVERRIDES.items()])
def test_any_cell_can_be_overridden(cell: str, value: Any, expected: Any) -> None:
    assert getattr(profile_for(model="k3", overrides={cell: value}), cell) == expected


def test_an_overridden_generation_chooses_its_rows() -> None:
    row = profile_for(host="moonshot", model="my-tune", overrides={"generation": "k3"})
    assert (row.generation, row.grammar, row.thinking) == ("k3", "kimi_k3", "reasoning_effort")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a cell that does not exist": ({"tool_limits": 3}, "did you mean 'tool_limit'?"),
    "a cell like no other": ({"zzz": 3}, "the fields are host"),
    "a word that does not exist": ({"id_policy": "uniq"}, "did you mean 'unique'?"),
    "a word like no other": ({"generation": "k9"}, "for generation: expected one of k2, k2-thinking, k2.5"),
    "a value of the wrong type": (
        {"tool_limit": "many"},
        "invalid value 'many' for tool_limit: expected an integer or null, got a string",
    ),
    "a value that is no JSON": ({"efforts": object()}, "for efforts: "),
    "a word inside a list": ({"media": ["imag"]}, "invalid value ['imag'] for media: expected one of "),
    "a pattern of names that does not end": ({"tool_name_pattern": "("}, "invalid value '(' for tool_name_pattern"),
    "a pattern of signatures that does not end": ({"signature_pattern": "["}, "not a regular expression"),
    "a pattern that counts too far": ({"tool_name_pattern": "a{99999999999}"}, "not a regular expression"),
}


@pytest.mark.parametrize(("overrides", "hint"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_override_is_named(overrides: dict[str, Any], hint: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        profile_for(model="k3", overrides=overrides)
    assert hint in str(caught.value)
    assert caught.value.field == next(iter(overrides))


def test_a_wrong_override_is_not_repeated_at_length() -> None:
    with pytest.raises(InvalidOption) as caught:
        profile_for(model="k3", overrides={"tool_limit": "x" * 300_000})
    assert len(str(caught.value)) < 500


def test_an_unknown_host_is_refused_with_the_names() -> None:
    with pytest.raises(InvalidInput, match=r"did you mean 'moonshot'\?.*moonshot-anthropic") as caught:
        profile_for(host="moonshoot", model="k3")
    assert caught.value.field == "host"


BAD: list[dict[str, Any]] = [
    {"model": 3},
    {"model": "k3", "host": 3},
    {"model": "k3", "upstream": "openai_responses"},
    {"model": "k3", "overrides": [1]},
    {"model": "k3", "overrides": {"host": "nowhere"}},
    {"model": "k3", "overrides": {3: 3}},
]


@pytest.mark.parametrize("arguments", BAD)
def test_arguments_of_the_wrong_kind_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        profile_for(**arguments)
