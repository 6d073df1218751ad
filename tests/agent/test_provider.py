"""A provider asked over a real socket: what it sends to every host, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from moonshim.agent import AnswerFailed, Provider
from moonshim.agent.stream import assemble_message
from moonshim.engine.values.conversation import Message, Reasoning, Sampling, Text, Thinking, Tool, ToolCall
from moonshim.engine.values.events import BlockDelta, BlockOpened, Finished, Repaired
from moonshim.errors import InvalidInput
from moonshim.simulator import IntendedCall, IntendedResponse, Simulator
from moonshim.simulator.host.behaviours import BEHAVIOURS
from moonshim.simulator.request import SimRequest
from tests.agent.asking import LIST, Boxes, Rounds, boxes_for, collected, human, run, whole_conversation

KEY: Final = "sk-the-secret-of-the-test"
PATHS: Final = {"openai_chat": "/v1", "anthropic": "/anthropic"}
WIRES: Final = [(behaviour, "openai_chat") for behaviour in BEHAVIOURS] + [
    (behaviour, "anthropic") for behaviour in ("moonshot", "kimi-coding", "selfhost")
]
ROWS: Final = {("moonshot", "anthropic"): "moonshot-anthropic", ("selfhost", "openai_chat"): None}


BOXES: Final[list[Boxes]] = []


@pytest.fixture(scope="module", autouse=True)
def _standing() -> Iterator[None]:
    with boxes_for(Rounds()) as boxes:
        BOXES[:] = [boxes]
        yield


@asynccontextmanager
async def asked(
    behaviour: str, wire: str = "openai_chat", **arguments: Any
) -> AsyncIterator[tuple[Simulator, Provider]]:
    """A host with this behaviour, and a provider for it."""
    server = BOXES[0].of(behaviour)
    host = ROWS.get((behaviour, wire), behaviour if behaviour != "selfhost" else None)
    given = {"model": "kimi-k2.5", "api_key": KEY, "headers": {"user-agent": "kimi-cli"}, "host": host} | arguments
    async with Provider(f"{server.url}{PATHS[wire]}", dialect=wire, **given) as provider:  # type: ignore[arg-type]
        yield server, provider


class TestEveryNature:
    @pytest.mark.parametrize("model", ["kimi-k2.5", "kimi-k3", "kimi-k2-0905-preview"])
    @pytest.mark.parametrize(("behaviour", "wire"), WIRES)
    def test_a_conversation_with_calls_is_right_at_both_ends(self, behaviour: str, wire: str, model: str) -> None:
        async def test() -> None:
            async with asked(behaviour, wire, model=model) as (server, provider):
                history = await whole_conversation(provider)
                assert not server.refusals
                answers = [message for message in history if message.role == "assistant"]
                for answer, seen in zip(answers, server.requests, strict=True):
                    assert seen.intended is not None
                    assert "".join(part.text for part in answer.parts if isinstance(part, Text)) == seen.intended.text
                    thoughts = [part.text for part in answer.parts if isinstance(part, Reasoning)]
                    assert "".join(thoughts) == seen.intended.reasoning
                    calls = [(part.name, part.arguments) for part in answer.parts if isinstance(part, ToolCall)]
                    assert calls == [(call.name, call.arguments) for call in seen.intended.calls]
                ids = [part.id for answer in answers for part in answer.parts if isinstance(part, ToolCall)]
                assert len(ids) == len(set(ids)) == 5
                assert all(one.startswith("hist_tool_") for one in ids)
                last = answers[-1].parts[-1]
                assert isinstance(last, Text)
                assert last.text.count("is empty") == 5

        run(test())

    @pytest.mark.parametrize("behaviour", ["moonshot", "selfhost"])
    def test_identifiers_of_k2_are_made_from_their_places(self, behaviour: str) -> None:
        async def test() -> None:
            async with asked(behaviour) as (server, provider):
                await whole_conversation(provider)
                sent = server.requests[-1].body["messages"]
                calls = [call["id"] for message in sent for call in message.get("tool_calls", ())]
                results = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
                assert calls == results == [f"functions.ls:{number}" for number in range(5)]

        run(test())

    def test_reasoning_goes_back_in_the_field_that_the_host_reads(self) -> None:
        async def test() -> None:
            for behaviour, field in (("moonshot", "reasoning_content"), ("vllm", "reasoning")):
                async with asked(behaviour) as (server, provider):
                    await whole_conversation(provider)
                    said = [one for one in server.requests[-1].body["messages"] if one["role"] == "assistant"]
                    assert [message[field] for message in said] == ["Thought 1.", "Thought 2.", "Thought 3."]

        run(test())


def test_the_note_about_the_window_is_not_part_of_the_name() -> None:
    async def test() -> None:
        async with asked("moonshot", model="kimi-k3[1m]") as (server, provider):
            await provider.complete(human(), [LIST])
            assert provider.model == server.requests[-1].body["model"] == "kimi-k3"
            assert provider.with_(model="kimi-k2.6[1m]").model == "kimi-k2.6"
            assert not server.refusals

    run(test())


class TestHistories:
    DICTS: Final[list[dict[str, Any]]] = [
        {"role": "user", "content": "List the files"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I look.",
            "tool_calls": [{"id": "call_x", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_x", "content": "a.py"},
    ]

    def test_dicts_of_the_openai_api_are_taken(self) -> None:
        async def test() -> None:
            async with asked("moonshot") as (server, provider):
                await provider.complete(self.DICTS, [{"type": "function", "function": {"name": "ls"}}])
                sent = server.requests[-1].body["messages"]
                assert sent[1]["reasoning_content"] == "I look."
                assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == "functions.ls:0"
                assert not server.refusals

        run(test())

    def test_dicts_and_values_may_be_mixed(self) -> None:
        async def test() -> None:
            async with asked("moonshot") as (server, provider):
                answer = await provider.complete(human(), [LIST])
                calls = [part for part in answer.parts if isinstance(part, ToolCall)]
                results = [{"role": "tool", "tool_call_id": call.id, "content": "a.py"} for call in calls]
                await provider.complete([*human(), answer, *results], [LIST])
                ids = [one["tool_call_id"] for one in server.requests[-1].body["messages"] if one["role"] == "tool"]
                assert ids == ["functions.ls:0", "functions.ls:1"]
                assert not server.refusals

        run(test())

    def test_identifiers_that_come_again_are_new_ones_in_the_history(self) -> None:
        """Fireworks counts K3's calls anew in each answer."""

        async def test() -> None:
            async with asked("fireworks", model="kimi-k3") as (server, provider):
                history = await whole_conversation(provider)
                ids = [part.id for one in history for part in one.parts if isinstance(part, ToolCall)]
                assert len(set(ids)) == len(ids)
                sent = [
                    call["id"] for one in server.requests[-1].body["messages"] for call in one.get("tool_calls", ())
                ]
                assert len(set(sent)) == len(sent)

        run(test())

    @pytest.mark.parametrize(
        ("arguments", "spelling"),
        [
            ({"model": "plain-1"}, "call_"),
            ({"model": "plain-1", "tool_format": "kimi"}, "functions.ls:"),
            ({"model": "kimi-k2.5", "tool_format": "openai"}, "call_"),
            ({"model": "kimi-k2.5"}, "functions.ls:"),
        ],
    )
    def test_a_switch_of_models_gives_each_its_own_identifiers(self, arguments: dict[str, Any], spelling: str) -> None:
        async def test() -> None:
            async with asked("selfhost", model="kimi-k3") as (server, provider):
                history = await whole_conversation(provider)
                other = provider.with_(**arguments)
                await other.complete([*history, Message("user", (Text("And now?"),))], [LIST])
                sent = server.requests[-1].body["messages"]
                ids = [call["id"] for message in sent for call in message.get("tool_calls", ())]
                assert all(one.startswith(spelling) for one in ids)
                assert ids == [message["tool_call_id"] for message in sent if message["role"] == "tool"]
                assert len(set(ids)) == 5

        run(test())

    def test_the_events_tell_the_message_that_is_kept(self) -> None:
        async def test() -> None:
            async with asked("moonshot") as (_, provider):
                events = await collected(provider.stream_chat_with_tools(human(), [LIST]))
                assert assemble_message(events) == provider.last.message

        run(test())

    def test_what_is_no_conversation_is_refused_before_anybody_is_asked(self) -> None:
        provider = Provider("http://localhost:1/v1", model="kimi-k2.5")
        wrong: list[tuple[Any, Any, str]] = [
            ([], (), "messages"),
            ("hi", (), "messages"),
            ([{"content": "hi"}], (), "messages[0].role"),
            ([*human(), 3], (), "messages[1]"),
            ([Message("user", (Text("hi"),)), {"role": "user", "content": 5}], (), "messages[1].content"),
            (human(), "ls", "tools"),
            (human(), [3], "tools[0]"),
            (human(), [LIST, LIST], "tools[1]"),
            (human(), [{"type": "function"}], "tools[0].function"),
        ]
        for messages, tools, field in wrong:
            with pytest.raises(InvalidInput) as caught:
                provider.stream_chat_with_tools(messages, tools)
            assert caught.value.field == field


class TestAnswers:
    def test_the_blocks_of_an_answer_are_told_in_order(self) -> None:
        async def test() -> None:
            async with asked("moonshot") as (_, provider):
                events = await collected(provider.stream_chat_with_tools(human(), [LIST]))
                kinds = [event.kind for event in events if isinstance(event, BlockOpened)]
                assert kinds == ["reasoning", "text", "call", "call"]

        run(test())

    def test_tokens_and_repairs_are_told(self) -> None:
        async def test() -> None:
            async with asked("selfhost", model="kimi-k2.5+markers-in-content") as (_, provider):
                events = await collected(provider.stream_chat_with_tools(human(), [LIST]))
                finished = events[-1]
                assert isinstance(finished, Finished)
                assert finished.reason == "tool_calls"
                assert finished.usage is not None
                assert provider.last.usage == finished.usage
                told = [event.rule for event in events if isinstance(event, Repaired)]
                assert told
                assert {rule: told.count(rule) for rule in told} == provider.last.repair_counts
                assert provider.last.attempts == 1
                assert provider.problem is None

        run(test())

    def test_names_that_the_host_cannot_take_come_back_as_they_were_declared(self) -> None:
        class CallsTheFirst:
            def reply(self, question: SimRequest) -> IntendedResponse:
                return IntendedResponse(calls=(IntendedCall(question.tools[0].name, "{}"),))

        async def test() -> None:
            async with (
                Simulator(behaviour="moonshot", model=CallsTheFirst(), log=lambda seen: None) as server,
                Provider(f"{server.url}/v1", host="moonshot", model="kimi-k2.5") as provider,
            ):
                answer = await provider.complete(human(), [Tool("files.list", "Lists.", {"type": "object"})])
                assert [part.name for part in answer.parts if isinstance(part, ToolCall)] == ["files.list"]
                assert server.requests[-1].body["tools"][0]["function"]["name"] != "files.list"
                assert any(change.rule == "tool_name" for change in provider.last.changes)

        run(test())

    def test_one_provider_serves_several_tasks(self) -> None:
        async def test() -> None:
            async with asked("moonshot") as (server, provider):
                answers = await asyncio.gather(*(whole_conversation(provider) for _ in range(8)))
                assert all(answer == answers[0] for answer in answers)
                assert not server.refusals

        run(test())

    @pytest.mark.parametrize("fault", ["not-streamed", "json-lines", "stream-called-json", "stays-open", "no-done"])
    @pytest.mark.parametrize("behaviour", ["moonshot", "selfhost"])
    def test_hosts_that_do_not_stream_as_they_should(self, behaviour: str, fault: str) -> None:
        async def test() -> None:
            async with asked(behaviour, model=f"kimi-k2.5+{fault}") as (_, provider):
                events = await collected(provider.stream_chat_with_tools(human(), [LIST]))
                assert isinstance(events[-1], Finished)
                assert events[-1].reason == "tool_calls"
                assert sum(isinstance(event, BlockDelta) for event in events) >= 4
                assert len(provider.last.message.parts) == 4

        run(test())

    def test_a_host_that_cannot_stream_is_asked_for_the_whole(self) -> None:
        async def test() -> None:
            async with asked("selfhost", cells={"streaming": "never"}) as (server, provider):
                answer = await provider.complete(human(), [LIST])
                assert server.requests[-1].body.get("stream") in (None, False)
                assert len(answer.parts) == 4
                assert provider.last.usage is not None

        run(test())


class TestParameters:
    @pytest.mark.parametrize(
        ("thinking", "model", "sent"),
        [
            ("off", "kimi-k2.5", {"thinking": {"type": "disabled"}}),
            ("on", "kimi-k2.5", {"thinking": {"type": "enabled"}}),
            ("high", "kimi-k3", {"reasoning_effort": "high"}),
            (Thinking(effort="low"), "kimi-k3", {"reasoning_effort": "low"}),
            (None, "kimi-k2.5", {}),
        ],
    )
    def test_thinking_is_said_as_the_host_wants_it(self, thinking: Any, model: str, sent: dict[str, Any]) -> None:
        async def test() -> None:
            async with asked("moonshot", model=model, thinking=thinking) as (server, provider):
                answer = await provider.complete(human(), [LIST])
                body = server.requests[-1].body
                assert {key: body[key] for key in ("thinking", "reasoning_effort") if key in body} == sent
                assert any(isinstance(part, Reasoning) for part in answer.parts) == (thinking != "off")

        run(test())

    def test_sampling_and_headers_are_sent(self) -> None:
        async def test() -> None:
            sampling = Sampling(max_tokens=321, temperature=0.3)
            async with asked("selfhost", model="plain-1", sampling=sampling) as (server, provider):
                await provider.complete(human())
                body = server.requests[-1].body
                assert (body["max_tokens"], body["temperature"]) == (321, 0.3)
                assert "tools" not in body

        run(test())

    @pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "ls"}}, "ls", "none"])
    def test_a_choice_of_tools_is_sent(self, choice: Any) -> None:
        async def test() -> None:
            async with asked("selfhost", model="plain-1") as (server, provider):
                await collected(provider.stream_chat_with_tools(human(), [LIST], tool_choice=choice))
                named = {"type": "function", "function": {"name": "ls"}}
                assert server.requests[-1].body["tool_choice"] == (named if choice == "ls" else choice)

        run(test())

    def test_what_cannot_be_used_is_refused_at_once(self) -> None:
        base: dict[str, Any] = {"base_url": "http://localhost:1/v1", "model": "kimi-k2.5"}
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"base_url": "localhost"}, "base_url"),
            ({"base_url": "ftp://host/v1"}, "base_url"),
            ({"base_url": "http://host:port"}, "base_url"),
            ({"base_url": None}, "base_url"),
            ({"model": " "}, "model"),
            ({"api_key": "two\nlines"}, "api_key"),
            ({"api_key": 5}, "api_key"),
            ({"headers": {"x": "a\r\nb: c"}}, "headers"),
            ({"host": "moonshoot"}, "host"),
            ({"dialect": "openai_responses"}, "upstream"),
            ({"tool_format": "klingon"}, "format"),
            ({"thinking": ""}, "thinking"),
            ({"sampling": {}}, "sampling"),
            ({"options": {}}, "options"),
            ({"attempts": 0}, "attempts"),
            ({"timeouts": 5}, "timeouts"),
            ({"cells": {"no_such_cell": 1}}, "no_such_cell"),
        ]
        for change, field in wrong:
            with pytest.raises(InvalidInput) as caught:
                Provider(**(base | change))
            assert caught.value.field == field, change
        with pytest.raises(InvalidInput, match="modle"):
            Provider(**base).with_(modle="kimi-k3")

    def test_a_key_with_the_line_end_of_its_file_is_sent_without(self) -> None:
        async def test() -> None:
            async with asked("moonshot", api_key=f"{KEY}\n") as (_, provider):
                assert isinstance((await collected(provider.stream_chat_with_tools(human())))[-1], Finished)

        run(test())


class TestWhatItIs:
    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({"base_url": "https://api.moonshot.ai/v1", "model": "kimi-k3"}, ("moonshot", "openai_chat", "kimi")),
            (
                {"base_url": "https://api.moonshot.cn/anthropic", "model": "kimi-k2.5"},
                ("moonshot-anthropic", "anthropic", "kimi"),
            ),
            ({"base_url": "https://api.kimi.com/coding/v1", "model": "k3"}, ("kimi-coding", "openai_chat", "kimi")),
            ({"base_url": "http://localhost:8000", "model": "gpt-4o"}, ("generic", "openai_chat", "openai")),
            (
                {"base_url": "https://api.anthropic.com", "model": "claude-x", "dialect": "anthropic"},
                ("generic", "anthropic", "anthropic"),
            ),
            (
                {"base_url": "http://localhost/v1", "model": "kimi-k2.5", "host": "vllm", "tool_format": "auto"},
                ("vllm", "openai_chat", "kimi"),
            ),
        ],
    )
    def test_the_address_tells_host_dialect_and_format(
        self, arguments: dict[str, Any], told: tuple[str, str, str]
    ) -> None:
        provider = Provider(**arguments)
        assert (provider.host, provider.dialect, provider.tool_format) == told
        assert not provider.format_is_set

    def test_nothing_that_it_prints_has_a_secret_in_it(self) -> None:
        provider = Provider(
            "https://user:hunter22@api.moonshot.ai/v1?key=hunter33",
            model="kimi-k2.5",
            api_key=KEY,
            headers={"x-key": "hunter44"},
        )
        stream = provider.stream_chat_with_tools(human("hunter55"))
        shown = f"{provider!r} {provider!s} {provider.name} {stream!r} {provider.last!r}"
        assert "hunter" not in shown
        assert KEY not in shown


def test_a_failure_of_complete_has_what_there_is_of_the_answer() -> None:
    async def test() -> None:
        async with asked("moonshot", model="kimi-k2.5+cut-off") as (_, provider):
            with pytest.raises(AnswerFailed) as caught:
                await provider.complete(human(), [LIST])
            assert caught.value.problem is provider.problem is not None
            assert caught.value.message.parts

    run(test())
