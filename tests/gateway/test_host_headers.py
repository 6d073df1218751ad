"""Headers that depend on the host: what it is known to accept, what it needs, and what else passes as it came."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.gateway.hosts import run
from tests.support.gateway.leaks import scene
from tests.support.gateway.raw_client import answer_of, body_of, sending

CLAUDE_CODE = "claude-code-20250219,interleaved-thinking-2025-05-14"
FLAGS = f"{CLAUDE_CODE}, context-1m-2025-08-07 ,context-management-2025-06-27"
SENT = f"anthropic-version: 2026-10-21\r\nanthropic-beta: {FLAGS}\r\n"


def asked(client: str, upstream: str, sent: str = "", *, host: str, **given: Any) -> tuple[dict[str, str], str]:
    """The headers that reach the host, and the changes that the client is told of."""

    async def test() -> tuple[dict[str, str], str]:
        async with scene(sending(answer_of(upstream)), dialect=upstream, overrides={"host": host}, **given) as one:
            reply = await one.ask(client, body_of(client), headers=sent)
            assert reply.status == 200, reply.body
            return one.host.requests[0].headers, reply.headers["x-moonshim-repairs"]

    return run(test())


@pytest.mark.parametrize("host", ["moonshot", "kimi-coding"])
def test_kimis_own_hosts_get_the_version_and_the_flags_that_they_are_known_to_accept(host: str) -> None:
    headers, changes = asked("anthropic", "anthropic", SENT, host=host)
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["anthropic-beta"] == CLAUDE_CODE
    assert "api_version=1" in changes
    assert "beta_flags=1" in changes


def test_a_client_that_sends_nothing_else_is_told_of_no_change() -> None:
    sent = f"anthropic-version: 2023-06-01\r\nanthropic-beta: {CLAUDE_CODE}\r\n"
    headers, changes = asked("anthropic", "anthropic", sent, host="kimi-coding")
    assert (headers["anthropic-version"], headers["anthropic-beta"]) == ("2023-06-01", CLAUDE_CODE)
    assert "api_version" not in changes
    assert "beta_flags" not in changes


def test_only_unknown_flags_leave_no_header() -> None:
    headers, _ = asked("anthropic", "anthropic", "anthropic-beta: new-2027-01-01\r\n", host="kimi-coding")
    assert "anthropic-beta" not in headers
    assert headers["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize("host", ["generic", "vllm", "openrouter"])
def test_other_messages_hosts_get_what_the_client_sent(host: str) -> None:
    headers, changes = asked("anthropic", "anthropic", SENT, host=host)
    assert headers["anthropic-version"] == "2026-10-21"
    assert headers["anthropic-beta"] == FLAGS
    assert "api_version" not in changes


def test_the_configuration_has_the_last_word() -> None:
    headers, _ = asked("anthropic", "anthropic", SENT, host="kimi-coding", headers={"anthropic-beta": "own"})
    assert headers["anthropic-beta"] == "own"


@pytest.mark.parametrize("client", ["openai_chat", "anthropic", "openai_responses"])
def test_a_chat_host_gets_none_of_them(client: str) -> None:
    headers, _ = asked(client, "openai_chat", SENT, host="kimi-coding")
    assert not headers.keys() & {"anthropic-version", "anthropic-beta", "x-opencode-session"}


@pytest.mark.parametrize(("host", "name"), [("opencode", "x-opencode-session"), ("cloudflare", "x-session-affinity")])
def test_a_host_that_routes_by_conversation_gets_the_same_id_in_every_turn(host: str, name: str) -> None:
    async def test() -> None:
        async with scene(sending(answer_of("openai_chat")), overrides={"host": host}) as one:
            first = body_of("openai_chat")
            messages = [
                *first["messages"],
                {"role": "assistant", "content": "Hi."},
                {"role": "user", "content": "More."},
            ]
            for body in (first, first | {"messages": messages}, first | {"messages": messages[-1:]}):
                assert (await one.ask("openai_chat", body)).status == 200
            await one.ask("openai_chat", first, headers=f"{name}: mine\r\n")
            ids = [request.headers[name] for request in one.host.requests]
        assert ids[0] == ids[1] != ids[2]
        assert ids[3] == "mine"

    run(test())
