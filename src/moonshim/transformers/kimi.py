"""The transformer that is named `Kimi`: options -> what the engine puts right, in requests and in replies."""

from __future__ import annotations

from typing import Any, Final

from moonshim.engine.stages import Stage
from moonshim.engine.values.conversation import Request
from moonshim.engine.values.options import KimiOptions

__all__ = ["Kimi"]

_MARKERS_STAY: Final = (
    "Kimi is named with manualToolParsing off, which is its default: calls that a host leaves as markers in the text"
    ' stay text. Say ["Kimi", {"manualToolParsing": true}], or name no Kimi: then everything is mended'
)


class Kimi:
    """Stands for the work that the engine does next to the host, by these options; by itself it changes nothing.

    Wherever it is in a chain, requests are made right behind all other transformers, and
    answers are mended before any other sees them.
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
        """What may surprise those who have configured it so."""
        if self.options.manual_tool_parsing:
            return []
        return [_MARKERS_STAY]
