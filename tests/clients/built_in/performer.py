"""A model that uses each of the tools it was given for, once, and then says every word and page that it has read."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest
from moonshim.simulator.model.demands import demanded_schema

__all__ = ["COUNT", "PAGE", "Performer"]

PAGE: Final = "https://found.example/page"
COUNT: Final = 3
_WORD: Final = re.compile(r"word-[0-9a-f]{12}")


class Performer:
    """`calls`: parts at the end of tool names, since clients put the name of a server before them, and arguments."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self._calls = calls

    def reply(self, request: SimRequest) -> IntendedResponse:
        said = [turn.text for turn in request.turns]
        said += [result.text for turn in request.turns for result in turn.results]
        text = "\n".join(said)
        words = list(dict.fromkeys(_WORD.findall(text)))
        called = {call.name for call in request.history}
        for ending, arguments in self._calls:
            name = next((tool.name for tool in request.tools if tool.name.endswith(ending)), None)
            if name is not None and name not in called:
                call = IntendedCall(name, msgspec.json.encode(arguments).decode())
                return IntendedResponse(reasoning="I use the tool.", text="Let me look.", calls=(call,))
        if demanded_schema(request) is not None:
            answer = msgspec.json.encode({"word": words[0], "count": COUNT}).decode()
            return IntendedResponse(reasoning="As JSON.", text=answer)
        source = f" ([a page]({PAGE}))" if PAGE in text else ""
        return IntendedResponse(reasoning="Now I know.", text=f"I read: {', '.join(words) or 'nothing'}{source}.")
