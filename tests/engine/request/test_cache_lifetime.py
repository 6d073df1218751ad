"""The lifetime that a client asks for its cached prompt, at every host, from every dialect."""

from __future__ import annotations

from typing import Any, Final

import pytest

from moonshim import prepare_request
from moonshim.engine.hosts.table import HOSTS
from moonshim.errors import InvalidInput

Json = dict[str, Any]
HOUR: Final = {"type": "ephemeral", "ttl": "1h"}


def chat(**fields: Any) -> Json:
    return {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}], "prompt_cache_key": "k", **fields}


def responses(**fields: Any) -> Json:
    return {"model": "kimi-k3", "input": "hi", "prompt_cache_key": "k", **fields}


def messages(*controls: Json | None, **fields: Any) -> Json:
    """A Messages request whose system prompt, tool and message have these `cache_control`."""
    system, tool, text = (*controls, None, None, None)[:3]
    return {
        "model": "kimi-k3",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief."} | ({"cache_control": system} if system else {})],
        "tools": [{"name": "ls", "input_schema": {"type": "object"}} | ({"cache_control": tool} if tool else {})],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi"} | ({"cache_control": text} if text else {})],
            }
        ],
        **fields,
    }


def prepared(body: Json, dialect: str, host: str = "moonshot", upstream: str = "openai_chat") -> tuple[Json, list[str]]:
    """The body that is sent, and what is reported about lifetimes."""
    before = repr(body)
    made = prepare_request(body, dialect=dialect, host=host, upstream=upstream)
    assert repr(body) == before
    changes = [f"{change.place}: {change.detail}" for change in made.changes if change.rule == "cache_ttl"]
    return made.body, changes


KNOWN: Final = "the host caches for 5m or 1h"


@pytest.mark.parametrize(
    ("fields", "sent", "reported"),
    [
        ({}, None, []),
        ({"prompt_cache_options": {"ttl": "5m"}}, {"ttl": "5m"}, []),
        ({"prompt_cache_options": {"ttl": "1h"}}, {"ttl": "1h"}, []),
        ({"prompt_cache_options": {"ttl": "1m"}}, {"ttl": "5m"}, [f"prompt_cache_options.ttl: 1m sent as 5m: {KNOWN}"]),
        (
            {"prompt_cache_options": {"ttl": "30m"}},
            {"ttl": "1h"},
            [f"prompt_cache_options.ttl: 30m sent as 1h: {KNOWN}"],
        ),
        (
            {"prompt_cache_options": {"ttl": "12h"}},
            {"ttl": "1h"},
            [f"prompt_cache_options.ttl: 12h sent as 1h: {KNOWN}"],
        ),
        ({"prompt_cache_options": {"ttl": "long"}}, None, [f"prompt_cache_options.ttl: 'long' dropped: {KNOWN}"]),
        (
            {"prompt_cache_options": {"mode": "explicit"}},
            None,
            ["prompt_cache_options.mode: prompt_cache_options.mode dropped: the host does not know it"],
        ),
        (
            {"prompt_cache_options": {"mode": "implicit", "ttl": "1h"}},
            {"ttl": "1h"},
            ["prompt_cache_options.mode: prompt_cache_options.mode dropped: the host does not know it"],
        ),
        ({"prompt_cache_retention": "24h"}, {"ttl": "1h"}, [f"prompt_cache_retention: 24h sent as 1h: {KNOWN}"]),
        (
            {"prompt_cache_retention": "in_memory"},
            None,
            ["prompt_cache_retention: prompt_cache_retention dropped: the host does not know it"],
        ),
        (
            {"prompt_cache_options": {"ttl": "5m"}, "prompt_cache_retention": "24h"},
            {"ttl": "5m"},
            ["prompt_cache_retention: prompt_cache_retention dropped: the host does not know it"],
        ),
    ],
)
def test_moonshot_gets_one_of_its_lifetimes(fields: Json, sent: Json | None, reported: list[str]) -> None:
    for dialect, body in (("openai_chat", chat(**fields)), ("openai_responses", responses(**fields))):
        out, changes = prepared(body, dialect)
        assert out.get("prompt_cache_options") == sent, dialect
        assert "prompt_cache_retention" not in out, dialect
        assert changes == reported, dialect


@pytest.mark.parametrize(
    ("controls", "sent"),
    [
        ((), None),
        (({"type": "ephemeral"},), None),
        (({"type": "ephemeral", "ttl": "5m"},), "5m"),
        ((HOUR,), "1h"),
        ((None, HOUR), "1h"),
        ((None, None, HOUR), "1h"),
        ((HOUR, None, {"type": "ephemeral", "ttl": "5m"}), "1h"),
    ],
)
def test_moonshot_gets_the_longest_lifetime_of_claude_code(controls: tuple[Json | None, ...], sent: str | None) -> None:
    out, changes = prepared(messages(*controls), "anthropic")
    assert out.get("prompt_cache_options") == (None if sent is None else {"ttl": sent})
    assert changes == ([] if sent is None else [f"cache_control.ttl: {sent} sent as prompt_cache_options.ttl"])
    assert "cache_control" not in repr(out)


def test_a_lifetime_at_the_top_of_a_messages_request_counts() -> None:
    out, _ = prepared(messages(cache_control=HOUR), "anthropic")
    assert out["prompt_cache_options"] == {"ttl": "1h"}


def test_over_messages_moonshot_gets_the_lifetime_in_anthropics_field() -> None:
    for dialect, body in (
        ("openai_chat", chat(prompt_cache_options={"ttl": "30m"})),
        ("openai_responses", responses(prompt_cache_options={"ttl": "30m"})),
    ):
        out, changes = prepared(body, dialect, "moonshot-anthropic", "anthropic")
        assert out["cache_control"] == HOUR
        assert "prompt_cache_options" not in out
        assert changes == [f"prompt_cache_options.ttl: 30m sent as 1h: {KNOWN}"]
    body = messages(HOUR, None, {"type": "ephemeral"})
    out, changes = prepared(body, "anthropic", "moonshot-anthropic", "anthropic")
    assert ({key: out[key] for key in body}, changes) == (body, [])
    assert "cache_control" not in out


UNKNOWN_LIFETIMES = frozenset(
    [
        "generic",
        "openrouter",
        "opencode",
        "baseten",
        "novita",
        "nebius",
        "modal",
        "cloudflare",
        "vercel",
        "volcengine",
        "alibaba",
        "azure",
    ]
)


@pytest.mark.parametrize("host", [host for host in HOSTS if not host.startswith("moonshot")])
def test_hosts_without_lifetimes_get_none(host: str) -> None:
    passed = host in UNKNOWN_LIFETIMES
    why = "it is not known whether the host has any" if passed else "the host decides how long it caches"
    for dialect, body, place in (
        ("anthropic", messages(HOUR), "cache_control.ttl"),
        ("openai_responses", responses(prompt_cache_options={"ttl": "1h"}), "prompt_cache_options.ttl"),
        ("openai_chat", chat(prompt_cache_options={"ttl": "1h"}), "prompt_cache_options.ttl"),
    ):
        out, changes = prepared(body, dialect, host)
        if dialect == "openai_chat" and passed:
            # What the client itself wrote in this dialect may be right.
            assert (out["prompt_cache_options"], changes) == ({"ttl": "1h"}, [])
            continue
        assert "prompt_cache_options" not in out, dialect
        assert changes == [f"{place}: cache lifetime 1h dropped: {why}"], dialect


def test_k2_gets_what_a_chat_client_wrote_and_nothing_else() -> None:
    body = chat(model="kimi-k2.6", prompt_cache_options={"ttl": "30m"})
    assert prepared(body, "openai_chat")[0]["prompt_cache_options"] == {"ttl": "30m"}
    out, changes = prepared(messages(HOUR, model="kimi-k2.6"), "anthropic")
    assert "prompt_cache_options" not in out
    assert len(changes) == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prompt_cache_options": "1h"}, "prompt_cache_options"),
        ({"prompt_cache_options": {"ttl": 3600}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_retention": 24}, "prompt_cache_retention"),
    ],
)
def test_a_lifetime_of_the_wrong_type_is_refused(fields: Json, field: str) -> None:
    for dialect, body in (("openai_chat", chat(**fields)), ("openai_responses", responses(**fields))):
        with pytest.raises(InvalidInput) as refused:
            prepare_request(body, dialect=dialect, host="moonshot")
        assert refused.value.field == field


def test_messages_and_tools_do_not_depend_on_the_lifetime() -> None:
    first, _ = prepared(messages(), "anthropic")
    later, _ = prepared(messages(HOUR, HOUR, HOUR), "anthropic")
    assert {key: first[key] for key in ("messages", "tools")} == {key: later[key] for key in ("messages", "tools")}
