"""Shorthand for the tests of scripted models: a conversation with tools that answer, until the model does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from moonshim.simulator.model.scenario_file import load_scenario
from moonshim.simulator.model.scripted import ScriptedModel
from moonshim.simulator.request import OfferedTool, SimCall, SimRequest, SimResult, SimTurn
from moonshim.simulator.response import IntendedCall, IntendedResponse, Model

WEATHER = OfferedTool(
    "get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)
HELLO = SimTurn(role="user", text="Hello there")


def asked(*turns: SimTurn, tools: Sequence[OfferedTool] = (WEATHER,), **fields: Any) -> SimRequest:
    given: dict[str, Any] = {"wire": "openai_chat", "model": "kimi-k2.5", "generation": "k2.5"} | fields
    return SimRequest(turns=turns or (HELLO,), tools=tuple(tools), **given)


def scripted(name: str) -> ScriptedModel:
    return ScriptedModel(load_scenario(name))


def returned(intended: IntendedResponse, work: Callable[[IntendedCall], str], number: int = 0) -> list[SimTurn]:
    """An answer as a client sends it back, and a result for each of its calls; `!` before a text: the tool failed."""
    calls = [SimCall(f"c{number}.{at}", call.name, call.arguments) for at, call in enumerate(intended.calls)]
    turns = [SimTurn(role="assistant", text=intended.text, reasoning=intended.reasoning, calls=tuple(calls))]
    for call, made in zip(calls, intended.calls, strict=True):
        text = work(made)
        result = SimResult(call.id, call.name, text.removeprefix("!"), is_error=text.startswith("!"))
        turns.append(SimTurn(role="tool", results=(result,)))
    return turns


def converse(
    model: Model,
    *turns: SimTurn,
    tools: Sequence[OfferedTool] = (WEATHER,),
    work: Callable[[IntendedCall], str] | None = None,
    **fields: Any,
) -> tuple[list[IntendedResponse], list[str]]:
    """Every answer up to the last, which calls nothing; and everything that the tools returned."""
    history = list(turns or (HELLO,))
    numbers = count(1)
    works = work or (lambda call: f"result {next(numbers)} of {call.name}")
    answers: list[IntendedResponse] = []
    results: list[str] = []
    while len(answers) < 30:
        intended = model.reply(asked(*history, tools=tools, **fields))
        answers.append(intended)
        if not intended.calls:
            return answers, results
        new = returned(intended, works, len(answers))
        history += new
        results += [result.text for turn in new for result in turn.results]
    raise AssertionError("it never ends")
