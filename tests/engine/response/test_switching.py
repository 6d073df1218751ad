"""Models and clients change in the middle of a conversation: five rounds of parallel calls, and nothing is lost.

The client keeps what it received in its own dialect; when the client changes, its history
is translated. Every request is looked at as the host gets it.
"""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any, Final

import pytest
from msgspec import Struct

from moonshim.engine.dialects.registry import CLIENT_DIALECTS
from tests.support.playing import Answer, Call, Client, Json, Thought, chat_answer, messages_answer

NAMES: Final = ("read_file", "grep")
LEGAL: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Host(Struct, frozen=True):
    """A scripted host: how it is reached, what its identifiers look like, how it tells its thoughts."""

    where: Json
    ids: str
    field: str
    """Under which name it wants its thoughts back, and tells them."""
    leaks: bool = False

    def answer(self, round: int, count: int) -> Answer:
        """Two calls of this round, after `count` calls before it."""
        calls = [
            Call(self.ids.format(name=name, n=count + place, round=round), name, json.dumps({"n": count + place}))
            for place, name in enumerate(NAMES)
        ]
        text = f"look {round}"
        if self.field == "thinking":
            block = {"type": "thinking", "thinking": f"thought {round}", "signature": signature(round)}
            return messages_answer(Thought(blocks=(block,)), text, calls)
        return chat_answer(Thought({self.field: f"thought {round}"}), text, calls, leaked=self.leaks)


def signature(round: int) -> str:
    return f"c2lnbmF0dXJl{round}"


HOSTS: Final = {
    "vllm": Host({"host": "vllm", "model": "kimi-k2.6"}, "functions.{name}:{n}", "reasoning", leaks=True),
    "claude": Host(
        {"host": "generic", "upstream": "anthropic", "model": "claude-5"}, "toolu_{round}{name}", "thinking"
    ),
    "moonshot": Host({"host": "moonshot", "model": "kimi-k2.6"}, "{name}:{n}", "reasoning_content"),
    "other": Host({"host": "generic", "model": "some-model"}, "call_{round}.{name}", "reasoning_content"),
}
TO_KIMI_AND_AWAY: Final = ("vllm", "claude", "moonshot", "other", "vllm")
AWAY_AND_BACK: Final = ("other", "moonshot", "claude", "vllm", "claude")
# The last one only gets the history.
ROUTES: Final = {
    "from a Kimi": (*TO_KIMI_AND_AWAY, "claude"),
    "from another model": (*AWAY_AND_BACK, "moonshot"),
    "Kimi at the end": (*reversed(TO_KIMI_AND_AWAY), "vllm"),
}


def gave(name: str, n: int) -> str:
    return f"{name} gave {n}"


class Seen(Struct):
    """What a body tells of the conversation, in its order."""

    asked: list[str]
    calls: list[tuple[str, str, int]]
    """Identifier, name, argument."""
    results: dict[str, str]
    said: list[str]
    thoughts: list[dict[str, Any]]
    """For every turn of the model: the fields or the block that tell what it thought."""


def seen_in_chat(body: Json, *, is_as_sent: bool) -> Seen:
    seen = Seen([], [], {}, [], [])
    waiting: list[str] = []
    for message in body["messages"]:
        match message["role"]:
            case "user":
                seen.asked.append(message["content"])
            case "assistant":
                assert not waiting
                for entry in message["tool_calls"]:
                    waiting.append(entry["id"])
                    given = entry["function"]
                    seen.calls.append((entry["id"], given["name"], json.loads(given["arguments"])["n"]))
                seen.said.append(message["content"])
                seen.thoughts.append({key: value for key, value in message.items() if key.startswith("reasoning")})
            case "tool":
                in_order = message["tool_call_id"] == waiting[0]
                assert in_order or is_as_sent, "a result stands at its call, in order"
                waiting.remove(message["tool_call_id"])
                seen.results[message["tool_call_id"]] = message["content"]
    assert not waiting
    return seen


def seen_in_messages(body: Json, *, is_as_sent: bool) -> Seen:
    seen = Seen([], [], {}, [], [])
    waiting: list[str] = []
    before = "assistant"
    for message in body["messages"]:
        assert message["role"] != before or is_as_sent
        before, content = message["role"], message["content"]
        blocks: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            match block["type"]:
                case "text":
                    (seen.asked if before == "user" else seen.said).append(block["text"])
                case "thinking":
                    seen.thoughts.append(block)
                case "tool_use":
                    waiting.append(block["id"])
                    seen.calls.append((block["id"], block["name"], block["input"]["n"]))
                case "tool_result":
                    waiting.remove(block["tool_use_id"])
                    seen.results[block["tool_use_id"]] = block["content"]
        assert not waiting or before == "assistant"
    return seen


class Round(Struct):
    """One round that was played."""

    host: Host
    client: str

    def is_signed(self, client: str) -> bool:
        """Whether a client can hand the host's signature back. One of Responses can if we have sealed it for one;
        otherwise it is taken for what a host of Responses has encrypted."""
        return self.host.field == "thinking" and (client != "openai_responses" or self.client == client)


def check(body: Json, host: Host, rounds: list[Round], client: str) -> None:
    """What this host gets of the rounds before."""
    assert "moonshim1." not in json.dumps(body)
    is_chat = host.field != "thinking"
    # A host that nobody knows gets what a client of its own dialect sends.
    is_as_sent = host.where["host"] == "generic" and client == ("openai_chat" if is_chat else "anthropic")
    seen = (seen_in_chat if is_chat else seen_in_messages)(body, is_as_sent=is_as_sent)
    count = 2 * len(rounds)
    assert seen.asked == ["Go.", *(["Go on."] * (len(rounds) > 2))]
    assert [(name, n) for _, name, n in seen.calls] == [(NAMES[n % 2], n) for n in range(count)]
    ids = [id for id, _, _ in seen.calls]
    assert len(set(ids)) == count
    assert seen.results == {id: gave(name, n) for id, name, n in seen.calls}
    assert seen.said == [f"look {round}" for round in range(len(rounds))]
    if host.where["host"] == "vllm":
        assert ids == [f"functions.{NAMES[n % 2]}:{n}" for n in range(count)]
    if not is_chat:
        assert all(LEGAL.fullmatch(id) for id in ids)
    if not is_chat:
        # Claude takes only what it has signed itself.
        assert seen.thoughts == [
            {"type": "thinking", "thinking": f"thought {number}", "signature": signature(number)}
            for number, round in enumerate(rounds)
            if round.is_signed(client)
        ]
        return
    for number, thought in enumerate(seen.thoughts):
        check_thought(thought, f"thought {number}", host)
    assert len(seen.thoughts) == len(rounds)


def check_thought(thought: Json, text: str, host: Host) -> None:
    if host.where["host"] == "generic":
        thought.pop("reasoning_details", None)
        assert thought in ({"reasoning_content": text}, {"reasoning": text})
    else:
        assert thought == {host.field: text}


def play(
    client: Client, route: tuple[str, ...], other: str, *, through: str | None = None, stream: bool = True
) -> None:
    """Five rounds, each with a host of the route. The client changes before the third, and back before the last."""
    first, rounds = client.dialect, list[Round]()
    client.ask("Go.")
    for round, name in enumerate(route):
        host, streams = HOSTS[name], stream == (round % 2 == 0)
        if round in (2, 4):
            client.switch(other if round == 2 else first, through=through)
        if round == 3:
            # The user has a word in the middle.
            client.ask("Go on.")
        prepared = client.prepare(NAMES, stream=streams, **host.where)
        check(prepared.body, host, rounds, client.dialect)
        if round == len(route) - 1:
            return
        calls = client.take(prepared, host.answer(round, 2 * round), stream=streams)
        assert [(call.name, json.loads(call.arguments)) for call in calls] == [
            (NAMES[n % 2], {"n": n}) for n in (2 * round, 2 * round + 1)
        ]
        # Tools that run side by side are done in any order.
        client.give([(call, gave(call.name, json.loads(call.arguments)["n"])) for call in reversed(calls)])
        rounds.append(Round(host, client.dialect))


@pytest.mark.parametrize("stream", [True, False], ids=["streams first", "whole first"])
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES.keys())
@pytest.mark.parametrize(("first", "other"), list(product(CLIENT_DIALECTS, repeat=2)))
def test_models_change_in_every_pair_of_clients(first: str, other: str, route: tuple[str, ...], stream: bool) -> None:
    play(Client(first), route, other, stream=stream)


@pytest.mark.parametrize(("first", "other"), list(product(CLIENT_DIALECTS, repeat=2)))
def test_the_history_may_be_kept_as_model_messages_in_between(first: str, other: str) -> None:
    play(Client(first), ROUTES["from a Kimi"], other, through="vercel_ai")
