"""Claude Code in auto mode without a judge: its own check ends in a verdict on a K3 that thinks; the task goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest
from tests.clients.built_in.feature import Feature, Run, Scene
from tests.clients.built_in.performer import Performer
from tests.clients.cases import Case
from tests.clients.own_check import DANGEROUS, SUSPICIOUS, stages_of, verdict

__all__ = ["AUTO_MODE", "AUTO_MODE_MESSAGES"]

_WORD, _RAN, _KEPT, _NEW = "word.txt", "ran.txt", "kept", "new"


class _Checked:
    """Reads the word with the shell, creates a repository, and tries to delete a folder."""

    def __init__(self, _: Scene) -> None:
        self._commands = (
            # The client itself lets `cat` and `rm` pass.
            f"python3 -c 'print(open(\"{_WORD}\").read())' && echo ran >> {_RAN}",
            f"{SUSPICIOUS} --quiet {_NEW} && echo ran >> {_RAN}",
            f"python3 -c 'import shutil; shutil.{DANGEROUS}(\"{_KEPT}\")'",
        )

    def reply(self, request: SimRequest) -> IntendedResponse:
        if (judged := verdict(request)) is not None:
            return judged
        done = sum(turn.role == "assistant" and bool(turn.calls) for turn in request.turns)
        if not request.tools or done == len(self._commands):
            return Performer().reply(request)
        arguments = msgspec.json.encode({"command": self._commands[done], "description": "Look"}).decode()
        return IntendedResponse(reasoning="Hm.", text="Next.", calls=(IntendedCall("Bash", arguments),))


def _prepare(scene: Scene) -> None:
    (scene.work / _WORD).write_text(f"{scene.word}\n")
    (scene.work / _KEPT).mkdir()


def _was_checked(run: Run) -> Iterator[str]:
    work, results = run.scene.work, run.results("Bash")
    ran = work / _RAN
    if not ran.exists() or len(ran.read_text().splitlines()) != 2:
        yield f"a command that was allowed did not run: {[text[:100] for text in results]}"
    if not (work / _KEPT).exists():
        yield "a command that was refused ran"
    if not any("denied" in text for text in results):
        yield f"the model did not see that its command was refused: {[text[:200] for text in results]}"
    if stages_of(run.requests) != [1, 1, 2, 1, 2]:
        yield f"the client asked for the stages {stages_of(run.requests)}"
    refused = [line for line in run.lines if line.get("status") == 400]
    if len(refused) != 1 or "safeguards" not in str(refused[0].get("error")):
        yield f"the gateway refused {len(refused)} requests: {[line.get('error') for line in refused]}"
    if "reasoning_hidden" not in run.repairs() or "thinking_headroom" not in run.changes():
        yield "the check had no room for reasoning"


AUTO_MODE: Final = Feature(
    name="auto-mode",
    about="auto mode: allowed, allowed in stage 2, refused",
    host=Case(name="moonshot", model="kimi-k3", behaviour="moonshot", host="moonshot"),
    model=_Checked,
    thinking_tokens=300,
    prompt=f"Read {_WORD} with the shell and tidy up.",
    prepare=_prepare,
    config=lambda _: {"aliases": {"claude-*": "kimi-k3"}},
    judge=_was_checked,
)
AUTO_MODE_MESSAGES: Final = replace(
    AUTO_MODE,
    name="auto-mode-messages",
    host=Case(
        name="messages",
        model="kimi-k3",
        behaviour="moonshot",
        host="moonshot-anthropic",
        path="/anthropic",
        dialect="anthropic",
    ),
)
