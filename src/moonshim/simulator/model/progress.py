"""A conversation -> how far a scenario has advanced: which message is answered, and what the rounds so far returned."""

from __future__ import annotations

import re
from bisect import bisect
from typing import Final

from msgspec import Struct

from moonshim.simulator.request import SimRequest, SimResult, SimTurn

__all__ = ["CompletedRound", "ScenarioProgress", "own_words", "read_progress"]

# Agents put reminders and context before the user's words, each in its own tag: `<system-reminder>` (Claude Code),
# `<environment_context>` (Codex), `<env>`. kimi-code sends its reminders after them, in separate messages.
_TAG: Final = re.compile(r"<([A-Za-z][\w-]*)>|</([A-Za-z][\w-]*)>\s*")


class CompletedRound(Struct, frozen=True):
    """A completed round: how many calls it had, and what they returned."""

    calls: int
    results: tuple[SimResult, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a tool failed. Chat has no field for that: there, a result that starts with `error` counts as a
        failure."""
        return any(one.is_error or one.text.lstrip(" [(<").lower().startswith("error") for one in self.results)


class ScenarioProgress(Struct, frozen=True):
    """The state that a scenario continues from."""

    message: int
    """Number of the user message that is answered, from 1."""
    words: str
    """The user's own words in it, without the context that an agent added."""
    finished: tuple[CompletedRound, ...] = ()

    @property
    def results(self) -> tuple[SimResult, ...]:
        return tuple(result for one in self.finished for result in one.results)

    @property
    def calls(self) -> int:
        """Number of calls made for this message."""
        return sum(one.calls for one in self.finished)


def read_progress(request: SimRequest) -> ScenarioProgress:
    """How far a scenario has advanced; `SimTurn.begins_message` decides which user turns are new messages."""
    message, words = 0, ""
    finished: list[tuple[int, list[SimResult]]] = []
    before: SimTurn | None = None
    for turn in request.turns:
        match turn.role:
            case "system":
                continue
            case "user":
                if turn.begins_message(before):
                    message, finished, words = message + 1, [], own_words(turn.text)
                elif before is not None and before.role == "user":
                    words = _without_context_tags(turn.text) or words
            case "assistant" if turn.calls:
                finished.append((len(turn.calls), []))
            case "tool":
                if not finished:
                    finished.append((0, []))
                finished[-1][1].extend(turn.results)
        before = turn
    return ScenarioProgress(
        max(message, 1), words, tuple(CompletedRound(calls, tuple(results)) for calls, results in finished)
    )


def own_words(text: str) -> str:
    """The user's own words; the whole string if nothing else remains.

    >>> own_words("<system-reminder>\\nBe kind.\\n</system-reminder>\\nHow are you?")
    'How are you?'
    >>> own_words("<b>bold</b>")
    '<b>bold</b>'
    """
    return _without_context_tags(text) or text.strip()


def _without_context_tags(text: str) -> str:
    """The string without each tag and its content, up to the first closing tag; one pass, however many there are."""
    ends: dict[str, list[re.Match[str]]] = {}
    for tag in _TAG.finditer(text):
        if tag[2]:
            ends.setdefault(tag[2], []).append(tag)
    pieces, done = list[str](), 0
    for tag in _TAG.finditer(text):
        closing = ends.get(tag[1], []) if tag.start() >= done else []
        at = bisect(closing, tag.start(), key=lambda end: end.start())
        if at < len(closing):
            pieces.append(text[done : tag.start()])
            done = closing[at].end()
    return "".join([*pieces, text[done:]]).strip()
