"""A request -> a scenario's response to it: a stateless model that follows a script.

How a `tool_choice` affects a scenario:

    none       an answer in text
    required   a call, even if the scenario would answer, until there is a result; from then on the scenario
               continues, so that a loop ends. A client that offers a tool to answer with (`final_result`) gets
               its answer through that tool.
    a name     that tool, until there is a result
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from json import dumps
from typing import Final

from msgspec import Struct

from moonshim.simulator.model.demands import demanded_schema, demanded_tool
from moonshim.simulator.model.judge import judge
from moonshim.simulator.model.known_tools import KnownFacts, choose, ending_tool
from moonshim.simulator.model.progress import ScenarioProgress, read_progress
from moonshim.simulator.model.scenario import (
    ANY,
    NO_TOOLS,
    PLACES,
    Act,
    PlannedAnswer,
    PlannedCall,
    PlannedRound,
    Scenario,
)
from moonshim.simulator.model.tool_arguments import arguments_for, sample
from moonshim.simulator.request import OfferedTool, SimRequest
from moonshim.simulator.response import IntendedCall, IntendedResponse

__all__ = ["ScriptedModel"]

SHOWN: Final = 500
"""How many characters of the user's message `{user}` repeats."""
TITLE: Final = 60
_PLACE: Final = re.compile(r"\{(" + "|".join(PLACES) + r")\}")
_NOTHING: Final = "(nothing)"


class ScriptedModel(Struct, frozen=True):
    """Plays a scenario. The same request gets the same response."""

    scenario: Scenario

    def reply(self, request: SimRequest) -> IntendedResponse:
        if (verdicts := judge(request)) is not None:
            return IntendedResponse(reasoning="I look at each call." if request.thinking else "", text=verdicts)
        progress = read_progress(request)
        acts = self.scenario.acts
        intended = _Reply(request, progress, acts[min(progress.message, len(acts)) - 1]).intended()
        # With thinking off, the reasoning is sent as text if there is nothing else: a response must not be empty.
        silent = not request.thinking and not intended.text and not intended.calls
        return IntendedResponse(
            reasoning=_sendable(intended.reasoning) if request.thinking else "",
            text=_sendable(intended.reasoning if silent else intended.text),
            calls=tuple(IntendedCall(call.name, _sendable(call.arguments)) for call in intended.calls),
        )


class _Reply:
    """One response."""

    def __init__(self, request: SimRequest, progress: ScenarioProgress, act: Act) -> None:
        self._request = request
        self._progress = progress
        self._act = act
        self._tools = () if request.tool_choice == "none" else request.tools

    def intended(self) -> IntendedResponse:
        planned = self._next_round()
        forced = self._forced_tools()
        if forced is not None and not self._calls_one_of(planned, forced):
            chosen = choose(forced, self._progress.words) or forced[0]
            planned = PlannedRound(think="I have to call a tool.", calls=(PlannedCall(tools=(chosen.name,)),))
        if planned is None:
            return self._answer()
        return IntendedResponse(
            reasoning=self._fill(planned.think), text=self._fill(planned.say), calls=tuple(self._calls(planned))
        )

    # -- rounds ------------------------------------------------------------------------------------------------------

    def _next_round(self) -> PlannedRound | None:
        """The round to play now: earlier rounds are skipped by comparing with what was returned."""
        rounds = (one for planned in self._act.rounds for one in (planned,) * planned.repeat if self._can_play(planned))
        failed = False
        for finished in self._progress.finished:
            next((one for one in rounds if _fits(one, failed)), None)
            failed = finished.failed
        return next((one for one in rounds if _fits(one, failed)), None)

    def _can_play(self, planned: PlannedRound) -> bool:
        return any(self._tool(call) is not None for call in planned.calls)

    def _tool(self, call: PlannedCall) -> OfferedTool | None:
        offered = {tool.name: tool for tool in self._tools}
        for name in call.tools:
            if name == ANY and (chosen := choose(self._tools, self._progress.words)):
                return chosen
            if name in offered:
                return offered[name]
        return None

    def _calls(self, planned: PlannedRound) -> Iterator[IntendedCall]:
        number = self._progress.calls
        for call in planned.calls:
            if (tool := self._tool(call)) is None:
                continue
            for _ in range(call.count):
                number += 1
                yield IntendedCall(tool.name, self._arguments(call, tool, number))

    def _arguments(self, call: PlannedCall, tool: OfferedTool, number: int) -> str:
        if call.arguments is not None:
            return call.arguments
        facts = KnownFacts(f"moonshim-{number}", self._progress.words)
        made = arguments_for(tool, facts, text=call.text, optional=call.optional, number=number)
        return dumps(made, ensure_ascii=False)

    # -- tool_choice
    # -----------------------------------------------------------------------------------------------------

    def _forced_tools(self) -> tuple[OfferedTool, ...] | None:
        """The tools of which one has to be called now."""
        choice = demanded_tool(self._request)
        if choice in ("auto", "none") or not self._tools or any(turn.results for turn in self._request.since):
            return None
        return tuple(tool for tool in self._tools if choice in ("required", tool.name)) or None

    def _calls_one_of(self, planned: PlannedRound | None, tools: Sequence[OfferedTool]) -> bool:
        called = {tool.name for call in planned.calls if (tool := self._tool(call))} if planned else set()
        return bool(called) and called <= {tool.name for tool in tools}

    # -- the answer --------------------------------------------------------------------------------------------------

    def _answer(self) -> IntendedResponse:
        planned, notes = self._planned_answer(), self._notes()
        answer_text = self._fill(planned.say) if self._progress.results or not notes else ""
        text = "\n\n".join(part for part in (answer_text, *notes) if part)
        ending = ending_tool(self._tools) if self._request.tool_choice == "required" else None
        if ending is not None and self._progress.results:
            arguments = dumps(sample(ending.schema, word=text), ensure_ascii=False)
            return IntendedResponse(reasoning=self._fill(planned.think), calls=(IntendedCall(ending.name, arguments),))
        return IntendedResponse(reasoning=self._fill(planned.think), text=_format_as_requested(self._request, text))

    def _planned_answer(self) -> PlannedAnswer:
        if self._progress.results or not self._act.rounds:
            return self._act.answer
        planned = self._act.no_tools
        if planned == NO_TOOLS and _wants_title(self._request):
            return PlannedAnswer(think="", say=_shorten(self._progress.words, TITLE))
        return planned

    def _notes(self) -> list[str]:
        """Notes on tools that a scenario wanted to call and could not."""
        if not self._tools:
            return []
        missing = [call for planned in self._act.rounds for call in planned.calls if self._tool(call) is None]
        named = list(dict.fromkeys(name for call in missing for name in call.tools if name != ANY))
        offered = ", ".join(f"`{tool.name}`" for tool in self._tools)
        if named:
            listed = ", ".join(f"`{name}`" for name in named)
            return [f"The scenario calls {listed}, but the request offers only {offered}."]
        if missing:
            return [f"This is a simulator. It calls none of these tools unless a scenario names them: {offered}."]
        return []

    def _fill(self, text: str) -> str:
        """Fill in all placeholders in one pass: what a tool returned is never expanded again."""
        progress = self._progress
        last = progress.finished[-1].results if progress.finished else ()
        places = {
            "user": _shorten(progress.words, SHOWN),
            "results": _join([one.text for one in progress.results]),
            "result": _join([one.text for one in last]),
            "round": str(len(progress.finished) + 1),
        }
        return _PLACE.sub(lambda found: places[found[1]], text).strip()


def _fits(planned: PlannedRound, failed: bool) -> bool:
    return planned.when == "always" or planned.when == ("error" if failed else "success")


def _join(texts: Sequence[str]) -> str:
    return "\n".join(texts) if any(texts) else _NOTHING if texts else ""


def _shorten(text: str, most: int) -> str:
    """
    >>> _shorten("one two three", 9)
    'one two…'
    """
    return text if len(text) <= most else f"{text[: most - 1].rsplit(' ', 1)[0]}…"


def _wants_title(request: SimRequest) -> bool:
    """Whether an agent asks for the title of a conversation, which should be short."""
    return any("title" in turn.text.lower() for turn in request.turns if turn.role == "system")


def _format_as_requested(request: SimRequest, text: str) -> str:
    """Wrap the text in JSON, if the request demands it."""
    schema = demanded_schema(request)
    return text if schema is None else dumps(sample(schema, word=text), ensure_ascii=False)


def _sendable(text: str) -> str:
    """Replace lone surrogates, which a client may have sent: they cannot be encoded."""
    return text.encode("utf-8", "replace").decode()
