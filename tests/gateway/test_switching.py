"""A conversation goes from a Kimi to another model and back, through the gateway, over real sockets.

Every host checks its requests as the real one does, and refuses what its models do not take.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from msgspec import Struct

from moonshim.config import Config, ProviderConfig, Secret
from tests.support.gateway.hosts import Host, HostRequest, Peer, whole
from tests.support.gateway.official_clients import Result
from tests.support.gateway.stages import Stage, stage
from tests.support.gateway.strict_hosts import Turn, send_answer, turns_of
from tests.support.playing import Answer, Call, Thought, chat_answer, messages_answer

TOOL: Final = "mcp__filesystem_server__read_multiple_text_files_now"
"""K2's identifier of it has 64 characters, more than OpenAI takes."""
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


class Family(Struct, frozen=True):
    """A family of models, and what its host takes and gives."""

    model: str
    legal: str
    own: str
    """The identifiers that it gives, with a place for a number."""
    reasoning: str | None = None
    """The field of its reasoning; None: it has none, and refuses it."""
    dialect: Any = "openai_chat"
    host: str | None = None


FAMILIES: Final = {
    "kimi": Family("kimi-k2.6", r"functions\.\w+:\d+", "functions.{name}:{number}", "reasoning", host="vllm"),
    "moonshot": Family("kimi-k2.6", r"[\w.:-]+", "{name}:{number}", "reasoning_content", host="moonshot"),
    "moonshot-messages": Family(
        "kimi-k2.6", r"[a-zA-Z0-9_-]{1,64}", "tool_{number}Abc", "thinking", "anthropic", "moonshot-anthropic"
    ),
    "openai": Family("gpt-5-mini", r"[a-zA-Z0-9_-]{1,40}", "call_{number}xYz"),
    "unknown": Family("my-model", r"[a-zA-Z0-9_-]{1,40}", "call_{number}xYz", "reasoning_content"),
    "mistral": Family("mistral-large-latest", r"[a-zA-Z0-9]{9}", "aBcDeFg{number:02}"),
    "claude": Family("claude-sonnet-5", r"[a-zA-Z0-9_-]{1,64}", "toolu_{number}xYz", "thinking", "anthropic"),
}


def signed(family: str, thought: str) -> str:
    """As Anthropic signs (base64), or as Kimi does (base64url)."""
    return f"Er+{family}/{len(thought)}=" if family == "claude" else f"sig_{family}-{len(thought)}"


class Models(Host):
    """All hosts behind one socket, each under a path of its own."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.turns: list[tuple[str, list[Turn]]] = []
        """What was asked: of which family, with which turns before."""

    def providers(self) -> tuple[ProviderConfig, ...]:
        return tuple(
            ProviderConfig(
                name=name,
                api_base_url=f"{self.url}/{name}" + ("/v1" if family.dialect == "openai_chat" else ""),
                keys=(Secret("sk-host"),),
                models=(family.model,),
                dialect=family.dialect,
                host=family.host,
            )
            for name, family in FAMILIES.items()
        )

    async def _answer(self, peer: Peer, asked: HostRequest) -> None:
        name, body = asked.path.split("/")[1], json.loads(asked.body)
        turns = turns_of(body)
        self.turns.append((name, turns))
        if objection := next(objections(name, body, turns), None):
            error = json.dumps({"error": {"type": "invalid_request_error", "message": objection}}).encode()
            await peer.send(whole(error, status="400 Bad Request"))
            return
        await send_answer(peer, self._said(name, turns), stream=bool(body.get("stream")))

    def _said(self, name: str, turns: list[Turn]) -> Answer:
        family, number = FAMILIES[name], sum(len(turn.calls) for turn in turns)
        id = family.own.format(name=TOOL, number=number)
        calls = [Call(id, TOOL, json.dumps({"path": f"/{number}"}))]
        thought = f"{name} thinks of {number}."
        if family.dialect == "anthropic":
            block = {"type": "thinking", "thinking": thought, "signature": signed(name, thought)}
            return messages_answer(Thought(blocks=(block,)), f"Look {number}.", calls)
        fields = {family.reasoning: thought} if family.reasoning else {}
        return chat_answer(Thought(fields), f"Look {number}.", calls)


def objections(name: str, body: Any, turns: list[Turn]) -> Iterator[str]:
    family = FAMILIES[name]
    if "moonshim1." in json.dumps(body):
        yield "a token that only the gateway can read"
    for turn in turns:
        ids = [call.id for call in turn.calls]
        if not all(re.fullmatch(family.legal, id) for id in ids):
            yield f"identifiers {ids}"
        if [id for id, _ in turn.results] != ids:
            yield f"calls {ids}, and results {turn.results}"
        if name.startswith("moonshot") and turn.calls and turn.reasoning is None:
            yield "thinking is enabled but reasoning_content is missing in assistant tool call message"
        if name == "claude" and turn.reasoning is not None and turn.signature != signed("claude", turn.reasoning):
            yield f"Invalid signature {turn.signature} in thinking block"
    every = [call.id for turn in turns for call in turn.calls]
    if len(set(every)) != len(every):
        yield f"identifiers that repeat: {every}"
    if family.reasoning is None:
        for message in body["messages"]:
            if extra := [key for key in message if "reasoning" in key]:
                yield f"Extra inputs are not permitted: {extra}"


@pytest.fixture(scope="module")
def scene() -> Iterator[Stage]:
    with stage(Models(), lambda host: Config(providers=host.providers())) as one:
        yield one


@pytest.mark.parametrize(
    ("way", "drops"), [("whole", False), ("events", False), ("events", True)], ids=["whole", "streamed", "forgetful"]
)
@pytest.mark.parametrize("other", ["openai", "unknown", "mistral", "claude"])
@pytest.mark.parametrize("kimi", ["kimi", "moonshot", "moonshot-messages"])
@pytest.mark.parametrize("client", ["openai_chat", "anthropic", "openai_responses"])
def test_a_conversation_goes_to_another_model_and_back(
    scene: Stage, client: str, kimi: str, other: str, drops: bool, way: str
) -> None:
    models: Models = scene.host
    models.turns = []
    talk = scene.packages.conversation(client, "", way=way, tools={TOOL: SCHEMA}, drops=drops)
    route = [kimi, kimi, other, other, kimi, other, kimi]
    given: list[str] = []

    async def play() -> None:
        talk.ask(f"Read it, {client} {kimi} {other} {drops} {way}.")
        for name in route:
            talk.model = f"{name}/{FAMILIES[name].model}"
            talk.is_signed = name not in ("openai", "mistral")
            answer = await talk.turn()
            assert [call.name for call in answer.calls] == [TOOL]
            given.extend(call.id for call in answer.calls)
            talk.give([(call, Result("text")) for call in answer.calls])

    scene.run(play())
    assert [name for name, _ in models.turns] == route
    assert len(set(given)) == len(route)
    turns = models.turns[-1][1]
    # Back at Kimi: its own thoughts are there again, and its own identifiers as the client has them.
    for number, (name, turn) in enumerate(zip(route, turns, strict=False)):
        if name == kimi:
            assert turn.reasoning == f"{kimi} thinks of {number}."
    if kimi == "kimi":
        assert [call.id for turn in turns for call in turn.calls] == [f"functions.{TOOL}:{n}" for n in range(6)]
    # What another model is shown does not depend on what comes later: its prompt cache holds.
    shown = [turns for name, turns in models.turns if name == other]
    assert shown[1][:2] == shown[0]
    assert shown[2][:3] == shown[1]
