"""Requests with values of a wrong type, over a socket: refused in the client's dialect, with the field, before a host
is called."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from moonshim.gateway.inbound.call import LARGE_BYTES
from tests.engine.dialects.wrong_types import COMPLETE, SHORT, VALID, WRONG, replaced, wrong_values
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import config_for, running
from tests.support.playing import Thought, chat_answer

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "openai_responses": "/v1/responses",
}
GOOD = json.dumps(chat_answer(Thought(), "Hello", []).whole).encode()


async def answer(peer: Peer, asked: HostRequest) -> None:
    await peer.send(whole(GOOD))


def error_of(dialect: str, text: str) -> tuple[str | None, str]:
    """Field and message of an error in the form of this dialect."""
    body = json.loads(text)
    error: dict[str, Any] = body["error"]
    assert error["type"] == "invalid_request_error"
    if dialect == "anthropic":
        assert body["type"] == "error"
        return None, error["message"]
    return error["param"], error["message"]


def test_the_error_names_the_field_in_the_dialect_of_the_client() -> None:
    async def test() -> None:
        async with (
            Host(answer) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            for name, wrong in WRONG.items():
                body = SHORT[wrong.dialect] | wrong.fields
                async with client.post(PATHS[wrong.dialect], json=body) as response:
                    field, message = error_of(wrong.dialect, await response.text())
                    assert (response.status, message) == (400, wrong.field + wrong.says), name
                    assert field == (None if wrong.dialect == "anthropic" else wrong.field), name
            assert host.requests == []

    run(test())


def test_null_unknown_fields_and_what_clients_send_reach_the_host() -> None:
    async def test() -> None:
        async with (
            Host(answer) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            for name, (dialect, fields) in VALID.items():
                async with client.post(PATHS[dialect], json=SHORT[dialect] | fields) as response:
                    assert response.status == 200, (name, await response.text())
            assert len(host.requests) == len(VALID)

    run(test())


@pytest.mark.parametrize("dialect", COMPLETE)
def test_no_field_of_a_wrong_type_reaches_a_host(dialect: str) -> None:
    async def test() -> None:
        async with (
            Host(answer) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            for path, value in wrong_values(dialect):
                body = replaced(COMPLETE[dialect], path, value)
                async with client.post(PATHS[dialect], json=body) as response:
                    text = await response.text()
                    assert response.status == 400, (path, value, text)
                    _, message = error_of(dialect, text)
                    assert not {"Traceback", "msgspec", "object at 0x"} & set(message.split()), (path, value, message)
            assert host.requests == []
            async with client.post(PATHS[dialect], json=COMPLETE[dialect]) as response:
                assert response.status == 200, await response.text()

    run(test())


NUMBERS = {
    "out of range": ("max_tokens", b"1e400", "max_tokens: the number is too large"),
    "with thousands of digits": ("max_tokens", b"9" * 5000, "max_tokens: the number is too large"),
    "below the range": ("temperature", b"-1e400", "temperature: the number is too large"),
    "NaN": ("temperature", b"NaN", "temperature: NaN is not a JSON number"),
    "infinity": ("top_p", b"-Infinity", "top_p: -Infinity is not a JSON number"),
    "in an object": ("metadata", b'{"a": [1, 1e400]}', "metadata.a[1]: the number is too large"),
}


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize(("field", "number", "message"), NUMBERS.values(), ids=NUMBERS)
def test_a_number_that_does_not_fit_is_named_by_its_field(
    dialect: str, field: str, number: bytes, message: str
) -> None:
    if dialect == "openai_responses":
        field, message = (text.replace("max_tokens", "max_output_tokens") for text in (field, message))

    async def test() -> None:
        async with (
            Host(answer) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            kept = {key: value for key, value in SHORT[dialect].items() if key != field}
            body = json.dumps(kept).encode()[:-1] + b', "' + field.encode() + b'": ' + number + b"}"
            async with client.post(PATHS[dialect], data=body) as response:
                assert response.status == 400
                param, text = error_of(dialect, await response.text())
                assert text == message
                assert param == (None if dialect == "anthropic" else message.partition(":")[0])
            assert host.requests == []

    run(test())


@pytest.mark.parametrize("number", [b"1e400", b"9" * 5000])
def test_a_number_of_a_large_body_that_does_not_fit_is_refused(number: bytes) -> None:
    async def test() -> None:
        async with (
            Host(answer) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            text = json.dumps({"role": "user", "content": "x" * LARGE_BYTES}).encode()
            body = b'{"model": "kimi-k2.5", "messages": [' + text + b'], "nvext": {"a": ' + number + b"}}"
            async with client.post("/v1/chat/completions", data=body) as response:
                assert response.status == 400
                _, message = error_of("openai_chat", await response.text())
                assert message.startswith("The request body is not valid JSON: the number is too large at character 2")
            assert host.requests == []

    run(test())
