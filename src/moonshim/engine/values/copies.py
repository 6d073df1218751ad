"""Deep copies of JSON-like values."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["deep_copy"]

T = TypeVar("T")


def deep_copy(value: T) -> T:
    """A copy of nested dicts and lists that shares no mutable object with the original.

    It does not recurse, so any nesting depth is safe.

    >>> a = {"x": [1, {"y": 2}]}
    >>> b = deep_copy(a)
    >>> b["x"][1]["y"] = 3
    >>> a
    {'x': [1, {'y': 2}]}
    """
    if not isinstance(value, (dict, list)):
        return value
    root: list[Any] = [value]
    todo: list[Any] = [root]
    while todo:
        holder = todo.pop()
        for key, inner in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            if isinstance(inner, (dict, list)):
                holder[key] = fresh = inner.copy()
                todo.append(fresh)
    copy: T = root[0]
    return copy
