"""A conversation -> where a scenario stands in it: whose message is answered, and what the rounds so far brought."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from moonshim.simulator.question import Question, Result, Turn

__all__ = ["Finished", "Standing", "own_words", "standing_of"]

# Agents put reminders and surroundings before the words of a person, each in a tag of its own:
# `<system-reminder>` (Claude Code), `<environment_context>` (Codex), `<env>`. kimi-code sends its reminders behind
# them, in messages of their own.
_ASIDE: Final = re.compile(r"<([A-Za-z][\w-]*)>.*?</\1>\s*", re.DOTALL)


class Finished(Struct, frozen=True):
    """A round that was played: how many calls it had, and what they returned."""

    calls: int
    results: tuple[Result, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a tool failed. Chat has no mark for that: there a result that begins with `error` says it."""
        return any(one.is_error or one.text.lstrip(" [(<").lower().startswith("error") for one in self.results)


class Standing(Struct, frozen=True):
    """What a scenario goes on from."""

    message: int
    """Which message of the user is answered; the first is 1."""
    words: str
    """What a person said in it, without what an agent put around it."""
    finished: tuple[Finished, ...] = ()

    @property
    def results(self) -> tuple[Result, ...]:
        return tuple(result for one in self.finished for result in one.results)

    @property
    def calls(self) -> int:
        """How many calls have been made for this message."""
        return sum(one.calls for one in self.finished)


def standing_of(question: Question) -> Standing:
    """Where a scenario stands.

    Words behind results are no new message, but stand beside them: agents remind of things there, and bring images
    that a result cannot hold. A scenario that began again at each would never end.
    """
    message, words = 0, ""
    finished: list[Finished] = []
    before: Turn | None = None
    for turn in question.turns:
        match turn.role:
            case "system":
                continue
            case "user":
                if before is None or (before.role == "assistant" and not before.calls):
                    message, finished, words = message + 1, [], own_words(turn.text)
                elif before.role == "user":
                    words = _without_asides(turn.text) or words
            case "assistant" if turn.calls:
                finished.append(Finished(len(turn.calls)))
            case "tool":
                last = finished.pop() if finished else Finished(0)
                finished.append(Finished(last.calls, last.results + turn.results))
        before = turn
    return Standing(max(message, 1), words, tuple(finished))


def own_words(text: str) -> str:
    """What a person said; everything, when nothing else is there.

    >>> own_words("<system-reminder>\\nBe kind.\\n</system-reminder>\\nHow are you?")
    'How are you?'
    >>> own_words("<b>bold</b>")
    '<b>bold</b>'
    """
    return _without_asides(text) or text.strip()


def _without_asides(text: str) -> str:
    return _ASIDE.sub("", text).strip()
