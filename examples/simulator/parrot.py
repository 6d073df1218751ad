"""A custom model for the simulator: it repeats the user's message, and calls any tool that the message asks for.

    moonshim simulate --model examples/simulator/parrot.py:Parrot

"call ls" calls the tool `ls` without arguments; 'call ls {"path": "."}' with these.
"""

from __future__ import annotations

import re

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest

ORDER = re.compile(r"\bcall ([A-Za-z][\w-]*)(?:\s+(\{.*\}))?", re.DOTALL)


class Parrot:
    """Stateless: everything that it needs is in the request."""

    def reply(self, request: SimRequest) -> IntendedResponse:
        returned = [result.text for turn in request.since for result in turn.results]
        if returned:
            return IntendedResponse(reasoning="Squawk, it answered!", text=f"It said: {' / '.join(returned)}")
        order = ORDER.search(request.words)
        if order and order[1] in {tool.name for tool in request.tools}:
            return IntendedResponse(text="Squawk!", calls=(IntendedCall(order[1], order[2] or "{}"),))
        return IntendedResponse(reasoning="I know these words.", text=request.words)
