"""What goes wrong, in the words of the package: requests that are refused, hosts that fail, streams that break."""

from __future__ import annotations

from typing import Any, Final

import anthropic
import openai
import pytest

from moonshim.integrations import anthropic_http_client
from tests.integrations.judging import five_rounds
from tests.integrations.programs import HTTP, KEY, TOOLS, asking, asking_host

HELLO: Final[Any] = [{"role": "user", "content": "hello"}]
CHUNK: Final = (
    'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,%s}]}\n\n'
)
WHOLE: Final = CHUNK % '"delta":{"role":"assistant","content":"hi"},"finish_reason":"stop"' + "data: [DONE]\n\n"


def test_what_cannot_be_sent_is_a_bad_request_and_never_leaves() -> None:
    messages: Any = [*HELLO, {"role": "tool", "content": "x"}]
    with asking("moonshot") as (server, client):
        with pytest.raises(openai.BadRequestError, match="tool_call_id") as raised:
            client.chat.completions.create(model="kimi-k2.5", messages=messages)
        assert list(server.requests) == []
    assert raised.value.param == "messages[1].tool_call_id"


def test_in_messages_it_is_told_as_messages_tell_it() -> None:
    messages: Any = [{"role": "user", "content": 5}]
    with five_rounds("moonshot", ()).running() as server:
        http_client = anthropic_http_client(host="moonshot")
        with (
            anthropic.Anthropic(base_url=server.url, api_key=KEY, http_client=http_client) as client,
            pytest.raises(anthropic.BadRequestError) as raised,
        ):
            client.messages.create(model="kimi-k3", max_tokens=9, messages=messages)
        assert list(server.requests) == []
    body: Any = raised.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert "messages[0].content" in body["error"]["message"]


STATUSES: Final[dict[str, tuple[type[openai.APIStatusError], str]]] = {
    "overloaded": (openai.RateLimitError, "overloaded"),
    "context-overflow": (openai.BadRequestError, "context_length_exceeded"),
    "unauthorized": (openai.AuthenticationError, "Invalid Authentication"),
    "html-502": (openai.InternalServerError, "502 Bad Gateway"),
    "error-in-200": (openai.APIStatusError, ""),
    "html-200": (openai.InternalServerError, "HTML page"),
    "empty-body": (openai.InternalServerError, ""),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("fault", STATUSES)
def test_a_host_that_fails_is_told_by_the_error_of_the_package(fault: str, stream: bool) -> None:
    kind, words = STATUSES[fault]
    with asking("moonshot", (fault,)) as (_, client), pytest.raises(kind) as raised:
        client.chat.completions.create(model="kimi-k2.5", messages=HELLO, stream=stream)
    assert words in f"{raised.value} {raised.value.code}"


def test_a_stream_that_begins_with_an_error_is_asked_for_again_by_the_package() -> None:
    answers = ['data: {"error":{"message":"The engine is overloaded","type":"engine_overloaded_error"}}\n\n', WHOLE]

    def host(request: Any) -> Any:
        headers = {"content-type": "text/event-stream", "retry-after": "0"}
        return HTTP.Response(200, headers=headers, text=answers.pop(0))

    with asking_host(host, retries=1) as client:
        stream = client.chat.completions.create(model="kimi-k2.5", messages=HELLO, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "hi"
    assert answers == []


@pytest.mark.parametrize("fault", ["cut-off", "cut-inside", "ends-early", "error-in-stream", "stall"])
def test_trouble_in_the_middle_is_told_behind_what_came(fault: str) -> None:
    with asking("moonshot", (fault,), timeout=1.0) as (_, client):
        stream = client.chat.completions.create(model="kimi-k2.5", messages=HELLO, tools=TOOLS, stream=True)
        came: list[Any] = []
        with pytest.raises(openai.APIError) as raised:
            came.extend(stream)
    assert came, "what the host had said was there"
    assert not isinstance(raised.value, openai.APIConnectionError)
    assert str(raised.value)


def test_a_connection_that_never_was_is_the_packages_own_error() -> None:
    with asking("moonshot", ("no-headers",)) as (_, client), pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(model="kimi-k2.5", messages=HELLO)
    with asking("moonshot", ("stall-at-first",), timeout=0.5) as (_, client), pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model="kimi-k2.5", messages=HELLO, stream=True)


@pytest.mark.parametrize("status", [200, 401])
def test_a_host_that_repeats_the_key_is_not_repeated(status: int) -> None:
    def host(request: Any) -> Any:
        error = {"message": f"who is {request.headers['authorization']}?", "type": "x", "code": KEY}
        return HTTP.Response(status, json={"error": error})

    with asking_host(host) as client, pytest.raises(openai.APIStatusError) as raised:
        client.chat.completions.create(model="kimi-k2.5", messages=HELLO)
    assert "who is" in str(raised.value)
    assert KEY not in str(raised.value)
    assert KEY not in raised.value.response.text


def test_an_address_for_messages_is_not_one_for_chat() -> None:
    def host(request: Any) -> Any:
        raise AssertionError("nothing is sent there")

    with asking_host(host) as client:
        other = client.with_options(base_url="https://api.moonshot.ai/anthropic/v1")
        with pytest.raises(openai.BadRequestError, match="use the anthropic SDK"):
            other.chat.completions.create(model="kimi-k2.5", messages=HELLO)


@pytest.mark.parametrize(("kind", "asked"), [("exceeded_current_quota_error", 1), ("rate_limit_reached_error", 3)])
def test_the_package_retries_only_errors_that_a_retry_can_cure(kind: str, asked: int) -> None:
    requests: list[Any] = []

    def host(request: Any) -> Any:
        requests.append(request)
        headers = {"retry-after-ms": "1", "x-should-retry": "true"}
        return HTTP.Response(429, headers=headers, json={"error": {"message": "no", "type": kind}})

    with asking_host(host, retries=2) as client, pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model="kimi-k2.5", messages=HELLO)
    assert len(requests) == asked
