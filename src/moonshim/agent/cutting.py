"""A text that is too long -> its beginning and its end, with a word on what is missing between them."""

from __future__ import annotations

__all__ = ["cut_middle"]


def cut_middle(text: str, limit: int) -> str:
    """At most `limit` characters of the text, half from either end: what failed is often told at the end.

    >>> cut_middle("0123456789", 4)
    '01\\n\\n… 6 characters are left out here …\\n\\n89'
    >>> cut_middle("0123456789", 10)
    '0123456789'
    """
    if len(text) <= limit:
        return text
    head = (limit + 1) // 2
    tail = limit - head
    left_out = len(text) - limit
    return f"{text[:head]}\n\n… {left_out} characters are left out here …\n\n{text[len(text) - tail :]}"
