"""A value and a JSON Schema -> whether the schema allows it, as far as the schemas of tools go.

Why not the `jsonschema` package: the schemas come from clients. It raises on malformed ones (an unknown `type`, a
string for `required`, a `$ref` to nothing), does not terminate on a schema that refers to itself or nests choices (18
levels of two take more than a minute; here steps are bounded, and so are regular expressions), and treats the boolean
`exclusiveMinimum` of draft 4 and decimal steps (0.3 as a multiple of 0.1) differently. The tests compare with
`jsonschema`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import unquote

from moonshim.simulator.model.patterns import finds
from moonshim.simulator.request import Json

__all__ = ["TYPES", "Check", "allows", "is_number", "is_same", "resolve", "types_of"]

DEEPEST: Final = 40
MOST_STEPS: Final = 20_000
_INDEX: Final = re.compile(r"[0-9]{1,9}")
TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: is_number(value),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
}


def allows(schema: Any, value: Any, root: Any = None) -> bool:
    """Whether a value is valid. Parts of a schema that are malformed, or take too long, forbid nothing.

    >>> allows({"type": "integer", "minimum": 3}, 2), allows({"enum": ["a"]}, "a")
    (False, True)
    """
    return Check(schema if root is None else root).allows(schema, value)


class Check:
    """Validates values in a bounded number of steps: a schema may contain itself, and more than once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0
        self._depth = 0

    def allows(self, schema: Any, value: Any) -> bool:
        if not isinstance(schema, dict) or self._depth > DEEPEST or self._steps > MOST_STEPS:
            return schema is not False
        self._steps += 1
        self._depth += 1
        try:
            schema = resolve(schema, self._root)
            return (
                self._is_one_of_these(schema, value)
                and self._parts_allow(schema, value)
                and self._inside(schema, value)
            )
        finally:
            self._depth -= 1

    def _is_one_of_these(self, schema: Json, value: Any) -> bool:
        if "const" in schema and not is_same(schema["const"], value):
            return False
        if isinstance(enum := schema.get("enum"), list) and not any(is_same(one, value) for one in enum):
            return False
        types = types_of(schema)
        return not types or any(TYPES[kind](value) for kind in types)

    def _parts_allow(self, schema: Json, value: Any) -> bool:
        if not all(self.allows(part, value) for part in _parts(schema, "allOf")):
            return False
        if (parts := _parts(schema, "anyOf")) and not any(self.allows(part, value) for part in parts):
            return False
        if (parts := _parts(schema, "oneOf")) and sum(self.allows(part, value) for part in parts) != 1:
            return False
        return "not" not in schema or not self.allows(schema["not"], value)

    def _inside(self, schema: Json, value: Any) -> bool:
        match value:
            case bool() | None:
                return True
            case int() | float():
                return _number(schema, value)
            case str():
                return _text(schema, value)
            case list():
                return _array(schema, value, self.allows)
            case dict():
                return _object(schema, value, self.allows)
        return True


def resolve(schema: Json, root: Any) -> Json:
    """The schema with its `$ref` resolved; keywords beside a reference apply too."""
    for _ in range(DEEPEST):
        pointer = schema.get("$ref")
        if not isinstance(pointer, str):
            return schema
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = _target(pointer, root)
        if not isinstance(target, dict):
            return beside
        # Both apply. Where they use the same keyword, one is moved to `allOf`, so that nothing is lost.
        schema = target | beside if not set(target) & set(beside) - {"description", "title", "default"} else {
            **target,
            "allOf": [*_parts(target, "allOf"), beside],
        }  # fmt: skip
    return {}


def types_of(schema: Json) -> list[str]:
    """
    >>> types_of({"type": ["integer", "null"]}), types_of({})
    (['integer', 'null'], [])
    """
    given = schema.get("type")
    named = given if isinstance(given, list) else [given]
    return [kind for kind in named if isinstance(kind, str) and kind in TYPES]


def is_same(one: Any, other: Any) -> bool:
    """Equal as JSON: `true` is not 1, but 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(value, other[key]) for key, value in one.items())
    return bool(one == other)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _parts(schema: Json, key: str) -> list[Any]:
    parts = schema.get(key)
    return parts if isinstance(parts, list) else []


def _target(pointer: str, root: Any) -> Any:
    if not pointer.startswith("#"):
        return None
    value = root
    for step in unquote(pointer[1:]).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def _bounds(schema: Json, *keys: str) -> Iterator[float | None]:
    for key in keys:
        value = schema.get(key)
        yield value if is_number(value) else None


def _number(schema: Json, value: float) -> bool:
    least, above, most, below, step = _bounds(
        schema, "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"
    )
    # In old schemas the exclusive bounds are booleans.
    above = least if schema.get("exclusiveMinimum") is True else above
    below = most if schema.get("exclusiveMaximum") is True else below
    return (
        (least is None or value >= least)
        and (most is None or value <= most)
        and (above is None or value > above)
        and (below is None or value < below)
        and (not step or _is_multiple(value, step))
    )


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        return math.isclose(value / step, round(value / step), rel_tol=1e-9, abs_tol=1e-9)
    except (OverflowError, ValueError):  # there are more steps than numbers
        return True


def _text(schema: Json, value: str) -> bool:
    least, most = _bounds(schema, "minLength", "maxLength")
    if (least is not None and len(value) < least) or (most is not None and len(value) > most):
        return False
    pattern = schema.get("pattern")
    return not isinstance(pattern, str) or finds(pattern, value) is not False


def _array(schema: Json, value: list[Any], inner: Callable[[Any, Any], bool]) -> bool:
    least, most = _bounds(schema, "minItems", "maxItems")
    if (least is not None and len(value) < least) or (most is not None and len(value) > most):
        return False
    if schema.get("uniqueItems") is True and any(
        is_same(one, other) for at, one in enumerate(value) for other in value[:at]
    ):
        return False
    first = _parts(schema, "prefixItems")
    if not all(inner(part, one) for part, one in zip(first, value, strict=False)):
        return False
    if "contains" in schema and not any(inner(schema["contains"], one) for one in value):
        return False
    return all(inner(schema.get("items", True), one) for one in value[len(first) :])


def _object(schema: Json, value: Json, inner: Callable[[Any, Any], bool]) -> bool:
    least, most = _bounds(schema, "minProperties", "maxProperties")
    if (least is not None and len(value) < least) or (most is not None and len(value) > most):
        return False
    required = schema.get("required")
    if isinstance(required, list) and any(name not in value for name in required if isinstance(name, str)):
        return False
    known = schema.get("properties")
    known = known if isinstance(known, dict) else {}
    patterns = schema.get("patternProperties")
    patterns = patterns if isinstance(patterns, dict) else {}
    other = schema.get("additionalProperties", True)
    for name, one in value.items():
        fitting = [part for pattern, part in patterns.items() if _text({"pattern": pattern}, name)]
        if not all(inner(part, one) for part in fitting):
            return False
        if (name in known or not fitting) and not inner(known.get(name, other), one):
            return False
    return True
