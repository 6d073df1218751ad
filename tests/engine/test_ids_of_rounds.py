"""Hosts whose identifiers start anew in every answer: a client never gets one twice in a conversation."""

from __future__ import annotations

import json
from itertools import product
from typing import Final

import pytest

from moonshim.engine.dialects.registry import CLIENT_DIALECTS
from tests.support.looped import looped
from tests.support.playing import Call, Client, Thought, chat_answer, messages_answer

NAMES: Final = ("read_file", "grep")
ROUNDS: Final = 4
LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
HOSTS: Final = {
    "fireworks": {"host": "fireworks", "model": "kimi-k3"},
    "vllm K2": {"host": "vllm", "model": "kimi-k2.6"},
    "vllm K3": {"host": "vllm", "model": "kimi-k3"},
    "Moonshot's Messages": {"host": "moonshot-anthropic", "model": "kimi-k2.6", "upstream": "anthropic"},
    "a self-host's Messages, K2": {"host": "generic", "model": "kimi-k2.6", "upstream": "anthropic"},
    "a self-host's Messages, K3": {"host": "generic", "model": "kimi-k3", "upstream": "anthropic"},
}
SPELLINGS: Final = ("{name}:{n}", "functions.{name}:{n}", "{name}_{n}")


@looped("stream", [True, False])
@looped("spelling", SPELLINGS)
@pytest.mark.parametrize(("dialect", "host"), list(product(CLIENT_DIALECTS, HOSTS)))
def test_identifiers_that_start_anew_are_told_apart(dialect: str, host: str, spelling: str, stream: bool) -> None:
    client, given = Client(dialect), list[Call]()
    client.ask("Go.")
    for _ in range(ROUNDS):
        prepared = client.prepare(NAMES, stream=stream, **HOSTS[host])
        calls = [Call(spelling.format(name=name, n=n), name, json.dumps({"n": n})) for n, name in enumerate(NAMES)]
        said = messages_answer if prepared.profile.dialect == "anthropic" else chat_answer
        told = client.take(prepared, said(Thought(), "", calls), stream=stream)
        client.give([(call, f"{call.name} gave it") for call in told])
        given += told
    ids = [call.id for call in given]
    assert len(set(ids)) == len(ids) == ROUNDS * len(NAMES)
    if dialect == "anthropic":
        assert all(LEGAL.issuperset(one) and len(one) <= 64 for one in ids)


def test_a_client_that_forgot_its_first_rounds_gets_no_identifier_again_that_it_still_has() -> None:
    client = Client("openai_chat")
    client.ask("Go on.")
    kept = [
        {"id": f"functions.grep:{n}", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
        for n in (2, 3)
    ]
    client.history.append({"role": "assistant", "content": None, "tool_calls": kept})
    client.history += [{"role": "tool", "tool_call_id": one["id"], "content": "it"} for one in kept]
    # The host sees them as the calls 0 and 1, and counts on from there.
    prepared = client.prepare(NAMES, stream=True, host="vllm", model="kimi-k2.6")
    calls = [Call(f"functions.grep:{n}", "grep", json.dumps({"n": n})) for n in (2, 3)]
    ids = [call.id for call in client.take(prepared, chat_answer(Thought(), "", calls), stream=True)]
    assert len({*ids, *(one["id"] for one in kept)}) == 4


@pytest.mark.parametrize(
    ("host", "form"),
    [("vllm", "functions.{name}:{n}"), ("sglang", "functions.{name}:{n}"), ("generic", "functions_{name}_{n}")],
)
@pytest.mark.parametrize("dialect", CLIENT_DIALECTS)
def test_k2_sees_its_own_identifiers_over_messages_too(dialect: str, host: str, form: str) -> None:
    """Such a host writes them into the prompt as they are, and the model imitates what it sees there.

    Of a host that nobody knows only the protocol is known, which forbids dots and colons.
    """
    client = Client(dialect)
    client.ask("Go.")
    for round in range(ROUNDS):
        prepared = client.prepare(NAMES, stream=True, host=host, model="kimi-k2.6", upstream="anthropic")
        blocks = [block for message in prepared.body["messages"][1:] for block in message["content"]]
        sent = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert sent == [form.format(name=NAMES[n % 2], n=n) for n in range(2 * round)]
        assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == sent
        calls = [Call(f"functions.{name}:{n}", name, json.dumps({"n": n})) for n, name in enumerate(NAMES, 2 * round)]
        told = client.take(prepared, messages_answer(Thought(), "", calls), stream=True)
        client.give([(call, "it") for call in told])
