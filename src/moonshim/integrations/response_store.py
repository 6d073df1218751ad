"""Answers in Responses -> what later requests go on from by their names: kept by the client itself.

Hosts of Kimi speak Chat and keep nothing, so `previous_response_id` is resolved before a request leaves. Each response
is kept with what its own request added and the name of the one before it.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from moonshim.engine.dialects.openai_responses import continued, said_items
from moonshim.errors import Problem, Refused
from moonshim.integrations.memory import Memory

__all__ = ["ResponseHistory"]

Json: TypeAlias = dict[str, Any]

LONGEST_CHAIN: Final = 2000
_PREVIOUS: Final = "previous_response_id"


class _Turn(Struct, frozen=True, array_like=True):
    """What one response added to its conversation."""

    items: list[Json]
    before: str | None


_TURN: Final = msgspec.json.Decoder(_Turn)


class ResponseHistory:
    """The responses of the clients that share a memory, each to be found under the key that asked for it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def resolve(self, space: str, body: Json) -> Json:
        """The body that says everything itself. `Refused`, in the words of OpenAI's API, if what it names is gone."""
        previous = body.get(_PREVIOUS)
        if not isinstance(previous, str):
            return body
        turns: list[list[Json]] = []
        name: str | None = previous
        while name is not None:
            kept = self._memory.get(f"{space}:{name}").get("")
            if kept is None or len(turns) >= LONGEST_CHAIN:
                message = f"Previous response with id '{previous[:100]}' not found."
                code = "previous_response_not_found"
                raise Refused(Problem(status=400, kind="invalid_request", message=message, param=_PREVIOUS, code=code))
            turn = _TURN.decode(kept)
            turns.append(turn.items)
            name = turn.before
        return continued(body, [item for items in reversed(turns) for item in items])

    def keep(self, space: str, body: Json, response: Json) -> None:
        """Keep the answer to a body as its client sent it, unless that wants nothing kept."""
        id, output = response.get("id"), response.get("output")
        if body.get("store") is False or not isinstance(id, str) or not isinstance(output, list):
            return
        given = body.get("input")
        own = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
        turn = _Turn([*(own if isinstance(own, list) else ()), *said_items(output)], body.get(_PREVIOUS))
        try:
            self._memory.put(f"{space}:{id}", "", msgspec.json.encode(turn))
        except UnicodeEncodeError:
            return  # Half a character: the answer is given, and cannot be gone on from.
