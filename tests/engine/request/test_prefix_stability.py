"""Law 11: what a turn sent to its host is the beginning of what the next turn sends, so that prompt caches work."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.engine.prepare import prepare_request
from moonshim.errors import InvalidInput
from tests.engine.hosts.told import TELLERS, Turn, turns
from tests.engine.request.nasty.case import Json, Nasty
from tests.engine.request.nasty.requests import NASTY
from tests.engine.request.nasty.turns import requests_before
from tests.support.profiles import examples

UPSTREAMS: Final = [
    ("moonshot", "openai_chat"),
    ("vllm", "openai_chat"),
    ("openrouter", "openai_chat"),
    ("kimi-coding", "openai_chat"),
    ("kimi-coding", "anthropic"),
    ("moonshot-anthropic", "anthropic"),
]
MODELS: Final = ("kimi-k2-0905-preview", "kimi-k2.6", "kimi-k3")
DIALECTS: Final = ("openai_chat", "anthropic", "openai_responses")
GROWING: Final = [asked for asked in NASTY if len(requests_before(asked.body, asked.dialect)) > 1]


DEMANDS: Final = ("tool_choice", "response_format", "text", "output_format", "output_config")
"""Fields about the answer to one request. Where the host has none, they become words after the conversation."""


def sent(asked: Nasty, host: str, upstream: str, model: str) -> list[Json]:
    """What each turn of a conversation sends; a beginning that says nothing yet sends nothing."""
    out = []
    for asked_body in requests_before(asked.body, asked.dialect):
        body = _without_demands(asked_body)
        try:
            out.append(prepare_request(body, dialect=asked.dialect, upstream=upstream, host=host, model=model).body)
        except InvalidInput as error:
            if "nothing to send" not in str(error) and not (asked.sees and "does not accept" in str(error)):
                raise
    return out


def _without_demands(body: Json) -> Json:
    return {key: value for key, value in body.items() if key not in DEMANDS}


def pieces(body: Json) -> tuple[list[str], list[str]]:
    """Messages, the system prompt in front, and tools, each as JSON."""
    said: list[Any] = [body.get("system"), *body["messages"]]
    return [json.dumps(one) for one in said], [json.dumps(one) for one in body.get("tools", ())]


def unstable(bodies: list[Json]) -> list[tuple[str, str | None]]:
    """What a later turn says otherwise: as it was, and as it is."""
    found: list[tuple[str, str | None]] = []
    for earlier, later in pairwise(bodies):
        for before, after in zip(pieces(earlier), pieces(later), strict=True):
            padded = [*after, *[None] * len(before)]
            found += [(old, new) for old, new in zip(before, padded, strict=False) if old != new]
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("host", "upstream"), UPSTREAMS)
def test_nasty_conversations_only_grow(host: str, upstream: str, model: str) -> None:
    for asked in GROWING:
        assert unstable(sent(asked, host, upstream, model)) == [], asked.name


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("host", "upstream"), UPSTREAMS)
def test_words_about_the_answer_stand_after_the_conversation(host: str, upstream: str, model: str) -> None:
    def body_of(asked: Nasty, body: Json) -> Json:
        return prepare_request(body, dialect=asked.dialect, upstream=upstream, host=host, model=model).body

    for asked in GROWING:
        if asked.sees or not any(asked.body.get(key) for key in DEMANDS):
            continue
        demanding, plain = body_of(asked, asked.body), body_of(asked, _without_demands(asked.body))
        if plain["messages"][-1]["role"] == "assistant":
            continue  # the client's own start of the answer stays the last message
        (said, tools), (before, declared) = pieces(demanding), pieces(plain)
        assert tools == declared, asked.name
        assert said[: len(before) - 1] == before[:-1], asked.name
        # Over Messages, they are the last block of the user's last message.
        first, last = plain["messages"][-1], demanding["messages"][len(before) - 2]
        blocks = (
            first["content"] if isinstance(first["content"], list) else [{"type": "text", "text": first["content"]}]
        )
        assert first == last or last["content"][: len(blocks)] == blocks, asked.name


def test_there_are_conversations_that_grow_in_every_dialect() -> None:
    assert {asked.dialect for asked in GROWING} == set(DIALECTS)


NOTHINGS: Final[dict[str, tuple[str, list[Json]]]] = {
    "an empty text": ("openai_chat", [{"role": "assistant", "content": ""}]),
    "no content": ("openai_chat", [{"role": "assistant", "content": None}]),
    "two of them": ("openai_chat", [{"role": "assistant", "content": ""}, {"role": "assistant", "content": None}]),
    "only thoughts": ("openai_chat", [{"role": "assistant", "content": None, "reasoning_content": "hm"}]),
    "a refusal": ("openai_chat", [{"role": "assistant", "content": None, "refusal": "No."}]),
    "an empty block": ("anthropic", [{"role": "assistant", "content": [{"type": "text", "text": ""}]}]),
    "no blocks": ("anthropic", [{"role": "assistant", "content": []}]),
    "only thinking": (
        "anthropic",
        [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}]}],
    ),
    "an empty item": ("openai_responses", [{"role": "assistant", "content": []}]),
    "only a refusal": (
        "openai_responses",
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}],
    ),
    "only reasoning": ("openai_responses", [{"type": "reasoning", "summary": []}]),
    "only a search of the host": ("openai_responses", [{"type": "web_search_call", "id": "ws_1"}]),
}


@pytest.mark.parametrize(("host", "upstream"), [row for row in UPSTREAMS if row[1] == "anthropic"])
@pytest.mark.parametrize(("dialect", "turn"), NOTHINGS.values(), ids=NOTHINGS.keys())
def test_a_turn_that_says_nothing_keeps_those_of_the_user_apart(
    dialect: str, turn: list[Json], host: str, upstream: str
) -> None:
    said = [{"role": "user", "content": "one"}, *turn, {"role": "user", "content": "two"}, *turn]
    key = "input" if dialect == "openai_responses" else "messages"
    bodies = [
        prepare_request(
            {"model": "m", "max_tokens": 9, key: said[:end]},
            dialect=dialect,
            upstream=upstream,
            host=host,
            model="kimi-k2.6",
        ).body
        for end in (1, 2 + len(turn))
    ]
    assert unstable(bodies) == []
    assert [message["role"] for message in bodies[1]["messages"]] == ["user", "assistant", "user"]
    again = prepare_request(bodies[1], dialect="anthropic", upstream=upstream, host=host, model="kimi-k2.6").body
    assert again["messages"] == bodies[1]["messages"]


def test_a_billing_line_that_changes_changes_nothing() -> None:
    asked = next(asked for asked in NASTY if asked.name.startswith("Claude Code: the billing line"))
    told = json.dumps(asked.body)
    later = json.loads(told.replace("cch=0f3e1", "cch=a77e2"))
    assert later != asked.body
    for host, upstream in UPSTREAMS:
        first, second = (
            prepare_request(body, dialect="anthropic", upstream=upstream, host=host, model="kimi-k2.6").body
            for body in (asked.body, later)
        )
        assert first == second


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("speaks", ["openai_chat", "anthropic"])
@settings(max_examples=examples(60))
@given(data=st.data(), conversation=turns, model=st.sampled_from(MODELS))
def test_any_conversation_only_grows(
    speaks: str, dialect: str, data: st.DataObject, conversation: list[Turn], model: str
) -> None:
    host, upstream = data.draw(st.sampled_from([row for row in UPSTREAMS if row[1] == speaks]))
    asked = Nasty("generated", dialect, TELLERS[dialect](conversation))
    assert unstable(sent(asked, host, upstream, model)) == []


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=examples(60))
@given(conversation=turns)
def test_one_conversation_has_one_cache_key(dialect: str, conversation: list[Turn]) -> None:
    asked = Nasty("generated", dialect, TELLERS[dialect](conversation))
    keys = {body["prompt_cache_key"] for body in sent(asked, "moonshot", "openai_chat", "kimi-k2.6")}
    assert len(keys) == 1
