"""The safety checks that a client wants from the server (`safeguards` of Messages) -> whether its request is accepted.

Claude Code in auto mode wants the server to judge each tool call of the response. No host of a Kimi model does that. A
response without verdicts would leave the client with calls that nobody checked, so the request is refused with an error
that names the field. Claude Code then sends it again without, and checks by itself (docs/guides/claude-code.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from moonshim.config import Target, profile_of
from moonshim.engine.prepare import ParsedRequest
from moonshim.errors import InvalidInput

__all__ = ["check_safeguards"]


def check_safeguards(parsed: ParsedRequest, targets: Sequence[Target]) -> None:
    """Decide who answers the `safeguards` of a request. Raises `InvalidInput` that names them if nobody does.

    They are passed on unchanged where every target is a Messages host of another model than Kimi (Claude's own API, or
    another gateway): it answers them, or refuses them itself.
    """
    if parsed.safeguards and not all(map(_may_answer, targets)):
        raise InvalidInput(
            "this gateway has no judge for tool calls (judge_model in its configuration): send the request without "
            "safeguards, and check the calls yourself",
            field="safeguards",
        )


def _may_answer(target: Target) -> bool:
    profile = profile_of(target)
    return profile.dialect == "anthropic" and profile.generation == "other"
