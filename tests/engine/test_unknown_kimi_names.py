"""Names of Kimi models whose generation is not known, and the options of an explicit `Kimi` for any model."""

from __future__ import annotations

from typing import Any, Final

import pytest

import moonshim
from moonshim.engine.hosts.detect import describe_guess, generation_of

UNNUMBERED: Final = ("my-kimi", "kimi-next", "kimi-thinking-preview", "Kimi-VL-A3B-Thinking", "kimi-k1.5")
NEWER: Final = {"kimi-k4": "k3.1", "moonshotai/Kimi-K4.2-Pro": "k3.1", "kimi-k12": "k3.1", "kimi-k3.7": "k3.1"}
TOOL: Final = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}


def body(model: str, **fields: Any) -> dict[str, Any]:
    call = {"id": "call_abc", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "reasoning_content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_abc", "content": "a.py"},
        {"role": "assistant", "reasoning_content": "Done.", "content": "One file."},
        {"role": "user", "content": "and now?"},
    ]
    return {"model": model, "messages": messages, "tools": [TOOL], **fields}


@pytest.mark.parametrize("host", ["moonshot", "generic", "vllm", "openrouter", "kimi-coding"])
@pytest.mark.parametrize("model", UNNUMBERED)
def test_a_name_without_a_number_gets_the_strictest_common_rules(model: str, host: str) -> None:
    asked = body(model, temperature=0.2, top_p=0.5, presence_penalty=0.1, frequency_penalty=0.1)
    prepared = moonshim.prepare_request(asked, host=host)
    sent = prepared.body
    assert not {"temperature", "top_p", "presence_penalty", "frequency_penalty"} & set(sent)
    assert sent["tool_choice"] == "auto"
    assert sent["messages"][1]["tool_calls"][0]["id"] == "functions.ls:0"
    assert sent["messages"][2]["tool_call_id"] == "functions.ls:0"
    reasoning = [key for key in ("reasoning_content", "reasoning") if key in sent["messages"][1]]
    assert sent["messages"][1][reasoning[0]] == "I look."
    rules = {change.rule for change in prepared.changes}
    assert {"fixed_sampling", "tool_choice_default"} <= rules


@pytest.mark.parametrize("model", UNNUMBERED)
def test_lost_reasoning_gets_a_placeholder(model: str) -> None:
    asked = body(model)
    del asked["messages"][1]["reasoning_content"]
    for host in ("moonshot", "generic"):
        assert moonshim.prepare_request(asked, host=host).body["messages"][1]["reasoning_content"] == ""


def test_several_choices_are_not_refused_where_no_generation_refuses_them() -> None:
    assert moonshim.prepare_request(body("my-kimi", n=2), host="vllm").body["n"] == 2
    with pytest.raises(moonshim.CannotExpress):
        moonshim.prepare_request(body("my-kimi", n=2), host="moonshot")


@pytest.mark.parametrize(("model", "generation"), NEWER.items())
def test_a_higher_number_follows_the_newest_known_generation(model: str, generation: str) -> None:
    assert generation_of(model) == generation
    assert describe_guess(model) == (
        f"{model!r} is newer than the known Kimi generations, and is treated as {generation}; the profile field"
        " `generation` selects another"
    )


@pytest.mark.parametrize(
    ("model", "generation"),
    [
        ("kimi-k2.10", "k2.7"),
        ("kimi-k2p12-code", "k2.7"),
        ("kimi-k2-0905-preview", "k2"),
        ("kimi-k3-256k", "k3"),
        ("kimi-latest", "k2.7"),
        ("mk2-model", "other"),
        ("k4", "other"),
        ("blackbox-k20", "other"),
    ],
)
def test_other_names_are_what_they_were(model: str, generation: str) -> None:
    assert generation_of(model) == generation


@pytest.mark.parametrize("model", ["kimi-k2.6", "k3", "kimi-k3.1-pro", "kimi-latest", "kimi-for-coding", "gpt-5", "k4"])
def test_a_known_name_is_no_guess(model: str) -> None:
    assert describe_guess(model) is None


def test_a_guess_without_a_number_says_what_applies() -> None:
    assert describe_guess("my-kimi") == (
        "the name 'my-kimi' does not say which Kimi generation it is, so the strictest rules common to all apply; the"
        " profile field `generation` selects one"
    )


def test_a_generation_that_is_set_decides() -> None:
    prepared = moonshim.prepare_request(body("my-kimi", temperature=0.2), host="vllm", overrides={"generation": "k2.6"})
    assert prepared.body["temperature"] == 0.2


@pytest.mark.parametrize("host", ["moonshot", "generic", "vllm"])
@pytest.mark.parametrize("default", ["auto", "required"])
def test_an_explicit_kimi_applies_its_options_to_any_model(host: str, default: str) -> None:
    options = moonshim.KimiOptions(tool_choice_default=default)
    prepared = moonshim.prepare_request(body("moonshot-v1-8k"), host=host, options=options)
    assert prepared.body["tool_choice"] == default
    assert prepared.body["messages"][1]["tool_calls"][0]["id"] == "functions.ls:0"
    assert "tool_choice" not in moonshim.prepare_request(body("moonshot-v1-8k"), host=host).body


def test_a_choice_of_the_client_for_another_model_stays() -> None:
    options = moonshim.KimiOptions()
    chosen = {"type": "function", "function": {"name": "ls"}}
    prepared = moonshim.prepare_request(body("moonshot-v1-8k", tool_choice=chosen), host="moonshot", options=options)
    assert prepared.body["tool_choice"] == chosen


@pytest.mark.parametrize(("host", "upstream"), [("moonshot", "openai_chat"), ("kimi-coding", "openai_chat")])
def test_a_model_that_is_unknown_gets_the_placeholder_where_only_kimi_models_are(host: str, upstream: str) -> None:
    asked = body("an-alias")
    del asked["messages"][1]["reasoning_content"]
    prepared = moonshim.prepare_request(asked, host=host, upstream=upstream)
    assert prepared.body["messages"][1]["reasoning_content"] == ""
    assert "reasoning_lost" in {change.rule for change in prepared.changes}


@pytest.mark.parametrize(
    ("host", "model"), [("generic", "an-alias"), ("vllm", "an-alias"), ("moonshot", "moonshot-v1-8k")]
)
def test_no_other_model_gets_it(host: str, model: str) -> None:
    asked = body(model)
    del asked["messages"][1]["reasoning_content"]
    assert "reasoning_content" not in moonshim.prepare_request(asked, host=host).body["messages"][1]
