"""Shorthand for the tests of scripted models: a conversation with tools that answer, until the model does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from moonshim.simulator.model.scenario_file import load_scenario
from moonshim.simulator.model.scripted import ScriptedModel
from moonshim.simulator.request import Call, Offered, Question, Result, Turn
from moonshim.simulator.response import Meant, MeantCall, Model

WEATHER = Offered(
    "get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)
HELLO = Turn(role="user", text="Hello there")


def asked(*turns: Turn, tools: Sequence[Offered] = (WEATHER,), **fields: Any) -> Question:
    given: dict[str, Any] = {"wire": "openai_chat", "model": "kimi-k2.5", "generation": "k2.5"} | fields
    return Question(turns=turns or (HELLO,), tools=tuple(tools), **given)


def scripted(name: str) -> ScriptedModel:
    return ScriptedModel(load_scenario(name))


def returned(meant: Meant, work: Callable[[MeantCall], str], number: int = 0) -> list[Turn]:
    """An answer as a client sends it back, and a result for each of its calls; `!` before a text: the tool failed."""
    calls = [Call(f"c{number}.{at}", call.name, call.arguments) for at, call in enumerate(meant.calls)]
    turns = [Turn(role="assistant", text=meant.text, reasoning=meant.reasoning, calls=tuple(calls))]
    for call, made in zip(calls, meant.calls, strict=True):
        text = work(made)
        result = Result(call.id, call.name, text.removeprefix("!"), is_error=text.startswith("!"))
        turns.append(Turn(role="tool", results=(result,)))
    return turns


def converse(
    model: Model,
    *turns: Turn,
    tools: Sequence[Offered] = (WEATHER,),
    work: Callable[[MeantCall], str] | None = None,
    **fields: Any,
) -> tuple[list[Meant], list[str]]:
    """Every answer up to the last, which calls nothing; and everything that the tools returned."""
    said = list(turns or (HELLO,))
    numbers = count(1)
    works = work or (lambda call: f"result {next(numbers)} of {call.name}")
    answers: list[Meant] = []
    results: list[str] = []
    while len(answers) < 30:
        meant = model.reply(asked(*said, tools=tools, **fields))
        answers.append(meant)
        if not meant.calls:
            return answers, results
        new = returned(meant, works, len(answers))
        said += new
        results += [result.text for turn in new for result in turn.results]
    raise AssertionError("it never ends")
