"""The safety checks that a client wants from the server (`safeguards` of Messages) -> who answers them.

Claude Code in auto mode wants the server to judge each tool call of the response. No host of a Kimi model does that. A
response without verdicts would leave the client with calls that nobody checked, so without a judge of the owner the
request is refused with an error that names the field. Claude Code then sends it again without, and checks by itself
(docs/guides/claude-code-auto-mode.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from moonshim.config import Target, profile_of
from moonshim.engine.prepare import ParsedRequest
from moonshim.errors import InvalidInput

__all__ = ["answered_by_hosts", "check_safeguards"]


def answered_by_hosts(targets: Sequence[Target]) -> bool:
    """Whether every host that may get the request judges calls by itself, or refuses the request itself.

    These are Messages hosts of another model than Kimi: Claude's own API, or another gateway. They get `safeguards`
    unchanged, also where a judge is configured: their own check was built for it.
    """
    return bool(targets) and all(map(_may_answer, targets))


def check_safeguards(parsed: ParsedRequest, targets: Sequence[Target]) -> None:
    """Decide who answers the `safeguards` of a request. Raises `InvalidInput` that names them if nobody does.

    The hosts do, see `answered_by_hosts`; the judge does, if it is configured: then the request has none any longer.
    """
    if parsed.safeguards and not answered_by_hosts(targets):
        raise InvalidInput(
            "this gateway has no judge for tool calls (judge_model in its configuration): send the request without "
            "safeguards, and check the calls yourself",
            field="safeguards",
        )


def _may_answer(target: Target) -> bool:
    profile = profile_of(target)
    return profile.dialect == "anthropic" and profile.generation == "other"
