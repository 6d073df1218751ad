"""Every way to ask for thinking becomes the one that the host understands."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moonshim.engine.dialects.openai_chat.request import parse_request, render_request
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.table import GENERATIONS, HOSTS
from moonshim.engine.request.thinking import spell_thinking, will_think
from moonshim.engine.signing import Signer
from moonshim.engine.values.conversation import Request, Thinking
from tests.support.looped import looped

Json = dict[str, Any]
OFF = Thinking(enabled=False)
ON = Thinking(enabled=True)

# host, model, what is wanted -> what is put into the body, and whether something of it is lost
SPELLED: dict[str, tuple[str, str, Thinking, Json, bool]] = {
    "K2.5 on": ("moonshot", "kimi-k2.5", ON, {"thinking": {"type": "enabled"}}, False),
    "K2.5 off": ("moonshot", "kimi-k2.5", OFF, {"thinking": {"type": "disabled"}}, False),
    "K2.5 refuses keep": ("moonshot", "kimi-k2.5", Thinking(True, keep="all"), {"thinking": {"type": "enabled"}}, True),
    "K2.5 has no effort": ("moonshot", "kimi-k2.5", Thinking(effort="high"), {}, True),
    "no effort means off": (
        "moonshot",
        "kimi-k2.5",
        Thinking(effort="none"),
        {"thinking": {"type": "disabled"}},
        False,
    ),
    "K2.6 keeps": (
        "moonshot",
        "kimi-k2.6",
        Thinking(keep="all"),
        {"thinking": {"type": "enabled", "keep": "all"}},
        False,
    ),
    "nothing is kept when nothing is thought": (
        "moonshot",
        "kimi-k2.6",
        Thinking(False, keep="all"),
        {"thinking": {"type": "disabled"}},
        False,
    ),
    "K2.7 cannot be switched off": ("moonshot", "kimi-k2.7-code", OFF, {"thinking": {"type": "enabled"}}, True),
    "K2.7 has no budget": (
        "moonshot",
        "kimi-k2.7-code",
        Thinking(True, budget=5),
        {"thinking": {"type": "enabled"}},
        True,
    ),
    "K3 on is what it does anyway": ("moonshot", "k3", ON, {}, False),
    "K3 keeps anyway": ("moonshot", "k3", Thinking(keep="all"), {}, False),
    "K3 off is the least effort": ("moonshot", "k3", OFF, {"reasoning_effort": "low"}, True),
    "K3 high": ("moonshot", "k3", Thinking(effort="high"), {"reasoning_effort": "high"}, False),
    "K3 medium": ("kimi-coding", "k3", Thinking(effort="medium"), {"reasoning_effort": "high"}, True),
    "K3 xhigh": ("moonshot", "k3.1-pro", Thinking(effort="xhigh"), {"reasoning_effort": "max"}, True),
    "K3 does not know the word": ("moonshot", "k3", Thinking(effort="ultra"), {}, True),
    "the template of vLLM": (
        "vllm",
        "k3",
        Thinking(True, "low", keep="all"),
        {"chat_template_kwargs": {"thinking": True, "preserve_thinking": True, "thinking_effort": "low"}},
        False,
    ),
    "the template switches K3 off": ("sglang", "k3", OFF, {"chat_template_kwargs": {"thinking": False}}, False),
    "OpenRouter by effort": ("openrouter", "k3", Thinking(True, "max"), {"reasoning": {"effort": "xhigh"}}, True),
    "OpenRouter by switch": ("openrouter", "kimi-k2.5", OFF, {"reasoning": {"enabled": False}}, False),
    "Fireworks": ("fireworks", "kimi-k2p5", OFF, {"reasoning_effort": "none"}, False),
    "SiliconFlow": ("siliconflow", "Kimi-K2.5", OFF, {"enable_thinking": False}, False),
    "K2 does not think": ("moonshot", "kimi-k2-0905", ON, {}, True),
    "K2 need not be told not to": ("moonshot", "kimi-k2-0905", OFF, {}, False),
    "K2-Thinking always thinks": ("moonshot", "kimi-k2-thinking", OFF, {}, True),
    "Messages with a budget": (
        "moonshot-anthropic",
        "kimi-k2.6",
        Thinking(True, budget=2000),
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        False,
    ),
    "no effort when nothing is thought": (
        "moonshot",
        "kimi-k2.6",
        Thinking(False, "medium"),
        {"thinking": {"type": "disabled"}},
        True,
    ),
    "nor in Messages": (
        "moonshot-anthropic",
        "kimi-k2.6",
        Thinking(False, "medium"),
        {"thinking": {"type": "disabled"}},
        True,
    ),
    "Messages off": ("moonshot-anthropic", "kimi-k2.6", OFF, {"thinking": {"type": "disabled"}}, False),
}


@pytest.mark.parametrize(("host", "model", "wanted", "fields", "lost"), SPELLED.values(), ids=SPELLED.keys())
def test_it_is_said_as(host: str, model: str, wanted: Thinking, fields: Json, lost: bool) -> None:
    profile = profile_for(host=host, model=model)
    request, changes = spell_thinking(Request(model=model, thinking=wanted), profile)
    assert {key: value for key, value in request.body_overrides.items() if value is not None} == fields
    assert request.thinking == Thinking()
    assert bool(changes) is lost
    assert all(change.rule == "thinking" for change in changes)


def test_messages_say_the_effort_of_k3_themselves() -> None:
    profile = profile_for(host="moonshot-anthropic", model="k3")
    asked = Request(model="k3", thinking=Thinking(True, "medium"))
    request, changes = spell_thinking(asked, profile)
    assert (request.thinking, request.body_overrides) == (Thinking(effort="high"), {"thinking": None})
    assert len(changes) == 1
    right = Request(model="k3", thinking=Thinking(effort="high"))
    assert spell_thinking(right, profile) == (right, [])


FOREIGN: dict[str, Json] = {
    "Anthropic's": {"thinking": {"type": "adaptive", "budget_tokens": 0}},
    "OpenAI's": {"reasoning_effort": "none"},
    "the template's": {"chat_template_kwargs": {"enable_thinking": False, "thinking_effort": "high"}},
    "OpenRouter's": {"reasoning": {"enabled": True, "effort": "low", "exclude": True}},
    "Qwen's": {"enable_thinking": True},
    "two at once": {"thinking": {"type": "adaptive"}, "reasoning_effort": "high"},
}


@pytest.mark.parametrize("said", FOREIGN.values(), ids=FOREIGN.keys())
@looped("host", ["moonshot", "openrouter", "vllm", "siliconflow"])
@looped("model", ["kimi-k2-0905", "kimi-k2.5", "kimi-k2.7-code", "k3"])
def test_one_spelling_is_left_of_what_a_client_says(said: Json, host: str, model: str) -> None:
    asked, _ = parse_request({"model": model, "messages": [{"role": "user", "content": "x"}]} | said, Signer())
    before = msgspec.json.encode(asked)
    request, changes = spell_thinking(asked, profile_for(host=host, model=model))
    body, _ = render_request(request)
    own = {
        "thinking_object": "thinking",
        "reasoning_effort": "reasoning_effort",
        "openrouter_reasoning": "reasoning",
        "template_kwargs": "chat_template_kwargs",
        "enable_thinking": "enable_thinking",
        None: "",
    }[profile_for(host=host, model=model).thinking]
    assert body.keys() - {"model", "messages"} <= {own}
    assert bool(changes) is (not all(body.get(key) == value for key, value in said.items()))
    assert msgspec.json.encode(asked) == before


def test_what_else_an_object_says_stays() -> None:
    for host, key in (("vllm", "chat_template_kwargs"), ("openrouter", "reasoning")):
        body: Json = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "x"}], key: {"mine": 1}}
        body |= {"enable_thinking": False}
        asked, _ = parse_request(body, Signer())
        request, _ = spell_thinking(asked, profile_for(host=host, model="kimi-k2.5"))
        assert request.body_overrides[key]["mine"] == 1


def test_a_model_that_is_not_a_kimi_is_asked_as_the_client_asked() -> None:
    asked = Request(model="gpt-5", thinking=Thinking(True, "xhigh", 5, "all"))
    assert spell_thinking(asked, profile_for(host="openrouter", model="gpt-5")) == (asked, [])


@pytest.mark.parametrize("host", HOSTS)
@looped("generation", GENERATIONS)
@looped("wanted", [Thinking(), ON, OFF, Thinking(effort="none"), Thinking(effort="high")])
def test_whether_it_thinks_is_known_before_and_after(host: str, generation: str, wanted: Thinking) -> None:
    profile = profile_for(host=host, model="m", overrides={"generation": generation})
    asked = Request(model="m", thinking=wanted)
    assert will_think(spell_thinking(asked, profile)[0], profile) is will_think(asked, profile)


def test_whether_it_thinks() -> None:
    k2, always, k26, k3 = (
        profile_for(host="moonshot", model=name) for name in ("kimi-k2-0905", "kimi-k2-thinking", "kimi-k2.6", "k3")
    )
    asked = [Request(model="m", thinking=wanted) for wanted in (Thinking(), ON, OFF)]
    assert [[will_think(request, profile) for request in asked] for profile in (k2, always, k26, k3)] == [
        [False, False, False],
        [True, True, True],
        [True, True, False],
        [True, True, True],
    ]
