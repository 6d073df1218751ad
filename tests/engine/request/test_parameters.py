"""Parameters as clients send them become parameters that the host accepts, and each change is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.dialects.anthropic import request as anthropic
from moonshim.engine.dialects.openai_chat.request import parse_request, render_request
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.table import DIALECTS, GENERATIONS, HOSTS
from moonshim.engine.request.parameters import adapt_parameters, cache_key_of
from moonshim.engine.signing import Signer
from moonshim.engine.values.conversation import Change, Message, Request, Sampling, Text, Thinking, Tool, ToolChoice
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import CannotExpress, InvalidOption
from moonshim.simulator.rules.request_rules import check_chat, check_messages

Json = dict[str, Any]
OPTIONS = KimiOptions()
KNOWN = [name for name in GENERATIONS if name not in ("kimi", "other")]
FAR: Json = {"type": "object", "properties": {"a": {"$ref": "https://example.com/s.json"}}}
TOOL: Json = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}
ODD: Json = {"$schema": "https://json-schema.org/draft-07/schema", "type": "object", "properties": {}}
MODELS = {
    "k2": "kimi-k2-0905-preview",
    "k2-thinking": "kimi-k2-thinking",
    "k2.5": "kimi-k2.5",
    "k2.6": "kimi-k2.6",
    "k2.7": "kimi-k2.7-code",
    "k3": "kimi-k3",
    "k3.1": "kimi-k3.1-pro",
    "kimi": "my-kimi",
    "other": "gpt-5",
}


def sent(
    host: str, generation: str, fields: Json, options: KimiOptions = OPTIONS, **overrides: Any
) -> tuple[Json, list[Change]]:
    """What a Chat client's fields become on the way to a host."""
    body = {"model": MODELS[generation], "messages": [{"role": "user", "content": "hi"}], "prompt_cache_key": "c"}
    request, _ = parse_request(body | fields, Signer())
    profile = profile_for(host=host, model=request.model, overrides=overrides)
    conditioned, changes = adapt_parameters(request, profile, options)
    again, more = adapt_parameters(conditioned, profile, options)
    assert (again, more) == (conditioned, [])
    out, _ = render_request(conditioned)
    return {key: value for key, value in out.items() if key not in ("model", "messages", "prompt_cache_key")}, changes


# name: host, generation, what the client sends, what the host gets, the rules that were applied
CASES: dict[str, tuple[str, str, Json, Json, list[str]]] = {
    "a fixed temperature is left out": ("moonshot", "k3", {"temperature": 0.2}, {}, ["fixed_sampling"]),
    "the one that is allowed stays": ("moonshot", "k2.5", {"temperature": 1}, {"temperature": 1}, []),
    "without thinking another one is allowed": (
        "moonshot",
        "k2.6",
        {"temperature": 0.6, "thinking": {"type": "disabled"}},
        {"temperature": 0.6, "thinking": {"type": "disabled"}},
        [],
    ),
    "all fixed fields are left out": (
        "openrouter",
        "k2.7",
        {"temperature": 0, "top_p": 1, "presence_penalty": 0.5, "frequency_penalty": -1, "n": 0},
        {},
        ["fixed_sampling"] * 5,
    ),
    "self-hosted models sample as they are told": ("vllm", "k2.5", {"temperature": 0.2}, {"temperature": 0.2}, []),
    "K2 takes temperatures up to 1": ("moonshot", "k2", {"temperature": 1.7}, {"temperature": 1.0}, ["sampling_range"]),
    "a negative temperature becomes 0": ("sglang", "k3", {"temperature": -1}, {"temperature": 0.0}, ["sampling_range"]),
    "too many output tokens are cut": ("groq", "k2", {"max_tokens": 20_000}, {"max_tokens": 16_384}, ["max_tokens"]),
    "the client's name of the limit stays": (
        "moonshot",
        "k2.5",
        {"max_completion_tokens": 400_000},
        {"max_completion_tokens": 262_144},
        ["max_tokens"],
    ),
    "the whole window is fine where the host cuts it": (
        "moonshot",
        "k2.6",
        {"max_completion_tokens": 262_144},
        {"max_completion_tokens": 262_144},
        [],
    ),
    "elsewhere it leaves no room": ("vllm", "k2.6", {"max_completion_tokens": 262_144}, {}, ["max_tokens"]),
    "a host that knows one name gets it": (
        "together",
        "k2.5",
        {"max_completion_tokens": 100},
        {"max_tokens": 100},
        [],
    ),
    "no tokens at all is left out": ("vllm", "k3", {"max_tokens": 0}, {}, ["sampling_range"]),
    "stop sequences over the limit are left out": (
        "moonshot",
        "k3",
        {"stop": ["a", "b" * 33, "c", "d", "e", "f", "g"]},
        {"stop": ["a", "c", "d", "e", "f"]},
        ["stop"],
    ),
    "bytes are counted, not characters": ("moonshot", "k3", {"stop": "月" * 11}, {}, ["stop"]),
    "required is relaxed while K2 thinks": (
        "moonshot",
        "k2.5",
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": "auto"},
        ["tool_choice"],
    ),
    "a choice by name is relaxed while K2 thinks": (
        "kimi-coding",
        "k2.7",
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "ls"}}},
        {"tools": [TOOL], "tool_choice": "auto"},
        ["tool_choice"],
    ),
    "without thinking it stays": (
        "moonshot",
        "k2.5",
        {"tools": [TOOL], "tool_choice": "required", "thinking": {"type": "disabled"}},
        {"tools": [TOOL], "tool_choice": "required", "thinking": {"type": "disabled"}},
        [],
    ),
    "K3 ignores names, so the choice is required": (
        "moonshot",
        "k3",
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "ls"}}},
        {"tools": [TOOL], "tool_choice": "required"},
        ["tool_choice"],
    ),
    "allowed tools cannot be said, their mode can": (
        "vllm",
        "k3",
        {
            "tools": [TOOL],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "ls"}}]},
            },
        },
        {"tools": [TOOL], "tool_choice": "required"},
        ["tool_choice"],
    ),
    "a choice without tools is left out": ("moonshot", "k3", {"tool_choice": "required"}, {}, ["tool_choice"]),
    "so is one beside an empty list": (
        "vllm",
        "k3",
        {"tools": [], "tool_choice": "auto"},
        {"tools": []},
        ["tool_choice"],
    ),
    "tools without a choice get the default": (
        "moonshot",
        "k3",
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "auto"},
        ["tool_choice_default"],
    ),
    "a stream is asked for its usage": (
        "moonshot",
        "k3",
        {"stream": True, "stream_options": {"x": 1}},
        {"stream": True, "stream_options": {"x": 1, "include_usage": True}},
        ["include_usage"],
    ),
    "numbers that nobody can write": (
        "moonshot",
        "k2",
        {"temperature": 10**400, "max_tokens": 10**5000, "thinking": {"budget_tokens": 10**5000}},
        {"temperature": 1.0, "max_tokens": 262_144},
        ["sampling_range", "max_tokens", "thinking"],
    ),
    "thinking that says nothing": ("moonshot", "k2.5", {"thinking": {}}, {}, ["thinking"]),
    "two limits of tokens that are both accepted": (
        "moonshot",
        "k3",
        {"max_tokens": 9, "max_completion_tokens": 5},
        {"max_tokens": 9, "max_completion_tokens": 5},
        [],
    ),
    "two limits, and the one that does not count would be refused": (
        "moonshot",
        "k3",
        {"max_tokens": 10**7, "max_completion_tokens": 5},
        {"max_completion_tokens": 5},
        ["max_tokens"],
    ),
    "two limits where one name is known": (
        "together",
        "k3",
        {"max_tokens": 10**7, "max_completion_tokens": 5},
        {"max_tokens": 5},
        [],
    ),
    "a schema for the answer in Moonshot's flavour": (
        "moonshot",
        "k3",
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": ODD}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"type": "object", "properties": {}}},
            }
        },
        ["response_format"],
    ),
    "a schema without a name, which Moonshot refuses": (
        "moonshot",
        "k3",
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}},
        ["response_format"],
    ),
    "where the host wants no other flavour": (
        "vllm",
        "k3",
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": ODD}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": ODD}}},
        [],
    ),
    "a schema that is missing": (
        "moonshot",
        "k3",
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
        {"response_format": {"type": "json_object"}},
        ["response_format"],
    ),
    "a foreign model at an unknown host gets what was sent": (
        "generic",
        "other",
        {"temperature": 3, "stream": True, "reasoning_effort": "xhigh", "stop": ["a"] * 9, "n": 0},
        {"temperature": 3, "stream": True, "reasoning_effort": "xhigh", "stop": ["a"] * 9, "n": 0},
        [],
    ),
    "but the default of an explicit choice": (
        "generic",
        "other",
        {"temperature": 3, "tools": [TOOL]},
        {"temperature": 3, "tools": [TOOL], "tool_choice": "auto"},
        ["tool_choice_default"],
    ),
}


@pytest.mark.parametrize(("host", "generation", "fields", "expected", "rules"), CASES.values(), ids=CASES.keys())
def test_the_host_gets(host: str, generation: str, fields: Json, expected: Json, rules: list[str]) -> None:
    out, changes = sent(host, generation, fields)
    assert out == expected
    assert [change.rule for change in changes] == rules
    assert all(change.detail and change.place for change in changes)


RIGHT: dict[str, tuple[str, str, Json]] = {
    "nothing but the messages": ("moonshot", "k2.5", {}),
    "kimi-code over K2.6": (
        "moonshot",
        "k2.6",
        {
            "thinking": {"type": "enabled", "keep": "all"},
            "max_completion_tokens": 262_144,
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [TOOL],
            "tool_choice": "auto",
        },
    ),
    "kimi-code over K3": (
        "kimi-coding",
        "k3",
        {"thinking": {"type": "enabled", "keep": "all"}, "reasoning_effort": "high"},
    ),
    "effort in the words of K3": ("moonshot", "k3.1", {"reasoning_effort": "max"}),
    "the switch of the template": ("vllm", "k2.5", {"chat_template_kwargs": {"thinking": False, "mine": 1}}),
    "the one of OpenRouter": ("openrouter", "k2.6", {"reasoning": {"enabled": False}}),
    "a limit under its only name": ("together", "k2", {"max_tokens": 5}),
}


@pytest.mark.parametrize(("host", "generation", "fields"), RIGHT.values(), ids=RIGHT.keys())
def test_a_request_that_is_right_comes_back_as_it_is(host: str, generation: str, fields: Json) -> None:
    body = {"model": MODELS[generation], "messages": [{"role": "user", "content": "hi"}], "prompt_cache_key": "c"}
    request, _ = parse_request(body | fields, Signer())
    conditioned, changes = adapt_parameters(request, profile_for(host=host, model=request.model), OPTIONS)
    assert conditioned is request
    assert changes == []


def test_tools_declared_by_a_message_may_be_chosen() -> None:
    messages = [{"role": "system", "tools": [TOOL]}, {"role": "user", "content": "hi"}]
    out, _ = sent("moonshot", "k3", {"messages": messages, "tool_choice": "required"})
    assert out == {"tool_choice": "required"}


def test_the_default_of_the_choice_is_an_option() -> None:
    required = KimiOptions(tool_choice_default="required")
    assert sent("moonshot", "k3", {"tools": [TOOL]}, required)[0]["tool_choice"] == "required"
    assert sent("moonshot", "k2.5", {"tools": [TOOL]}, required)[0]["tool_choice"] == "auto"
    named = KimiOptions(tool_choice_default="ls")
    assert sent("vllm", "k3", {"tools": [TOOL]}, named)[0]["tool_choice"]["function"] == {"name": "ls"}
    assert "tool_choice" not in sent("vllm", "k3", {"tools": [TOOL]}, KimiOptions(tool_choice_default=""))[0]
    with pytest.raises(InvalidOption, match="toolChoiceDefault"):
        sent("vllm", "k3", {"tools": [TOOL]}, KimiOptions(tool_choice_default="sometimes"))


def test_messages_upstreams_always_have_a_limit_of_tokens() -> None:
    profile = profile_for(model="kimi-k2.6", upstream="anthropic")
    for asked in (Sampling(), Sampling(max_tokens=300_000)):
        request = Request(model="kimi-k2.6", stream=True, sampling=asked)
        conditioned, changes = adapt_parameters(request, profile, OPTIONS)
        assert conditioned.sampling == Sampling(max_tokens=32_768)
        assert [change.rule for change in changes] == ["max_tokens"]


CLAUDE_CODE: Json = {
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "medium"},
    "max_tokens": 32_000,
    "temperature": 1,
    "context_management": {"edits": []},
}
# generation: what becomes of thinking and output_config
CLAUDE_CODE_OVER = {
    "k2": {},
    "k2-thinking": {},
    "k2.5": {"thinking": {"type": "enabled"}},
    "k2.7": {"thinking": {"type": "enabled"}},
    "k3": {"output_config": {"effort": "high"}},
    "k3.1": {"output_config": {"effort": "high"}},
    "other": {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
}


def test_an_effort_does_not_go_beside_thinking_that_is_switched_off() -> None:
    off = {"thinking": {"type": "disabled"}, "output_config": {"effort": "medium"}, "max_tokens": 9}
    body = {"model": "kimi-k2.6", "messages": [{"role": "user", "content": "hi"}]} | off
    profile = profile_for(host="kimi-coding", model="kimi-k2.6", upstream="anthropic")
    conditioned, changes = adapt_parameters(anthropic.parse_request(body, Signer())[0], profile, OPTIONS)
    out, _ = anthropic.render_request(conditioned)
    assert out["thinking"] == {"type": "disabled"}
    assert "output_config" not in out
    assert [change.rule for change in changes] == ["thinking"]


FORMATS: dict[str, tuple[Json, str]] = {
    "openai_chat": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": FAR}}},
        "response_format.json_schema.schema",
    ),
    "anthropic": (
        {"output_config": {"format": {"type": "json_schema", "schema": FAR}}, "max_tokens": 9},
        "output_config.format.schema",
    ),
    "openai_responses": (
        {"text": {"format": {"type": "json_schema", "name": "a", "schema": FAR}}, "input": "hi"},
        "text.format.schema",
    ),
}


@pytest.mark.parametrize(("dialect", "asked"), FORMATS.items(), ids=FORMATS.keys())
def test_a_schema_for_the_answer_that_cannot_be_said_is_refused_in_the_words_of_the_client(
    dialect: str, asked: tuple[Json, str]
) -> None:
    body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}]} | asked[0]
    request, _ = dialect_named(dialect).parse_request(body, Signer())
    with pytest.raises(CannotExpress, match=r"^response_format: At path 'properties\.a'") as caught:
        adapt_parameters(request, profile_for(host="moonshot", model="kimi-k3"), OPTIONS)
    assert caught.value.field == asked[1]


@pytest.mark.parametrize(("generation", "expected"), CLAUDE_CODE_OVER.items())
@pytest.mark.parametrize("host", ["moonshot-anthropic", "kimi-coding"])
def test_claude_code_over_messages(host: str, generation: str, expected: Json) -> None:
    body = {"model": MODELS[generation], "messages": [{"role": "user", "content": "hi"}]} | CLAUDE_CODE
    request, _ = anthropic.parse_request(body, Signer())
    profile = profile_for(host=host, model=request.model, upstream="anthropic")
    conditioned, _ = adapt_parameters(request, profile, OPTIONS)
    out, _ = anthropic.render_request(conditioned)
    assert {key: out[key] for key in ("thinking", "output_config") if key in out} == expected
    assert out["context_management"] == {"edits": []}
    if generation != "other":
        assert check_messages(out, generation=generation, host=host) == []


def test_a_client_of_another_dialect_hears_the_usage_also_from_an_unknown_host() -> None:
    request = Request(model="gpt-5", stream=True, extras={"anthropic": {}})
    conditioned, _ = adapt_parameters(request, profile_for(model="gpt-5"), OPTIONS)
    assert conditioned == msgspec.structs.replace(request, include_usage=True)


def talk(*texts: str, system: str = "be good", **fields: Any) -> Request:
    speakers = ("user", "assistant")
    told = tuple(Message(speakers[place % 2], (Text(text),)) for place, text in enumerate(texts))  # type: ignore[arg-type]
    return Request(model="kimi-k3", messages=(Message("system", (Text(system),)), *told), **fields)


class TestCacheKey:
    def test_it_is_the_same_in_every_turn(self) -> None:
        assert cache_key_of(talk("hi")) == cache_key_of(talk("hi", "hello", "go on"))

    def test_nothing_that_comes_later_changes_it(self) -> None:
        plain, later = talk("hi", "hello", system=""), Message("system", (Text("be brief"),))
        more = msgspec.structs.replace(plain, messages=(*plain.messages, later, Message("user", (Text("go"),))))
        assert cache_key_of(more) == cache_key_of(plain) == cache_key_of(talk("hi", system=""))

    def test_a_conversation_that_the_model_begins_is_known_by_the_first_answer(self) -> None:
        first, second = (talk("", "hello", said) for said in ("hi", "ho"))
        first, second = (msgspec.structs.replace(one, messages=one.messages[2:]) for one in (first, second))
        assert cache_key_of(first) != cache_key_of(second)

    def test_it_is_another_one_for_another_beginning(self) -> None:
        others = [
            talk("hi"),
            talk("ho"),
            talk("hi", system="be bad"),
            talk("hi", user="me"),
            msgspec.structs.replace(talk("hi"), model="k3"),
        ]
        assert len({cache_key_of(request) for request in others}) == len(others)

    def test_the_changing_line_of_claude_code_does_not_change_it(self) -> None:
        first, second = (f"x-anthropic-billing-header: cch={number}\nbe good" for number in (1, 2))
        assert cache_key_of(talk("hi", system=first)) == cache_key_of(talk("hi", system=second))

    def test_the_line_may_be_a_message_of_its_own(self) -> None:
        line = Message("system", (Text("x-anthropic-billing-header: cch=1"),))
        plain = talk("hi")
        assert cache_key_of(msgspec.structs.replace(plain, messages=(line, *plain.messages))) == cache_key_of(plain)

    def test_it_is_sent_where_it_is_taken_and_the_client_has_none(self) -> None:
        conditioned, changes = adapt_parameters(talk("hi"), profile_for(host="moonshot", model="kimi-k3"), OPTIONS)
        assert conditioned.cache_key == cache_key_of(talk("hi"))
        assert [change.rule for change in changes] == ["cache_key"]
        assert adapt_parameters(talk("hi"), profile_for(host="vllm", model="kimi-k3"), OPTIONS)[0].cache_key is None
        own = talk("hi", cache_key="mine")
        assert adapt_parameters(own, profile_for(host="moonshot", model="kimi-k3"), OPTIONS)[0] is own


numbers = st.none() | st.floats(-3, 3) | st.sampled_from([0.0, 0.6, 0.95, 1.0])
requests = st.builds(
    Request,
    model=st.just(""),
    tools=st.sampled_from([None, (), (Tool("ls"),)]),
    tool_choice=st.none()
    | st.builds(ToolChoice, st.sampled_from(["auto", "none", "required"]), allowed=st.sampled_from([None, ("ls",), ()]))
    | st.just(ToolChoice("tool", "ls")),
    sampling=st.builds(
        Sampling,
        temperature=numbers,
        top_p=numbers,
        presence_penalty=numbers,
        frequency_penalty=numbers,
        n=st.none() | st.integers(-1, 3),
        max_tokens=st.none() | st.integers(-1, 2_000_000),
        stop=st.lists(st.text(max_size=40), max_size=7).map(tuple),
    ),
    thinking=st.builds(
        Thinking,
        enabled=st.none() | st.booleans(),
        effort=st.none() | st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh", "max", "?"]),
        budget=st.none() | st.integers(0, 9),
        keep=st.sampled_from([None, "all", "last"]),
    ),
    stream=st.none() | st.booleans(),
)


@pytest.mark.parametrize(
    ("generation", "fields", "when"),
    [("k3", {}, "for this model"), ("k2.6", {}, "for this model"), ("k2", {"temperature": 0}, "temperature near 0")],
)
def test_fewer_choices_than_requested_are_an_error(generation: str, fields: Json, when: str) -> None:
    with pytest.raises(CannotExpress, match=when) as caught:
        sent("moonshot", generation, {**fields, "n": 3})
    assert caught.value.field == "n"


@given(st.sampled_from(HOSTS), st.sampled_from(DIALECTS), st.sampled_from(GENERATIONS[:-1]), requests)
def test_whatever_is_asked_for_the_host_accepts(host: str, dialect: str, generation: str, request: Request) -> None:
    asked = msgspec.structs.replace(
        request, model=MODELS[generation], messages=(Message("user", (Text("hi"),)),), locations=("messages[0]",)
    )
    profile = profile_for(host=host, model=asked.model, upstream=dialect)
    try:
        conditioned, changes = adapt_parameters(asked, profile, OPTIONS)
    except CannotExpress:
        assert (asked.sampling.n or 1) > 1
        return
    assert adapt_parameters(conditioned, profile, OPTIONS) == (conditioned, [])
    assert all(change.detail and change.place for change in changes)
    # A Kimi without a generation gets what all of them accept.
    for judge in KNOWN if generation == "kimi" else [generation]:
        if dialect == "openai_chat" and profile.dialect == dialect:
            refused = check_chat(render_request(conditioned)[0], generation=judge, host=host)
        else:
            refused = check_messages(anthropic.render_request(conditioned)[0], generation=judge, host=profile.host)
        # Hosts without Moonshot's checks take more stop sequences than the validator lets pass.
        assert [reason for reason in refused if profile.stop_limit or "stop" not in reason] == [], judge
