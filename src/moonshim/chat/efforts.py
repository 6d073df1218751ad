"""The names of thinking efforts, shared by the command line and the chat."""

from __future__ import annotations

from typing import Final

from moonshim.agent.inputs import EFFORTS

__all__ = ["EFFORTS", "WAYS_TO_THINK"]

WAYS_TO_THINK: Final = ("on", "off", *EFFORTS)
