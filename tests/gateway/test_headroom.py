"""A client turns thinking off, and the model thinks all the same: the client gets the tokens that it asked for."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec import Struct
from openai.lib.streaming.chat import ChatCompletionStreamState

from moonshim.config import Budget, Config, GatewayKey, ProviderConfig, Secret
from moonshim.gateway.inbound.auth import new_key
from moonshim.gateway.spending import LEAST_OUTPUT
from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator
from tests.support.gateway.hosts import run
from tests.support.gateway.running import Running, running

THINKS: Final = 300
HEADROOM: Final = 4_096
LONG: Final = " ".join(f"word{number}" for number in range(400))
TOOL: Final = {"type": "object", "properties": {"command": {"type": "string"}}}


class Seen(Struct, frozen=True, kw_only=True):
    """What a user of the official package gets."""

    text: str
    reason: str | None
    reasoning: bool
    output_tokens: int
    calls: int = 0


class Says:
    """A model with this response."""

    def __init__(self, text: str = "", command: str | None = None) -> None:
        call = () if command is None else (IntendedCall("Bash", f'{{"command": "{command}"}}'),)
        self._response = IntendedResponse(reasoning="I see.", text=text, calls=call)

    def reply(self, question: SimRequest) -> IntendedResponse:
        return self._response


async def chat(gateway: Running, *, stream: bool, limit: int, **more: Any) -> Seen:
    given: Any = {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}], "max_tokens": limit}
    if more.pop("tools", None):
        given["tools"] = [{"type": "function", "function": {"name": "Bash", "parameters": TOOL}}]
    given["extra_body"] = {"thinking": {"type": "disabled"}} | more
    async with gateway.openai() as client:
        if not stream:
            whole = await client.chat.completions.create(**given)
        else:
            state: Any = ChatCompletionStreamState()  # the package's helper raises for `length`
            given["stream_options"] = {"include_usage": True}
            async for chunk in await client.chat.completions.create(stream=True, **given):
                state.handle_chunk(chunk)
            whole = state.current_completion_snapshot
    message = whole.choices[0].message
    assert whole.usage is not None
    return Seen(
        text=message.content or "",
        reason=whole.choices[0].finish_reason,
        reasoning=bool((message.model_extra or {}).get("reasoning_content")),
        output_tokens=whole.usage.completion_tokens,
        calls=len(message.tool_calls or ()),
    )


async def messages(gateway: Running, *, stream: bool, limit: int, **more: Any) -> Seen:
    given: Any = {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}], "max_tokens": limit}
    if more.pop("tools", None):
        given["tools"] = [{"name": "Bash", "input_schema": TOOL}]
    given |= {"thinking": {"type": "disabled"}, "extra_body": more}
    async with gateway.anthropic() as client:
        if not stream:
            whole = await client.messages.create(**given)
        else:
            async with client.messages.stream(**given) as streamed:
                whole = await streamed.get_final_message()
    return Seen(
        text="".join(block.text for block in whole.content if block.type == "text"),
        reason={"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}.get(whole.stop_reason or ""),
        reasoning=any(block.type == "thinking" for block in whole.content),
        output_tokens=whole.usage.output_tokens,
        calls=sum(block.type == "tool_use" for block in whole.content),
    )


async def responses(gateway: Running, *, stream: bool, limit: int, **more: Any) -> Seen:
    given: Any = {"model": "kimi-k3", "input": "hi", "max_output_tokens": limit, "reasoning": {"effort": "none"}}
    if more.pop("tools", None):
        given["tools"] = [{"type": "function", "name": "Bash", "parameters": TOOL, "strict": False}]
    async with gateway.openai() as client:
        if not stream:
            whole = await client.responses.create(**given)
        else:
            events = [event async for event in await client.responses.create(stream=True, **given)]
            whole = events[-1].response
    cut = whole.incomplete_details is not None and whole.incomplete_details.reason == "max_output_tokens"
    calls = sum(item.type == "function_call" for item in whole.output)
    assert whole.usage is not None
    return Seen(
        text=whole.output_text,
        reason="length" if cut else "tool_calls" if calls else "stop",
        reasoning=any(item.type == "reasoning" for item in whole.output),
        output_tokens=whole.usage.output_tokens,
        calls=calls,
    )


def at(host: Simulator, model: str = "kimi-k3", *, dialect: str = "openai_chat", **given: Any) -> Config:
    """One model at Moonshot."""
    provider = ProviderConfig(
        name="moonshot",
        api_base_url=f"{host.url}/anthropic" if dialect == "anthropic" else f"{host.url}/v1",
        dialect=dialect,  # type: ignore[arg-type]
        host=HOSTS[dialect],
        models=(model,),
        keys=(Secret("sk-host"),),
    )
    return Config(providers=(provider,), **given)


CLIENTS: Final = {"chat": chat, "messages": messages, "responses": responses}
HOSTS: Final = {"openai_chat": "moonshot", "anthropic": "moonshot-anthropic"}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("dialect", HOSTS)
@pytest.mark.parametrize("stream", [True, False])
def test_the_answer_arrives_without_reasoning(client: str, dialect: str, stream: bool) -> None:
    async def test() -> None:
        async with Simulator(model=Says("<severity>3"), thinking_tokens=THINKS) as host:
            config = at(host, dialect=dialect)
            async with running(config) as gateway:
                seen = await CLIENTS[client](gateway, stream=stream, limit=64)
            (sent,) = host.requests
        assert (seen.text, seen.reason, seen.reasoning) == ("<severity>3", "stop", False)
        assert seen.output_tokens > THINKS, "usage says what was spent"
        assert sent.request is not None
        assert sent.request.max_tokens == 64 + HEADROOM

    run(test())


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_long_answer_ends_at_the_limit_of_the_client(client: str, stream: bool) -> None:
    async def test() -> None:
        async with Simulator(model=Says(LONG), thinking_tokens=THINKS) as host, running(at(host)) as gateway:
            seen = await CLIENTS[client](gateway, stream=stream, limit=64)
        assert (seen.reason, seen.reasoning) == ("length", False)
        assert LONG.startswith(seen.text)
        assert 20 <= len(seen.text.split()) <= 45, "about two tokens a word"

    run(test())


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("stream", [True, False])
def test_calls_arrive_behind_the_reasoning(client: str, stream: bool) -> None:
    async def test() -> None:
        async with Simulator(model=Says("I look.", "ls"), thinking_tokens=THINKS) as host, running(at(host)) as gateway:
            seen = await CLIENTS[client](gateway, stream=stream, limit=64, tools=True)
        assert (seen.text, seen.calls, seen.reason, seen.reasoning) == ("I look.", 1, "tool_calls", False)

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_that_goes_over_the_limit_is_never_complete(stream: bool) -> None:
    async def test() -> None:
        async with Simulator(model=Says("", LONG), thinking_tokens=THINKS) as host, running(at(host)) as gateway:
            seen = await chat(gateway, stream=stream, limit=64, tools=True)
        assert (seen.reason, seen.reasoning) == ("length", False)

    run(test())


def test_a_client_that_lets_the_model_think_gets_what_it_asked_for() -> None:
    async def test() -> None:
        async with Simulator(model=Says("Hi."), thinking_tokens=THINKS) as host:
            config = at(host)
            async with running(config) as gateway, gateway.anthropic() as client:
                whole = await client.messages.create(
                    model="kimi-k3", max_tokens=64, messages=[{"role": "user", "content": "hi"}]
                )
            (sent,) = host.requests
        assert sent.request is not None
        assert (sent.request.max_tokens, whole.stop_reason) == (64, "max_tokens")
        assert [block.type for block in whole.content] == ["thinking"]

    run(test())


def test_a_model_that_can_stop_thinking_gets_no_headroom() -> None:
    async def test() -> None:
        async with Simulator(model=Says(LONG), thinking_tokens=THINKS) as host:
            config = at(host, "kimi-k2.6")
            async with running(config) as gateway, gateway.anthropic() as client:
                whole = await client.messages.create(
                    model="kimi-k2.6",
                    max_tokens=64,
                    messages=[{"role": "user", "content": "hi"}],
                    thinking={"type": "disabled"},
                )
            (sent,) = host.requests
        assert sent.request is not None
        assert (sent.request.max_tokens, whole.stop_reason) == (64, "max_tokens")

    run(test())


def test_the_hidden_reasoning_goes_back_to_the_host() -> None:
    """K3 sees the reasoning of all turns, whether its client does or not."""

    async def test() -> None:
        async with Simulator(model=Says("I look.", "ls"), thinking_tokens=THINKS) as host:
            async with running(at(host)) as gateway, gateway.anthropic() as client:
                given: Any = {"model": "kimi-k3", "max_tokens": 64, "thinking": {"type": "disabled"}}
                given["tools"] = [{"name": "Bash", "input_schema": TOOL}]
                history: list[Any] = [{"role": "user", "content": "hi"}]
                whole = await client.messages.create(messages=history, **given)
                history.append({"role": "assistant", "content": whole.content})
                result = {"type": "tool_result", "tool_use_id": whole.content[-1].to_dict()["id"], "content": "x"}
                history.append({"role": "user", "content": [result]})
                await client.messages.create(messages=history, **given)
            last = host.requests[-1]
        assert last.problem is None
        assert last.body["messages"][1]["reasoning_content"].endswith("I see.")

    run(test())


def test_the_headroom_is_reserved_against_the_budget_of_the_key() -> None:
    """Whoever has less left than a request may use waits for those that run, so only the estimate shows it."""

    async def test() -> None:
        secret, digest = new_key()
        key = GatewayKey(name="ci", digest=digest, budgets=(Budget(tokens=1_000_000, period="month"),))
        async with Simulator(model=Says("Hi."), thinking_tokens=THINKS) as host:
            config = at(host, keys=(key,))
            async with running(config) as gateway:
                reserved: list[int] = []
                admit = gateway.state.spending.keeper.admit

                async def note(key: Any, estimate: Any, record: Any) -> Any:
                    reserved.append(estimate()["tokens"])
                    return await admit(key, estimate, record)

                gateway.state.spending.keeper.admit = note  # type: ignore[method-assign]
                on, off = {"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}
                for thinking in (on, on, off):  # the first response says what the estimates of the others go by
                    async with gateway.anthropic(api_key=secret) as client:
                        body: Any = {"messages": [{"role": "user", "content": "hi"}], "thinking": thinking}
                        await client.messages.create(model="kimi-k3", max_tokens=1_100, **body)
        _, plain, with_headroom = reserved
        assert with_headroom - plain == LEAST_OUTPUT - 1_100, "as the responses before were short"

    run(test())
