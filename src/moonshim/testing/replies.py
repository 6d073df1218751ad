"""A list of responses -> a model for the simulator that gives them, one for each round of a conversation."""

from __future__ import annotations

from moonshim.errors import InvalidInput
from moonshim.simulator.request import SimRequest
from moonshim.simulator.response import IntendedResponse

__all__ = ["Replies"]


class Replies:
    """Answers the first round of every user message with the first response, the second round with the second, …

    A round is one request of the loop in which an agent runs tools and sends their results. It is counted in the
    request, not in the model, so a retry gets the same response, and conversations do not disturb each other.
    """

    def __init__(self, *responses: IntendedResponse) -> None:
        if not responses:
            raise InvalidInput("Replies needs at least one response", field="responses")
        self._responses = responses

    def reply(self, request: SimRequest, /) -> IntendedResponse:
        """The response for the round of this request; a round too many is an error (500) that says so."""
        if request.round > len(self._responses):
            raise InvalidInput(f"round {request.round} was not expected: there are {len(self._responses)} replies")
        return self._responses[request.round - 1]
