"""What a host saw of a conversation of eight rounds -> what is wrong with it, in words; nothing, if all is right."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from moonshim.engine.values.conversation import Message, Reasoning, Text, ToolCall, ToolResult
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.http.recorded import RecordedRequest
from moonshim.simulator.request import SimRequest
from tests.agent.eight_rounds import ONCE, ROUNDS

__all__ = ["wrong_at_the_wire", "wrong_in_the_history"]

BREAKING: Final = ONCE - {"pause"}
"""Nobody can mend these."""
SAID_ANYWHERE: Final = frozenset({"think-never-closed", "xtml-think-never-closed", "xtml-reasoning-in-content"})
"""Nothing in these answers tells where the thoughts end."""
ASKED_AGAIN: Final = "stops-after-thinking"
THOUGHT_OTHERWISE: Final = frozenset({"empty-reasoning", "foreign-reasoning"})
"""What was thought is not told."""


Calls: TypeAlias = list[tuple[str, Any]]


def _calls(message: Message) -> Calls:
    return [(part.name, _read(part.arguments)) for part in message.parts if isinstance(part, ToolCall)]


def _read(arguments: str) -> Any:
    """Half a call, which nobody runs, is told to hosts as one without arguments: they take nothing else."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {}


def _text(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _thoughts(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Reasoning))


def _number(question: SimRequest) -> int:
    """Which answer of the conversation is asked for."""
    return 1 + sum(turn.role == "assistant" for turn in question.turns)


class _Told(Struct, frozen=True):
    """One answer of a model: what it meant, and whether the host broke it."""

    text: str
    thoughts: str
    calls: Calls
    faults: tuple[str, ...]


def _told(seen: Sequence[RecordedRequest]) -> dict[int, _Told]:
    """By the number of the answer. Of one that was asked for again, the last."""
    found: dict[int, _Told] = {}
    for one in seen:
        if one.request is not None and one.intended is not None:
            calls = [(call.name, json.loads(call.arguments)) for call in one.intended.calls]
            number, thoughts = _number(one.request), one.intended.reasoning
            if number in found and ASKED_AGAIN in found[number].faults:
                # What was thought in front of an answer that never came has been passed on.
                thoughts = found[number].thoughts + thoughts
            found[number] = _Told(one.intended.text, thoughts, calls, one.faults)
    return found


def wrong_in_the_history(messages: Sequence[Message], seen: Sequence[RecordedRequest]) -> Iterator[str]:
    """It has what the models meant, and what the tools gave."""
    told = _told(seen)
    answers = [message for message in messages if message.role == "assistant"]
    if len(answers) != ROUNDS + 1:
        yield f"{len(answers)} answers"
        return
    errors = {
        part.call_id for message in messages for part in message.parts if isinstance(part, ToolResult) and part.is_error
    }
    for number, answer in enumerate(answers, 1):
        wrong = _wrong_if_broken if set(told[number].faults) & BREAKING else _wrong_answer
        for one in wrong(answer, told[number], errors):
            yield f"answer {number} {one}"
    if not set(told[ROUNDS + 1].faults) & BREAKING:
        given = [part for message in messages for part in message.parts if isinstance(part, ToolResult)]
        texts = ("".join(one.text for one in result.parts if isinstance(one, Text)) for result in given)
        if told[ROUNDS + 1].text != "Done: " + " | ".join(texts):
            yield f"the model did not see what the tools gave, but {told[ROUNDS + 1].text}"


def _wrong_answer(answer: Message, told: _Told, errors: set[str]) -> Iterator[str]:
    if _calls(answer) != told.calls:
        yield f"called {_calls(answer)}, and meant {told.calls}"
    if any(part.id in errors for part in answer.parts if isinstance(part, ToolCall)):
        yield "called what could not be run"
    text, thoughts = _text(answer).strip(), _thoughts(answer).strip()
    if set(told.faults) & SAID_ANYWHERE:
        if told.text not in text + thoughts:
            yield f"said {text!r} and thought {thoughts!r}, and meant {told.text!r}"
        return
    if text != told.text:
        yield f"said {text!r}, and meant {told.text!r}"
    if thoughts != told.thoughts and not set(told.faults) & THOUGHT_OTHERWISE:
        yield f"thought {thoughts!r}, and meant {told.thoughts!r}"


def _wrong_if_broken(answer: Message, told: _Told, errors: set[str]) -> Iterator[str]:
    """Of an answer that was cut off, what is not whole was not run. Of one that was lost, nothing can be said."""
    if any(FAULTS[name].lost for name in told.faults):
        return
    for part in answer.parts:
        if (
            isinstance(part, ToolCall)
            and part.id not in errors
            and (part.name, _read(part.arguments)) not in told.calls
        ):
            yield f"ran {part.name} with {part.arguments}, and meant {told.calls}"


def wrong_at_the_wire(seen: Sequence[RecordedRequest], answers: Sequence[Message], behaviour: str) -> Iterator[str]:
    """Every request has each call, argument and thought of the history before it, under identifiers that fit."""
    before: dict[tuple[str, str], list[Any]] = {}
    for one in seen:
        if one.request is None:
            if not one.faults:
                yield f"request {one.number} was refused: {one.problem}"
            continue
        for wrong in (*_wrong_turns(one.request, answers), *_wrong_ids(one.request, behaviour)):
            yield f"request {one.number} ({one.asked_model}): {wrong}"
        # What was sent once is sent so again: a host that has it in its cache need not read it anew.
        former = before.get((one.wire, one.request.model), [])
        sent = [one.body.get("system"), one.body.get("tools"), *one.body["messages"]]
        if sent[: len(former)] != former:
            yield f"request {one.number} ({one.asked_model}) does not begin as the one before it did"
        before[one.wire, one.request.model] = sent


def _wrong_turns(question: SimRequest, answers: Sequence[Message]) -> Iterator[str]:
    turns = [turn for turn in question.turns if turn.role == "assistant"]
    if len(turns) > len(answers):
        yield f"{len(turns)} answers, of {len(answers)}"
    for turn, answer in zip(turns, answers, strict=False):
        if [(call.name, json.loads(call.arguments)) for call in turn.calls] != _calls(answer):
            yield f"{turn.calls} instead of {_calls(answer)}"
        if turn.text.strip() != _text(answer).strip():
            yield f"said {turn.text!r} instead of {_text(answer)!r}"
        # K2.5 reads no thoughts of messages without calls.
        wanted = bool(turn.calls) and question.family != "other" and question.thinking
        # Chat has one field for what was thought before and after an answer was asked for again.
        thoughts = [part.text.strip() for part in answer.parts if isinstance(part, Reasoning)]
        if wanted and (turn.reasoning or "").strip() not in ("".join(thoughts), "\n".join(thoughts)):
            yield f"thought {turn.reasoning!r} instead of {thoughts!r}"


def _wrong_ids(question: SimRequest, behaviour: str) -> Iterator[str]:
    calls = question.history
    ids = [call.id for call in calls]
    answered = [result.call_id for turn in question.turns for result in turn.results]
    if len(set(ids)) != len(ids):
        yield f"identifiers come twice: {ids}"
    if answered != ids:
        yield f"results of {answered} for calls {ids}"
    if question.family == "k2" and behaviour == "selfhost":
        wanted = [f"functions.{call.name}:{place}" for place, call in enumerate(calls)]
        if ids != wanted:
            yield f"identifiers {ids} instead of {wanted}"
