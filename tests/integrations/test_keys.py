"""A key is a key wherever a host wants it: what belongs to it is found under no other, and it is in no error."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from moonshim import InvalidInput
from moonshim.integrations import openai_http_client
from tests.integrations.programs import HTTP, TOOLS, answer

HELLO: Any = [{"role": "user", "content": "hello"}]
CALL = {"id": "functions.sun:0", "type": "function", "function": {"name": "sun", "arguments": '{"city":"Rome"}'}}
MESSAGE = {"role": "assistant", "content": "", "reasoning_content": "Of Rome I think.", "tool_calls": [CALL]}
ANSWER = {"id": "c", "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "tool_calls"}]}


@pytest.mark.parametrize(
    "place",
    [
        lambda key: {"api_key": key},
        lambda key: {"api_key": "none", "default_query": {"key": key}},
        lambda key: {"api_key": "none", "default_headers": {"x-goog-api-key": key}},
        lambda key: {"api_key": "none", "default_headers": {"cf-aig-authorization": f"Bearer {key}"}},
    ],
    ids=["usual", "address", "header of a vendor", "header of a gateway"],
)
def test_two_keys_on_one_client_share_nothing(place: Any) -> None:
    seen: list[str] = []

    def host(request: Any) -> Any:
        seen.append(request.content.decode())
        return HTTP.Response(200, json=ANSWER)

    with openai_http_client(transport=HTTP.MockTransport(host)) as http_client:

        def ask(key: str, messages: Any) -> Any:
            url = "https://api.moonshot.ai/v1"
            client = openai.OpenAI(base_url=url, max_retries=0, http_client=http_client, **place(key))
            return client.chat.completions.create(model="kimi-k2.5", messages=messages, tools=TOOLS)

        first = ask("of-somebody", HELLO).choices[0].message
        again = [*HELLO, *answer(first)]
        again[1]["tool_calls"] = [CALL]
        ask("of-somebody", again)
        ask("of-somebody-else", again)
    assert ["Of Rome I think." in body for body in seen] == [False, True, False]


def test_a_key_in_the_address_is_masked() -> None:
    def host(request: Any) -> Any:
        return HTTP.Response(401, json={"error": {"message": f"who is {request.url.params['key']} in 2026-10-21?"}})

    with openai_http_client(transport=HTTP.MockTransport(host)) as http_client:
        client = openai.OpenAI(
            base_url="https://api.moonshot.ai/v1",
            api_key="none",
            default_query={"key": "hunter2hunter2", "api-version": "2026-10-21"},
            max_retries=0,
            http_client=http_client,
        )
        with pytest.raises(openai.AuthenticationError) as told:
            client.chat.completions.create(model="kimi-k2.5", messages=HELLO)
    assert "hunter2" not in str(told.value)
    assert "2026-10-21" in str(told.value)


def test_a_redirect_of_a_response_is_followed_as_a_response() -> None:
    seen: list[tuple[str, bool]] = []

    def host(request: Any) -> Any:
        seen.append((str(request.url), "messages" in json.loads(request.content)))
        if request.url.host == "api.moonshot.ai":
            return HTTP.Response(307, headers={"location": "https://api.moonshot.cn/v1/chat/completions?a=1"})
        said = {"role": "assistant", "content": "Hello."}
        return HTTP.Response(200, json={"id": "c", "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]})

    with openai_http_client(transport=HTTP.MockTransport(host)) as http_client:
        url = "https://api.moonshot.ai/v1"
        client = openai.OpenAI(base_url=url, api_key="a-key", max_retries=0, http_client=http_client)
        assert client.responses.create(model="kimi-k2.5", input="hello").output_text == "Hello."
    assert seen == [
        ("https://api.moonshot.ai/v1/chat/completions", True),
        ("https://api.moonshot.cn/v1/chat/completions?a=1", True),
    ]


@pytest.mark.parametrize("given", [{"transformers": 5}, {"memory": 5}], ids=repr)
def test_wrong_options_are_told_at_once(given: Any) -> None:
    with pytest.raises(InvalidInput):
        openai_http_client(**given)
