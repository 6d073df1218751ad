"""Text with `${VAR}` in it -> the text with values from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["expand_variables", "has_variable", "variable_of", "variables_in"]

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
# `$VAR` without braces only at the start, up to the end or a slash, in capitals: claude-code-router's files have it
# (`$HOME/…`, `$OPENAI_API_KEY`), and a password or a regular expression that contains a dollar stays unchanged.
_REFERENCE: Final = re.compile(r"\$\$|\$\{([^}]*)\}|\A\$([A-Z_][A-Z0-9_]*)(?=/|\Z)|\$\{")
_INSIDE: Final = re.compile(rf"({_NAME})(?::-(.*))?", re.DOTALL)


def expand_variables(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text with all variables expanded, and the problems with them. `$$` is a dollar sign.

    >>> expand_variables("${A}/${B:-b}, $$5", {"A": "a"})
    ('a/b, $5', [])
    >>> expand_variables("${A}", {})
    ('', ['environment variable A is not set'])
    """
    problems: list[str] = []

    def value_of(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        if found[0] == "${":
            problems.append("missing `}` after `${`; write `$$` for a dollar sign")
            return ""
        inside = _INSIDE.fullmatch(found[1] or found[2] or "")
        if inside is None:
            problems.append("invalid variable name in `${}`; write `$$` for a dollar sign")
            return ""
        name, default = inside[1], inside[2]
        if default is not None:
            return environ.get(name) or default
        if name not in environ:
            problems.append(f"environment variable {name} is not set")
        return environ.get(name, "")

    return _REFERENCE.sub(value_of, text), problems


def has_variable(text: str) -> bool:
    return any(found[0] != "$$" for found in _REFERENCE.finditer(text))


def variables_in(text: str) -> list[str]:
    """The names of the variables in a text.

    >>> variables_in("${A}/${B:-b}, $$5")
    ['A', 'B']
    """
    inner = [_INSIDE.fullmatch(found[1] or found[2] or "") for found in _REFERENCE.finditer(text)]
    return [found[1] for found in inner if found is not None]


def variable_of(text: str) -> str | None:
    """The name of the variable that is the whole text, if it is one.

    >>> variable_of("${KEY}"), variable_of("$KEY"), variable_of("Bearer ${KEY}")
    ('KEY', 'KEY', None)
    """
    found = _REFERENCE.fullmatch(text)
    inside = _INSIDE.fullmatch(found[1] or found[2] or "") if found else None
    return inside[1] if inside else None
