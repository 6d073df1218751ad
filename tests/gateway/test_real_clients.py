"""Agents and SDKs as they were recorded, with what they send and what they insist on, through the gateway."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import aiohttp
import pytest

from moonshim.config import Config, Retries
from tests.engine.dialects.anthropic.reading import ResponsesReader
from tests.support.gateway.agent_models import (
    RECORDED,
    ClaudeCode,
    Codex,
    KimiCode,
    KimiCodeMessages,
    KimiCodeResponses,
    Opencode,
    QwenCode,
    Wire,
    dialect_of,
    load_recorded,
)
from tests.support.gateway.hosts import HostRequest, Peer, whole
from tests.support.gateway.raw_client import Reply as FaultReply
from tests.support.gateway.raw_client import content_of
from tests.support.gateway.stages import Stage, stage
from tests.support.gateway.strict_hosts import ROWS, PlannedResponse, Row, StrictKimi, Turn, as_answer, turns_of
from tests.support.playing import Answer
from tests.support.streams import parse_payloads, read_sse

Json: TypeAlias = dict[str, Any]

ROUNDS: Final = 3
_CASE: Final = re.compile(r"case-\d+")
_tags: Final = itertools.count()
ARGUMENTS: Final[dict[str, Json]] = {
    "Bash": {"command": "ls", "description": "List"},
    "Read": {"file_path": "/a"},
    "read": {"filePath": "/a"},
    "shell": {"command": ["ls"]},
    "list_directory": {"path": "/a"},
    "apply_patch": {"input": "*** Begin Patch\n*** End Patch"},
    "mcp__github__search_issues": {"query": "typo"},
}
"""What the host calls, if it is declared. In each round the next two of them."""


def play(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse | Answer:
    tag = _CASE.search(json.dumps(body["messages"]))
    assert tag is not None
    declared = [one.get("name") or one["function"]["name"] for one in body.get("tools") or ()]
    callable_ = [name for name in declared if name in ARGUMENTS]
    if len(turns) < ROUNDS and callable_:
        names = [callable_[(2 * len(turns) + place) % len(callable_)] for place in range(2)]
        calls = [(name, json.dumps(ARGUMENTS[name])) for name in names]
        return PlannedResponse(f"Thought {len(turns)} of {tag[0]}.", "Let me look.", calls, leaked=row.host == "vllm")
    return PlannedResponse(
        f"Thought {len(turns)} of {tag[0]}.", " ".join(text for turn in turns for _, text in turn.results) or "Hi."
    )


@pytest.fixture(scope="module")
def scene() -> Iterator[Stage]:
    def config(host: StrictKimi) -> Config:
        aliases: dict[str, tuple[str, ...]] = {f"my-{name}": (f"{name}/{row.model}",) for name, row in ROWS.items()}
        retries = Retries(attempts=1, breaker_failures=1_000_000)
        return Config(providers=host.providers(), aliases=aliases, retries=retries)

    with stage(StrictKimi(play), config) as one:
        yield one


def with_wire(scene: Stage, test: Callable[[Wire], Awaitable[None]]) -> None:
    host: StrictKimi = scene.host
    host.bodies, host.refused, host.piece, host.pauses_after, host.plays = [], [], 0, b"", play

    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            await test(Wire(session, scene.gateway.url))

    scene.run(run())


def new_case() -> str:
    return f"case-{next(_tags)}"


async def loop(agent: Any, host: StrictKimi) -> list[list[tuple[str, str, str]]]:
    """Run tools until the model is done; every call gets a result that the host can tell apart."""
    rounds: list[list[tuple[str, str, str]]] = []
    while calls := await agent.turn():
        assert len(rounds) < 10, "it would go on for ever"
        rounds.append(calls)
        agent.give([(id, f"r{len(rounds)}.{place}") for place, (id, _, _) in enumerate(calls)])
    assert not host.refused
    return rounds


def without(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: without(inner, key) for name, inner in value.items() if name != key}
    return [without(inner, key) for inner in value] if isinstance(value, list) else value


def check_history(host: StrictKimi, tag: str, row: str, *, bodies: int = ROUNDS + 1) -> None:
    """The host had every thought, every call and every result in its place, and its prompt cache fits."""
    # Where the cache may end moves on with every request of Claude Code, and is no part of what is said.
    sent = [without(body, "cache_control") for body in host.bodies[-bodies:]]
    turns = turns_of(sent[-1])
    assert [turn.reasoning for turn in turns] == [f"Thought {number} of {tag}." for number in range(ROUNDS)]
    for number, turn in enumerate(turns):
        assert [text for _, text in turn.results] == [f"r{number + 1}.0", f"r{number + 1}.1"]
        assert [id for id, _ in turn.results] == [call.id for call in turn.calls]
    if row == "vllm":
        calls = [call for turn in turns for call in turn.calls]
        assert [call.id for call in calls] == [f"functions.{call.name}:{n}" for n, call in enumerate(calls)]
    for before, after in itertools.pairwise(sent):
        assert after["messages"][: len(before["messages"])] == before["messages"]
        assert after["tools"] == before["tools"]


# --- agents -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS)
def test_claude_code(scene: Stage, row: str) -> None:
    tag = new_case()

    async def test(wire: Wire) -> None:
        agent = ClaudeCode(wire, f"my-{row}", f"List it. {tag}")
        assert await agent.count() > 100
        rounds = await loop(agent, scene.host)
        assert len(rounds) == ROUNDS
        assert agent.text == "r1.0 r1.1 r2.0 r2.1 r3.0 r3.1"
        assert agent.sent_whole == 0
        ids = [id for calls in rounds for id, _, _ in calls]
        assert len(set(ids)) == len(ids)
        assert all(re.fullmatch("[a-zA-Z0-9_-]+", id) for id in ids)
        check_history(scene.host, tag, row)
        sent = json.dumps(scene.host.bodies)
        assert "billing" not in sent
        assert "defer_loading" not in sent
        assert "deferred tools are now available" in sent

    with_wire(scene, test)


@pytest.mark.parametrize("row", ROWS)
def test_codex(scene: Stage, row: str) -> None:
    tag = new_case()

    async def test(wire: Wire) -> None:
        agent = Codex(wire, f"my-{row}", f"Fix it. {tag}")
        rounds = await loop(agent, scene.host)
        called = {name: text for calls in rounds for _, name, text in calls}
        assert json.loads(called["shell"]) == {"command": ["ls"]}
        assert called["apply_patch"] == "*** Begin Patch\n*** End Patch", "a custom tool gets its text, not JSON"
        assert json.loads(called["mcp__github__search_issues"]) == {"query": "typo"}
        assert agent.text == "r1.0 r1.1 r2.0 r2.1 r3.0 r3.1"
        check_history(scene.host, tag, row)
        assert "You are Codex" in json.dumps(scene.host.bodies[0])

    with_wire(scene, test)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("agent", [KimiCode, Opencode, QwenCode])
def test_agents_of_chat(scene: Stage, agent: type[KimiCode | Opencode | QwenCode], row: str) -> None:
    tag = new_case()

    async def test(wire: Wire) -> None:
        one = agent(wire, f"my-{row}", f"List it. {tag}")
        if isinstance(one, Opencode):
            assert await one.title("my-moonshot") == "Hi."
        rounds = await loop(one, scene.host)
        assert len(rounds) == ROUNDS
        assert one.text == "r1.0 r1.1 r2.0 r2.1 r3.0 r3.1"
        check_history(scene.host, tag, row)

    with_wire(scene, test)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("agent", [KimiCodeMessages, KimiCodeResponses])
def test_kimi_code_in_its_other_dialects(
    scene: Stage, agent: type[KimiCodeMessages | KimiCodeResponses], row: str
) -> None:
    tag = new_case()

    async def test(wire: Wire) -> None:
        one = agent(wire, f"my-{row}", f"List it. {tag}")
        rounds = await loop(one, scene.host)
        assert len(rounds) == ROUNDS
        check_history(scene.host, tag, row)

    with_wire(scene, test)


# --- every recorded request, as it is ---------------------------------------------------------------------------

PATHS: Final = {"openai_chat": "/v1/chat/completions", "anthropic": "/v1/messages", "openai_responses": "/v1/responses"}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("client", RECORDED)
def test_every_recorded_request_is_taken_and_answered(scene: Stage, client: str, row: str) -> None:
    async def test(wire: Wire) -> None:
        asked = load_recorded(client)
        scene.host.plays = lambda body, row, turns: PlannedResponse("Hm.", "Hi.")
        dialect = dialect_of(client)
        reply = await wire.post(PATHS[dialect], asked | {"model": f"my-{row}"})
        assert reply.status == 200, reply.body
        assert not scene.host.refused
        said = content_of(dialect, FaultReply(reply.status, reply.headers, reply.body, True))
        assert (said.text, said.calls, said.error) == ("Hi.", [], None)

    with_wire(scene, test)


# --- what single clients insist on ------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["vllm", "moonshot-anthropic"])
def test_claude_code_sends_again_whole_when_a_stream_breaks(scene: Stage, row: str) -> None:
    tag = new_case()

    async def test(wire: Wire) -> None:
        host: StrictKimi = scene.host

        def breaks(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse | Answer:
            made = as_answer(PlannedResponse("Hm.", "Hi."), row, turns)
            cut = made.stream.index(b"Hi.") if row.dialect == "anthropic" else made.stream.index(b'"Hi')
            return Answer(made.whole, made.stream[:cut] + b"\n\n")

        host.plays, host.pauses_after, wire.answering = breaks, b"Hm", host.resumed.set
        agent = ClaudeCode(wire, f"my-{row}", f"Hello. {tag}")
        assert await agent.turn() == []
        assert (agent.sent_whole, agent.text) == (1, "Hi.")
        assert [body.get("stream") for body in host.bodies] == [True, False]

    with_wire(scene, test)


LIMITED: Final = {"error": {"message": "Your account reached max RPM: 3", "type": "rate_limit_reached_error"}}
OVERFLOWS: Final = {
    "error": {
        "message": "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
        "type": "invalid_request_error",
    }
}


def refusing(status: str, body: Json, *headers: str) -> Any:
    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(
            whole(json.dumps(body).encode(), status=status, headers=("content-type: application/json", *headers))
        )

    return script


@pytest.mark.parametrize("client", ["claude-code", "codex", "opencode"])
def test_whoever_comes_too_often_is_told_when_to_come_back(scene: Stage, client: str) -> None:
    """Codex gives up at once on a 429 without Retry-After, and waits on one with it."""

    async def test(wire: Wire) -> None:
        with scripted(scene, refusing("429 Too Many Requests", LIMITED)):
            reply = await wire.post(PATHS[dialect_of(client)], load_recorded(client) | {"model": "my-moonshot"})
        assert reply.status == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert "max RPM" in reply.json["error"]["message"]
        with scripted(scene, refusing("429 Too Many Requests", LIMITED, "retry-after: 41")):
            reply = await wire.post(PATHS[dialect_of(client)], load_recorded(client) | {"model": "my-moonshot"})
        assert (reply.status, reply.headers["retry-after"]) == (429, "41")

    with_wire(scene, test)


def test_a_conversation_that_is_too_long_is_told_in_the_words_that_each_agent_knows(scene: Stage) -> None:
    async def test(wire: Wire) -> None:
        with scripted(scene, refusing("400 Bad Request", OVERFLOWS)):
            said = {
                client: await wire.post(PATHS[dialect_of(client)], load_recorded(client) | {"model": "my-moonshot"})
                for client in ("claude-code", "codex", "opencode")
            }
        assert {reply.status for reply in said.values()} == {400}
        error = said["claude-code"].json["error"]
        assert error["type"] == "invalid_request_error"
        assert re.search(r"prompt is too long: \d+ tokens > \d+ maximum", error["message"])
        for client in ("codex", "opencode"):
            assert said[client].json["error"]["code"] == "context_length_exceeded"

    with_wire(scene, test)


@contextmanager
def scripted(scene: Stage, script: Any) -> Iterator[None]:
    """The host does this for a while."""
    usual, scene.host._script = scene.host._script, script
    try:
        yield
    finally:
        scene.host._script = usual


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_ai_sdk_names_items_instead_of_repeating_them(scene: Stage, row: str, stream: bool) -> None:
    """Over Responses it sends `item_reference` for what was thought and said, unless `store` is false."""
    tag = new_case()

    async def test(wire: Wire) -> None:
        given = load_recorded("ai-sdk-responses") | {"model": f"my-{row}", "stream": stream}
        given["tools"] = load_recorded("codex")["tools"][:1]
        history: list[Json] = [*given["input"][:1], {"role": "user", "content": [{"type": "input_text", "text": tag}]}]
        for number in range(ROUNDS + 1):
            reply = await wire.post("/v1/responses", given | {"input": history})
            assert reply.status == 200, reply.body
            response = ResponsesReader(reply.body).response if stream else reply.json
            for item in response["output"]:
                if item["type"] in ("reasoning", "message"):
                    history.append({"type": "item_reference", "id": item["id"]})
                else:
                    kept = ("type", "call_id", "name", "arguments")
                    history.append({"id": item["id"], **{key: item[key] for key in kept}})
            calls = [item["call_id"] for item in response["output"] if item["type"] == "function_call"]
            history += [
                {"type": "function_call_output", "call_id": id, "output": f"r{number + 1}.{place}"}
                for place, id in enumerate(calls)
            ]
        assert not scene.host.refused
        check_history(scene.host, tag, row)

    with_wire(scene, test)


@pytest.mark.parametrize("row", ROWS)
def test_langchain_gets_no_usage_that_it_did_not_ask_for(scene: Stage, row: str) -> None:
    async def test(wire: Wire) -> None:
        asked = load_recorded("langchain-openai") | {"model": f"my-{row}"}
        assert "stream_options" not in asked
        scene.host.plays = lambda body, row, turns: PlannedResponse("Hm.", "Hi.")
        reply = await wire.post("/v1/chat/completions", asked)
        chunks = [one for one in parse_payloads(read_sse(reply.body)) if isinstance(one, dict)]
        assert all(len(one["choices"]) == 1 for one in chunks), "clients take the first choice of every chunk"

    with_wire(scene, test)


@pytest.mark.parametrize("row", ROWS)
def test_pydantic_ai_writes_thoughts_as_text(scene: Stage, row: str) -> None:
    """Over Responses they come back as `<think>` in the text of the assistant; the host gets them as thoughts."""

    async def test(wire: Wire) -> None:
        scene.host.plays = lambda body, row, turns: PlannedResponse("Hm.", "Hi.")
        reply = await wire.post("/v1/responses", load_recorded("pydantic-ai-responses") | {"model": f"my-{row}"})
        assert reply.status == 200
        (turn,) = turns_of(scene.host.bodies[0])
        assert (turn.reasoning, turn.text) == ("Paris.", "")
        assert not scene.host.refused

    with_wire(scene, test)


@pytest.mark.parametrize("row", ROWS)
def test_instructor_forces_a_tool(scene: Stage, row: str) -> None:
    """K2.5 refuses a forced choice while it thinks: then it does not think, or the choice is not forced."""

    async def test(wire: Wire) -> None:
        scene.host.plays = lambda body, row, turns: PlannedResponse("", "", [("User", '{"name": "Ada", "age": 36}')])
        reply = await wire.post("/v1/chat/completions", load_recorded("instructor") | {"model": f"my-{row}"})
        (choice,) = reply.json["choices"]
        assert choice["finish_reason"] == "tool_calls"
        (call,) = choice["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"name": "Ada", "age": 36}
        assert not scene.host.refused

    with_wire(scene, test)
