"""Incomplete Markdown -> how much of its beginning looks the same whatever follows."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["finished_length"]

_LINE_END: Final = re.compile(r"\r\n?|\n")
"""As the parser counts lines."""


def finished_length(text: str) -> int:
    """How many characters belong to finished blocks: all but the last one.

    A paragraph, a list, a table or a fence is finished when the next block has begun.

    >>> finished_length("One.\\n\\nTwo"), finished_length("One.\\nTwo."), finished_length("One.\\n\\n")
    (6, 0, 0)
    """
    if not _LINE_END.search(text):
        return 0
    starts = [token.map[0] for token in _parser().parse(text) if token.level == 0 and token.map]
    if len(starts) < 2 or starts[-1] == 0:
        return 0
    return next(islice(_LINE_END.finditer(text), starts[-1] - 1, None)).end()


@cache
def _parser() -> MarkdownIt:
    """The parser that rich uses for Markdown."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt().enable("strikethrough").enable("table")
    parser.core.ruler.disable("inline")  # where a block ends does not depend on its inline content
    return parser
