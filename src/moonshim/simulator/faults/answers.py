"""Answers that are not what the request demands: JSON in a fence, prose, a wrong value, no call though one is forced.

They act only where a request demands a schema or a call. Those with `-first` end when the model is asked again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from moonshim.engine.tokens import estimate_text
from moonshim.engine.wire.json_codec import decode_object
from moonshim.simulator.fault import Fault, Speech
from moonshim.simulator.model.demands import demanded_schema, demanded_tool, was_corrected
from moonshim.simulator.response import HostResponse

__all__ = ["FAULTS"]

_PROSE: Final = "Certainly! The answer to your question is a long story, which I tell in words."
_RATHER: Final = "I would rather answer in words than call a tool."


def _change_json(change: Callable[[str], str]) -> Speech:
    """Another text for an answer that should be JSON."""

    def speech(answer: HostResponse) -> HostResponse:
        if answer.calls or demanded_schema(answer.request) is None:
            return answer
        return replace(answer, text=change(answer.text))

    return speech


def _ignore_choice(*, first: bool) -> Speech:
    def speech(answer: HostResponse) -> HostResponse:
        request = answer.request
        is_named = isinstance(request.body.get("tool_choice"), dict)  # K3 ignores the name, and the model may not
        is_free = demanded_tool(request) in ("auto", "none") and not is_named
        if is_free or (first and was_corrected(request)):
            return answer
        if not answer.calls:
            return answer
        # The model writes no call, so none is charged.
        counted = replace(answer.tally, completion=answer.tally.reasoning + estimate_text(_RATHER))
        return replace(answer, text=_RATHER, calls=(), finish="stop", tally=counted)

    return speech


def _tell(text: str) -> str:
    return _PROSE


def _fence(text: str) -> str:
    return f"```json\n{text}\n```"


def _wrap(text: str) -> str:
    return f"Here is the JSON that you asked for:\n\n{_fence(text)}\n\nLet me know if you need anything else."


def _spoil(text: str) -> str:
    """Valid JSON that does not match: the first property is missing, and there is one that nobody asked for."""
    value = decode_object(text.encode("utf-8", "replace")) or {}
    kept = dict(list(value.items())[1:])
    return json.dumps({**kept, "note_to_the_reader": "one property is missing"}, ensure_ascii=False)


def _row(name: str, about: str, seen: str, speech: Speech) -> Fault:
    return Fault(name=name, group="answers", about=about, seen=seen, speech=speech, lost=True)


FAULTS: Final = (
    _row(
        "json-in-fence",
        "An answer that should be JSON is JSON in a code block",
        "platform.kimi.ai (JSON mode guide)",
        _change_json(_fence),
    ),
    _row(
        "json-in-prose",
        "An answer that should be JSON has sentences and a code block around it",
        "platform.kimi.ai (JSON mode guide)",
        _change_json(_wrap),
    ),
    _row(
        "json-prose",
        "An answer that should be JSON is prose",
        "hosts that ignore `response_format`",
        _change_json(_tell),
    ),
    _row(
        "json-wrong",
        "An answer does not match the schema that was asked for",
        "console.groq.com/docs/structured-outputs (best-effort mode)",
        _change_json(_spoil),
    ),
    _row(
        "choice-ignored-first",
        "A forced tool is not called, until the model is asked again",
        "KVV test_tool_choice, lobehub#17729",
        _ignore_choice(first=True),
    ),
    _row(
        "choice-ignored",
        "A forced tool is never called",
        "KVV test_tool_choice, lobehub#17729",
        _ignore_choice(first=False),
    ),
)
