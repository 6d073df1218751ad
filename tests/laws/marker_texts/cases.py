"""A case (a conversation, a response, what the client must get) -> what is wrong with what it gets, or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import moonshim
from tests.support.exchanges import WHOLE, Conversation, Received, Response, receive, request

SIZES: Final = (1, 3, 17, 1_000_000, WHOLE)
"""Characters in each chunk of a stream; the last is a response that does not stream."""

_SHOWN: Final = 8
"""Failing cases in the message of a test."""


@dataclass(frozen=True)
class Case:
    """One response to one conversation, and what the client must get."""

    number: int
    name: str
    client: str
    host: str
    model: str
    conversation: Conversation
    response: Response
    size: int | None
    calls: tuple[tuple[str, Any], ...] = ()
    finishes: tuple[str, ...] = ("stop",)
    error: Literal["never", "allowed", "must"] = "never"
    text: str | None = None
    """The text that the client must get, None: not compared."""
    reasoning: str | None = None
    spaces_count: bool = True
    """Whether white space in the text is compared."""

    @property
    def title(self) -> str:
        how = "whole" if self.size == WHOLE else f"chunks of {self.size or 'one word'}"
        return (
            f"case {self.number} {self.name}: {self.client} client, {self.model} at {self.host}, {how}, "
            f"host finish {self.response.finish}"
        )


class Runner:
    """Runs cases; cases with the same conversation, one after the other, share a plan."""

    def __init__(self) -> None:
        self._conversation: Conversation | None = None
        self._plans: dict[tuple[str, str, str, bool], moonshim.Plan] = {}

    def receive(self, case: Case) -> Received:
        return receive(case.response, self._plan(case), case.client, case.model, case.size)

    def fault(self, case: Case) -> str | None:
        """What is wrong with what the client gets; None if it is what it must get."""
        return fault(case, self.receive(case))

    def faults(self, cases: Iterable[Case]) -> list[tuple[Case, str]]:
        return [(case, wrong) for case in cases if (wrong := self.fault(case)) is not None]

    def _plan(self, case: Case) -> moonshim.Plan:
        if self._conversation is not case.conversation:
            self._conversation, self._plans = case.conversation, {}
        stream = case.size != WHOLE
        key = (case.client, case.host, case.model, stream)
        if key not in self._plans:
            body = request(case.conversation, case.client, case.model, stream=stream)
            prepared = moonshim.prepare_request(body, dialect=case.client, host=case.host, model=case.model)
            self._plans[key] = prepared.plan
        return self._plans[key]


def fault(case: Case, received: Received) -> str | None:
    if received.calls != list(case.calls):
        if not case.calls:
            return f"a call that is none: {received.calls}"
        return f"calls: {received.calls}, not {list(case.calls)}"
    if received.error is not None:
        return f"an error: {received.error}" if case.error == "never" else None
    if case.error == "must":
        return f"no error: finish {received.finish}"
    for field, expected, found in (
        ("text", case.text, received.text),
        ("reasoning", case.reasoning, received.reasoning),
    ):
        if expected is not None and _comparable(case, expected) != _comparable(case, found):
            return f"{field}: {_difference(_comparable(case, expected), _comparable(case, found))}"
    if received.finish not in case.finishes:
        return f"finish {received.finish}, not {' or '.join(case.finishes)}"
    return None


def _comparable(case: Case, text: str) -> str:
    return text if case.spaces_count else "".join(text.split())


def _difference(expected: str, found: str) -> str:
    at = next(
        (place for place, (one, other) in enumerate(zip(expected, found, strict=False)) if one != other),
        min(len(expected), len(found)),
    )
    return f"from character {at} on it is {found[at : at + 60]!r}, not {expected[at : at + 60]!r}"


def report(faults: Sequence[tuple[Case, str]], total: int, group: str) -> str:
    """The message of a test: how many cases fail, the first of them, and how to see one in full."""
    lines = [f"{len(faults)} of {total} fail"]
    lines += [f"  {case.title}\n    {wrong}" for case, wrong in faults[:_SHOWN]]
    if faults:
        lines.append(f"In full: python -m tests.laws.marker_texts.show {group} {faults[0][0].number}")
    return "\n".join(lines)


def describe(case: Case, runner: Runner) -> str:
    """Everything about a case, for a person who wants to repeat it."""
    received = runner.receive(case)
    rows = {
        "request": request(case.conversation, case.client, case.model),
        "response": [list(part) for part in case.response.parts],
        "received": vars(received),
        "expected": {"calls": case.calls, "finish": case.finishes, "text": case.text, "reasoning": case.reasoning},
    }
    shown = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False, indent=1)}" for name, value in rows.items())
    return f"{case.title}\nfault: {fault(case, received)}\n{shown}\n"
