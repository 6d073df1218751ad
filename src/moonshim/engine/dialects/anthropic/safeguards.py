"""`safeguards` of a request -> what a judge needs of it; verdicts -> `safeguard_results`.

Claude Code asks for them in its auto mode, and runs a tool only if the result of its call is `not_flagged`. A result
that is missing, or that it cannot read, ends a session without a terminal; so every call has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from moonshim.engine.dialects.anthropic.extras import Json
from moonshim.engine.values.type_names import describe_type
from moonshim.engine.values.verdicts import CallsJudged, Verdict
from moonshim.errors import InvalidInput

__all__ = ["SAFEGUARDS", "Safeguards", "read_safeguards", "write_safeguard_results"]

SAFEGUARDS: Final = "safeguards"
"""The field of the request."""
_TOOL_USE: Final = "dangerous_tool_use"


class Safeguards(Struct, frozen=True):
    """A request asks for a verdict about each call of its response."""

    context: Any = None
    """What the client tells the judge about its session: its mode and its folder."""
    unsupported: tuple[str, ...] = ()
    """Other checks that it asks for."""


def read_safeguards(body: Mapping[str, Any]) -> Safeguards | None:
    """None: the request asks for no check of calls. Raises `InvalidInput` with the field.

    >>> read_safeguards({"safeguards": [{"type": "dangerous_tool_use", "classifier_context": {"v": 1}}]})
    Safeguards(context={'v': 1}, unsupported=())
    """
    listed = body.get(SAFEGUARDS)
    if listed is None:
        return None
    if not isinstance(listed, list):
        raise InvalidInput(f"expected a list, got {describe_type(listed)}", field=SAFEGUARDS)
    asked: Json | None = None
    others: list[str] = []
    for place, entry in enumerate(listed):
        kind = entry.get("type") if isinstance(entry, dict) else None
        if not isinstance(kind, str):
            raise InvalidInput("expected an object with a type", field=f"{SAFEGUARDS}[{place}]")
        if kind == _TOOL_USE:
            asked = asked or entry
        else:
            others.append(kind)
    if asked is None:
        return None
    return Safeguards(asked.get("classifier_context"), tuple(dict.fromkeys(others)))


def write_safeguard_results(judged: CallsJudged, call_ids: Mapping[int, str]) -> list[Json]:
    """`call_ids`: the ids that the client has got, by the index of the call's block."""
    missing = Verdict("flagged", "failed")
    uses = {call_id: _write_verdict(judged.verdicts.get(index, missing)) for index, call_id in call_ids.items()}
    return [
        {"type": _TOOL_USE, "status": {"type": "available", "tool_uses": uses}},
        *({"type": kind, "status": {"type": "unsupported"}} for kind in judged.unsupported),
    ]


def _write_verdict(verdict: Verdict) -> Json:
    result: Json = {"type": "evaluated", "outcome": verdict.outcome}
    return result | {"explanation": verdict.explanation} if verdict.explanation else result
