"""Configured extra fields -> checked once, then deep-merged into every request body."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from moonshim.engine.values.conversation import Change
from moonshim.engine.values.copies import deep_copy
from moonshim.engine.values.type_names import describe_type
from moonshim.errors import InvalidInput

__all__ = ["RESERVED_FIELDS", "check_extra_body", "deep_merge", "merge_extra_body"]

RESERVED_FIELDS: Final = ("model", "messages", "tools", "stream")
"""Fields taken from the client's request: response repair depends on them."""
_MAX_DEPTH: Final = 64
_ABSENT: Final = object()


def check_extra_body(extra: Any, field: str = "extra_body") -> None:
    """Raise `InvalidInput` with the path of the offending value unless `extra` can be merged into a request body.

    >>> check_extra_body({"provider": {"only": ["moonshotai"]}})
    """
    if not isinstance(extra, Mapping):
        raise InvalidInput(f"{field} must be an object, got {describe_type(extra)}", field=field)
    for name in RESERVED_FIELDS:
        if name in extra:
            raise InvalidInput(
                f"`{name}` cannot be set here: it comes from the client's request", field=f"{field}.{name}"
            )
    _check_json(extra, field, _MAX_DEPTH)


def _check_json(value: Any, field: str, depth: int) -> None:
    if depth == 0:
        raise InvalidInput(f"the value is nested more than {_MAX_DEPTH} levels deep", field=field)
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidInput(f"a key must be a string, got {describe_type(key)}", field=field)
            _check_json(inner, f"{field}.{key}", depth - 1)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            _check_json(inner, f"{field}[{place}]", depth - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput("JSON does not support infinity or NaN", field=field)
    elif value is not None and not isinstance(value, (str, bool, int, float)):
        raise InvalidInput(f"JSON does not support values of type {type(value).__name__}", field=field)


def deep_merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two objects recursively; `over` wins. Values other than objects are replaced.

    >>> deep_merge({"a": {"x": 1, "y": [1]}}, {"a": {"y": [2]}, "b": 3})
    {'a': {'x': 1, 'y': [2]}, 'b': 3}
    """
    return merge_extra_body(base, over)[0]


def merge_extra_body(body: Mapping[str, Any], extra: Mapping[str, Any]) -> tuple[dict[str, Any], list[Change]]:
    """Merge the configured fields into the body; report a change for each value added or replaced.

    >>> merge_extra_body({"provider": {"sort": "price"}}, {"provider": {"only": ["moonshotai"]}})[1][0].place
    'provider.only'
    """
    changes: list[Change] = []
    return _merge(body, extra, "", changes), changes


def _merge(body: Mapping[str, Any], extra: Mapping[str, Any], prefix: str, changes: list[Change]) -> dict[str, Any]:
    out = dict(body)
    for key, value in extra.items():
        was, place = out.get(key, _ABSENT), f"{prefix}{key}"
        if isinstance(value, Mapping) and isinstance(was, dict):
            out[key] = _merge(was, value, f"{place}.", changes)
        elif was != value or type(was) is not type(value):
            out[key] = deep_copy(value)
            detail = "added by the configuration" if was is _ABSENT else "replaced by the configured value"
            changes.append(Change("extra_body", detail, place))
    return out
