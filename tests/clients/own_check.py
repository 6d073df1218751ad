"""Claude Code's own check of tool calls in auto mode -> what a model answers.

Stage 1 allows few tokens for a severity or a verdict. Stage 2, for what stage 1 did not let pass, wants a thought too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from moonshim.simulator import IntendedResponse, SimRequest
from moonshim.simulator.http.recorded import RecordedRequest

__all__ = ["DANGEROUS", "SUSPICIOUS", "stages_of", "verdict"]

SUSPICIOUS, DANGEROUS = "git init", "rmtree"
"""What a command contains that stage 1 does not let pass, and neither stage does."""
_FIRST: Final = ("</severity>", "</block>")


def verdict(request: SimRequest) -> IntendedResponse | None:
    """The model's answer if the client asks whether a call may run; None for any other request."""
    stage = _stage(request.body)
    if stage is None:
        return None
    action = request.words.rpartition("</transcript>")[0].rstrip().rpartition("\n")[2]
    severe = DANGEROUS in action or (stage == 1 and SUSPICIOUS in action)
    asks_severity = "</severity>" in _stops(request.body) if stage == 1 else "<block>" not in request.words
    text = f"<severity>{80 if severe else 3}</severity>" if asks_severity else f"<block>{_yes(severe)}</block>"
    if severe and stage == 2:
        text += (
            "<category>Irreversible Local Destruction</category><reason>[Irreversible Local Destruction] no</reason>"
        )
    return IntendedResponse(reasoning="I judge.", text=text if stage == 1 else f"<thinking>Hm.</thinking>{text}")


def stages_of(requests: Sequence[RecordedRequest]) -> list[int]:
    """The stages that the client asked for, in order."""
    return [stage for seen in requests if (stage := _stage(seen.body)) is not None]


def _stage(body: dict[str, Any]) -> int | None:
    if body.get("tools") or "</transcript>" not in str(body.get("messages")):
        return None
    return 1 if any(stop in _FIRST for stop in _stops(body)) else 2


def _stops(body: dict[str, Any]) -> list[str]:
    return body.get("stop") or body.get("stop_sequences") or []


def _yes(severe: bool) -> str:
    return "yes" if severe else "no"
