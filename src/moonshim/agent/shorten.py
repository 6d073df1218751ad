"""Long text, and arbitrary exceptions -> what is reported of them."""

from __future__ import annotations

__all__ = ["cut_middle", "describe_error"]


def cut_middle(text: str, limit: int) -> str:
    """At most `limit` characters of the text, half from either end: the cause of a failure is often at the end.

    >>> cut_middle("0123456789", 4)
    '01\\n\\n… 6 characters omitted …\\n\\n89'
    >>> cut_middle("0123456789", 10)
    '0123456789'
    """
    if len(text) <= limit:
        return text
    head = (limit + 1) // 2
    tail = limit - head
    left_out = len(text) - limit
    return f"{text[:head]}\n\n… {left_out} characters omitted …\n\n{text[len(text) - tail :]}"


def describe_error(error: BaseException) -> str:
    """Describe an exception, even one whose own message cannot be formatted.

    >>> describe_error(KeyError("a")), describe_error(ValueError())
    ("KeyError: 'a'", 'ValueError')
    """
    try:
        message = str(error)
    except Exception:
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
