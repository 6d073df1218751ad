"""A list of responses -> a model for the simulator that gives them, one for each round of a conversation."""

from __future__ import annotations

from moonshim.errors import InvalidInput
from moonshim.simulator.request import SimRequest
from moonshim.simulator.response import IntendedResponse

__all__ = ["Replies"]


class Replies:
    """A model for the simulator with scripted responses: the first round of every user message gets the first response,
    the second round the second, and so on.

    A round is one request of the loop in which an agent runs tools and sends their results. The number of the round is
    derived from the request, so a retry gets the same response, and conversations do not affect each other.
    """

    def __init__(self, *responses: IntendedResponse) -> None:
        """Create the model.

        Args:
            *responses: The responses, one per round.

        Raises:
            InvalidInput: There is no response.
        """
        if not responses:
            raise InvalidInput("Replies needs at least one response", field="responses")
        self._responses = responses

    def reply(self, request: SimRequest, /) -> IntendedResponse:
        """Return the response for the round of this request.

        Raises:
            InvalidInput: There are more rounds than responses. The simulator sends it as an error (500).
        """
        if request.round > len(self._responses):
            raise InvalidInput(f"unexpected round {request.round}: there are {len(self._responses)} replies")
        return self._responses[request.round - 1]
