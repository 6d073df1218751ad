"""Docstrings -> Markdown for the API pages: doctests become code blocks, names of pages become links."""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

_PAGE: Final = re.compile(r"`?\bdocs/([\w/-]+)\.md`?")
_FENCE: Final = "```"


class PlainDocstrings(griffe.Extension):
    """Docstrings are written to be read in an editor; the pages show the same as Markdown."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(text: str) -> str:
    """Fence the doctests and link the pages.

    >>> print(to_markdown("Adds, see docs/reference/hosts.md.").splitlines()[0])
    Adds, see [reference/hosts](../reference/hosts.md).
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>> "):
            lines += ["", f"{_FENCE}pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append(_FENCE)
            inside = False
        lines.append(line if inside else _PAGE.sub(r"[\1](../\1.md)", line))
    if inside:
        lines.append(_FENCE)
    return "\n".join(lines)
