"""\"List files using bash\": the eleven steps between a person's words and the answer, at a host that is strict.

Whoever leaves the reasoning out is refused in the tenth. It is Moonshot's platform with K2.5, which thinks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import openai
import pytest

from moonshim.agent import Agent, Provider, RunEnded, ToolEnded, ToolStarted, as_marked_text
from moonshim.agent.toolbox import toolbox
from moonshim.engine.values.conversation import Message, Reasoning, Text, ToolCall, ToolResult
from moonshim.engine.values.events import Finished
from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator
from tests.agent.asking import collected, run
from tests.agent.scripts import steps_of

WORDS: Final = "List files in the current directory using the bash tool"
THOUGHT: Final = "The user wants me to list files. I use bash."
COMMAND: Final = '{"command": "ls -a"}'
REFUSAL: Final = {
    "message": "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
    "type": "invalid_request_error",
}


class ListsFiles:
    """Thinks and calls bash without a word; then says what came back."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        if question.round == 1:
            return IntendedResponse(reasoning=THOUGHT, calls=(IntendedCall("bash", COMMAND),))
        results = [result.text for turn in question.since for result in turn.results]
        return IntendedResponse(
            reasoning="There they are.", text=f"Here are the files in the current directory: {results[0]}"
        )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("milk, bread")
    return tmp_path


async def _list_files(server: Simulator, folder: Path, system: str | None) -> tuple[Agent, list[Any]]:
    bash = next(one for one in toolbox(folder) if one.name == "bash")
    async with Provider(f"{server.url}/v1", host="moonshot", model="kimi-k2.5") as provider:
        agent = Agent(provider, [bash], system=system)
        return agent, await steps_of(agent.run_stream(WORDS))


def test_the_eleven_steps(folder: Path) -> None:
    async def test() -> None:
        async with Simulator(behaviour="moonshot", model=ListsFiles()) as server:
            # 1 and 2: a person's words, a system prompt, a tool.
            agent, steps = await _list_files(server, folder, system="You are Alfred.")
            first, second = server.requests

            # 3: the first request.
            assert [message["role"] for message in first.body["messages"]] == ["system", "user"]
            assert [one["function"]["name"] for one in first.body["tools"]] == ["bash"]

            # 4 to 6: the model thinks, says nothing and calls; that is told as it comes, as events or as marked text.
            pieces = list(as_marked_text(steps))
            calls_at = next(at for at, piece in enumerate(pieces) if piece.startswith("[TOOL_CALLS]"))
            thought = pieces[:calls_at]
            assert all(piece.startswith("[REASONING]") for piece in thought)
            assert "".join(piece.removeprefix("[REASONING]") for piece in thought) == THOUGHT
            (told,) = json.loads(pieces[calls_at].removeprefix("[TOOL_CALLS]"))
            assert told["function"] == {"name": "bash", "arguments": COMMAND}

            # 7: the message for the history has its reasoning.
            asked, called, gave, answered = agent.history.messages
            assert asked == Message("user", (Text(WORDS),))
            reasoning, call = called.parts
            assert isinstance(reasoning, Reasoning)
            assert isinstance(call, ToolCall)
            assert (reasoning.text, call.name, call.arguments) == (THOUGHT, "bash", COMMAND)

            # 8 and 9: the tool runs, and its result is linked to the call.
            assert [type(step) for step in steps if isinstance(step, (ToolStarted, ToolEnded))] == [
                ToolStarted,
                ToolEnded,
            ]
            (result,) = gave.parts
            assert isinstance(result, ToolResult)
            assert result.call_id == call.id
            assert "notes.txt" in "".join(part.text for part in result.parts if isinstance(part, Text))

            # 10: the second request has all four messages, and is not refused.
            roles = [message["role"] for message in second.body["messages"]]
            assert roles == ["system", "user", "assistant", "tool"]
            sent, linked = second.body["messages"][2:]
            assert sent["reasoning_content"] == THOUGHT
            assert sent["tool_calls"][0]["id"] == linked["tool_call_id"]
            assert second.status == 200
            assert server.refusals == []

            # 11: the answer.
            last = steps[-1]
            assert isinstance(last, RunEnded)
            assert (last.reason, last.message) == ("answered", answered)
            assert "notes.txt" in "".join(part.text for part in answered.parts if isinstance(part, Text))

    run(test())


def test_without_its_reasoning_the_same_request_is_refused(folder: Path) -> None:
    async def test() -> None:
        async with Simulator(behaviour="moonshot", model=ListsFiles()) as server:
            await _list_files(server, folder, system=None)
            body = dict(server.requests[-1].body)
            forgetful = [
                {key: value for key, value in message.items() if key != "reasoning_content"}
                for message in body["messages"]
            ]
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
                with pytest.raises(openai.BadRequestError) as refused:
                    await client.chat.completions.create(**(body | {"messages": forgetful}))
                assert refused.value.response.json() == {"error": REFUSAL}
                # Nothing else was wrong with it.
                await client.chat.completions.create(**body)

            # An agent that has forgotten it already, and asks through the provider, is not refused.
            async with Provider(f"{server.url}/v1", host="moonshot", model="kimi-k2.5") as provider:
                events = await collected(provider.stream_chat_with_tools(forgetful, body["tools"]))
                assert isinstance(events[-1], Finished)
                assert [change.rule for change in provider.last.changes if "reasoning" in change.rule]
            assert [seen.status for seen in server.requests] == [200, 200, 400, 200, 200]

    run(test())
