"""What a scripted model does for each user message: rounds of calls, then an answer. Values, and the built-in
scenarios.

Text may contain these placeholders: `{user}` (the user's last message), `{results}` (everything that tools have
returned since then, verbatim), `{result}` (what they returned in the last round), `{round}` (the number of this
response).
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["ANY", "BUILT_IN", "NO_TOOLS", "PLACES", "Act", "PlannedAnswer", "PlannedCall", "PlannedRound", "Scenario"]

ANY: Final = "*"
"""Instead of a tool's name: whichever of the offered tools fits best."""

PLACES: Final = ("user", "results", "result", "round")
"""Placeholders that text may contain in braces."""

When: TypeAlias = Literal["always", "error", "success"]


class PlannedCall(Struct, frozen=True, kw_only=True):
    """One call, or `count` parallel ones."""

    tools: tuple[str, ...] = (ANY,)
    """The first of these that is offered is called."""
    arguments: str | None = None
    """JSON text, sent verbatim; None: generated from the tool's schema."""
    text: str | None = None
    """Content of free-text values in generated arguments; None: a name that the user mentions, or a marker word."""
    optional: bool = False
    """Whether generated arguments include the optional ones."""
    count: int = 1


class PlannedRound(Struct, frozen=True, kw_only=True):
    """One response that calls tools. It is skipped when none of its tools is offered."""

    think: str = ""
    say: str = ""
    calls: tuple[PlannedCall, ...] = (PlannedCall(),)
    when: When = "always"
    """`error`: only if a tool failed in the round before; `success`: only if none did."""
    repeat: int = 1


class PlannedAnswer(Struct, frozen=True, kw_only=True):
    """The final answer."""

    think: str = "The results are here. I can answer."
    say: str = "Here is what came back: {results}"


NO_TOOLS: Final = PlannedAnswer(
    think="There is nothing to call. I answer in words.",
    say="This is Moonshim's simulator: a script, and no model. You said: {user}",
)
"""The answer when there were rounds to play but no tool to call."""


class Act(Struct, frozen=True, kw_only=True):
    """What happens for one user message."""

    rounds: tuple[PlannedRound, ...] = ()
    answer: PlannedAnswer = PlannedAnswer()
    no_tools: PlannedAnswer = NO_TOOLS


class Scenario(Struct, frozen=True, kw_only=True):
    """The first user message of a conversation gets the first act, and so on; the last act serves all later ones."""

    name: str = ""
    about: str = ""
    acts: tuple[Act, ...] = (Act(),)


BUILT_IN: Final[dict[str, str]] = {
    "one-call": "Calls one tool, and answers with what it returned.",
    "parallel": "Calls three tools at once, and answers with what they returned.",
    "five-rounds": "Calls tools in five rounds, two at once in the second and the fourth, and answers with everything.",
    "eight-rounds": "Calls a tool in each of eight rounds, and answers with everything.",
    "text-only": "Calls nothing, and answers in a sentence or two.",
    "long-answer": "Calls nothing, and answers with a few hundred tokens.",
    "think-only": "Calls one tool, then thinks of its result and says nothing.",
    "unicode": "Calls tools with emoji, CJK, escapes, line ends and almost-markers in the arguments, and says such.",
    "typed-arguments": "Calls a tool with every argument that its schema has: numbers, booleans, null, lists, objects.",
    "big-arguments": "Calls a tool with tens of kilobytes of arguments, and answers with what it returned.",
}
"""The built-in scenarios: their names, and what each does."""
