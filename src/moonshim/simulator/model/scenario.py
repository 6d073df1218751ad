"""What a scripted model does for each of the user's messages: rounds of calls, then an answer. Values, and their names.

A text may have these in it: `{user}` (the user's last words), `{results}` (everything that tools returned since then,
verbatim), `{result}` (what they returned in the last round), `{round}` (which answer to these words this is).
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["ANY", "BUILT_IN", "NO_TOOLS", "PLACES", "Act", "PlannedAnswer", "PlannedCall", "PlannedRound", "Scenario"]

ANY: Final = "*"
"""Instead of a tool's name: whichever fits best of those that are offered."""

PLACES: Final = ("user", "results", "result", "round")
"""What may stand in braces in a text."""

When: TypeAlias = Literal["always", "error", "success"]


class PlannedCall(Struct, frozen=True, kw_only=True):
    """One call, or `count` of them at once."""

    tools: tuple[str, ...] = (ANY,)
    """The first of these that is offered is called."""
    arguments: str | None = None
    """JSON text, sent as it stands; None: they are made from the tool's schema."""
    text: str | None = None
    """What free texts say in arguments that are made; None: a name among the user's words, or a mark."""
    optional: bool = False
    """Whether arguments that are made have the optional ones too."""
    count: int = 1


class PlannedRound(Struct, frozen=True, kw_only=True):
    """One answer that calls tools. It is left out when none of its tools is offered."""

    think: str = ""
    say: str = ""
    calls: tuple[PlannedCall, ...] = (PlannedCall(),)
    when: When = "always"
    """`error`: only if a tool failed in the round before; `success`: only if none did."""
    repeat: int = 1


class PlannedAnswer(Struct, frozen=True, kw_only=True):
    """What is said at the end."""

    think: str = "The results are here. I can answer."
    say: str = "Here is what came back: {results}"


NO_TOOLS: Final = PlannedAnswer(
    think="There is nothing to call. I answer in words.",
    say="This is Moonshim's simulator: a script, and no model. You said: {user}",
)
"""What is said when there were rounds to play and no tool to call."""


class Act(Struct, frozen=True, kw_only=True):
    """What happens for one message of the user."""

    rounds: tuple[PlannedRound, ...] = ()
    answer: PlannedAnswer = PlannedAnswer()
    no_tools: PlannedAnswer = NO_TOOLS


class Scenario(Struct, frozen=True, kw_only=True):
    """The first message of a conversation gets the first act, and so on; the last act serves all that come later."""

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
"""The scenarios that need no file: their names, and what each does."""
