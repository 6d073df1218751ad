"""What a scripted model does for each user message: rounds of calls, then an answer.

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

    think: str = "I have the results. I can answer."
    say: str = "Here is what came back: {results}"


NO_TOOLS: Final = PlannedAnswer(
    think="There is no tool to call. I will answer in text.",
    say="This is Moonshim's simulator: a script, not a model. Your message: {user}",
)
"""The answer if the act has rounds but no tool can be called."""


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
    "one-call": "Calls one tool, then answers with its result",
    "parallel": "Calls three tools in parallel, then answers with their results",
    "five-rounds": "Calls tools in five rounds, two in parallel in rounds 2 and 4, then answers with all results",
    "eight-rounds": "Calls one tool in each of eight rounds, then answers with all results",
    "web-search": "Searches the web once, then answers with the results and their URLs",
    "text-only": "Calls no tools and answers in a sentence or two",
    "long-answer": "Calls no tools and answers with a few hundred tokens",
    "think-only": "Calls one tool, then reasons about its result without answering",
    "unicode": "Sends emoji, CJK, escapes, line breaks and near-markers, in the arguments and in the answer",
    "typed-arguments": "Calls a tool with every argument in its schema: numbers, booleans, null, lists, objects",
    "big-arguments": "Calls a tool with tens of kilobytes of arguments, then answers with its result",
}
"""The built-in scenarios by name, with a description of each."""
