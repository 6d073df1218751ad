"""Numbers of tokens that cannot be any are not taken for such, whichever dialect they came in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moonshim.engine.dialects.anthropic.usage import UsageReader
from moonshim.engine.dialects.openai_chat.usage import ChatUsageReader
from moonshim.engine.dialects.openai_responses import decode as responses
from moonshim.engine.upstream_events import UsageReported
from moonshim.engine.values.conversation import Usage


def read_chat_usage(payload: dict[str, Any]) -> Usage | None:
    return next((one.usage for one in ChatUsageReader().read(payload) if isinstance(one, UsageReported)), None)


DIALECTS: dict[str, Callable[[Any], Usage | None]] = {
    "openai_chat": lambda count: read_chat_usage(
        {
            "usage": {
                "prompt_tokens": count,
                "completion_tokens": count,
                "prompt_tokens_details": {"cached_tokens": count},
                "completion_tokens_details": {"reasoning_tokens": count},
            }
        }
    ),
    "openai_responses": lambda count: responses.read_usage(
        {
            "usage": {
                "input_tokens": count,
                "output_tokens": count,
                "input_tokens_details": {"cached_tokens": count},
                "output_tokens_details": {"reasoning_tokens": count},
            }
        }
    ),
    "anthropic": lambda count: UsageReader().read(
        {
            "input_tokens": count,
            "output_tokens": count,
            "cache_read_input_tokens": count,
            "output_tokens_details": {"thinking_tokens": count},
        }
    ),
}


def counts(usage: Usage | None) -> set[int | None]:
    assert usage is not None
    return {usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("count", [-1, -(10**30), 2**53 + 1, 10**400, True, 1.5, "12", None])
def test_what_cannot_be_a_number_of_tokens_counts_as_not_told(dialect: str, count: Any) -> None:
    assert counts(DIALECTS[dialect](count)) == {None}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_can_be_one_is_taken(dialect: str) -> None:
    assert counts(DIALECTS[dialect](12)) <= {12, 24}


def test_a_sum_that_cannot_be_one_is_none() -> None:
    usage = UsageReader().read({"input_tokens": 2**53, "cache_read_input_tokens": 2**53})
    assert usage is not None
    assert usage.input_tokens is None
