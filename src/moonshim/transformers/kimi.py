"""The transformer named `Kimi`: options -> the engine's repairs, in requests and in responses."""

from __future__ import annotations

from typing import Any, Final

from moonshim.engine.stages import Stage
from moonshim.engine.values.conversation import Request
from moonshim.engine.values.options import KimiOptions

__all__ = ["Kimi"]

_MARKERS_STAY: Final = (
    "the Kimi transformer has manualToolParsing off (its default), so tool calls that the host leaves as markers in the"
    ' text stay text. Use ["Kimi", {"manualToolParsing": true}], or remove Kimi to enable all repairs'
)


class Kimi:
    """Represents the work that the engine does next to the host, with these options; by itself it changes nothing.

    Wherever it is in a chain, requests are adapted after all other transformers, and responses are mended before any
    other sees them.
    """

    name = "Kimi"

    def __init__(self, options: KimiOptions | None = None) -> None:
        self.options = options if options is not None else KimiOptions()

    def prepare(self, request: Request) -> Request:
        return request

    def stages(self, plan: Any) -> list[Stage]:
        return []

    @property
    def warnings(self) -> list[str]:
        """Warnings about surprising options."""
        if self.options.manual_tool_parsing:
            return []
        return [_MARKERS_STAY]
