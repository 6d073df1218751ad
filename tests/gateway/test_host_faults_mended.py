"""Every known fault of hosts, read by the official packages through the gateway: an ordinary answer, or an error.

What the client got goes back to the host with the results of its tools, and the host, which takes
nothing but what Kimi takes, goes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import anthropic
import openai
import pytest
from msgspec.structs import replace

from moonshim.config import Config, Retries, TransformerUse
from tests.support.gateway.host_faults import CHAT_FAULTS, TOOLS, Fault
from tests.support.gateway.messages_faults import MESSAGES_FAULTS
from tests.support.gateway.official_clients import Answered, Conversation, Result
from tests.support.gateway.stages import Stage, stage
from tests.support.gateway.strict_hosts import ROWS, Playing, Row, StrictKimi, Turn
from tests.support.playing import Answer
from tests.support.profiles import PROFILE
from tests.support.streams import leaked

CLIENTS: Final = ("openai_chat", "anthropic", "openai_responses")
FAULTS: Final = CHAT_FAULTS | MESSAGES_FAULTS
REASONS: Final = {
    "openai_chat": {"calls": "tool_calls", "stop": "stop", "length": "length"},
    "anthropic": {"calls": "tool_use", "stop": "end_turn", "length": "max_tokens"},
    "openai_responses": {"calls": "completed", "stop": "completed", "length": "max_output_tokens"},
}
thought_about: Final[list[str]] = []
_NAMED: Final = re.compile(r"<fault: (.*?)>")


def play(body: Any, row: Row, turns: list[Turn]) -> Playing | Answer:
    """The fault that the prompt names; then, with the results, a plain answer."""
    if "<only thinks" in (prompt := json.dumps(body["messages"][0])):
        asked = thought_about.count(prompt)
        thought_about.append(prompt)
        return Playing(f"Thought {asked}.", "" if asked == 0 else "Hello.")
    if turns:
        return Playing("", f"Then: {' '.join(text for _, text in turns[-1].results)}")
    found = _NAMED.search(json.dumps(body["messages"], ensure_ascii=False))
    assert found is not None
    return FAULTS[found[1]].answer


@pytest.fixture(scope="module")
def scene() -> Iterator[Stage]:
    def config(host: StrictKimi) -> Config:
        aliases: dict[str, tuple[str, ...]] = {f"my-{name}": (f"{name}/{row.model}",) for name, row in ROWS.items()}
        retries = Retries(attempts=1, breaker_failures=1_000_000)
        aliases["my-schema"] = ("schema/kimi-k2.5",)
        providers = host.providers()
        options = {"manualToolParsing": True, "repairDeltas": True, "repairArguments": "schema"}
        schema = replace(providers[0], name="schema", transformers=(TransformerUse("Kimi", options),))
        aliases |= {f"again-{name}": (f"again-{name}/{row.model}",) for name, row in ROWS.items()}
        again = (replace(one, name=f"again-{one.name}", retry_empty_answer=True) for one in providers)
        return Config(providers=(*providers, schema, *again), aliases=aliases, retries=retries)

    with stage(StrictKimi(play), config) as one:
        yield one


def check(answer: Answered, fault: Fault, client: str) -> None:
    assert not leaked([answer.text, answer.reasoning, [call.arguments for call in answer.calls]])
    assert [call.name for call in answer.calls] == [name for name, _ in fault.calls]
    if not fault.broken:
        assert [json.loads(call.arguments) for call in answer.calls] == [given for _, given in fault.calls]
    if fault.text is not None:
        assert answer.text == fault.text
    if fault.reasoning is not None:
        assert answer.reasoning == fault.reasoning
    assert answer.reason == REASONS[client][fault.ending]
    ids = [call.id for call in answer.calls]
    assert len(set(ids)) == len(ids)
    assert all(ids)


async def go_on(conversation: Conversation, answer: Answered, host: StrictKimi) -> None:
    """The results of its calls, or the next question: the host takes the history as we send it."""
    if answer.calls:
        conversation.give([(call, Result(f"result-{n}")) for n, call in enumerate(answer.calls)])
    else:
        conversation.ask("And then?")
    after = await conversation.turn()
    assert not host.refused
    assert after.text == f"Then: {' '.join(f'result-{n}' for n in range(len(answer.calls)))}"


def mended(scene: Stage, fault: Fault, client: str, way: str, piece: int = 0) -> None:
    host: StrictKimi = scene.host
    host.refused, host.piece, host.halts_behind = [], piece, b""

    async def test() -> None:
        conversation = scene.packages.conversation(client, f"my-{fault.by or fault.row}", way=way, tools=TOOLS)
        conversation.ask(f"<fault: {fault.name}>")
        answer = await conversation.turn()
        assert answer.model == f"my-{fault.by or fault.row}"
        check(answer, fault, client)
        await go_on(conversation, answer, host)

    scene.run(test())


ORDINARY: Final = [name for name, fault in FAULTS.items() if not fault.error]
BROKEN: Final = [name for name, fault in FAULTS.items() if fault.error]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ORDINARY)
def test_the_client_sees_an_ordinary_answer(scene: Stage, name: str, client: str) -> None:
    fault = FAULTS[name]
    # The helpers of openai read arguments themselves, and raise if those are no JSON; that of anthropic does not mind.
    mended(scene, fault, client, "events" if fault.broken and client != "anthropic" else "helper")
    if PROFILE != "quick":
        mended(scene, fault, client, "whole")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("upstream", ["vllm", "moonshot-anthropic"])
def test_bytes_may_come_one_by_one(scene: Stage, upstream: str, client: str) -> None:
    """Markers, names and characters are cut in the middle."""
    name = "CRLF" if upstream == "vllm" else "markers in the text"
    mended(scene, FAULTS[name], client, "helper", piece=1)
    if upstream == "vllm":
        mended(scene, FAULTS["markers in the text, under a foreign identifier"], client, "helper", piece=1)


@pytest.mark.parametrize("way", ["whole", "helper"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ROWS)
def test_an_answer_of_thoughts_alone_is_asked_again_where_somebody_wants_it(
    scene: Stage, name: str, client: str, way: str
) -> None:
    """Without the option it is an answer that says nothing, and ends."""
    scene.host.piece, scene.host.halts_behind = 0, b""

    async def ask(model: str) -> Answered:
        conversation = scene.packages.conversation(client, model, way=way, tools=TOOLS)
        conversation.ask(f"<only thinks, for {model} {client} {way}>")
        return await conversation.turn()

    for model, thought, text in ((f"my-{name}", "Thought 0.", ""), (f"again-{name}", "Thought 0.Thought 1.", "Hello.")):
        answer = scene.run(ask(model))
        assert (answer.reasoning, answer.text, answer.calls) == (thought, text, [])
        assert answer.reason == REASONS[client]["stop"]
        assert answer.model == model


HALT: Final = {"vllm": b'"reasoning": "Hm."}, "finish_reason": null}]}\n\n', "moonshot-anthropic": b'"Hm."}}\n\n'}


class TestErrors:
    """Where an error is right, it is one that the package raises, with words that help."""

    def asking(self, scene: Stage, name: str, client: str, way: str) -> Conversation:
        host: StrictKimi = scene.host
        host.refused, host.piece = [], 0
        # The client has the thought before the host goes wrong.
        host.halts_behind = b"" if way == "whole" else HALT[FAULTS[name].row]
        scene.packages.answering = host.told.set
        conversation = scene.packages.conversation(client, f"my-{FAULTS[name].row}", way=way, tools=TOOLS)
        conversation.ask(f"<fault: {name}>")
        return conversation

    @pytest.mark.parametrize("name", BROKEN)
    def test_chat_streamed(self, scene: Stage, name: str) -> None:
        conversation = self.asking(scene, name, "openai_chat", "helper")
        with pytest.raises(openai.APIError, match=WORDS) as caught:
            scene.run(conversation.turn())
        assert caught.value.code

    @pytest.mark.parametrize("name", BROKEN)
    def test_messages_streamed(self, scene: Stage, name: str) -> None:
        conversation = self.asking(scene, name, "anthropic", "helper")
        with pytest.raises(anthropic.APIStatusError, match=WORDS) as caught:
            scene.run(conversation.turn())
        assert caught.value.body["error"]["type"] in ("overloaded_error", "api_error")  # type: ignore[index]

    @pytest.mark.parametrize("name", BROKEN)
    def test_responses_streamed(self, scene: Stage, name: str) -> None:
        conversation: Any = self.asking(scene, name, "openai_responses", "events")
        response = scene.run(conversation._response())
        assert response.status == "failed"
        assert re.search(WORDS, response.error.message)
        assert response.error.code in ("server_error", "rate_limit_exceeded")

    @pytest.mark.parametrize("client", CLIENTS)
    @pytest.mark.parametrize("name", BROKEN)
    def test_whole(self, scene: Stage, name: str, client: str) -> None:
        """Nothing has been sent: it is a plain error with a status, and could have been asked again."""
        conversation = self.asking(scene, name, client, "whole")
        with pytest.raises((openai.InternalServerError, anthropic.InternalServerError), match=WORDS) as caught:
            scene.run(conversation.turn())
        error: Any = caught.value
        assert error.status_code in (502, 503, 529)
        assert "retry-after" in error.response.headers or error.status_code == 502


WORDS: Final = "(?i)overloaded|ended|closed|broke"
