"""Headers that cross the gateway: those on the lists, and no other."""

from __future__ import annotations

import pytest

from moonshim.gateway.outbound.response_headers import to_client, to_host

KEPT_FROM_CLIENTS = [
    "set-cookie",
    "server",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "content-encoding",
    "content-type",
    "alt-svc",
    "strict-transport-security",
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "location",
    "www-authenticate",
    "openai-organization",
    "anthropic-organization-id",
    "x-api-key",
    "clear-site-data",
    "content-security-policy",
    "x-ratelimit",
    "ratelimit-" + "x" * 100,
]
KEPT_FROM_HOSTS = [
    "authorization",
    "x-api-key",
    "api-key",
    "cookie",
    "host",
    "connection",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "accept-encoding",
    "expect",
    "x-forwarded-for",
    "x-forwarded-host",
    "forwarded",
    "x-real-ip",
    "origin",
    "referer",
    "x-stainless-os",
    "proxy-authorization",
    "x-request-id",
]


@pytest.mark.parametrize("name", KEPT_FROM_CLIENTS)
def test_a_host_cannot_set_cookies_or_rules_in_our_name(name: str) -> None:
    assert to_client({name: "1"}) == []


def test_a_client_sees_which_request_it_was_and_what_is_left() -> None:
    seen = {
        "x-request-id": "req_1",
        "request-id": "req_2",
        "x-trace-id": "t",
        "retry-after": "3",
        "x-ratelimit-remaining-requests": "5",
        "anthropic-ratelimit-tokens-reset": "2026-11-15T12:00:00Z",
        "openai-processing-ms": "12",
    }
    assert to_client(seen) == [
        (name.encode() if name != "x-request-id" else b"x-upstream-request-id", value.encode())
        for name, value in seen.items()
    ]


@pytest.mark.parametrize("value", ["a\r\nset-cookie: x=y", "a\nb", "a\0b", "ä", "\udcff", "x" * 10_000, ""])
def test_a_value_that_could_become_a_header_of_its_own_stays_behind(value: str) -> None:
    assert to_client({"x-request-id": value}) == []
    assert to_host({"user-agent": value}, "openai_chat") == {}


def test_a_host_cannot_flood_a_client_with_headers() -> None:
    assert len(to_client({f"x-ratelimit-{number}": "1" for number in range(10_000)})) < 100


@pytest.mark.parametrize("name", KEPT_FROM_HOSTS)
@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
def test_keys_cookies_and_where_a_client_is_do_not_reach_a_host(name: str, dialect: str) -> None:
    assert to_host({name: "1"}, dialect) == {}


def test_a_host_sees_which_agent_asks() -> None:
    headers = {"user-agent": "claude-cli/2.1", "traceparent": "00-1-2-01", "anthropic-beta": "a,b", "cookie": "c"}
    assert to_host(headers, "openai_chat") == {"user-agent": "claude-cli/2.1", "traceparent": "00-1-2-01"}
    assert to_host(headers, "anthropic") == {
        "user-agent": "claude-cli/2.1",
        "traceparent": "00-1-2-01",
        "anthropic-beta": "a,b",
    }
