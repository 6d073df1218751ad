"""Errors in the words that clients of Responses act on."""

from __future__ import annotations

from typing import get_args

import pytest

from moonshim.engine.dialects.openai_responses.errors import render_problem
from moonshim.errors import Problem, ProblemKind


def test_an_overflow_is_told_in_the_words_that_codex_knows() -> None:
    problem = Problem(status=400, kind="context_overflow", message="131072 tokens are too many", code="400")
    error = render_problem(problem)["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["message"].startswith("Your input exceeds the context window of this model")
    assert "131072 tokens are too many" in error["message"]


def test_the_words_are_not_said_twice() -> None:
    said = "Your input exceeds the context window of this model."
    assert render_problem(Problem(status=400, kind="context_overflow", message=said))["error"]["message"] == said


def test_a_rate_limit_says_how_long_to_wait() -> None:
    problem = Problem(status=429, kind="rate_limit", message="Slow down.", code="1302", retry_after=1.5)
    error = render_problem(problem)["error"]
    assert (error["type"], error["code"]) == ("rate_limit_exceeded", "rate_limit_exceeded")
    assert error["message"] == "Slow down. Please try again in 1.5s."


def test_the_field_and_the_hosts_own_code_are_told() -> None:
    problem = Problem(status=400, kind="invalid_request", message="No.", code="x", param="input[0]", request_id="r")
    assert render_problem(problem) == {
        "error": {
            "message": "No.",
            "type": "invalid_request_error",
            "param": "input[0]",
            "code": "x",
            "request_id": "r",
        }
    }


@pytest.mark.parametrize("kind", get_args(ProblemKind))
def test_every_kind_has_its_words(kind: ProblemKind) -> None:
    error = render_problem(Problem(status=500, kind=kind, message="No."))["error"]
    assert error["type"]
    assert "No." in error["message"]
