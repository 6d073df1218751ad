"""`allowed_tools`: a call of any other tool never reaches the client. It is asked for again, once, or is an error."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from openai import APIError, APIStatusError, AsyncOpenAI

from moonshim.integrations import async_openai_http_client
from tests.support.gateway.chat_model import ChatModel, config_at
from tests.support.gateway.hosts import Host, run
from tests.support.gateway.running import MODEL, Running, config_for, running

SCHEMA: Final = {"type": "object", "properties": {"path": {"type": "string"}}}
NAMES: Final = ("read", "write")
CHAT: Final = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
RESPONSES: Final = [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES]


def calls(*names: str, text: str = "") -> dict[str, Any]:
    made = [
        {"id": f"{name}:{number}", "type": "function", "function": {"name": name, "arguments": '{"path": "a"}'}}
        for number, name in enumerate(names)
    ]
    return ({"content": text} if text else {}) | ({"tool_calls": made} if made else {})


class Client:
    """One of the two dialects of the openai package: the calls and the text that it gets."""

    def __init__(self, dialect: str, mode: str, *, streamed: bool) -> None:
        self.dialect, self.mode, self.streamed = dialect, mode, streamed

    async def ask(self, gateway: Running, allowed: tuple[str, ...] = ("read",)) -> tuple[list[str], str]:
        ask = self._chat if self.dialect == "chat" else self._responses
        return await ask(gateway, allowed)

    async def _chat(self, gateway: Running, allowed: tuple[str, ...]) -> tuple[list[str], str]:
        tools = [{"type": "function", "function": {"name": name}} for name in allowed]
        choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": self.mode, "tools": tools}}
        body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Go."}], "tools": CHAT}
        async with gateway.openai() as client:
            if not self.streamed:
                response = await client.chat.completions.create(**body, tool_choice=choice)
                message = response.choices[0].message
                assert (response.choices[0].finish_reason == "tool_calls") == bool(message.tool_calls)
                return [call.function.name for call in message.tool_calls or ()], message.content or ""
            async with client.chat.completions.stream(**body, tool_choice=choice) as stream:
                final = (await stream.get_final_completion()).choices[0].message
                return [call.function.name for call in final.tool_calls or ()], final.content or ""

    async def _responses(self, gateway: Running, allowed: tuple[str, ...]) -> tuple[list[str], str]:
        tools = [{"type": "function", "name": name} for name in allowed]
        choice: Any = {"type": "allowed_tools", "mode": self.mode, "tools": tools}
        body: dict[str, Any] = {"model": MODEL, "input": "Go.", "tools": RESPONSES, "store": False}
        async with gateway.openai() as client:
            if not self.streamed:
                response = await client.responses.create(**body, tool_choice=choice)
            else:
                events = [one async for one in await client.responses.create(**body, tool_choice=choice, stream=True)]
                assert events[-1].type in ("response.completed", "response.failed")
                done = [one.item.name for one in events if one.type == "response.output_item.done" and _is_call(one)]
                response = events[-1].response
                if response.error is not None:
                    assert done == []
                    raise APIError(response.error.message, request=None, body=None)  # type: ignore[arg-type]
        names = [item.name for item in response.output if item.type == "function_call"]
        return names, response.output_text


def _is_call(event: Any) -> bool:
    return bool(event.item.type == "function_call")


every_client = pytest.mark.parametrize(
    "client",
    [
        pytest.param(
            Client(dialect, mode, streamed=streamed), id=f"{dialect}-{mode}-{'stream' if streamed else 'whole'}"
        )
        for dialect in ("chat", "responses")
        for mode in ("auto", "required")
        for streamed in (False, True)
    ],
)


@every_client
@pytest.mark.parametrize(
    "wrong", [("write",), ("read", "write"), ("write", "read")], ids=["another", "after one", "before one"]
)
def test_a_call_that_is_not_allowed_is_asked_for_again(client: Client, wrong: tuple[str, ...]) -> None:
    model = ChatModel(calls(*wrong), calls("read"))

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            assert (await client.ask(gateway))[0] == ["read"]

    run(test())
    first, second = model.bodies
    assert "call no tool but these: `read`" in str(first["messages"][-1]["content"])
    assert second["messages"][: len(first["messages"]) - 1] == first["messages"][:-1]
    assert "write must not be called" in str(second["messages"])
    assert first["tools"] == second["tools"]


@every_client
def test_the_second_time_it_is_an_error_and_no_call(client: Client) -> None:
    model = ChatModel(calls("write"))

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            with pytest.raises(APIError) as told:
                await client.ask(gateway)
            assert "write" in told.value.message
            assert "allowed_tools" in told.value.message
            if not client.streamed:
                assert isinstance(told.value, APIStatusError)
                assert (told.value.status_code, told.value.code) == (502, "call_not_allowed")

    run(test())
    assert len(model.bodies) == 2


def test_the_error_has_the_name_that_the_client_knows() -> None:
    """A host gets another name for this tool, which it would refuse."""
    model = ChatModel(calls("write_now_"))
    names = ("read", "write now!")
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in names]
    choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools[:1]}}

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway, gateway.openai() as client:
            with pytest.raises(APIStatusError) as told:
                await client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "Go."}], tools=tools, tool_choice=choice
                )
            assert "The model called write now!, which" in told.value.message

    run(test())
    assert [tool["function"]["name"] for tool in model.bodies[0]["tools"]] == ["read", "write_now_"]


@every_client
def test_calls_that_are_allowed_pass(client: Client) -> None:
    model = ChatModel(calls("read", "read", text="I look."))

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            assert await client.ask(gateway) == (["read", "read"], "I look.")

    run(test())
    assert len(model.bodies) == 1


@every_client
def test_a_list_of_all_tools_changes_nothing(client: Client) -> None:
    model = ChatModel(calls("write"))

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            assert (await client.ask(gateway, ("write", "read")))[0] == ["write"]

    run(test())
    assert "no tool but" not in str(model.bodies[0]["messages"])


@every_client
def test_text_without_a_call_is_an_answer_unless_a_call_is_required(client: Client) -> None:
    """At a host that does not make sure of a call itself."""
    model = ChatModel({"content": "Done."}, calls("read"))

    async def test() -> None:
        async with Host(model) as host, running(config_at(host.url, "moonshot")) as gateway:
            expected: Any = ([], "Done.") if client.mode == "auto" else (["read"], "")
            assert await client.ask(gateway) == expected

    run(test())


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_client_keeps_the_text_that_it_got_before_the_call(dialect: str) -> None:
    """Text streams as usual: it is right, whatever is called after it."""
    model = ChatModel(calls("write", text="I write. "), calls("read", text="I read."))

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            assert await Client(dialect, "auto", streamed=True).ask(gateway) == (["read"], "I write. I read.")

    run(test())


def test_markers_of_a_call_count_as_the_call() -> None:
    marked = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>"
        '{"path": "a"}<|tool_call_end|><|tool_calls_section_end|>'
    )
    model = ChatModel({"content": marked}, calls("read"))

    async def test() -> None:
        async with Host(model) as host, running(config_at(host.url, "generic")) as gateway:
            assert (await Client("chat", "auto", streamed=True).ask(gateway))[0] == ["read"]

    run(test())


def test_a_cut_off_call_that_is_not_allowed_reaches_nobody() -> None:
    model = ChatModel(calls("write"), reason="length")

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            with pytest.raises(APIError):
                await Client("chat", "auto", streamed=True).ask(gateway)

    run(test())


def test_without_a_gateway_the_http_client_does_the_same() -> None:
    model = ChatModel(calls("write"), calls("read"))

    async def test() -> None:
        async with Host(model) as host:
            tools = [{"type": "function", "function": {"name": "read"}}]
            choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}
            async with AsyncOpenAI(
                base_url=f"{host.url}/v1", api_key="x", http_client=async_openai_http_client(), max_retries=0
            ) as client:
                response = await client.chat.completions.create(
                    model=MODEL,
                    messages=[{"role": "user", "content": "Go."}],
                    tools=CHAT,  # type: ignore[arg-type]
                    tool_choice=choice,
                )
            assert [call.function.name for call in response.choices[0].message.tool_calls or ()] == ["read"]  # type: ignore[union-attr]

    run(test())
    assert len(model.bodies) == 2
    assert json.dumps(model.bodies[0]["tools"]) == json.dumps(model.bodies[1]["tools"])
