"""Long conversations through a real gateway process: faults in every round, other models, dialects and configurations.

Each conversation has twenty rounds of tool calls. Its model changes twice, its client's dialect once; the configuration
is loaded again in every round, while requests are in flight. `MOONSHIM_MARATHON` sets the number of conversations.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct
from msgspec.structs import replace

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator
from moonshim.simulator.faults import FAULTS
from tests.support.gateway.official_clients import Conversation, Packages, Result
from tests.support.gateway.serving import wait_until
from tests.support.playing import Call
from tests.support.profiles import PROFILE
from tests.support.servers import Running, running

CONVERSATIONS: Final = int(os.environ.get("MOONSHIM_MARATHON", "8" if PROFILE == "quick" else "32"))
ROUNDS: Final = 20
PARTS: Final = 4
"""How many marathons there are: each has other faults."""
TOOLS: Final[dict[str, Any]] = {
    "read_file": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    "look": {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]},
}
DIALECTS: Final = ("openai_chat", "anthropic", "openai_responses")
HOSTS: Final = {
    # An older vLLM: its row says `reasoning`, it sends and reads `reasoning_content`.
    "vllm": ("selfhost", 'host = "vllm"'),
    "moonshot": ("moonshot", 'host = "moonshot"'),
    "messages": ("selfhost", 'dialect = "anthropic"\nhost = "vllm"'),
}
MENDED: Final = [
    fault
    for fault in FAULTS.values()
    if "k2" in fault.families
    and not (fault.fatal or fault.lost)
    and fault.name not in ("finish-length", "pause", "stays-open")
]
"""Faults of the model after which the response is complete all the same, and that take no time."""


def faults_of(host: str, part: int) -> tuple[str, ...]:
    """A fault for each round: another one in each, at each host and in each part."""
    # Moonshot's platform reads the calls itself: markers in its content are an error.
    names = [fault.name for fault in MENDED if not (host == "moonshot" and fault.group == "leaks")]
    # All parts together: the first 80, the last 80, and the 80 after the first.
    first = {"vllm": 0, "moonshot": -PARTS * ROUNDS, "messages": PARTS * ROUNDS}[host] + part * ROUNDS
    return tuple(f"{names[(first + round_ - 1) % len(names)]}@{round_}" for round_ in range(1, ROUNDS + 1))


class Marathon:
    """The model: it thinks, speaks and calls in every round."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        number = sum(turn.role == "assistant" for turn in question.turns) + 1
        reasoning = f"Thought {number}, with <tags> & 北京." if question.thinking else ""
        calls: tuple[IntendedCall, ...] = (IntendedCall("read_file", _as_json({"path": f"/ä b/{number},]}}"})),)
        if number % 3 == 0:
            calls += (IntendedCall("look", _as_json({"at": number})),)
        return IntendedResponse(reasoning=reasoning, text=f"Step {number}.", calls=calls)


def _as_json(arguments: Any) -> str:
    """As the gateway writes the input of a Messages client, which has lost how the model wrote it."""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


class Track(Struct, frozen=True):
    """Which hosts one conversation uses, and in which dialects."""

    number: int
    hosts: tuple[str, str, str]
    dialects: tuple[str, str]

    @property
    def prompt(self) -> str:
        return f"Conversation {self.number}."

    def host(self, round_: int) -> str:
        return self.hosts[0 if round_ <= 7 else 1 if round_ <= 14 else 2]

    def model(self, round_: int) -> str:
        return f"{self.host(round_)}/kimi-k2.5"

    def dialect(self, round_: int) -> str:
        return self.dialects[round_ > ROUNDS // 2]


def tracks() -> list[Track]:
    names = list(HOSTS)
    return [
        Track(
            number,
            (names[number % 3], names[(number + 1 + number // 3 % 2) % 3], names[number % 3]),
            (DIALECTS[number % 3], DIALECTS[(number + 1 + number // 6 % 2) % 3]),
        )
        for number in range(CONVERSATIONS)
    ]


@contextmanager
def hosts(part: int) -> Iterator[dict[str, Simulator]]:
    with ExitStack() as stack:
        made: dict[str, Simulator] = {}
        for name, (behaviour, _) in HOSTS.items():
            faults = faults_of(name, part)
            simulator = Simulator(behaviour=behaviour, model=Marathon(), faults=faults, log=lambda _: None)
            made[name] = stack.enter_context(simulator.running())
        yield made


def configuration(served: dict[str, Simulator]) -> str:
    paths = {name: "/anthropic" if "anthropic" in more else "/v1" for name, (_, more) in HOSTS.items()}
    return "".join(
        f'[[providers]]\nname = "{name}"\napi_base_url = "{host.url}{paths[name]}"\n'
        f'models = ["kimi-k2.5"]\n{HOSTS[name][1]}\n\n'
        for name, host in served.items()
    )


class Runner:
    """One conversation, as its client sees it."""

    def __init__(self, packages: Packages, track: Track, part: int) -> None:
        self._packages, self._track, self._part = packages, track, part
        self._told: list[tuple[str, list[Call]]] = []
        self._talk = self._start(1)
        self._talk.ask(track.prompt)

    def _start(self, round_: int) -> Conversation:
        way = ("events", "whole")[self._track.number % 4 == 3]
        return self._packages.conversation(self._track.dialect(round_), "", way=way, tools=TOOLS)

    async def play(self, round_: int) -> None:
        """One round: the model is called, and its calls get their results."""
        if round_ > 1 and self._track.dialect(round_) != self._track.dialect(round_ - 1):
            self._switch(round_)
        self._talk.model = self._track.model(round_)
        answer = await self._talk.turn()
        expected = [("read_file", {"path": f"/ä b/{round_},]}}"})] + [("look", {"at": round_})] * (round_ % 3 == 0)
        fault = faults_of(self._track.host(round_), self._part)[round_ - 1]
        where = f"conversation {self._track.number}, {fault}, {self._talk.model}, {self._track.dialect(round_)}"
        assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == expected, where
        # Some leave half a marker in the text, or put the text among the reasoning, where it stays.
        if FAULTS[fault.partition("@")[0]].group not in ("leaks", "reasoning"):
            assert answer.text.strip() == f"Step {round_}.", where
        self._told.append(
            (answer.text, [replace(call, arguments=_as_json(json.loads(call.arguments))) for call in answer.calls])
        )
        self._talk.give([(call, Result(f"Result of {call.name} {round_}.")) for call in answer.calls])

    def _switch(self, round_: int) -> None:
        """Another program continues: it knows texts, calls and results, and the reasoning is lost on the way."""
        self._talk = self._start(round_)
        self._talk.ask(self._track.prompt)
        for number, (text, calls) in enumerate(self._told, 1):
            self._talk.history += _rendered(self._track.dialect(round_), text, calls)
            self._talk.give([(call, Result(f"Result of {call.name} {number}.")) for call in calls])


def _rendered(dialect: str, text: str, calls: list[Call]) -> list[Any]:
    """A model's turn in the history of a client."""
    match dialect:
        case "openai_chat":
            entries = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
            return [{"role": "assistant", "content": text, "tool_calls": entries}]
        case "anthropic":
            blocks = [
                {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
                for call in calls
            ]
            return [{"role": "assistant", "content": [{"type": "text", "text": text}, *blocks]}]
        case _:
            items = [
                {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
                for call in calls
            ]
            message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
            return [message, *items]


async def marathon(gateway: Running, part: int) -> None:
    packages = Packages(gateway.url, timeout=300)
    runners = [Runner(packages, track, part) for track in tracks()]
    try:
        for round_ in range(1, ROUNDS + 1):
            turns = asyncio.gather(*(runner.play(round_) for runner in runners))
            await asyncio.to_thread(reload, gateway)
            await turns
    finally:
        await packages.close()


def reload(gateway: Running) -> None:
    before = _loaded(gateway)
    gateway.process.send_signal(signal.SIGHUP)
    wait_until(lambda: _loaded(gateway) > before, "the configuration is loaded again")


def _loaded(gateway: Running) -> int:
    return gateway.stderr.count('"configuration_loaded"')


def changed_prefixes(host: Simulator) -> dict[str, list[str]]:
    """By conversation: where the messages of a request do not start with those of the one before."""
    last: dict[str, list[Any]] = {}
    changes: dict[str, list[str]] = defaultdict(list)
    for seen in host.requests:
        # SDKs add empty fields to what they return; another program does not know them.
        messages = [{key: value for key, value in one.items() if value is not None} for one in seen.body["messages"]]
        conversation = json.dumps(messages[0], ensure_ascii=False)
        before = last.get(conversation, [])
        for place, message in enumerate(before):
            if place >= len(messages) or messages[place] != message:
                now = messages[place] if place < len(messages) else None
                changes[conversation].append(f"round {seen.round}, message {place}: {message} -> {now}")
                break
        last[conversation] = messages
    return changes


@pytest.mark.parametrize("part", range(PARTS))
def test_every_conversation_completes_and_its_prefix_is_stable(tmp_path: Path, part: int) -> None:
    with hosts(part) as served:
        (tmp_path / "moonshim.toml").write_text(configuration(served))
        with running("serve", "--config", "moonshim.toml", cwd=tmp_path) as gateway:
            asyncio.run(marathon(gateway, part))
            assert gateway.stop() == 0
            made = [line for line in gateway.logged if line["event"] == "request"]
    assert len(made) == CONVERSATIONS * ROUNDS
    endings = Counter((line["outcome"], line.get("error")) for line in made)
    assert set(endings) == {("ok", None)}
    assert sum(bool(line.get("repairs")) for line in made) > len(made) // 3
    assert sum(len(host.requests) for host in served.values()) >= len(made), "not all requests were recorded"
    refused = Counter(one.problem for host in served.values() for one in host.refusals)
    assert not refused
    # The first response of a host may teach in which field it reads reasoning, and nothing else changes a prefix.
    wrong = {
        (name, conversation): changes
        for name, host in served.items()
        for conversation, changes in changed_prefixes(host).items()
        if len(changes) > 1
    }
    assert not wrong, f"{len(wrong)} histories changed more than once: {wrong}"
