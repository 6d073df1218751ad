"""What is not for Kimi passes as it is; and all that the package's own client does, it still does."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final

import anthropic
import openai
import pytest

from moonshim import InvalidInput, KimiOptions
from moonshim.integrations import anthropic_http_client, async_openai_http_client, openai_http_client
from moonshim.integrations.exchange import ClientState
from moonshim.integrations.transports import mend_client
from tests.integrations.judging import FAULTS, five_rounds, problems_at
from tests.integrations.programs import HTTP, KEY, TOOLS, asking, asking_host, talk
from tests.support.gateway.hosts import Host, HostRequest, Peer, chunked_head, chunks, run, whole

HELLO: Final[Any] = [{"role": "user", "content": "hello"}]
CALL: Final = '<|tool_call_begin|>functions.sun:0<|tool_call_argument_begin|>{"city":"Rome"}<|tool_call_end|>'
LEAKED: Final = f"<|tool_calls_section_begin|>{CALL}<|tool_calls_section_end|>"
MESSAGE: Final = {"role": "assistant", "content": "", "reasoning_content": LEAKED}
ANSWER: Final = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
}


@asynccontextmanager
async def asynchronous(base_url: str, **given: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    http_client = async_openai_http_client(**given)
    async with openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0, http_client=http_client) as client:
        yield client


def test_the_note_about_the_window_is_not_part_of_the_name() -> None:
    with asking("moonshot") as (server, client):
        talk(client, "hello", model="kimi-k3[1m]")
        assert {request.body["model"] for request in server.requests} == {"kimi-k3"}
        assert not server.refusals


class TestWhatIsNotForKimi:
    """Bytes in, the same bytes out."""

    def test_a_model_that_is_no_kimi_is_not_touched(self) -> None:
        seen: list[bytes] = []
        said = json.dumps(ANSWER, indent=3).encode()

        def host(request: Any) -> Any:
            seen.append(request.content)
            return HTTP.Response(200, headers={"content-type": "application/json"}, content=said)

        body = {"messages": HELLO, "model": "gpt-5", "temperature": 0.2, "odd": [1.0, {"a": None}]}
        with openai_http_client(transport=HTTP.MockTransport(host)) as client:
            for path in ("chat/completions", "responses", "messages"):
                answer = client.post(f"https://api.example.com/v1/{path}", content=json.dumps(body, indent=2).encode())
                assert answer.content == said
                assert "x-moonshim-repairs" not in answer.headers
        assert [json.loads(one) for one in seen] == [body] * 3
        assert seen[0] == json.dumps(body, indent=2).encode()

    @pytest.mark.parametrize(
        ("method", "path"),
        [("GET", "/models"), ("POST", "/embeddings"), ("POST", "/messages/count_tokens"), ("GET", "/chat/completions")],
    )
    def test_other_paths_are_not_touched(self, method: str, path: str) -> None:
        sent = b'{"model": "kimi-k3",  "input": ["x"]}'

        def host(request: Any) -> Any:
            assert (request.content, request.url.path) == (sent, f"/v1{path}")
            return HTTP.Response(200, json={"data": LEAKED})

        with openai_http_client(transport=HTTP.MockTransport(host)) as client:
            answer = client.request(method, f"https://api.moonshot.ai/v1{path}", content=sent)
        assert answer.json() == {"data": LEAKED}

    @pytest.mark.parametrize("content", [b"no JSON", b"[]", b'{"messages": []}', b'{"model": 5}'])
    def test_a_body_that_is_no_request_is_the_hosts_to_refuse(self, content: bytes) -> None:
        def host(request: Any) -> Any:
            assert request.content == content
            return HTTP.Response(400, text="what?")

        with openai_http_client(transport=HTTP.MockTransport(host)) as client:
            answer = client.post("https://api.moonshot.ai/v1/chat/completions", content=content)
        assert answer.text == "what?"

    def test_with_options_any_model_is_tended(self) -> None:
        def host(request: Any) -> Any:
            return HTTP.Response(200, json=ANSWER)

        with asking_host(host, options=KimiOptions.mending()) as client:
            other = client.with_options(base_url="https://api.example.com/v1")
            made = other.chat.completions.create(model="our-own", messages=HELLO, tools=TOOLS)
        assert made.choices[0].finish_reason == "tool_calls"


class TestThePackagesOwnClient:
    """Proxies, redirects, encodings, headers and hooks."""

    @pytest.mark.parametrize("configured", [True, False], ids=["its own", "that of the environment"])
    def test_a_proxy_is_used(self, configured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        async def answer(peer: Peer, asked: HostRequest) -> None:
            await peer.send(whole(json.dumps(ANSWER).encode()))

        async def scene() -> None:
            async with Host(answer) as proxy:
                given: Any = {"proxy": proxy.url} if configured else {}
                monkeypatch.setenv("HTTP_PROXY", "" if configured else proxy.url)
                async with asynchronous("http://kimi.invalid/v1", **given) as client:
                    made = await client.chat.completions.create(model="kimi-k2.5", messages=HELLO, tools=TOOLS)
                assert [one.path for one in proxy.requests] == ["http://kimi.invalid/v1/chat/completions"]
                assert made.choices[0].finish_reason == "tool_calls"

        run(scene())

    @pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
    def test_packed_answers_are_read(self, stream: bool) -> None:
        delta = {"id": "c", "choices": [{"index": 0, "delta": MESSAGE, "finish_reason": "stop"}]}
        said = f"data: {json.dumps(delta)}\n\ndata: [DONE]\n\n" if stream else json.dumps(ANSWER)
        kind = "text/event-stream" if stream else "application/json"

        def host(request: Any) -> Any:
            headers = {"content-type": kind, "content-encoding": "gzip", "x-request-id": "r-1"}
            return HTTP.Response(200, headers=headers, content=gzip.compress(said.encode()))

        with asking_host(host) as client:
            made: Any = client.chat.completions.with_raw_response.create(
                model="kimi-k2.5", messages=HELLO, tools=TOOLS, stream=stream
            )
            assert made.headers["x-request-id"] == "r-1"
            assert "content-encoding" not in made.headers
            answer = made.parse()
            reasons = [one.choices[0].finish_reason for one in answer] if stream else [answer.choices[0].finish_reason]
        assert reasons[-1] == "tool_calls"

    def test_what_was_put_right_is_told_in_a_header(self) -> None:
        def host(request: Any) -> Any:
            return HTTP.Response(200, json=ANSWER)

        with asking_host(host) as client:
            made = client.chat.completions.with_raw_response.create(
                model="kimi-k2.5", messages=HELLO, tools=TOOLS, temperature=0.2
            )
        told = made.headers["x-moonshim-repairs"]
        assert {"marker_call=1", "fixed_sampling=1"} <= set(told.split(", "))
        assert made.elapsed.total_seconds() >= 0

    def test_a_redirect_is_followed_with_what_the_host_accepts(self) -> None:
        seen: list[Any] = []

        def host(request: Any) -> Any:
            seen.append((request.url.host, json.loads(request.content)))
            if request.url.host == "api.moonshot.ai":
                return HTTP.Response(307, headers={"location": "https://api.moonshot.cn/v1/chat/completions"})
            return HTTP.Response(200, json=ANSWER)

        with asking_host(host) as client:
            made = client.chat.completions.create(model="kimi-k2.5", messages=HELLO, tools=TOOLS, temperature=0.2)
        assert made.choices[0].finish_reason == "tool_calls"
        assert [place for place, _ in seen] == ["api.moonshot.ai", "api.moonshot.cn"]
        assert all("temperature" not in body for _, body in seen)

    def test_the_other_library_serves_as_well(self) -> None:
        other: Any = import_module("httpx" if HTTP.__name__ == "httpx2" else "httpx2")
        with five_rounds("selfhost").running() as server:
            http_client = mend_client(other.Client(), ClientState())
            with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, http_client=http_client) as client:
                said = talk(client, "What is it like there?", stream=True)
        assert problems_at(server, said) == []

    def test_only_a_client_of_these_libraries_can_be_mended(self) -> None:
        with pytest.raises(InvalidInput, match="httpx"):
            mend_client(object(), ClientState())


class TestClosing:
    """Whoever stops reading lets the host stop."""

    def test_a_stream_that_is_closed_early_closes_the_hosts(self) -> None:
        closed: list[bool] = []

        class Endless(HTTP.SyncByteStream):  # type: ignore[misc]
            def __iter__(self) -> Iterator[bytes]:
                delta = {"id": "c", "choices": [{"index": 0, "delta": {"content": "and so on "}}]}
                while True:
                    yield f"data: {json.dumps(delta)}\n\n".encode()

            def close(self) -> None:
                closed.append(True)

        def host(request: Any) -> Any:
            return HTTP.Response(200, headers={"content-type": "text/event-stream"}, stream=Endless())

        with asking_host(host) as client:
            stream = client.chat.completions.create(model="kimi-k2.5", messages=HELLO, stream=True)
            assert next(stream).choices[0].delta.content == "and so on "
            assert not closed
            stream.close()
            assert closed

    def test_so_does_an_asynchronous_one_and_one_that_is_cancelled(self) -> None:
        hung_up: list[str] = []

        async def endless(peer: Peer, asked: HostRequest) -> None:
            name = json.loads(asked.body)["messages"][0]["content"]
            delta = {"id": "c", "choices": [{"index": 0, "delta": {"content": "and so on "}}]}
            await peer.send(
                chunked_head(),
                *([chunks(f"data: {json.dumps(delta)}\n\n".encode(), end=False)] if name == "read" else []),
            )
            await peer.gone()
            hung_up.append(name)

        async def scene() -> None:
            async with Host(endless) as host, asynchronous(f"{host.url}/v1") as client:
                ask = client.chat.completions.create
                stream = await ask(model="kimi-k2.5", messages=[{"role": "user", "content": "read"}], stream=True)
                assert (await anext(stream)).choices[0].delta.content == "and so on "
                await stream.close()
                await host.until(lambda: hung_up == ["read"])
                hello: Any = [{"role": "user", "content": "wait"}]
                asking = asyncio.create_task(ask(model="kimi-k2.5", messages=hello, stream=True))
                await host.until(lambda: len(host.requests) == 2)
                asking.cancel()
                await host.until(lambda: hung_up == ["read", "wait"])

        run(scene())

    def test_a_connection_that_stays_open_behind_the_answer_is_not_waited_for(self) -> None:
        with asking("selfhost", ("stays-open", *FAULTS)) as (server, client):
            said = talk(client, "What is it like there?", stream=True)
        assert problems_at(server, said) == []


class TestOptions:
    """What is misspelt is told at once."""

    def test_a_host_that_nobody_knows(self) -> None:
        with pytest.raises(InvalidInput, match="did you mean 'moonshot'"):
            openai_http_client(host="moonshott")

    def test_a_cell_that_no_host_has(self) -> None:
        with pytest.raises(InvalidInput, match="unknown host profile field"):
            openai_http_client(overrides={"resoning": "x"})

    def test_options_that_are_none(self) -> None:
        with pytest.raises(InvalidInput, match="KimiOptions"):
            openai_http_client(options={"idPrefix": "fn"})  # type: ignore[arg-type]

    def test_transformers_see_requests_and_answers(self) -> None:
        pseudonyms = import_module("examples.pseudonyms").Pseudonyms({"Rome": "City A"})
        seen: list[bytes] = []

        def host(request: Any) -> Any:
            seen.append(request.content)
            said = {"role": "assistant", "content": "City A is sunny."}
            return HTTP.Response(200, json={**ANSWER, "choices": [{"index": 0, "message": said}]})

        with asking_host(host, transformers=[pseudonyms]) as client:
            made = client.chat.completions.create(
                model="kimi-k3", messages=[{"role": "user", "content": "How is Rome?"}]
            )
        assert b"Rome" not in seen[0]
        assert made.choices[0].message.content == "Rome is sunny."


def test_kimis_hosts_get_the_headers_that_they_are_known_to_accept() -> None:
    seen: list[Any] = []

    def host(request: Any) -> Any:
        seen.append(request.headers)
        body = {"type": "error", "error": {"type": "invalid_request_error", "message": "enough"}}
        return HTTP.Response(400, json=body)

    http_client = anthropic_http_client(transport=HTTP.MockTransport(host))
    flags = "claude-code-20250219,context-1m-2025-08-07"
    for base_url in ("https://api.moonshot.ai/anthropic", "https://llm.example.com"):
        client = anthropic.Anthropic(base_url=base_url, api_key=KEY, max_retries=0, http_client=http_client)
        with pytest.raises(anthropic.BadRequestError, match="enough"):
            client.messages.create(
                model="kimi-k3",
                max_tokens=9,
                messages=HELLO,
                extra_headers={"anthropic-version": "2026-10-21", "anthropic-beta": flags},
            )
    kimi, other = seen
    assert (kimi["anthropic-version"], kimi["anthropic-beta"]) == ("2023-06-01", "claude-code-20250219")
    assert (other["anthropic-version"], other["anthropic-beta"]) == ("2026-10-21", flags)
    assert any(KEY in value for value in kimi.values())
