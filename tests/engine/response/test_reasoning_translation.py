"""Reasoning survives every crossing: what a host sent beside its calls is what the next request gives back to it.

The table is client x host x the way in which the host tells its reasoning. The client
echoes what it received as its dialect keeps it; the host must find its own words, under
its own name, with its own signature, and never a token of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec import Struct

from moonshim.engine.dialects.registry import CLIENT_DIALECTS
from moonshim.engine.signing import PREFIX, InvalidSignature
from moonshim.errors import InvalidInput
from tests.support.playing import Call, Client, Json, Thought, chat_answer, messages_answer

TOOLS: Final = ("ls",)
CALLS: Final = [Call("functions.ls:0", "ls", '{"n": 0}')]
TEXT: Final = "Which folder?"


class Told(Struct, frozen=True):
    """One way to tell reasoning, and a host that has it."""

    where: Json
    thought: Thought
    back: Json | tuple[Json, ...] | None = None
    """What the host may get back as well: the same, told once."""


def chat(where: Json, back: Json | None = None, /, **fields: Any) -> Told:
    return Told(where, Thought(fields), back)


def blocks(*thoughts: Json, back: tuple[Json, ...] | None = None) -> Told:
    return Told(
        {"host": "moonshot-anthropic", "model": "kimi-k2.6", "upstream": "anthropic"},
        Thought(blocks=thoughts),
        back,
    )


THINKING: Final = {"type": "thinking", "thinking": TEXT}
SIGNED: Final = {**THINKING, "signature": "EqoBCkgIARAB"}
REDACTED: Final = {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="}
MOONSHOT: Final = {"host": "moonshot", "model": "kimi-k2.6"}
VLLM: Final = {"host": "vllm", "model": "kimi-k2.6"}
OPENROUTER: Final = {"host": "openrouter", "model": "moonshotai/kimi-k2.6"}
CODING: Final = {"host": "kimi-coding", "model": "k3"}
GENERIC: Final = {"host": "generic", "model": "some-model"}
UNKNOWN_KIMI: Final = {"host": "generic", "model": "kimi-k2.6"}

WAYS: Final[dict[str, Told]] = {
    "reasoning_content of Moonshot": chat(MOONSHOT, reasoning_content=TEXT),
    "reasoning of vLLM": chat(VLLM, reasoning=TEXT),
    "reasoning_content of a host that nobody knows": chat(GENERIC, reasoning_content=TEXT),
    "reasoning of a host that nobody knows": chat(GENERIC, reasoning=TEXT),
    "reasoning of a Kimi on a host that nobody knows": chat(UNKNOWN_KIMI, reasoning=TEXT),
    "entries of text from OpenRouter, with the text beside them": chat(
        OPENROUTER,
        {"reasoning": TEXT},
        reasoning=TEXT,
        reasoning_details=[{"type": "reasoning.text", "text": TEXT}],
    ),
    "signed entries of text from OpenRouter": chat(
        OPENROUTER,
        {"reasoning_details": [{"type": "reasoning.text", "text": TEXT, "signature": "c2ln", "format": "x"}]},
        reasoning_details=[{"type": "reasoning.text", "text": TEXT, "signature": "c2ln", "format": "x"}],
    ),
    "encrypted entries from OpenRouter": chat(
        OPENROUTER,
        {"reasoning": TEXT, "reasoning_details": [{"type": "reasoning.encrypted", "data": "b3BhcXVl", "id": "r1"}]},
        reasoning=TEXT,
        reasoning_details=[{"type": "reasoning.encrypted", "data": "b3BhcXVl", "id": "r1"}],
    ),
    "a summary and what it stands for, from K3 on Kimi Code": chat(
        CODING,
        reasoning_details=[{"type": "summary", "summary": TEXT}, {"type": "encrypted", "encrypted": "ZW5jcnlwdGVk"}],
    ),
    "only encrypted entries from K3 on Kimi Code": chat(
        CODING, reasoning_details=[{"type": "encrypted", "encrypted": "ZW5jcnlwdGVk"}]
    ),
    "thinking that is signed": blocks(SIGNED),
    "thinking that is not signed": blocks(THINKING),
    "thinking that was redacted": blocks(REDACTED),
    "thinking, some of it redacted": blocks(SIGNED, REDACTED),
}


def round_trip(told: Told, dialect: str, *, stream: bool, alter: Callable[[Client], None] | None = None) -> Any:
    """The second request, as it is prepared for the host that gave the answer to the first."""
    client = Client(dialect)
    client.ask("List.")
    first = client.prepare(TOOLS, stream=stream, **told.where)
    write = messages_answer if told.where.get("upstream") == "anthropic" else chat_answer
    calls = client.take(first, write(told.thought, "Look.", CALLS), stream=stream)
    client.give([(calls[0], "a.txt")])
    if alter is not None:
        alter(client)
    return client.prepare(TOOLS, stream=stream, **told.where)


def thought_of(body: Json, told: Told) -> Any:
    """What a body tells the host of its former reasoning."""
    (ai,) = (message for message in body["messages"] if message["role"] == "assistant")
    if told.where.get("upstream") == "anthropic":
        return tuple(block for block in ai["content"] if "thinking" in block["type"])
    fields = {key: value for key, value in ai.items() if key.startswith("reasoning")}
    if told.where["host"] == "openrouter" and "reasoning_details" in fields:
        # Its documents want the entries back as they came, with the index of the stream.
        fields["reasoning_details"] = [
            {k: v for k, v in one.items() if k != "index"} for one in fields["reasoning_details"]
        ]
    return fields


ways = pytest.mark.parametrize("told", WAYS.values(), ids=WAYS.keys())
clients = pytest.mark.parametrize("dialect", CLIENT_DIALECTS)
streaming = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@ways
@clients
@streaming
def test_a_host_gets_back_what_it_sent(told: Told, dialect: str, stream: bool) -> None:
    prepared = round_trip(told, dialect, stream=stream)
    assert thought_of(prepared.body, told) in (told.thought.blocks or told.thought.fields, told.back)
    assert PREFIX not in json.dumps(prepared.body)
    assert "seal_unknown" not in {change.rule for change in prepared.changes}


# --- tokens -----------------------------------------------------------------------------------------------------


def tokens_in(value: Any) -> list[tuple[Json, str]]:
    """Every place in a history that holds a token of ours."""
    if isinstance(value, list):
        return [found for one in value for found in tokens_in(one)]
    if not isinstance(value, dict):
        return []
    here = [(value, key) for key, one in value.items() if isinstance(one, str) and one.startswith(PREFIX)]
    return here + [found for one in value.values() for found in tokens_in(one)]


TOKEN_HOLDERS: Final = {
    "anthropic": "messages[1].content[0].signature",
    "openai_responses": "input[1].encrypted_content",
}
holders = pytest.mark.parametrize(("dialect", "field"), TOKEN_HOLDERS.items(), ids=TOKEN_HOLDERS.keys())


def altered(at: int) -> Callable[[Client], None]:
    """Put another character at this place behind the key's name, or before the end."""

    def alter(client: Client) -> None:
        ((holder, key),) = tokens_in(client.history)
        token: str = holder[key]
        place = len(token) + at if at < 0 else token.index(".", len(PREFIX)) + 1 + at
        holder[key] = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]

    return alter


@holders
@pytest.mark.parametrize("at", [0, 1, 2, 9, 20, 33, -1, -2, -12, -22])
def test_a_token_with_one_other_character_is_refused_with_its_field(dialect: str, field: str, at: int) -> None:
    with pytest.raises(InvalidSignature) as caught:
        round_trip(WAYS["reasoning of vLLM"], dialect, stream=False, alter=altered(at))
    assert (caught.value.status, caught.value.field) == (400, field)


@holders
def test_a_token_cut_short_is_refused_with_its_field(dialect: str, field: str) -> None:
    def cut(client: Client) -> None:
        ((holder, key),) = tokens_in(client.history)
        holder[key] = holder[key].rpartition(".")[0]

    with pytest.raises(InvalidInput) as caught:
        round_trip(WAYS["reasoning of vLLM"], dialect, stream=False, alter=cut)
    assert (caught.value.status, caught.value.field) == (400, field)


@holders
@ways
def test_a_token_under_another_secret_is_dropped_and_told_and_the_text_stays(
    told: Told, dialect: str, field: str
) -> None:
    held: list[Any] = []

    def move(client: Client) -> None:
        client.secret = b"another secret"
        held.extend(tokens_in(client.history))

    prepared = round_trip(told, dialect, stream=False, alter=move)
    unknown = [change for change in prepared.changes if change.rule == "seal_unknown"]
    assert len(unknown) == len(held)
    assert all(str(change.place).endswith(field.rpartition(".")[2]) for change in unknown)
    body = json.dumps(prepared.body)
    assert PREFIX not in body
    shown = TEXT in json.dumps(told.thought.blocks or told.thought.fields)
    assert (TEXT in body) == shown


@clients
def test_a_token_that_another_client_kept_is_opened_all_the_same(dialect: str) -> None:
    """Histories are translated between clients, tokens and all."""
    told = WAYS["a summary and what it stands for, from K3 on Kimi Code"]

    def switch(client: Client) -> None:
        for to in (*CLIENT_DIALECTS, dialect):
            client.switch(to)

    prepared = round_trip(told, "openai_responses", stream=True, alter=switch)
    assert thought_of(prepared.body, told) == told.thought.fields
