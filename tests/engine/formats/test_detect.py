"""The format that a model's name stands for, and how to overrule it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.formats import (
    STRUCTURED_FORMATS,
    TEXT_FORMATS,
    TOOL_FORMATS,
    detect_tool_format,
    is_kimi_model,
    kimi_generation,
)
from moonshim.errors import InvalidInput, UnknownFormat

KIMI = {
    "kimi-k2-0711-preview": "k2",
    "KIMI-K2-0905": "k2",
    "K2-Thinking": "k2",
    "moonshotai/Kimi-K2-Instruct": "k2",
    "accounts/fireworks/models/kimi-k2p5-turbo": "k2",
    "kimi-k2.7-code-highspeed": "k2",
    "kimi_k2_thinking": "k2",
    "moonshotai.kimi-k2-thinking:free": "k2",
    "kimik2": "k2",
    "org/k2": "k2",
    "k2p5": "k2",
    "k2p6": "k2",
    "k2.5": "k2",
    "kimi-k3": "k3",
    "k3": "k3",
    "K3-256k": "k3",
    "k3.1-pro": "k3",
    "kimi-k3.1-pro-highspeed": "k3",
    "kimi-for-coding": None,
    "kimi-latest": None,
    "Kimi-Dev-72B": None,
}
NOT_KIMI = [
    "",
    "gpt-4o",
    "claude-sonnet-4",
    "qwen3-coder-plus",
    "moonshot-v1-8k",
    "mk2-model",
    "blackbox-k20",
    "k2000",
    "k4",
    "rk3588-llm",
    "ak3",
    "k2x",
    "task2",
]


@pytest.mark.parametrize("model", KIMI)
def test_these_are_kimi_models(model: str) -> None:
    assert is_kimi_model(model)
    assert detect_tool_format(model) == "kimi"


@pytest.mark.parametrize("model", NOT_KIMI)
def test_these_are_not(model: str) -> None:
    assert not is_kimi_model(model)
    assert kimi_generation(model) is None
    assert detect_tool_format(model) != "kimi"


@pytest.mark.parametrize(("model", "generation"), KIMI.items())
def test_the_generation_is_in_the_name_or_unknown(model: str, generation: str | None) -> None:
    assert kimi_generation(model) == generation


@given(st.text(max_size=30))
def test_letter_case_never_matters(model: str) -> None:
    if model.lower() == model.upper().lower():  # true for all but a handful of letters
        assert detect_tool_format(model) == detect_tool_format(model.upper())


DETECTED = {
    "mistral-large-latest": "mistral",
    "open-mixtral-8x22b": "mistral",
    "devstral-small-latest": "mistral",
    "Codestral-2508": "mistral",
    "ministral-8b": "mistral",
    "magistral-medium": "mistral",
    "glm-4": "qwen",
    "openai:hf:zai-org/GLM-4.6": "qwen",
    "glm-5": "openai",
    "qwen-turbo": "qwen",
    "Qwen/Qwen3-Coder-480B": "qwen",
    "deepseek-reasoner": "deepseek",
    "deepseek-chat": "openai",
    "gpt-4.1-mini": "openai",
    "o3-mini": "openai",
    "claude-opus-4": "openai",
    "gemma-3-27b": "openai",
    "some-custom-model": "openai",
}


@pytest.mark.parametrize(("model", "format"), DETECTED.items())
def test_other_families_keep_their_rules(model: str, format: str) -> None:
    assert detect_tool_format(model) == format


@pytest.mark.parametrize("format", TOOL_FORMATS)
@pytest.mark.parametrize("model", ["kimi-k2", "gpt-4o", "glm-4"])
def test_an_override_beats_detection(model: str, format: str) -> None:
    assert detect_tool_format(model, override=format) == format
    assert detect_tool_format(model, overrides={model: format}) == format
    assert detect_tool_format(model.upper(), overrides={model: format}) == format


def test_an_override_for_another_model_means_nothing() -> None:
    assert detect_tool_format("kimi-k2", overrides={"kimi-k3": "openai"}) == "kimi"


def test_the_general_override_goes_before_the_one_of_the_model() -> None:
    assert detect_tool_format("m", override="xml", overrides={"m": "llama"}) == "xml"


@pytest.mark.parametrize(("model", "format"), [("kimi-k2", "kimi"), ("mistral-small", "mistral"), ("gpt-4o", "openai")])
def test_auto_goes_back_to_detection(model: str, format: str) -> None:
    assert detect_tool_format(model, override="auto") == format
    assert detect_tool_format(model, overrides={model: "auto"}) == format
    assert detect_tool_format(model, override="auto", overrides={model: "llama"}) == format


@pytest.mark.parametrize("wrong", ["openaai", "Kimi", "", " kimi", 42, ["kimi"]])
def test_an_unknown_override_is_refused_with_the_list_of_valid_ones(wrong: Any) -> None:
    with pytest.raises(UnknownFormat) as refused:
        detect_tool_format("kimi-k2", override=wrong)
    said = str(refused.value)
    structured, text = said.split("Structured: ")[1].split("Text-based: ")
    assert [name.strip() for name in structured.split(",")] == list(STRUCTURED_FORMATS)
    assert [name.strip() for name in text.split(",")] == list(TEXT_FORMATS)
    assert isinstance(refused.value, InvalidInput)
    assert refused.value.field == "format"


def test_there_are_ten_formats_each_structured_or_text() -> None:
    assert len(TOOL_FORMATS) == 10
    assert sorted([*STRUCTURED_FORMATS, *TEXT_FORMATS]) == sorted(TOOL_FORMATS)
