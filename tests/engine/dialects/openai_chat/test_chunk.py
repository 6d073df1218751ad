"""What every Chat chunk has in common: when it is empty, and how an error is written and read."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.dialects.openai_chat.chunk import error_chunk, is_empty_chunk, is_empty_delta
from moonshim.engine.dialects.openai_chat.decode import host_error
from moonshim.engine.values.events import Failed
from tests.support.streams import chunk

FAILED = Failed("overloaded", "Try again.")


@pytest.mark.parametrize(
    ("delta", "is_empty"),
    [
        ({}, True),
        ({"role": "assistant"}, True),
        ({"content": "", "reasoning": None, "tool_calls": []}, True),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "", "index": 0}]}, True),
        ({"content": "a"}, False),
        ({"invented_tomorrow": 0}, False),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "a"}]}, False),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "", "signature": "s"}]}, False),
    ],
)
def test_a_delta_of_nothing_but_the_role_is_empty(delta: dict[str, Any], is_empty: bool) -> None:
    assert is_empty_delta(delta) is is_empty
    assert is_empty_chunk(chunk(delta, usage=None)) is is_empty


@pytest.mark.parametrize("one", [chunk({}, "stop"), chunk({}, usage={"total_tokens": 1}), chunk({}, invented=1)])
def test_a_chunk_with_anything_else_is_not_empty(one: dict[str, Any]) -> None:
    assert not is_empty_chunk(one)


def test_an_error_has_the_shape_that_openai_clients_raise() -> None:
    error = error_chunk(FAILED)["error"]
    assert (error["message"], error["code"], error["retryable"]) == ("Try again.", "overloaded", True)
    assert {"type", "param"} <= error.keys()
    assert "choice" not in error
    assert error_chunk(FAILED, {"index": 2})["error"]["choice"] == 2
    assert error_chunk(FAILED, {})["error"]["choice"] == 0


def test_an_error_that_was_written_is_read_as_it_was() -> None:
    assert host_error(error_chunk(FAILED, {"index": 0})["error"]) == FAILED


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        ({"message": "No.", "code": "overloaded"}, Failed("overloaded", "No.")),
        ({"message": "No.", "type": "server_error", "code": None}, Failed("server_error", "No.")),
        ({"message": "No.", "code": 429}, Failed("429", "No.")),
        ({"message": "No."}, Failed("upstream_error", "No.")),
        ({"code": "overloaded"}, Failed("overloaded", "overloaded")),
        ({"message": "No.", "retryable": False}, Failed("upstream_error", "No.", retryable=False)),
        ("It broke.", Failed("upstream_error", "It broke.")),
        (True, Failed("upstream_error", "True")),
    ],
)
def test_the_error_that_a_host_reports(error: Any, failed: Failed) -> None:
    assert host_error(error) == failed
