"""The model of the matrix: five rounds of calls whose arguments are easily damaged, then everything the tools gave."""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from moonshim.simulator.request import SimRequest
from moonshim.simulator.response import IntendedCall, IntendedResponse

__all__ = ["ROUNDS", "SWITCHED", "TOOLS", "Steps", "given"]

ROUNDS: Final = 5
SWITCHED: Final = 3
"""In this round another model answers, which is no Kimi."""

_STRING: Final = {"type": "string"}
TOOLS: Final[dict[str, Any]] = {
    "look": {
        "type": "object",
        "properties": {"at": {"type": "integer"}},
        "required": ["at"],
        "additionalProperties": False,
    },
    "read_file": {
        "type": "object",
        "properties": {"path": _STRING},
        "required": ["path"],
        "additionalProperties": False,
    },
    "plan": {
        "type": "object",
        "properties": {
            "todos": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"title": _STRING, "done": {"type": "boolean"}},
                    "required": ["title", "done"],
                    "additionalProperties": False,
                },
            },
            "note": _STRING,
        },
        "required": ["todos", "note"],
        "additionalProperties": False,
    },
}

_CALLS: Final[dict[int, tuple[tuple[str, str], ...]]] = {
    1: (("look", '{"at": 1}'), ("read_file", '{"path": "/ä/\\u00e4 1"}')),
    2: (
        (
            "plan",
            (
                '{"todos":[{"title":"a \\"b\\" {c}","done":false},{"title":"北京 🌙","done":true}],'
                '"note":"line 1\\nline 2"}'
            ),
        ),
    ),
    3: (("look", '{"at": 3}'), ("look", '{"at": 33}')),
    4: (("read_file", '{"path":"/tmp/x,]}"}'), ("look", '{"at":4}'), ("read_file", '{"path": "C:\\\\new"}')),
    5: (("plan", '{"todos": [], "note": "</done> & so on"}'), ("look", '{"at": -5}')),
}


def given(name: str, arguments: Any) -> str:
    """What a tool of the client gives: another text for every call, and a short one, as all come again in the end.

    >>> given("look", {"at": 1})
    'look-d8bc'
    """
    return f"{name}-{zlib.crc32(json.dumps([name, arguments], sort_keys=True).encode()) & 0xFFFF:04x}"


class Steps:
    """Thinks, speaks and calls in each round."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        number = question.round
        reasoning = f"Thought {number}, with <tags> & 北京." if question.thinking else ""
        if number <= ROUNDS:
            calls = tuple(IntendedCall(name, arguments) for name, arguments in _CALLS[number])
            return IntendedResponse(reasoning=reasoning, text=f"Step {number}.", calls=calls)
        results = " | ".join(result.text for turn in question.since for result in turn.results)
        return IntendedResponse(reasoning=reasoning, text=f"Done: {results}")
