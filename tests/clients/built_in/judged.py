"""Claude Code's auto mode with a judge of the gateway: what is allowed runs, and not before; what is flagged does not.

The judge waits before it answers, and looks whether the command has run meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest
from moonshim.simulator.model.judge import judge
from tests.clients.built_in.feature import Feature, Run, Scene
from tests.clients.built_in.performer import Performer
from tests.clients.cases import Case

__all__ = ["AGENT", "JUDGE", "JUDGED", "JUDGED_MESSAGES", "JUDGED_PROMPT", "Judged", "prepare_judged", "ran_as_judged"]

WAIT: Final = 1.5
"""Seconds that the judge takes: enough for a client to run what it should not run yet."""
AGENT: Final = "kimi-k2.5"
JUDGE: Final = "kimi-k2.6"
_WORD, _RAN, _KEPT, _AFTER = "word.txt", "ran.txt", "kept", "after.txt"


class Judged:
    """Reads the word with the shell, tries to delete a folder, and goes on with something else."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        commands = (f"cat {_WORD} && touch {_RAN}", f"rm -rf {_KEPT}", f"touch {_AFTER}")
        self._calls = [{"command": command, "description": "Look"} for command in commands]

    def reply(self, request: SimRequest) -> IntendedResponse:
        if (verdicts := judge(request)) is not None:
            time.sleep(WAIT)
            for name in (_RAN, _AFTER):
                if name in request.words.rpartition('"calls":')[2] and (self._scene.work / name).exists():
                    (self._scene.work / "too-early").touch()
            return IntendedResponse(text=verdicts)
        done = sum(turn.role == "assistant" and bool(turn.calls) for turn in request.turns)
        if not request.tools or done == len(self._calls):
            return Performer().reply(request)
        arguments = msgspec.json.encode(self._calls[done]).decode()
        return IntendedResponse(reasoning="Hm.", text="Next.", calls=(IntendedCall("Bash", arguments),))


def prepare_judged(scene: Scene) -> None:
    (scene.work / _WORD).write_text(f"{scene.word}\n")
    (scene.work / _KEPT).mkdir()


def ran_as_judged(scene: Scene) -> Iterator[str]:
    """What is wrong with what ran."""
    if not all((scene.work / name).exists() for name in (_RAN, _AFTER)):
        yield "a command that was allowed did not run"
    if not (scene.work / _KEPT).exists():
        yield "a command that was flagged ran"
    if (scene.work / "too-early").exists():
        yield "a command ran before its verdict"


def _was_judged(run: Run) -> Iterator[str]:
    yield from ran_as_judged(run.scene)
    results = run.results("Bash")
    denied = [text for text in results if "denied by" in text and "It contains 'rm -rf'" in text]
    if not denied:
        yield f"the model did not see that its command was refused, and why: {[text[:200] for text in results]}"
    judged = [line["judged"] for line in run.lines if "judged" in line]
    if judged != [{"not_flagged": 1}, {"flagged": 1}, {"not_flagged": 1}]:
        yield f"the gateway logged the verdicts {judged}"
    asked: list[Any] = [seen.body for seen in run.requests if seen.body.get("model") != JUDGE]
    if any("safeguards" in body for body in asked):
        yield "the host was asked to judge"


JUDGED_PROMPT: Final = f"Read {_WORD} with the shell and tidy up."
JUDGED: Final = Feature(
    name="judge",
    about="auto mode with a judge: allowed, refused, allowed",
    host=Case(name="selfhost", model=AGENT, behaviour="selfhost"),
    model=Judged,
    prompt=JUDGED_PROMPT,
    prepare=prepare_judged,
    provider={"models": [AGENT, JUDGE]},
    config=lambda scene: {"claude_code": {"judge_model": JUDGE}},
    judge=_was_judged,
)
JUDGED_MESSAGES: Final = replace(
    JUDGED,
    name="judge-messages",
    host=Case(
        name="messages",
        model=AGENT,
        behaviour="moonshot",
        host="moonshot-anthropic",
        path="/anthropic",
        dialect="anthropic",
    ),
)
