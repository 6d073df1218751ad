"""The official clients on a real socket: five rounds with every generation, streamed or whole, and every other path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import anthropic
import openai
import pytest

from moonshim.simulator import Simulator
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.host.models import MODELS
from moonshim.simulator.settings import ModelRow
from tests.simulator.asking import CHAT_TOOLS, MESSAGES_TOOLS, Rounds, expected_results
from tests.simulator.conversations import anthropic_client, chat_loop, messages_loop, openai_client, request

GENERATIONS = (
    "kimi-k2-0905-preview",
    "kimi-k2-thinking",
    "kimi-k2.5",
    "kimi-k2.6",
    "kimi-k2.7-code",
    "kimi-k3",
    "kimi-k3.1-pro",
    "plain-1",
)
HELLO: Any = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    with Simulator(model=Rounds()).running() as server:
        yield server


@pytest.fixture(scope="module")
def openai_sdk(server: Simulator) -> Iterator[openai.OpenAI]:
    with openai_client(server.url) as client:
        yield client


@pytest.fixture(scope="module")
def anthropic_sdk(server: Simulator) -> Iterator[anthropic.Anthropic]:
    with anthropic_client(server.url) as client:
        yield client


# -- conversations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("model", GENERATIONS)
class TestFiveRounds:
    def test_over_chat(self, server: Simulator, openai_sdk: openai.OpenAI, model: str, stream: bool) -> None:
        reply = chat_loop(openai_sdk, model, stream=stream)
        assert reply == "I was told: " + ", ".join(expected_results(5))
        assert [seen.problem for seen in list(server.requests)[-6:]] == [None] * 6

    def test_over_messages(
        self, server: Simulator, anthropic_sdk: anthropic.Anthropic, model: str, stream: bool
    ) -> None:
        reply = messages_loop(anthropic_sdk, model, stream=stream)
        assert reply == "I was told: " + ", ".join(expected_results(5))
        assert [seen.problem for seen in list(server.requests)[-6:]] == [None] * 6


@pytest.mark.parametrize(
    "behaviour", ["selfhost", "vllm", "sglang", "fireworks", "together", "openrouter", "siliconflow"]
)
def test_k3_talks_at_every_host(behaviour: str) -> None:
    with Simulator(model=Rounds(2), behaviour=behaviour).running() as server, openai_client(server.url) as client:
        assert chat_loop(client, "kimi-k3", stream=True) == "I was told: " + ", ".join(expected_results(2))
        assert server.refusals == []


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("model", ["kimi-for-coding", "k3", "k3.1-pro"])
def test_kimi_code_talks_to_agents_that_it_knows(model: str, stream: bool) -> None:
    agent = {"user-agent": "KimiCLI/1.60"}
    with (
        Simulator(model=Rounds(3), behaviour="kimi-coding").running() as server,
        openai_client(f"{server.url}/coding", default_headers=agent) as chat,
        anthropic_client(f"{server.url}/coding", default_headers=agent) as messages,
    ):
        assert chat_loop(chat, model, stream=stream) == "I was told: " + ", ".join(expected_results(3))
        assert messages_loop(messages, model, stream=stream) == "I was told: " + ", ".join(expected_results(3))
        assert server.refusals == []


def test_ids_of_the_right_kind_work_at_a_self_host_in_every_round() -> None:
    with Simulator(model=Rounds(), behaviour="selfhost").running() as server, openai_client(server.url) as client:
        assert chat_loop(client, "kimi-k2.5", stream=True) == "I was told: " + ", ".join(expected_results(5))


def test_ids_of_another_kind_work_at_a_self_host_for_two_rounds() -> None:
    with Simulator(model=Rounds(), behaviour="together").running() as server, openai_client(server.url) as client:
        reply = chat_loop(client, "kimi-k2.5", stream=True)
        assert "<|tool_call_begin|>" in reply
        assert len(server.requests) == 3


def test_usage_comes_with_a_stream_as_moonshot_tells_it(openai_sdk: openai.OpenAI) -> None:
    asked: Any = {"model": "kimi-k2.5", "messages": HELLO, "stream_options": {"include_usage": True}}
    chunks = list(openai_sdk.chat.completions.create(**asked, stream=True))
    assert chunks[-1].usage is not None
    assert chunks[-1].choices == []
    assert chunks[-2].choices[0].model_extra is not None
    assert chunks[-2].choices[0].model_extra["usage"]["total_tokens"] == chunks[-1].usage.total_tokens


def test_an_error_is_one_of_the_client(openai_sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="only 1 is allowed") as raised:
        openai_sdk.chat.completions.create(model="kimi-k3", messages=HELLO, temperature=0.2)
    assert raised.value.response.headers["x-trace-id"]
    assert raised.value.response.json() == {
        "error": {"message": "invalid temperature: only 1 is allowed for this model", "type": "invalid_request_error"}
    }


def test_many_at_once_get_each_their_own_answer(openai_sdk: openai.OpenAI) -> None:
    def ask(number: int) -> str:
        reply = [{"role": "user", "content": f"{number}"}]
        return str(openai_sdk.chat.completions.create(model="kimi-k3", messages=cast(Any, reply)).id)

    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(ask, range(24)))
    assert len(ids) == 24


# -- paths -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["/v1", "", "/coding/v1", "/coding", "/anthropic/v1", "/anthropic"])
def test_both_dialects_are_spoken_under_every_prefix(server: Simulator, prefix: str) -> None:
    chat = request(server.url, "POST", f"{prefix}/chat/completions", {"model": "kimi-k3", "messages": HELLO})
    asked = {"model": "kimi-k3", "max_tokens": 9, "messages": HELLO}
    assert chat.json["object"] == "chat.completion"
    assert request(server.url, "POST", f"{prefix}/messages", asked).json["type"] == "message"


def test_models_are_listed_for_both_clients() -> None:
    with Simulator(models={"mine": ModelRow(generation="k3")}).running() as server:
        with openai_client(server.url) as client:
            assert [model.id for model in client.models.list()] == ["mine", *MODELS]
            assert client.models.retrieve("kimi-k2.5+split-bytes").id == "kimi-k2.5+split-bytes"
            with pytest.raises(openai.NotFoundError):
                client.models.retrieve("gpt-5")
        with anthropic_client(server.url) as other:
            assert [model.id for model in other.models.list()] == ["mine", *MODELS]


def test_models_need_the_key_too() -> None:
    with Simulator(api_key="sk-right").running() as server, pytest.raises(openai.AuthenticationError):
        openai_client(server.url).models.list()


def test_tokens_are_counted_where_that_is_assumed(server: Simulator) -> None:
    asked: Any = {"model": "kimi-k3", "messages": HELLO, "tools": MESSAGES_TOOLS}
    assert request(server.url, "POST", "/v1/messages/count_tokens", asked).status == 404
    with Simulator(assume=("counts-tokens",)).running() as server, anthropic_client(server.url) as client:
        counted = client.messages.count_tokens(**asked).input_tokens
        assert counted == client.messages.create(**asked, max_tokens=99).usage.input_tokens


def test_it_says_what_it_is_and_what_it_can_do(server: Simulator) -> None:
    assert request(server.url, "GET", "/").json["behaviour"]["name"] == "moonshot"
    assert request(server.url, "GET", "/health").json == {"status": "ok"}
    assert [fault["name"] for fault in request(server.url, "GET", "/simulator/faults").json["faults"]] == list(FAULTS)


def test_the_last_requests_can_be_looked_at(server: Simulator) -> None:
    body = {"model": "kimi-k2.5+crlf", "messages": HELLO, "tools": CHAT_TOOLS, "stream": True}
    request(server.url, "POST", "/v1/chat/completions", body)
    request(server.url, "POST", "/v1/chat/completions", body | {"n": 3})
    good, bad = request(server.url, "GET", "/simulator/requests").json["requests"][-2:]
    assert (good["status"], good["faults"], good["called"]) == (200, ["crlf"], ["weather", "time_of-day"])
    assert (bad["status"], bad["problem"]) == (400, "invalid n: only 1 is allowed for this model")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/embeddings", 404),
        ("GET", "/v1/usages", 404),
        ("POST", "/v1/responses", 404),
        ("GET", "/v1/chat/completions", 405),
        ("OPTIONS", "/v1/messages", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/", 405),
    ],
)
def test_what_is_not_there_is_refused_as_json(server: Simulator, method: str, path: str, status: int) -> None:
    answer = request(server.url, method, path)
    assert (answer.status, bool(answer.json["error"]["message"])) == (status, True)
    assert ("allow" in answer.headers) == (status == 405)
    assert (server.refusals[-1].place, server.refusals[-1].status) == (f"{method} {path}", status)


def test_kimi_code_reports_the_quota_to_any_agent_with_the_key() -> None:
    with Simulator(behaviour="kimi-coding", api_key="k", clock=lambda: 1_794_800_000.0).running() as server:
        answer = request(server.url, "GET", "/coding/v1/usages", authorization="Bearer k")
        assert (answer.status, answer.json["usages"]["limit_5h"]) == (
            200,
            {"used_ratio": 0.12, "reset_time": "2026-11-16T08:00:00Z"},
        )
        assert list(answer.json["usages"]) == ["limit_5h", "limit_7d", "limit_month_total", "limit_month_code"]
        assert request(server.url, "GET", "/coding/v1/usages", authorization="Bearer x").status == 401
        assert "/v1/usages" in request(server.url, "GET", "/").json["paths"]


def test_a_path_of_messages_is_refused_in_its_dialect(server: Simulator) -> None:
    assert request(server.url, "GET", "/v1/messages").json["type"] == "error"
    assert request(server.url, "GET", "/anthropic/v1/nothing").json["type"] == "error"
    assert "type" not in request(server.url, "GET", "/v1/nothing").json


def test_a_head_has_no_body(server: Simulator) -> None:
    assert (request(server.url, "HEAD", "/v1/models").status, request(server.url, "HEAD", "/v1/models").data) == (
        200,
        b"",
    )
    assert (request(server.url, "HEAD", "/v1/messages").status, request(server.url, "HEAD", "/v1/messages").data) == (
        405,
        b"",
    )


# -- bodies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"model": "\xff"}', b"null"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_body_that_cannot_be_read_is_refused(server: Simulator, path: str, data: bytes) -> None:
    answer = request(server.url, "POST", path, data)
    assert answer.status == 400
    assert answer.json["error"]["type"] == "invalid_request_error"


def test_a_body_that_is_too_large_is_refused_whether_its_length_is_told_or_not() -> None:
    body = json.dumps({"model": "kimi-k3", "messages": [{"role": "user", "content": "x" * 5000}]}).encode()
    with Simulator(body_bytes=1000).running() as server:
        for content in (body, iter([body[:3000], body[3000:]])):
            answer = request(server.url, "POST", "/v1/chat/completions", content)
            assert (answer.status, answer.json["error"]["message"]) == (413, "Request exceeds the maximum size")
