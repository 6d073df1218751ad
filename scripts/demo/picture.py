"""What was shown on a terminal -> an SVG of its window, for the README, the guides and the front page of the site."""

from __future__ import annotations

import io
import re
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, RenderableType
from rich.terminal_theme import MONOKAI

__all__ = ["WIDTH", "draw"]

WIDTH: Final = 112
# Rich's own format loads a font from the internet.
_FORMAT: Final = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "font-family: Fira Code, monospace", "font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
)


def draw(*parts: RenderableType, title: str, width: int = WIDTH, name: str = "demo") -> str:
    """The same parts always give the same bytes. `name` is what the picture's styles begin with."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for part in parts:
        console.print(part)
    return console.export_svg(title=title, theme=MONOKAI, code_format=_FORMAT, unique_id=name)
