"""A request to a safety judge -> the verdicts of a script: what contains a dangerous word is flagged.

A gateway asks a model whether the calls of an agent may run (`[claude_code] judge_model`). The calls are JSON between
two marks with a random code. Scripted models answer such a request by themselves; a model of your own can use `judge`.
"""

from __future__ import annotations

import re
from json import dumps
from typing import Any, Final

from moonshim.engine.wire.json_codec import decode_object
from moonshim.simulator.request import SimRequest

__all__ = ["judge"]

_DATA: Final = re.compile(r"<data ([0-9a-f]+)>\n(.*)\n</data \1>", re.DOTALL)
_DANGEROUS: Final = re.compile(r"\brm -rf\b|\bmkfs\b|\bshutdown\b|\bcurl\b[^\n]*\|\s*\w*sh\b|--force\b|\bsudo\b")


def judge(request: SimRequest, dangerous: re.Pattern[str] = _DANGEROUS) -> str | None:
    """The verdicts about the calls that the request asks about; None: it is no request to a judge."""
    found = None if request.tools else _DATA.fullmatch(request.words.strip())
    data = decode_object(found[2].encode("utf-8", "replace")) if found is not None else None
    calls = data.get("calls") if data is not None else None
    if not isinstance(calls, list):
        return None
    return dumps({"verdicts": [_verdict(call, dangerous) for call in calls if isinstance(call, dict)]})


def _verdict(call: dict[str, Any], dangerous: re.Pattern[str]) -> dict[str, Any]:
    word = dangerous.search(str(call.get("arguments", "")))
    reason = "It looks harmless." if word is None else f"It contains {word[0]!r}."
    return {"id": call.get("id"), "reason": reason, "outcome": "not_flagged" if word is None else "flagged"}
