"""Five rounds of tools with the official packages, in every dialect over every dialect; the host forgives nothing."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from moonshim.config import Config
from tests.matrix.steps import TOOLS as EVERY_TOOL
from tests.support.gateway.official_clients import WAYS, Answered, Conversation, Result
from tests.support.gateway.stages import Stage, stage
from tests.support.gateway.strict_hosts import ROWS, PlannedResponse, Row, StrictKimi, Turn, signature_of, turns_of
from tests.support.playing import Call
from tests.support.profiles import PROFILE

CLIENTS: Final = ("openai_chat", "anthropic", "openai_responses")
# The quick profile is for further interpreters: it looks for what differs between them.
ASKED_WAYS: Final = ("helper",) if PROFILE == "quick" else WAYS
ROUNDS: Final = 5
LEAKY: Final = 2
"""In this round vLLM leaves the markers of its calls in the text."""
ASKED_IMAGE: Final = "aW1hZ2Ugb2YgYSB1c2Vy"
GIVEN_IMAGE: Final = "aW1hZ2Ugb2YgYSB0b29s"
TOOLS: Final[dict[str, Any]] = {name: EVERY_TOOL[name] for name in ("look", "read_file")}
_TAG: Final = re.compile(r"case-\d+")
_tags: Final = itertools.count()


def play(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
    """Think, speak and call twice, five times; then say what the tools gave."""
    found = _TAG.search(json.dumps(body["messages"]))
    assert found is not None
    if len(turns) < ROUNDS:
        number = len(turns)
        calls = [("look", json.dumps({"at": number})), ("read_file", json.dumps({"path": f"/ä/{number}"}))]
        leaked = row.host == "vllm" and number == LEAKY
        return PlannedResponse(thought(found[0], number), f"Step {number}.", calls, leaked)
    given = " ".join(text for turn in turns for _, text in turn.results)
    return PlannedResponse(thought(found[0], ROUNDS), f"Done: {given}")


def thought(tag: str, number: int) -> str:
    return f"Thought {number} of {tag}, with <tags> & 北京."


def tools(call: Call, number: int) -> Result:
    arguments = json.loads(call.arguments)
    if call.name == "look":
        assert arguments == {"at": number}
        return Result(f"seen-{number}", image=GIVEN_IMAGE if number == 1 else None)
    assert arguments == {"path": f"/ä/{number}"}
    return Result(f"failed-{number}", failed=True) if number == 3 else Result(f"content-{number}")


@pytest.fixture(scope="module")
def scene() -> Iterator[Stage]:
    def config(host: StrictKimi) -> Config:
        aliases: dict[str, tuple[str, ...]] = {f"my-{name}": (f"{name}/{row.model}",) for name, row in ROWS.items()}
        return Config(providers=host.providers(), aliases=aliases)

    with stage(StrictKimi(play), config) as one:
        yield one


async def talk(scene: Stage, conversation: Conversation, tag: str) -> list[Answered]:
    """The whole loop, as an agent runs it."""
    conversation.ask(f"What is there? {tag}", image=ASKED_IMAGE)
    answers: list[Answered] = []
    while len(answers) <= ROUNDS:
        answer = await conversation.turn()
        answers.append(answer)
        headers = scene.packages.headers
        assert re.fullmatch("[0-9a-f]{32}", headers["x-request-id"])
        assert headers["x-upstream-request-id"] == "up-1"
        assert headers["x-moonshim-repairs"]
        if not answer.calls:
            break
        number = len(answers) - 1
        conversation.give([(call, tools(call, number)) for call in answer.calls])
    return answers


def check_answers(answers: list[Answered], client: str, row: Row, name: str, tag: str) -> None:
    """What the client has of it."""
    assert len(answers) == ROUNDS + 1
    ids: list[str] = []
    for number, answer in enumerate(answers):
        assert answer.model == f"my-{name}"
        assert answer.reasoning == thought(tag, number)
        assert answer.usage == ((3, 4) if row.dialect == "anthropic" else (30, 4))
        if number < ROUNDS:
            assert answer.text == f"Step {number}."
            assert [call.name for call in answer.calls] == ["look", "read_file"]
            ids += [call.id for call in answer.calls]
    assert len(set(ids)) == 2 * ROUNDS
    if client != "openai_chat":
        # Claude Code joins answers of one name, and Responses are kept by theirs.
        assert len({answer.id for answer in answers}) == ROUNDS + 1
    if client == "anthropic":
        assert all(re.fullmatch("[a-zA-Z0-9_-]+", id) for id in ids)
    calling, over = {
        "openai_chat": ("tool_calls", "stop"),
        "anthropic": ("tool_use", "end_turn"),
        "openai_responses": ("completed", "completed"),
    }[client]
    assert [answer.reason for answer in answers] == [calling] * ROUNDS + [over]
    given = [f"seen-{n} {'failed' if n == 3 else 'content'}-{n}" for n in range(ROUNDS)]
    assert answers[-1].text.replace("[image 1: see the next message]", "") == f"Done: {' '.join(given)}"


def check_requests(host: StrictKimi, row: Row, tag: str) -> None:
    """What the host was sent: all of it, every round what the round before was sent and more."""
    assert not host.refused
    bodies = host.bodies
    assert len(bodies) == ROUNDS + 1
    for before, after in itertools.pairwise(bodies):
        size = len(before["messages"])
        assert after["messages"][:size] == before["messages"], "a host's prompt cache no longer fits"
        assert len(after["messages"]) > size
        assert {key: value for key, value in after.items() if key != "messages"} == {
            key: value for key, value in before.items() if key != "messages"
        }
    last = json.dumps(bodies[-1]["messages"])
    assert last.count(ASKED_IMAGE) == last.count(GIVEN_IMAGE) == 1
    turns = turns_of(bodies[-1])
    assert [turn.reasoning for turn in turns] == [thought(tag, number) for number in range(ROUNDS)]
    if row.dialect == "anthropic":
        assert [turn.signature for turn in turns] == [signature_of(thought(tag, number)) for number in range(ROUNDS)]
    number = 0
    for turn in turns:
        assert [id for id, _ in turn.results] == [call.id for call in turn.calls]
        for call in turn.calls:
            if row.host == "vllm":
                assert call.id == f"functions.{call.name}:{number}"
            number += 1
    assert all(body["model"] == row.model for body in bodies)


def case_of(scene: Stage) -> str:
    host = scene.host
    host.bodies, host.refused = [], []
    return f"case-{next(_tags)}"


@pytest.mark.parametrize("way", ASKED_WAYS)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("client", CLIENTS)
def test_five_rounds_of_tools(scene: Stage, client: str, name: str, way: str) -> None:
    tag, row = case_of(scene), ROWS[name]
    conversation = scene.packages.conversation(client, f"my-{name}", way=way, tools=TOOLS)
    answers = scene.run(talk(scene, conversation, tag))
    check_answers(answers, client, row, name, tag)
    check_requests(scene.host, row, tag)
    if row.dialect == client == "anthropic":
        assert json.dumps(scene.host.bodies[-1]).count('"is_error": true') == 1


@pytest.mark.parametrize("way", ASKED_WAYS)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("client", CLIENTS)
def test_clients_that_drop_what_was_thought(scene: Stage, client: str, name: str, way: str) -> None:
    """As langchain-openai and the AI SDK over Chat do. The host gets the real thoughts back in every round."""
    tag, row = case_of(scene), ROWS[name]
    conversation = scene.packages.conversation(client, f"my-{name}", way=way, tools=TOOLS, drops=True)
    answers = scene.run(talk(scene, conversation, tag))
    check_answers(answers, client, row, name, tag)
    check_requests(scene.host, row, tag)


@pytest.mark.parametrize("way", ASKED_WAYS)
@pytest.mark.parametrize("name", ROWS)
def test_a_history_that_only_the_gateway_keeps(scene: Stage, name: str, way: str) -> None:
    tag, row = case_of(scene), ROWS[name]
    conversation = scene.packages.conversation("openai_responses", f"my-{name}", way=way, tools=TOOLS, kept=True)
    answers = scene.run(talk(scene, conversation, tag))
    check_answers(answers, "openai_responses", row, name, tag)
    check_requests(scene.host, row, tag)


def test_repairs_are_told_in_a_header(scene: Stage) -> None:
    tag = case_of(scene)
    told: list[str] = []
    conversation = scene.packages.conversation("openai_chat", "my-vllm", tools=TOOLS)

    async def test() -> None:
        conversation.ask(f"What is there? {tag}")
        for number in range(ROUNDS):
            answer = await conversation.turn()
            told.append(scene.packages.headers["x-moonshim-repairs"])
            conversation.give([(call, tools(call, number)) for call in answer.calls])

    scene.run(test())
    assert "marker_call=2" in told[LEAKY]
    assert all("marker_call" not in text for text in told[:LEAKY])


def test_a_request_id_of_the_client_is_kept(scene: Stage) -> None:
    case_of(scene)

    async def test() -> None:
        completion = await scene.packages.openai.chat.completions.create(
            model="my-moonshot",
            messages=[{"role": "user", "content": "case-0"}],
            extra_headers={"x-request-id": "mine-1"},
        )
        assert completion._request_id == "mine-1"

    scene.run(test())
