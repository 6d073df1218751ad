"""Responses -> the history that later requests refer to by id: stored in the client itself.

Kimi hosts speak Chat and store nothing, so `previous_response_id` is resolved before a request is sent. Each response
is stored with what its own request added and the id of the one before it.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from moonshim.engine.dialects.openai_responses import completed_items, continue_conversation
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
    """The responses of the clients that share a memory, each found only with the key that requested it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def resolve(self, space: str, body: Json) -> Json:
        """The body with its history in place. Raises `Refused`, in the words of OpenAI's API, if the history is
        gone."""
        previous = body.get(_PREVIOUS)
        if not isinstance(previous, str):
            return body
        turns: list[list[Json]] = []
        name: str | None = previous
        while name is not None:
            stored = self._memory.get(f"{space}:{name}").get("")
            if stored is None or len(turns) >= LONGEST_CHAIN:
                message = f"Previous response with id '{previous[:100]}' not found."
                code = "previous_response_not_found"
                raise Refused(Problem(status=400, kind="invalid_request", message=message, param=_PREVIOUS, code=code))
            turn = _TURN.decode(stored)
            turns.append(turn.items)
            name = turn.before
        return continue_conversation(body, [item for items in reversed(turns) for item in items])

    def keep(self, space: str, body: Json, response: Json) -> None:
        """Store the response to a body as its client sent it, unless the client asked not to."""
        id, output = response.get("id"), response.get("output")
        if body.get("store") is False or not isinstance(id, str) or not isinstance(output, list):
            return
        given = body.get("input")
        own = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
        turn = _Turn([*(own if isinstance(own, list) else ()), *completed_items(output)], body.get(_PREVIOUS))
        try:
            self._memory.put(f"{space}:{id}", "", msgspec.json.encode(turn))
        except UnicodeEncodeError:
            return  # A lone surrogate: the response is sent, but cannot be continued.
