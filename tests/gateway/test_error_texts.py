"""What people are told when something is not as they thought: paths, methods, keys of hosts, attempts, markers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moonshim.config import ProviderConfig, TransformerUse
from moonshim.gateway.observe import logs
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import MODEL, config_for, running
from tests.support.playing import Call, Thought, chat_answer

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Path]:
    with (tmp_path / "log").open("w") as stream:
        logs.configure("info", stream)
        yield tmp_path / "log"
        logs.close()


def told(lines: Path) -> list[dict[str, Any]]:
    logs.close()
    return [json.loads(line) for line in lines.read_text().splitlines()]


def answering(status: str, body: dict[str, Any]) -> Any:
    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(whole(json.dumps(body).encode(), status=status))

    return script


GOOD = chat_answer(Thought(), "Hello", []).whole


def test_paths_and_methods_that_are_not_there_say_what_is() -> None:
    async def test() -> None:
        async with (
            Host(answering("200 OK", GOOD)) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            async with client.post("/v1/v1/messages", json=BODY) as answer:
                assert answer.status == 404
                error = await answer.json()
                assert error["type"] == "error"
                assert "remove /v1 from its base URL" in error["error"]["message"]
            async with client.post("/v1/chat/completions/", json=BODY) as answer:
                assert "slash" in (await answer.json())["error"]["message"]
                assert answer.headers["x-should-retry"] == "false"
            async with client.put("/v1/messages") as answer:
                assert (answer.status, answer.headers["allow"]) == (405, "POST")
                assert answer.headers["x-should-retry"] == "false"
            async with client.head("/") as answer:
                assert answer.status == 200

    run(test())


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/metrics", "/v1/models"])
def test_a_page_that_rebinds_its_name_reads_nothing(path: str) -> None:
    async def test() -> None:
        async with running(config_for("http://127.0.0.1:1")) as gateway, aiohttp.ClientSession(gateway.url) as client:
            async with client.get(path, headers={"host": "evil.example"}) as answer:
                assert answer.status == 403
            async with client.get(path) as answer:
                assert answer.status == 200

    run(test())


def test_a_host_that_refuses_its_key_is_named(lines: Path) -> None:
    async def test() -> None:
        refusal = {"error": {"message": "Invalid Authentication", "type": "invalid_authentication_error"}}
        async with (
            Host(answering("401 Unauthorized", refusal)) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
            client.post("/v1/chat/completions", json=BODY) as answer,
        ):
            assert answer.status == 401
            message = (await answer.json())["error"]["message"]
            assert (
                message
                == "Invalid Authentication (error from provider 'host' about its API key, not about your gateway key)"
            )

    run(test())
    assert [line["event"] for line in told(lines)] == ["attempt_failed", "request"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/messages", ("error", "type", "billing_error")),
        ("/v1/chat/completions", ("error", "type", "insufficient_quota")),
        ("/v1/responses", ("error", "code", "insufficient_quota")),
    ],
)
def test_a_spent_quota_is_no_failed_login(path: str, kind: tuple[str, str, str]) -> None:
    """Kimi Code sends 403, which Claude Code shows as "Failed to authenticate"."""
    words = "You've reached your usage limit for this billing cycle. Your quota will be refreshed in the next cycle."
    refusal = {"error": {"message": words, "type": "access_terminated_error"}}
    said: dict[str, Any] = {"input": "hi"} if path == "/v1/responses" else {"messages": BODY["messages"]}
    body = {"model": BODY["model"], **said} | ({"max_tokens": 99} if path == "/v1/messages" else {})

    async def test() -> None:
        async with (
            Host(answering("403 Forbidden", refusal)) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
            client.post(path, json=body) as answer,
        ):
            assert (answer.status, answer.headers["x-should-retry"]) == (429, "false")
            assert "retry-after" not in answer.headers
            error = (await answer.json())[kind[0]]
            assert error[kind[1]] == kind[2]
            assert words in error["message"]
            assert "API key" not in error["message"]

    run(test())


def test_the_log_says_why_the_next_host_was_asked(lines: Path) -> None:
    async def test() -> None:
        quota = {"error": {"message": "no money", "type": "exceeded_current_quota_error"}}
        async with Host(answering("429 Too Many", quota)) as poor, Host(answering("200 OK", GOOD)) as rich:
            second = ProviderConfig(name="rich", api_base_url=f"{rich.url}/v1", models=(MODEL,), host="vllm")
            async with (
                running(config_for(poor.url, name="poor"), providers=(second,)) as gateway,
                aiohttp.ClientSession(gateway.url) as client,
                client.post("/v1/chat/completions", json=BODY) as answer,
            ):
                assert answer.status == 200

    run(test())
    failed, request = told(lines)
    assert (failed["event"], failed["provider"], failed["status"]) == ("attempt_failed", "poor", 429)
    assert "no money" in failed["problem"]
    assert (request["provider"], request["attempts"]) == ("rich", 2)
    assert failed["request_id"] == request["request_id"]


def test_markers_that_a_chain_leaves_as_text_are_noted_once(lines: Path) -> None:
    leaked = chat_answer(Thought(), "", [Call("functions.ls:0", "ls", "{}")], leaked=True).whole
    chain = (TransformerUse("Kimi"),)

    async def test() -> None:
        async with (
            Host(answering("200 OK", leaked)) as host,
            running(config_for(host.url, transformers=chain)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            for _ in range(2):
                async with client.post("/v1/chat/completions", json=BODY) as answer:
                    assert "<|tool_call_begin|>" in await answer.text()

    run(test())
    events = [line["event"] for line in told(lines)]
    assert events.count("markers_left_as_text") == 1


@pytest.mark.parametrize(
    ("model", "problem"),
    [("my-kimi", "does not say which Kimi generation"), ("kimi-k4", "treated as k3.1"), ("kimi-k2.6", None)],
)
def test_a_guessed_generation_is_noted_once_for_each_model(lines: Path, model: str, problem: str | None) -> None:
    async def test() -> None:
        async with (
            Host(answering("200 OK", GOOD)) as host,
            running(config_for(host.url, models=(model,))) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            for _ in range(2):
                async with client.post("/v1/chat/completions", json=BODY | {"model": model}) as answer:
                    assert answer.status == 200

    run(test())
    noted = [line for line in told(lines) if line["event"] == "generation_guessed"]
    assert [line["model"] for line in noted] == ([] if problem is None else [model])
    assert all(problem is not None and problem in line["problem"] for line in noted)


def test_a_generation_that_is_configured_is_no_guess(lines: Path) -> None:
    async def test() -> None:
        async with (
            Host(answering("200 OK", GOOD)) as host,
            running(config_for(host.url, models=("my-kimi",), overrides={"generation": "k2.6"})) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
            client.post("/v1/chat/completions", json=BODY | {"model": "my-kimi"}) as answer,
        ):
            assert answer.status == 200

    run(test())
    assert not [line for line in told(lines) if line["event"] == "generation_guessed"]
