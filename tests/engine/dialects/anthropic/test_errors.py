"""Problems in the words of Messages."""

from __future__ import annotations

from typing import Any, Final, get_args

import pytest

from moonshim.engine.dialects.anthropic.errors import ThreadUnsupported, render_failed, render_problem
from moonshim.engine.values.events import Failed
from moonshim.errors import Problem, ProblemKind, problem_of

OVERFLOWS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "both numbers": ({"message": "x", "tokens": 300_000, "limit": 262_144}, "300000 tokens > 262144 maximum"),
    "both in the words of the host": (
        {"message": "This model's maximum context length is 131072 tokens. However, you requested 150000 tokens"},
        "150000 tokens > 131072 maximum",
    ),
    "only the limit": ({"message": "exceeded model token limit: 262144"}, "262145 tokens > 262144 maximum"),
    "no number": ({"message": "the context is full"}, "the context is full"),
    "the very phrase": ({"message": "prompt is too long: 2 tokens > 1 maximum"}, "2 tokens > 1 maximum"),
}


@pytest.mark.parametrize(("fields", "expected"), OVERFLOWS.values(), ids=OVERFLOWS.keys())
def test_an_overflow_reads_as_claude_code_knows_it(fields: dict[str, Any], expected: str) -> None:
    body = render_problem(Problem(status=400, kind="context_overflow", **fields))
    assert body["error"] == {"type": "invalid_request_error", "message": f"prompt is too long: {expected}"}


def test_a_thread_is_refused_in_the_words_that_make_the_official_client_send_everything() -> None:
    body = render_problem(problem_of(ThreadUnsupported("no threads", field="thread")))
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


@pytest.mark.parametrize("kind", get_args(ProblemKind))
def test_every_kind_has_a_type(kind: ProblemKind) -> None:
    body = render_problem(Problem(status=500, kind=kind, message="m", request_id="req_1"))
    assert (body["type"], body["request_id"]) == ("error", "req_1")
    assert body["error"]["type"].endswith(("_error", "request_too_large"))


def test_the_field_is_named_in_the_message() -> None:
    problem = Problem(status=400, kind="invalid_request", message="needs content", param="messages[3].content")
    assert render_problem(problem)["error"]["message"] == "messages[3].content: needs content"
    assert "request_id" not in render_problem(problem)


FAILURES: Final[dict[str, tuple[Failed, str]]] = {
    "a type that Messages knows": (Failed("overloaded_error", "m"), "overloaded_error"),
    "Moonshot's overload": (Failed("engine_overloaded", "m"), "overloaded_error"),
    "a stream that broke off": (Failed("stream_ended", "m"), "api_error"),
    "no money": (Failed("insufficient_quota", "m", False), "billing_error"),
    "something that will not get better": (Failed("odd", "m", False), "invalid_request_error"),
}


@pytest.mark.parametrize(("failed", "kind"), FAILURES.values(), ids=FAILURES.keys())
def test_a_broken_answer_has_a_type_that_clients_act_on(failed: Failed, kind: str) -> None:
    assert render_failed(failed) == {"type": "error", "error": {"type": kind, "message": "m"}}
