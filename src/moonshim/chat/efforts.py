"""The words that say how much a model thinks, for the command line and the chat alike."""

from __future__ import annotations

from typing import Final

__all__ = ["EFFORTS", "WAYS_TO_THINK"]

EFFORTS: Final = ("minimal", "low", "medium", "high", "xhigh", "max")
WAYS_TO_THINK: Final = ("on", "off", *EFFORTS)
