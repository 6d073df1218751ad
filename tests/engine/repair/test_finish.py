"""The end of an answer: what the host said and what really happened give the reason a client can act on."""

from __future__ import annotations

import pytest

from moonshim.engine.repair.finish import CUT_SHORT, STREAM_ENDED, is_error, resolve_finish
from moonshim.engine.values.events import Failed, Finished

# what the host said, whether there are whole calls -> the reason
REASONS: dict[tuple[str | None, bool], str] = {
    ("stop", False): "stop",
    ("stop", True): "tool_calls",
    (None, False): "stop",
    (None, True): "tool_calls",
    ("tool_calls", True): "tool_calls",
    ("tool_calls", False): "stop",
    ("function_call", True): "tool_calls",
    ("function_call", False): "function_call",
    ("length", False): "length",
    ("length", True): "length",
    ("content_filter", False): "content_filter",
    ("content_filter", True): "content_filter",
    ("eos", False): "stop",
    ("eos_token", False): "stop",
    ("a word of its own", False): "a word of its own",
    ("eos", True): "tool_calls",
}


@pytest.mark.parametrize(("raw", "calls"), REASONS)
def test_the_reason_follows_from_the_calls(raw: str | None, calls: bool) -> None:
    ending = resolve_finish(raw, calls=calls, cut_off=False, enforce=True)
    assert ending == Finished(REASONS[raw, calls], raw)


@pytest.mark.parametrize("raw", ["stop", "tool_calls", "length", "eos"])
@pytest.mark.parametrize("calls", [True, False])
def test_without_the_loop_option_what_the_host_said_stays(raw: str, calls: bool) -> None:
    assert resolve_finish(raw, calls=calls, cut_off=False, enforce=False) == Finished(raw, raw)


@pytest.mark.parametrize(("calls", "reason"), [(True, "tool_calls"), (False, "stop")])
def test_a_reason_that_is_missing_is_made_with_or_without_the_loop_option(calls: bool, reason: str) -> None:
    assert resolve_finish(None, calls=calls, cut_off=False, enforce=False) == Finished(reason, None)


@pytest.mark.parametrize("raw", ["engine_overloaded", "error", "ServerError", "timeout", "aborted", "rate_limit"])
@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize("cut_off", [True, False])
def test_an_error_in_disguise_is_an_error_worth_a_second_try(raw: str, calls: bool, cut_off: bool) -> None:
    ending = resolve_finish(raw, calls=calls, cut_off=cut_off, enforce=True)
    assert isinstance(ending, Failed)
    assert (ending.code, ending.retryable) == (raw, True)
    assert raw in ending.message


@pytest.mark.parametrize("raw", ["stop", "tool_calls", None])
@pytest.mark.parametrize("calls", [True, False])
def test_an_answer_that_broke_off_in_a_call_is_never_tool_calls(raw: str | None, calls: bool) -> None:
    ending = resolve_finish(raw, calls=calls, cut_off=True, enforce=True)
    assert isinstance(ending, Failed)
    assert ending.retryable


@pytest.mark.parametrize("raw", sorted(CUT_SHORT))
def test_where_the_host_stopped_the_model_its_reason_stays_even_within_a_call(raw: str) -> None:
    assert resolve_finish(raw, calls=True, cut_off=True, enforce=True) == Finished(raw, raw)


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("stop", False),
        ("tool_calls", False),
        ("length", False),
        ("content_filter", False),
        (None, False),
        ("", False),
        ("engine_overloaded", True),
        ("ENGINE_OVERLOADED", True),
        ("internal_error", True),
    ],
)
def test_which_reasons_are_errors(reason: str | None, error: bool) -> None:
    assert is_error(reason) is error


def test_a_stream_that_just_ends_can_be_asked_for_again() -> None:
    assert STREAM_ENDED.retryable
    assert STREAM_ENDED.code
    assert STREAM_ENDED.message
