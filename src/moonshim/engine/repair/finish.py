"""How a response ends: the host's finish reason, and what really came -> the reason a client can act on."""

from __future__ import annotations

import re
from typing import Final

from moonshim.engine.values.events import Failed, Finished

__all__ = [
    "ANSWER_FAILURES",
    "CALL_IN_CONTENT",
    "CALL_LOST",
    "CALL_MISSING",
    "CALL_UNREADABLE",
    "CUT_SHORT",
    "EMPTY_ANSWER",
    "STOPPED",
    "STREAM_ENDED",
    "is_error",
    "resolve_finish",
]

CUT_SHORT: Final = frozenset({"length", "content_filter"})
"""Reasons that stay whatever came before: the host stopped the model."""

STOPPED: Final = frozenset({"eos", "eos_token", "end_turn"})
"""Other words for `stop`, which clients do not know."""

_ERROR: Final = re.compile(
    r"error|overload|abort|fail|timeout|timed_out|cancel|unavailable|rate_limit|quota|insufficient|busy|interrupted|crash",
    re.IGNORECASE,
)

STREAM_ENDED: Final = Failed(
    "stream_ended", "The host ended the stream without finishing its answer. Send the request again."
)
CALL_UNREADABLE: Final = Failed(
    "call_unreadable", "The model called a tool in a form that cannot be read. Send the request again."
)
CALL_MISSING: Final = Failed(
    "call_missing",
    "The finish reason is tool_calls, but there is no tool call. Send the request again.",
)
CALL_IN_CONTENT: Final = Failed(
    "call_in_content",
    "A tool call came as text from a host that reads calls itself, so it may be a quotation. Send the request again.",
)
CALL_LOST: Final = Failed(
    "call_lost",
    "The host charged for more than it sent: a tool call may be missing. Send the request again.",
)
EMPTY_ANSWER: Final = Failed("empty_answer", "The response has neither text nor a tool call. Send the request again.")
_CUT_OFF: Final = Failed(
    "arguments_cut_off",
    "The answer ended in the middle of a tool call's arguments, so the call cannot be run. Send the request again.",
)

_INVALID: Final = Failed(
    "arguments_invalid",
    "The arguments of a tool call are not valid JSON, so the call cannot be run. Send the request again.",
)


ANSWER_FAILURES: Final = frozenset(
    one.code for one in (CALL_UNREADABLE, CALL_MISSING, CALL_IN_CONTENT, CALL_LOST, EMPTY_ANSWER, _CUT_OFF, _INVALID)
)
"""The codes of responses that failed because of what the model wrote, or what a parser made of it."""


def is_error(reason: str | None) -> bool:
    """Whether a finish reason is an error in disguise (`engine_overloaded`)."""
    return reason is not None and reason not in CUT_SHORT and _ERROR.search(reason) is not None


def resolve_finish(
    raw: str | None,
    *,
    calls: bool,
    cut_off: bool,
    enforce: bool,
    invalid: bool = False,
    lost: Failed | None = None,
    expects_call: bool = False,
) -> Finished | Failed:
    """The end of a response with the finish reason `raw`, with or without whole calls, cut off in a call or not.

    `invalid`: the arguments of a call are not JSON. `lost`: a call that cannot be delivered. `expects_call`: tools are
    declared, so a finish reason of `tool_calls` means that there was a call.

    >>> resolve_finish("stop", calls=True, cut_off=False, enforce=True).reason
    'tool_calls'
    >>> resolve_finish("engine_overloaded", calls=False, cut_off=False, enforce=True).code
    'engine_overloaded'
    """
    if raw is not None and is_error(raw):
        return Failed(raw, f"The host broke off its answer: {raw}. Send the request again.")
    if raw in CUT_SHORT:
        return Finished(raw, raw)
    if lost is not None:
        return lost
    if cut_off:
        return _CUT_OFF
    if invalid:
        return _INVALID
    if expects_call and raw == "tool_calls" and not calls:
        return CALL_MISSING
    if not enforce and raw is not None:
        return Finished(raw, raw)
    if calls:
        return Finished("tool_calls", raw)
    if raw is None or raw == "tool_calls" or raw in STOPPED:
        return Finished("stop", raw)
    return Finished(raw, raw)
