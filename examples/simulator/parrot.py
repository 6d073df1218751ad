"""A fake model for the simulator: it repeats what it is told, and calls any tool that it is told to call.

    moonshim simulate --model examples/simulator/parrot.py:Parrot

"call ls" calls the tool `ls` without arguments; 'call ls {"path": "."}' with these.
"""

from __future__ import annotations

import re

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest

ORDER = re.compile(r"\bcall ([A-Za-z][\w-]*)(?:\s+(\{.*\}))?", re.DOTALL)


class Parrot:
    """Remembers nothing: everything that it knows is in the question."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        returned = [result.text for turn in question.since for result in turn.results]
        if returned:
            return IntendedResponse(reasoning="Squawk, it answered!", text=f"It said: {' / '.join(returned)}")
        order = ORDER.search(question.words)
        if order and order[1] in {tool.name for tool in question.tools}:
            return IntendedResponse(text="Squawk!", calls=(IntendedCall(order[1], order[2] or "{}"),))
        return IntendedResponse(reasoning="I know these words.", text=question.words)
