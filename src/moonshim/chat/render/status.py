"""The model and the usage so far -> one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moonshim.chat.render.sanitize import one_line
from moonshim.chat.usage import UsageTotals

if TYPE_CHECKING:
    from moonshim.agent.provider import Provider

__all__ = ["status_parts"]


def status_parts(provider: Provider, ledger: UsageTotals) -> list[str]:
    """Model, format, tokens, cost, repairs."""
    format = f"tool format: {provider.tool_format}" + (" (set)" if provider.format_is_set else "")
    parts = [one_line(f"{provider.name}/{provider.model}"), format]
    if ledger.is_counted:
        parts.append(f"{ledger.input:,} in, {ledger.output:,} out")
    if ledger.cost:
        parts.append(ledger.cost)
    if count := ledger.repairs.total():
        parts.append(f"{count} {'repair' if count == 1 else 'repairs'}")
    return parts
