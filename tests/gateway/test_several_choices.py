"""`n > 1` through the gateway: every choice arrives in OpenAI's package, or no host is called for the request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import openai
import pytest
from msgspec.structs import replace
from openai.lib.streaming.chat import ChatCompletionStreamState

from moonshim.config import Retries, TransformerUse, WebSearch
from moonshim.integrations import async_openai_http_client
from tests.support.choices import TOOL, check, host_sends
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, run, whole
from tests.support.gateway.running import Running, config_for, running

HELLO: Final[Any] = [{"role": "user", "content": "hi"}]
ASKED: Final[dict[str, Any]] = {"messages": HELLO, "n": 3, "tools": [TOOL], "logprobs": True}
TYPES: Final = {"sse": "text/event-stream", "ndjson": "application/x-ndjson", "json": "application/json"}
ONCE: Final = Retries(attempts=1, breaker_failures=1_000_000)
OVERLOADED: Final = whole(b'{"error": {"message": "busy", "type": "server_error"}}', status="503 No")


PLUGIN: Final = """
from moonshim.types import BlockDelta


class Loud:
    def prepare(self, request):
        return request

    def stages(self, plan):
        return [Stage()]


class Stage:
    def feed(self, event):
        if isinstance(event, BlockDelta):
            return [BlockDelta(event.index, event.text.replace("Look", "LOOK"))]
        return [event]

    def flush(self):
        return []
"""


def sending(data: bytes) -> Script:
    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(data)

    return script


def answering(form: Any) -> Script:
    """A host that sends three choices in this form, whatever the client asked for."""
    return sending(whole(host_sends(form), headers=(f"content-type: {TYPES[form]}",)))


@asynccontextmanager
async def two_hosts(first: Script, second: Script, *dialects: str, **given: Any) -> AsyncIterator[tuple[Any, ...]]:
    """The model `any-kimi`: at one host, and at another if that fails."""
    async with Host(first) as one, Host(second) as other:
        more = config_for(other.url, dialect=dialects[1], name="second").providers
        aliases = {"any-kimi": ("host/kimi-k2.5", "second/kimi-k2.5")}
        config = config_for(one.url, dialect=dialects[0], aliases=aliases, retries=ONCE, **given)
        async with running(config, providers=more) as gateway:
            yield gateway, one, other


async def put_together(client: openai.AsyncOpenAI, model: str, *, stream: bool) -> dict[str, Any]:
    """The response as OpenAI's package reads it."""
    if not stream:
        completion: openai.types.chat.ChatCompletion = await client.chat.completions.create(model=model, **ASKED)
        return completion.model_dump()
    state: Any = ChatCompletionStreamState()
    counted: Any = {"include_usage": True}
    async for chunk in await client.chat.completions.create(model=model, stream=True, stream_options=counted, **ASKED):
        state.handle_chunk(chunk)
    return state.current_completion_snapshot.model_dump()  # type: ignore[no-any-return]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("form", TYPES)
def test_every_choice_arrives(form: str, stream: bool) -> None:
    async def test() -> None:
        async with Host(answering(form)) as host, running(config_for(host.url)) as gateway:
            async with gateway.openai() as client:
                check(await put_together(client, "kimi-k2.5", stream=stream), model="kimi-k2.5")
            (asked,) = host.requests
            assert json.loads(asked.body)["n"] == 3

    run(test())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("form", ["sse", "json"])
def test_every_choice_arrives_in_a_client_of_the_integration(form: str, stream: bool) -> None:
    async def test() -> None:
        async with Host(answering(form)) as host, async_openai_http_client(host="vllm") as http_client:
            client = openai.AsyncOpenAI(
                base_url=f"{host.url}/v1", api_key="none", max_retries=0, http_client=http_client
            )
            check(await put_together(client, "kimi-k2.5", stream=stream), model="kimi-k2.5")

    run(test())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_provider_with_transformers_keeps_every_choice(tmp_path: Path, stream: bool) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(PLUGIN)

    async def test() -> None:
        kimi = TransformerUse("Kimi", {"manualToolParsing": True, "repairDeltas": True})
        uses = (kimi, TransformerUse(f"{plugin}:Loud"))
        async with Host(answering("sse")) as host, running(config_for(host.url, transformers=uses)) as gateway:
            async with gateway.openai() as client:
                body = await put_together(client, "kimi-k2.5", stream=stream)
            check(body, model="kimi-k2.5", look="LOOK.")

    run(test())


async def refusal(gateway: Running, model: str, **more: Any) -> dict[str, Any]:
    """The error of a request for three choices."""
    async with gateway.openai() as client:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(model=model, stream=stream, **(ASKED | more))
            assert (caught.value.param, caught.value.code) == ("n", "cannot_express")
    error: Any = caught.value.body
    return error  # type: ignore[no-any-return]


def test_a_host_whose_api_has_one_choice_is_not_called() -> None:
    async def test() -> None:
        async with Host(sending(OVERLOADED)) as host, running(config_for(host.url, dialect="anthropic")) as gateway:
            error = await refusal(gateway, "kimi-k2.5")
            assert error["message"].startswith("n is 3, but the API of this model's host returns a single choice")
            assert host.requests == []

    run(test())


def test_a_model_that_accepts_one_choice_is_not_called() -> None:
    async def test() -> None:
        async with Host(sending(OVERLOADED)) as host:
            config = config_for(host.url, models=("kimi-k3", "kimi-k2"))
            moonshot = replace(config.providers[0], host="moonshot")
            async with running(replace(config, providers=(moonshot,))) as gateway:
                assert "for this model" in (await refusal(gateway, "kimi-k3"))["message"]
                error = await refusal(gateway, "kimi-k2", temperature=0)
                assert "with a temperature near 0" in error["message"]
            assert host.requests == []

    run(test())


def test_a_web_search_has_no_room_for_several_choices() -> None:
    async def test() -> None:
        async with Host(sending(OVERLOADED)) as host:
            search = WebSearch(provider="searxng", base_url="http://127.0.0.1:9")
            async with running(replace(config_for(host.url), web_search=search)) as gateway:
                error = await refusal(gateway, "kimi-k2.5", web_search_options={})
                assert "web search" in error["message"]
            assert host.requests == []

    run(test())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_host_without_room_is_passed_over(stream: bool) -> None:
    async def test() -> None:
        hosts = two_hosts(sending(OVERLOADED), answering("json"), "anthropic", "openai_chat")
        async with hosts as (gateway, first, second), gateway.openai() as client:
            check(await put_together(client, "any-kimi", stream=stream), model="any-kimi")
            assert (len(first.requests), len(second.requests)) == (0, 1)

    run(test())


def test_a_fallback_without_room_does_not_hide_why_the_first_host_failed() -> None:
    async def test() -> None:
        hosts = two_hosts(sending(OVERLOADED), answering("json"), "openai_chat", "anthropic")
        async with hosts as (gateway, first, second), gateway.openai() as client:
            with pytest.raises(openai.InternalServerError) as caught:
                await client.chat.completions.create(model="any-kimi", **ASKED)
            assert caught.value.status_code == 503
            assert (len(first.requests), len(second.requests)) == (1, 0)

    run(test())


def test_where_no_host_has_room_the_request_is_refused() -> None:
    async def test() -> None:
        hosts = two_hosts(sending(OVERLOADED), sending(OVERLOADED), "anthropic", "anthropic")
        async with hosts as (gateway, first, second):
            await refusal(gateway, "any-kimi")
            assert first.requests == second.requests == []

    run(test())


def test_several_choices_are_not_requested_again_if_the_first_is_empty() -> None:
    messages = [
        {"role": "assistant", "content": "", "reasoning_content": "Hm."},
        {"role": "assistant", "content": "Hi"},
    ]
    choices = [{"index": at, "message": one, "finish_reason": "stop"} for at, one in enumerate(messages)]
    for count in (1, 2):
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices[:count]}
        script = sending(whole(json.dumps(body).encode()))

        async def test(script: Script = script, count: int = count) -> None:
            async with Host(script) as host, running(config_for(host.url, retry_empty_answer=True)) as gateway:
                async with gateway.openai() as client:
                    answer = await client.chat.completions.create(model="kimi-k2.5", messages=HELLO, n=2)
                assert len(answer.choices) == count
                assert len(host.requests) == 1

        run(test())


def test_a_fence_around_json_is_removed_from_each_of_several_choices() -> None:
    async def test() -> None:
        texts = ("```json\n{}\n```", "{}")
        choices = [
            {"index": at, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for at, text in enumerate(texts)
        ]
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
        async with Host(sending(whole(json.dumps(body).encode()))) as host, running(config_for(host.url)) as gateway:
            async with gateway.openai() as client:
                answer = await client.chat.completions.create(
                    model="kimi-k2.5", messages=HELLO, n=2, response_format={"type": "json_object"}
                )
            assert [one.message.content for one in answer.choices] == ["{}", "{}"]
            assert len(host.requests) == 1

    run(test())


def test_clients_of_other_apis_get_the_first_choice_only() -> None:
    async def test() -> None:
        async with (
            Host(answering("sse")) as host,
            running(config_for(host.url)) as gateway,
            gateway.openai() as client,
            gateway.anthropic() as other,
        ):
            response = await client.responses.create(model="kimi-k2.5", input="hi")
            assert response.output_text == "Hello."
            message = await other.messages.create(model="kimi-k2.5", messages=HELLO, max_tokens=9)
            assert [block.type for block in message.content] == ["text"]
            assert "Hello." in message.to_json()

    run(test())
