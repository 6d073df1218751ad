"""One cell of the matrix -> the conversation, through Moonshim or straight at the host, and what is wrong with it."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from anthropic import APIError as AnthropicError
from msgspec import Struct
from openai import APIError as OpenAIError
from openai import LengthFinishReasonError

from tests.matrix.steps import ROUNDS, SWITCHED, TOOLS, given
from tests.support.gateway.official_clients import Answered, Conversation, Packages, Result
from tests.support.playing import Call

__all__ = ["Talk", "conversation", "is_from_the_package", "problems_of", "talk", "was_cut_off"]

_MARKERS: Final = re.compile(r"<\|(?:tool_call|open|close|sep|end_of_msg|im_)|</?think>")
_RAISED: Final = (OpenAIError, AnthropicError, LengthFinishReasonError)
_NO_END: Final = "Didn't receive a `response.completed` event."
"""What the openai package's helper says of a response that failed."""
_CUT_OFF: Final = ("length", "max_tokens", "max_output_tokens")
"""How an answer ends that was too long: an agent runs nothing of it."""


class HostFailed(OpenAIError):
    """A response that says itself that it failed: its package raises nothing."""

    def __init__(self) -> None:
        Exception.__init__(self, "the response failed")


class Talk(Struct, frozen=True):
    """What the user of a package has when the conversation is over, and the error that ended it, if one did."""

    answers: list[Answered]
    error: Exception | None
    sent: list[Any]
    """The history, as the client kept it."""


def is_from_the_package(error: Exception) -> bool:
    """Whether its users can know it: what hosts tell, and nothing that the package stumbled over."""
    return isinstance(error, _RAISED) or str(error) == _NO_END


def conversation(packages: Packages, client: str, model: str, way: str) -> Conversation:
    return packages.conversation(client, model, way=way, tools=TOOLS, drops=client == "openai_chat")


async def talk(one: Conversation, model: str, other: str | None) -> Talk:
    """The loop of an agent: `other` answers in the middle, if there is one."""
    one.ask("What is there?")
    answers: list[Answered] = []
    try:
        while len(answers) <= ROUNDS:
            one.model = other if other is not None and len(answers) + 1 == SWITCHED else model
            answer = await one.turn()
            if answer.reason == "failed":  # how Responses end that went wrong
                return Talk(answers, HostFailed(), one.history)
            answers.append(answer)
            if answer.reason in _CUT_OFF or not answer.calls:
                break
            one.give([(call, Result(_tool(call))) for call in answer.calls])
    except Exception as error:  # a package that cannot read a stream raises whatever it stumbles over
        return Talk(answers, error, one.history)
    return Talk(answers, None, one.history)


def _tool(call: Call) -> str:
    try:
        return given(call.name, json.loads(call.arguments))
    except ValueError:
        return f"{call.name} cannot read its arguments"


def was_cut_off(answer: Answered) -> bool:
    """Whether the client was told that the answer is not whole: what there is of a call is not to be run."""
    return answer.reason in _CUT_OFF


def problems_of(said: Talk, intended: list[Any], *, exact: bool, anywhere: bool = False) -> list[str]:
    """Everything that a user would notice.

    `exact`: arguments have to be the same, byte for byte. `anywhere`: nothing tells what was said from what was
    thought, and it may be in either channel.
    """
    found: list[str] = []
    if said.error is not None:
        found.append(f"{type(said.error).__name__}: {str(said.error)[:200]}")
    if len(said.answers) != ROUNDS + 1:
        found.append(f"expected {ROUNDS + 1} answers, got {len(said.answers)}")
    ids: list[str] = []
    for number, (answer, wanted) in enumerate(zip(said.answers, intended, strict=False), 1):
        found += [f"answer {number}: {problem}" for problem in _differs(answer, wanted, exact=exact, anywhere=anywhere)]
        ids += [call.id for call in answer.calls]
    if len(set(ids)) != len(ids) or not all(ids):
        found.append(f"duplicate or missing ids: {ids}")
    if not found:
        results = [given(call.name, json.loads(call.arguments)) for wanted in intended for call in wanted.calls]
        last = said.answers[-1].text
        found += [f"the last answer does not contain {result}" for result in results if result not in last]
    return found


def _differs(answer: Answered, wanted: Any, *, exact: bool, anywhere: bool) -> list[str]:
    found = []
    calls = [(call.name, call.arguments) for call in answer.calls]
    right = [(call.name, call.arguments) for call in wanted.calls]
    if [name for name, _ in calls] != [name for name, _ in right]:
        return [f"calls: expected {right}, got {calls}; text: {answer.text[:200]!r}"]
    for (name, arguments), (_, intended) in zip(calls, right, strict=True):
        if exact and arguments != intended:
            found.append(f"arguments of {name}: expected {intended}, got {arguments}")
        elif _value(arguments) != json.loads(intended):
            found.append(f"arguments of {name}: expected exactly {intended}, got {arguments}")
    for channel, text in (("text", answer.text), ("reasoning", answer.reasoning)):
        if _MARKERS.search(text):
            found.append(f"markers in the {channel}: {text[:300]!r}")
    said = answer.text + answer.reasoning if anywhere else answer.text
    if wanted.text not in said:
        found.append(f"text: expected {wanted.text[:300]!r}, got {answer.text[:300]!r}")
    if _MARKERS.search(json.dumps(calls)) and not _MARKERS.search(json.dumps(right)):
        found.append(f"markers in the calls: {calls}")
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
