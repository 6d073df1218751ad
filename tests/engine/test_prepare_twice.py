"""A request is parsed once and prepared for one host after the other: each time as if it were the first."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, Final

import pytest

from moonshim.engine.prepare import prepare_request, read_request
from moonshim.engine.signing import SignedPayload, Signer
from moonshim.engine.values.conversation import Reasoning
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidInput
from tests.engine.reasoning_cache.clients import DIALECTS, Step, asked_of, told
from tests.engine.request.nasty.requests import NASTY

TARGETS: Final[list[dict[str, Any]]] = [
    {"host": "moonshot", "model": "kimi-k2.6"},
    {"host": "kimi-coding", "model": "kimi-k3", "upstream": "anthropic"},
    {"host": "openrouter", "model": "moonshotai/kimi-k2.5"},
    {"host": "vllm", "model": "kimi-k2-0905", "options": KimiOptions()},
    {"host": "generic", "model": "gpt-x", "overrides": {"history_ids": "unique"}},
]
CALLS: Final = (
    Step("What is in a.txt?", "", (("read", "{}"), ("ls", "{}")), ("apples", "a.txt"), "one"),
    Step("", "Apples.", thought="two"),
    Step("And b.txt?", "", (("read", "{}"),), ("pears",), "three"),
)


def outcome(prepare: Any, target: dict[str, Any]) -> Any:
    """The body and the changes, or how it was refused."""
    try:
        made = prepare(**target)
    except InvalidInput as error:
        return type(error), str(error), error.field
    return made.body, made.changes, made.plan.reply.id, made.plan.names


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_target_gets_what_it_would_get_alone(dialect: str) -> None:
    """All nasty requests that are known, for every target in turn, and once more for the first."""
    for asked in (one for one in NASTY if one.dialect == dialect):
        before = copy.deepcopy(asked.body)
        parsed = read_request(asked.body, dialect=dialect, default_model="kimi-k2.6")
        request, changes = copy.deepcopy(parsed.request), list(parsed.changes)
        for target in (*TARGETS, TARGETS[0]):
            alone = outcome(partial(prepare_request, before, dialect=dialect), target)
            assert outcome(parsed.prepare, target) == alone, (asked.name, target["host"])
        assert asked.body == before
        assert (parsed.request, parsed.changes) == (request, changes)


def test_what_is_recalled_for_one_target_is_not_there_for_the_next() -> None:
    asked = asked_of("openai_chat", CALLS, "Go on.")
    (first, *_) = asked.lost_turns()
    recalled = {first.index: Reasoning("one")}
    for given, text in ((recalled, "one"), (None, ""), (recalled, "one")):
        sent = asked.prepare(host="moonshot", recalled=given).body["messages"]
        assert sent[first.index]["reasoning_content"] == text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_lost_turns_are_those_of_the_model_without_a_thought(dialect: str) -> None:
    asked = asked_of(dialect, CALLS, "Go on.")
    speakers = [message.role for message in asked.request.messages]
    assert [turn.index for turn in asked.lost_turns()] == [n for n, one in enumerate(speakers) if one == "assistant"]
    assert asked_of(dialect, (), "Hi.").lost_turns() == []


THOUGHTS: Final[dict[str, tuple[dict[str, Any], bool]]] = {
    "words": ({"reasoning_content": "hm"}, False),
    "no words": ({"reasoning_content": ""}, True),
    "a blank": ({"reasoning": " "}, True),
    "null": ({"reasoning_content": None}, True),
    "details": ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, False),
}


@pytest.mark.parametrize(("fields", "lost"), THOUGHTS.values(), ids=THOUGHTS.keys())
def test_a_thought_that_says_nothing_is_lost(fields: dict[str, Any], lost: bool) -> None:
    body = told("openai_chat", CALLS[:1])
    body["messages"][2] |= fields
    assert bool(read_request(body).lost_turns()) == lost


def test_a_thought_under_a_token_of_ours_is_not_lost() -> None:
    token = Signer(b"key").sign(SignedPayload(text="hm"))
    item = {"type": "reasoning", "summary": [], "encrypted_content": token}
    body = told("openai_responses", CALLS[:1])
    body["input"].insert(2, item)
    assert read_request(body, dialect="openai_responses", secret=b"key").lost_turns() == []
    # Under a key that is not ours it cannot be opened.
    asked = read_request(body, dialect="openai_responses", secret=b"other")
    assert [turn.index for turn in asked.lost_turns()] == [2]
    assert [change.rule for change in asked.changes] == ["seal_unknown"]


def test_a_model_is_asked_for_where_the_body_names_none() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    assert read_request(body, default_model="kimi-k3").request.model == "kimi-k3"
    assert read_request(body | {"model": "mine"}, default_model="kimi-k3").request.model == "mine"
    with pytest.raises(InvalidInput):
        read_request(body)


def test_a_body_that_is_nested_without_measure_is_refused_and_not_a_fault() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = {"a": deep}
    tool = {"type": "function", "function": {"name": "f", "parameters": deep}}
    body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
    with pytest.raises(InvalidInput, match="nested"):
        read_request(body).prepare(host="moonshot")
