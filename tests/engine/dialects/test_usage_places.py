"""Where hosts put what they read from their prompt cache and wrote to it, and where each client looks for it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from moonshim import mend_response, prepare_request
from moonshim.engine.dialects.anthropic.usage import UsageReader
from moonshim.engine.dialects.openai_chat.usage import ChatUsageReader, with_cache_counts
from moonshim.engine.response.usage_total import UsageTotal
from moonshim.engine.upstream_events import UsageReported
from moonshim.engine.values.conversation import Usage

Json = dict[str, Any]
BASE: Final[Json] = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}


def read_chat(raw: Json) -> Usage:
    (event,) = ChatUsageReader().read({"usage": raw})
    assert isinstance(event, UsageReported)
    return event.usage


def test_sglang_counts_reasoning_at_the_top() -> None:
    """Its `UsageInfo`. Hidden reasoning that is not counted as such looks like a call that was lost."""
    raw = {"prompt_tokens": 10, "completion_tokens": 90, "total_tokens": 100, "reasoning_tokens": 80}
    assert read_chat(raw).reasoning_tokens == 80
    tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
    message = {"role": "assistant", "content": "There are three files."}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": raw}
    assert mend_response(body, model="kimi-k2.5", tools=tools).body == body


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, (None, None, None)),
        # Moonshot
        ({"cached_tokens": 256, "cache_write_tokens": 512}, (256, 512, None)),
        # OpenAI, OpenRouter
        ({"prompt_tokens_details": {"cached_tokens": 256, "cache_write_tokens": 512}}, (256, 512, None)),
        # DeepSeek
        ({"prompt_cache_hit_tokens": 256, "prompt_cache_miss_tokens": 744}, (256, None, None)),
        # LiteLLM
        (
            {
                "cache_creation_input_tokens": 512,
                "cache_read_input_tokens": 256,
                "prompt_tokens_details": {
                    "cached_tokens": 256,
                    "cache_creation_tokens": 512,
                    "cache_creation_token_details": {
                        "ephemeral_5m_input_tokens": 112,
                        "ephemeral_1h_input_tokens": 400,
                    },
                },
            },
            (256, 512, 400),
        ),
        # a relay of Claude
        (
            {"cache_creation_input_tokens": 512, "cache_creation": {"ephemeral_1h_input_tokens": 512}},
            (None, 512, 512),
        ),
        # impossible values, and values in the wrong shape
        ({"prompt_tokens_details": [1], "cached_tokens": -1, "cache_creation": 3}, (None, None, None)),
        ({"prompt_tokens_details": {"cache_write_tokens": True}, "cache_write_tokens": 3}, (None, 3, None)),
    ],
)
def test_a_chat_host_may_report_them_anywhere(fields: Json, counts: tuple[int | None, ...]) -> None:
    usage = read_chat(BASE | fields)
    assert (usage.cached_tokens, usage.cache_write_tokens, usage.cache_write_1h_tokens) == counts
    assert (usage.input_tokens, usage.output_tokens) == (1000, 10)


def test_a_second_report_that_says_more_is_not_a_copy() -> None:
    reader = ChatUsageReader()
    assert len(reader.read({"choices": [{"usage": BASE}]})) == 2
    more = BASE | {"prompt_tokens_details": {"cache_write_tokens": 512}}
    (event,) = reader.read({"choices": [], "usage": more})
    assert isinstance(event, UsageReported)
    assert event.usage.cache_write_tokens == 512
    assert reader.read({"choices": [{"usage": BASE}]}) == []


@pytest.mark.parametrize(
    ("raw", "counts"),
    [
        ({"input_tokens": 10}, (10, None, None, None)),
        ({"input_tokens": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 6}, (20, 4, 6, None)),
        (
            {
                "input_tokens": 10,
                "cache_creation_input_tokens": 6,
                "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 4},
            },
            (16, None, 6, 4),
        ),
        ({"input_tokens": 10, "cache_creation": {"ephemeral_5m_input_tokens": 2}}, (12, None, 2, None)),
        ({"input_tokens": 10, "cache_creation": None, "cache_creation_input_tokens": "6"}, (10, None, None, None)),
    ],
)
def test_a_messages_host_counts_them_apart_from_the_input(raw: Json, counts: tuple[int | None, ...]) -> None:
    usage = UsageReader().read(raw)
    assert usage is not None
    assert (
        usage.input_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
    ) == counts


def test_the_end_of_a_messages_stream_completes_its_start() -> None:
    reader = UsageReader()
    reader.read(
        {"input_tokens": 10, "cache_creation_input_tokens": 6, "cache_creation": {"ephemeral_1h_input_tokens": 6}}
    )
    usage = reader.read({"output_tokens": 5, "cache_creation_input_tokens": 0})
    assert usage is not None
    assert usage == Usage(16, 5, raw=usage.raw, cache_write_tokens=6, cache_write_1h_tokens=6)


def test_counts_stay_where_they_are_and_are_added_where_openais_clients_look() -> None:
    told = BASE | {"cached_tokens": 1, "cache_write_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1, "x": 3}}
    details = {"cached_tokens": 1, "x": 3, "cache_write_tokens": 2}
    assert with_cache_counts(told) == told | {"prompt_tokens_details": details}
    for same in (BASE, with_cache_counts(told), BASE | {"cache_write_tokens": "2"}, None, 3):
        assert with_cache_counts(same) is same


@pytest.mark.parametrize(
    ("ttl", "usage", "hourly"),
    [
        ("1h", Usage(10, 1, cache_write_tokens=4), 4),
        ("5m", Usage(10, 1, cache_write_tokens=4), 0),
        (None, Usage(10, 1, cache_write_tokens=4), None),
        ("1h", Usage(10, 1), None),
        ("1h", Usage(10, 1, cache_write_tokens=4, cache_write_1h_tokens=2), 2),
    ],
)
def test_the_request_decides_the_lifetime_that_the_host_does_not_report(
    ttl: str | None, usage: Usage, hourly: int | None
) -> None:
    total = UsageTotal(ttl)
    total.add(usage)
    assert total.total is not None
    assert total.total.cache_write_1h_tokens == hourly


def test_after_a_retry_the_client_sees_the_input_of_one_request() -> None:
    total = UsageTotal("5m")
    total.add(Usage(100, 5, cached_tokens=40, cache_write_tokens=60))
    total.start_retry()
    total.add(Usage(100, 7, cached_tokens=90, cache_write_tokens=10))
    assert total.total == Usage(100, 12, cached_tokens=90, cache_write_tokens=10, cache_write_1h_tokens=0)


def test_the_configuration_can_ask_for_an_hour() -> None:
    body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}]}
    extra = {"prompt_cache_options": {"ttl": "1h"}}
    prepared = prepare_request(body, host="moonshot", extra_body=extra)
    assert prepared.body["prompt_cache_options"] == {"ttl": "1h"}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    usage = BASE | {"prompt_tokens_details": {"cache_write_tokens": 512}}
    mended = mend_response({"choices": [choice], "usage": usage}, plan=prepared.plan)
    assert mended.usage is not None
    assert mended.usage.cache_write_1h_tokens == 512
