"""The simulator's faults, read by the official packages through the gateway: a correct response, or an error.

The client sends what it got back to a strict host, with the results of its tools, and the conversation continues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import anthropic
import openai
import pytest
from msgspec import Struct
from msgspec.structs import replace

from moonshim.config import Config, Retries, TransformerUse
from moonshim.gateway.outbound.attempts import AskAgainLimit
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.host.behaviours import BEHAVIOURS
from moonshim.simulator.request import OfferedTool, SimRequest, SimTurn
from moonshim.simulator.response import IntendedCall, IntendedResponse
from moonshim.simulator.wire.playback import simulate_response
from tests.support.gateway.official_clients import Answered, Conversation, Result
from tests.support.gateway.stages import Stage, stage
from tests.support.gateway.strict_hosts import ROWS, PlannedResponse, Row, StrictKimi, Turn
from tests.support.playing import Answer
from tests.support.profiles import PROFILE
from tests.support.streams import find_markers

Json: TypeAlias = dict[str, Any]
CLIENTS: Final = ("openai_chat", "anthropic", "openai_responses")
REASONS: Final = {
    "openai_chat": {"calls": "tool_calls", "stop": "stop", "length": "length"},
    "anthropic": {"calls": "tool_use", "stop": "end_turn", "length": "max_tokens"},
    "openai_responses": {"calls": "completed", "stop": "completed", "length": "max_output_tokens"},
}
TOOLS: Final[dict[str, Json]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "Bash": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
        "additionalProperties": False,
    },
    "list_files": {"type": "object", "properties": {"folder": {"type": "string"}}},
    "plan": {
        "type": "object",
        "properties": {
            "todos": {"type": "array", "items": {"type": "object", "properties": {"title": {"type": "string"}}}}
        },
        "required": ["todos"],
        "additionalProperties": False,
    },
}
PARIS: Final = ("get_weather", {"city": "Paris"})
LS: Final = ("Bash", {"command": "ls"})
LONG: Final = ("Bash", {"command": "echo " + "ä" * 5000})
THOUGHT: Final = "Hm"
TEXT: Final = "北京 ist schön."
HOSTS: Final = ROWS | {
    # Hosts that do not find every call in what the model wrote.
    "vllm-k3": Row("vllm", "kimi-k3", "k3", reasoning="reasoning"),
    "relay-anthropic": Row("generic", "kimi-k2.5", "k2.5", "anthropic", ids="tool_{name}9{number}"),
}
BEHAVIOUR_OF_ROW: Final = {
    "vllm": "vllm",
    "vllm-k3": "vllm",
    "moonshot-anthropic": "moonshot",
    "relay-anthropic": "moonshot",
    "kimi-coding": "moonshot",
}


class Case(Struct, frozen=True, kw_only=True):
    """Faults in one response of a host, and what the client should see instead."""

    faults: tuple[str, ...]
    """Names in the simulator's table, in the order in which they act."""
    calls: tuple[tuple[str, Json], ...] = (PARIS,)
    """The calls that the model intends."""
    text: str = TEXT
    seen_text: str | None = None
    """The text that the client gets, where it is not the intended one."""
    seen_reasoning: str = THOUGHT
    seen_calls: bool = True
    ending: str = "calls"
    row: str = "vllm"
    provider: str = ""
    """The provider to ask for, where it is not that of the row."""
    broken: bool = False
    """The arguments are not JSON: they pass through as they came, since nothing is invented."""
    error: bool = False
    """An error is the right outcome."""

    @property
    def name(self) -> str:
        wire = "messages" if HOSTS[self.row].dialect == "anthropic" else "chat"
        about = f"-of-{self.calls[0][0]}" if self.calls and self.calls[0][0] == "Bash" else ""
        return f"{wire}-{'+'.join(self.faults)}{about}{'-of-a-relay' if self.row == 'relay-anthropic' else ''}"

    @property
    def answer(self) -> Answer:
        whole = all("whole" in FAULTS[name].ways for name in self.faults)
        return Answer(json.loads(self._sent(stream=False)) if whole else {}, self._sent(stream=True))

    def _sent(self, *, stream: bool) -> bytes:
        row = HOSTS[self.row]
        request = SimRequest(
            wire="anthropic" if row.dialect == "anthropic" else "openai_chat",
            model=row.model,
            generation=row.generation,
            turns=(SimTurn(role="user", text="Do it."),),
            tools=tuple(OfferedTool(name, "", schema) for name, schema in TOOLS.items()),
            stream=stream,
        )
        calls = tuple(IntendedCall(name, json.dumps(given, ensure_ascii=False)) for name, given in self.calls)
        response = simulate_response(
            request,
            IntendedResponse(reasoning=THOUGHT, text=self.text, calls=calls),
            behaviour=BEHAVIOURS[BEHAVIOUR_OF_ROW[self.row]],
            faults=[FAULTS[name] for name in self.faults],
            answer_id="msg_7" if row.dialect == "anthropic" else "chatcmpl-7",
            created=7,
        )
        assert response.faults == self.faults
        pieces = [piece for piece in response.pieces if isinstance(piece, bytes)]
        assert pieces == response.pieces
        return b"".join(pieces)


def chat(*faults: str, **expected: Any) -> Case:
    return Case(faults=faults, **expected)


def messages(*faults: str, row: str = "moonshot-anthropic", **expected: Any) -> Case:
    return Case(faults=faults, row=row, **expected)


def k3(*faults: str, **expected: Any) -> Case:
    return Case(faults=faults, row="vllm-k3", **expected)


BOTH: Final = (PARIS, LS)
SLOTS: Final = (
    *("number", "call-number", "call-hex", "glued", "underscores", "name-colon", "dots", "white-space", "no-number"),
    "call-hex-wrapped",
)
NO_CALLS: Final[Json] = {"calls": (), "ending": "stop"}
CUT_OFF: Final[Json] = {"broken": True, "ending": "length"}
_CASES: Final = (
    # Chat: tool calls that leak into the text or the reasoning.
    chat("markers-in-content-called"),
    chat("markers-in-reasoning"),
    chat("call-without-section"),
    *(chat(f"slot-{slot}") for slot in SLOTS),
    chat("singular-section"),
    chat("arguments-unclosed", "markers-in-content", broken=True),
    chat("markers-in-lumps", calls=BOTH),
    chat("markers-in-content", calls=(LONG,)),
    chat("think-end-in-content", **NO_CALLS),
    chat("think-tags-in-content", **NO_CALLS),
    chat("announced-call", seen_text=f"{TEXT}\nI'll call get_weather now.", seen_calls=False, ending="stop"),
    chat("nonsense", seen_text="!" * 200, seen_reasoning="", seen_calls=False, ending="length"),
    # Chat: native calls.
    chat("stop-with-calls"),
    chat("tool-calls-without-calls", error=True),
    chat("arguments-encoded-twice"),
    chat("arguments-nested-encoded", calls=(("plan", {"todos": [{"title": "a"}]}),), provider="schema"),
    chat("arguments-raw-controls", calls=(("Bash", {"command": "a\nb\tc"}),)),
    chat("arguments-odd-escapes", calls=(("Bash", {"command": "a\\xb"}),)),
    chat("arguments-trailing-junk"),
    chat("arguments-empty", calls=(("list_files", {}),)),
    chat("arguments-empty", calls=(("Bash", {}),), error=True),
    chat("name-underscored", calls=(LS,)),
    chat("name-in-id"),
    chat("ids-same", calls=BOTH),
    chat("ids-empty"),
    chat("split-name"),
    chat("arguments-before-name"),
    chat("missing-index", calls=BOTH),
    chat("string-index", calls=BOTH),
    chat("shared-index", calls=BOTH),
    chat("repeated-id"),
    # Chat: frames and endings.
    chat("no-done"),
    chat("no-space"),
    chat("crlf"),
    chat("keep-alives"),
    chat("usage-in-choice"),
    chat("byte-order-mark"),
    chat("no-finish", "empty-finish"),
    chat("no-finish"),
    chat("ends-early", error=True),
    chat("finish-overloaded", error=True),
    chat("error-in-stream", error=True),
    chat("markers-cut-off", **CUT_OFF),
    chat("arguments-cut-off", **CUT_OFF),
    # K3's XTML.
    k3("xtml-response-in-content"),
    k3("xtml-sep-elided"),
    k3("xtml-message-end-in-content", **NO_CALLS),
    k3("xtml-orphan-response-end-in-content"),
    k3("xtml-in-reasoning"),
    k3("xtml-spaced", **NO_CALLS),
    k3("xtml-cut-off", **CUT_OFF),
    # Messages.
    messages("block-stopped-twice"),
    messages("message-started-again"),
    messages("input-at-start"),
    messages("input-twice"),
    messages("arguments-trailing-junk"),
    messages("input-as-text"),
    messages("no-space", "no-event-lines"),
    messages("markers-in-content", error=True),
    messages("markers-in-content", row="relay-anthropic"),
    messages("stop-with-calls"),
    messages("no-message-delta"),
    messages("ends-early", error=True),
    messages("error-in-stream", error=True),
)
CASES: Final = {case.name: case for case in _CASES}
assert len(CASES) == len(_CASES)

thought_about: Final[list[str]] = []
_NAMED: Final = re.compile(r"<case: (.*?)>")


def play(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse | Answer:
    """The case that the prompt names; then, with the results, a plain answer."""
    if "<only thinks" in (prompt := json.dumps(body["messages"][0])):
        asked = thought_about.count(prompt)
        thought_about.append(prompt)
        return PlannedResponse(f"Thought {asked}.", "" if asked == 0 else "Hello.")
    if turns:
        return PlannedResponse("", f"Then: {' '.join(text for _, text in turns[-1].results)}")
    found = _NAMED.search(json.dumps(body["messages"], ensure_ascii=False))
    assert found is not None
    return CASES[found[1]].answer


@pytest.fixture(scope="module")
def scene() -> Iterator[Stage]:
    def config(host: StrictKimi) -> Config:
        aliases: dict[str, tuple[str, ...]] = {f"my-{name}": (f"{name}/{row.model}",) for name, row in HOSTS.items()}
        retries = Retries(attempts=1, breaker_failures=1_000_000)
        aliases["my-schema"] = ("schema/kimi-k2.5",)
        providers = host.providers()
        options = {"manualToolParsing": True, "repairDeltas": True, "repairArguments": "schema"}
        schema = replace(providers[0], name="schema", transformers=(TransformerUse("Kimi", options),))
        aliases |= {f"once-{name}": (f"once-{name}/{row.model}",) for name, row in HOSTS.items()}
        once = (replace(one, name=f"once-{one.name}", retry_empty_answer=False) for one in providers)
        return Config(providers=(*providers, schema, *once), aliases=aliases, retries=retries)

    with stage(StrictKimi(play, HOSTS), config) as one:
        one.gateway.state.ask_again_limit = AskAgainLimit(least=1_000_000)
        yield one


def check(answer: Answered, case: Case, client: str) -> None:
    assert not find_markers([answer.text, answer.reasoning, [call.arguments for call in answer.calls]])
    intended = case.calls if case.seen_calls else ()
    assert [call.name for call in answer.calls] == [name for name, _ in intended]
    if not case.broken:
        assert [json.loads(call.arguments) for call in answer.calls] == [given for _, given in intended]
    assert answer.text == (case.text if case.seen_text is None else case.seen_text)
    assert answer.reasoning == case.seen_reasoning
    assert answer.reason == REASONS[client][case.ending]
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


def mended(scene: Stage, case: Case, client: str, way: str, piece: int = 0) -> None:
    host: StrictKimi = scene.host
    host.refused, host.piece, host.pauses_after = [], piece, b""

    async def test() -> None:
        conversation = scene.packages.conversation(client, f"my-{case.provider or case.row}", way=way, tools=TOOLS)
        conversation.ask(f"<case: {case.name}>")
        answer = await conversation.turn()
        assert answer.model == f"my-{case.provider or case.row}"
        check(answer, case, client)
        await go_on(conversation, answer, host)

    scene.run(test())


ORDINARY: Final = [name for name, case in CASES.items() if not case.error]
BROKEN: Final = [name for name, case in CASES.items() if case.error]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ORDINARY)
def test_the_client_sees_an_ordinary_answer(scene: Stage, name: str, client: str) -> None:
    case = CASES[name]
    # The helpers of openai raise if arguments are not JSON or the limit was reached; that of anthropic does not.
    mended(
        scene,
        case,
        client,
        "events" if (case.ending == "length" or case.broken) and client != "anthropic" else "helper",
    )
    if PROFILE != "quick":
        mended(scene, case, client, "whole")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("upstream", ["vllm", "relay-anthropic"])
def test_bytes_may_come_one_by_one(scene: Stage, upstream: str, client: str) -> None:
    """Markers, names and characters are cut in the middle."""
    for case in (
        (chat("crlf"), chat("slot-call-hex"))
        if upstream == "vllm"
        else (CASES["messages-markers-in-content-of-a-relay"],)
    ):
        mended(scene, case, client, "helper", piece=1)


@pytest.mark.parametrize("way", ["whole", "helper"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ROWS)
def test_an_answer_of_thoughts_alone_is_asked_for_again_unless_the_option_is_off(
    scene: Stage, name: str, client: str, way: str
) -> None:
    """Without the option it is an answer that says nothing, and ends."""
    scene.host.piece, scene.host.pauses_after = 0, b""

    async def ask(model: str) -> Answered:
        conversation = scene.packages.conversation(client, model, way=way, tools=TOOLS)
        conversation.ask(f"<only thinks, for {model} {client} {way}>")
        return await conversation.turn()

    for model, thought, text in ((f"once-{name}", "Thought 0.", ""), (f"my-{name}", "Thought 0.Thought 1.", "Hello.")):
        answer = scene.run(ask(model))
        assert (answer.reasoning, answer.text, answer.calls) == (thought, text, [])
        assert answer.reason == REASONS[client]["stop"]
        assert answer.model == model


def thought_frame(case: Case) -> bytes:
    """The frame of the stream that has the thought."""
    frames = case.answer.stream.split(b"\n\n")
    return next(frame for frame in frames if f'"{THOUGHT}"'.encode() in frame) + b"\n\n"


class TestErrors:
    """Where an error is right, it is one that the package raises, with words that help."""

    def asking(self, scene: Stage, name: str, client: str, way: str) -> Conversation:
        host: StrictKimi = scene.host
        host.refused, host.piece = [], 0
        # The client has the thought before the host goes wrong.
        host.pauses_after = b"" if way == "whole" else thought_frame(CASES[name])
        scene.packages.answering = host.resumed.set
        conversation = scene.packages.conversation(client, f"my-{CASES[name].row}", way=way, tools=TOOLS)
        conversation.ask(f"<case: {name}>")
        return conversation

    @pytest.mark.parametrize("name", BROKEN)
    def test_chat_streamed(self, scene: Stage, name: str) -> None:
        conversation = self.asking(scene, name, "openai_chat", "helper")
        with pytest.raises(openai.APIError, match=WORDS) as caught:
            scene.run(conversation.turn())
        # The error of the host itself passes through, and may have no code.
        assert caught.value.code or caught.value.type == "engine_overloaded_error"

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


WORDS: Final = "(?i)overloaded|ended|closed|broke|not valid JSON|no tool call|a quotation"
