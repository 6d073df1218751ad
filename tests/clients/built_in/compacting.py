"""A task that is longer than the client's window -> what the model does before and after the client shortens it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest
from tests.clients.built_in.feature import Feature, Run, Scene
from tests.clients.cases import Case

__all__ = ["COMPACTION", "COMPACTION_LOCAL", "COMPACT_LIMIT"]

COMPACT_LIMIT: Final = 12_000
"""Tokens of a conversation at which the client shortens it. Its prompt and tools alone have about 8,000."""
FIRST: Final = "first.txt"
SECOND: Final = "second.txt"
_SECOND_WORD: Final = "word-of-the-second-file"
_PADDING: Final = "A line of a long log, which nobody needs any more."
_SUMMARY: Final = "I have read the first file. Its word is"
_WORD: Final = re.compile(r"word-[0-9a-f]{12}")


class _Forgetful:
    """Reads a long file, then does something short, and after the summary reads the second file.

    It knows only what stands in the request: without the summary it would begin again.
    """

    def reply(self, question: SimRequest) -> IntendedResponse:
        results = [result.text for turn in question.turns for result in turn.results]
        said = "\n".join([*(turn.text for turn in question.turns), *results])
        word = next(iter(_WORD.findall(said)), None)
        if _asks_for_summary(question):
            return IntendedResponse(reasoning="I sum up.", text=f"{_SUMMARY} {word}. Next: the second file.")
        if not question.tools:
            return IntendedResponse(text="Two words")
        if _SECOND_WORD in said:
            return IntendedResponse(reasoning="Both are known.", text=f"The words are {word} and {_SECOND_WORD}.")
        if _SUMMARY in said:
            return _shell("I go on with the second file.", f"cat {SECOND}")
        if word is None:
            return _shell("I read the first file.", f"cat {FIRST}")
        return _shell("The word is known.", "echo still going")


def _shell(thought: str, command: str) -> IntendedResponse:
    arguments = msgspec.json.encode({"cmd": command, "max_output_tokens": 10_000}).decode()
    return IntendedResponse(reasoning=thought, calls=(IntendedCall("exec_command", arguments),))


def _asks_for_summary(question: SimRequest) -> bool:
    """The gateway's question, or Codex's own."""
    return "Write a summary" in question.words or "CONTEXT CHECKPOINT COMPACTION" in question.words


def _prepare(scene: Scene) -> None:
    log = "\n".join(f"{number}: {_PADDING}" for number in range(700))
    (scene.work / FIRST).write_text(f"{scene.word}\n{log}\n")
    (scene.work / SECOND).write_text(f"{_SECOND_WORD}\n")


def _was_shortened(run: Run, *, remote: bool) -> Iterator[str]:
    asked = [seen.request for seen in run.requests if seen.request is not None]
    summaries = [number for number, request in enumerate(asked) if _asks_for_summary(request)]
    if len(summaries) != 1:
        yield f"the conversation was shortened {len(summaries)} times, in {len(asked)} requests"
        return
    before, after = asked[: summaries[0] + 1], asked[summaries[0] + 1 :]
    if not any(_PADDING in str(request.body) for request in before):
        yield "the file was not read before it"
    if not after or any(_PADDING in str(request.body) for request in after):
        yield "what was shortened was sent again"
    if not any(_SUMMARY in str(request.body) for request in after):
        yield "the summary is missing afterwards"
    if _SECOND_WORD not in run.answer:
        yield f"the task was not finished: {run.answer[:200]!r}"
    if ("compaction" in run.changes()) != remote:
        yield f"the gateway changed {', '.join(sorted(run.changes()))}"
    if "error" in run.ended.complained.lower():
        yield f"the client complained: {run.ended.complained[-300:]}"


COMPACTION: Final = Feature(
    name="compaction",
    about="a conversation that the client shortens in the middle of a task, by the gateway's item",
    host=Case(name="moonshot", model="kimi-k3", behaviour="moonshot", host="moonshot"),
    model=lambda scene: _Forgetful(),
    prompt=f"Which words are in {FIRST} and {SECOND}?",
    prepare=_prepare,
    judge=lambda run: _was_shortened(run, remote=True),
)
COMPACTION_LOCAL: Final = replace(
    COMPACTION,
    name="compaction-local",
    about="the same, by a question of the client's own",
    judge=lambda run: _was_shortened(run, remote=False),
)
