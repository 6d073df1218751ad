"""Who answers, and what it took so far -> one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moonshim.chat.clean import one_line
from moonshim.chat.tally import Tally

if TYPE_CHECKING:
    from moonshim.agent.provider import Provider

__all__ = ["status_parts"]


def status_parts(provider: Provider, tally: Tally, *, mends: int = 0) -> list[str]:
    """Model, format, tokens, cost, repairs; `mends` are those of an answer that still comes."""
    format = provider.tool_format + (" (set)" if provider.format_is_set else "")
    parts = [one_line(f"{provider.name}/{provider.model}"), format]
    if tally.is_counted:
        parts.append(f"{tally.input:,} in, {tally.output:,} out")
    if tally.cost:
        parts.append(tally.cost)
    if count := tally.repairs.total() + mends:
        parts.append(f"{count} {'repair' if count == 1 else 'repairs'}")
    return parts
