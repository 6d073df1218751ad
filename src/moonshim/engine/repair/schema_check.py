"""A JSON Schema and a value -> what is wrong with the value, in words for the model that wrote it.

Why not the `jsonschema` package: the schemas come from clients. It raises on malformed ones, and does not terminate on
a schema that refers to itself or nests choices, or on some patterns. Here steps are bounded, and what is malformed,
unknown or takes too long forbids nothing: a client may be stricter than this check, but never gets an answer refused
that its own schema allows. The tests compare with `jsonschema`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from operator import ge, gt, le, lt
from typing import Any, Final, TypeAlias, TypeGuard

from moonshim.engine.wire.json_codec import encode

__all__ = ["find_mismatches"]

MAX_STEPS: Final = 20_000
"""How many schemas are applied to values; the rest of a value is not checked."""
MAX_DEPTH: Final = 100
MAX_SHOWN: Final = 60
_UNIQUE_ITEMS: Final = 1000
"""Longer lists are not searched for equal items."""

_PATTERN_SIZE: Final = 256
_PATTERN_STEPS: Final = 5_000_000
"""How many ways of matching a pattern are tried at most: some take time without bound."""
# What can match in several ways is counted in the pattern's text, without its classes and escapes.
_ATOMS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_REPEATED_GROUP: Final = re.compile(r"\)(?:[*+]|\{)")
_REPEAT: Final = re.compile(r"[*+]|\{[0-9]*,[0-9]*\}")
_REFERENCE: Final = re.compile(r"\\[1-9]|\(\?P[=>]|\(\?\(")

_Path: TypeAlias = tuple[str | int, ...]
_Mismatch: TypeAlias = tuple[_Path, str]

_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: _is_number(value),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
}
_BOUNDS: Final[tuple[tuple[str, Callable[[Any, Any], bool], str], ...]] = (
    ("minimum", ge, "at least"),
    ("maximum", le, "at most"),
    ("exclusiveMinimum", gt, "greater than"),
    ("exclusiveMaximum", lt, "less than"),
)
_SIZES: Final[tuple[tuple[type[Any], str, str, str], ...]] = (
    (str, "minLength", "maxLength", "characters"),
    (list, "minItems", "maxItems", "items"),
    (dict, "minProperties", "maxProperties", "properties"),
)


def find_mismatches(schema: Any, value: Any, *, most: int = 5) -> list[str]:
    """The first mismatches, each with its place; empty if the value matches, as far as the schema is understood.

    >>> schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "m"]}
    >>> find_mismatches(schema, {"n": "one"})
    ["$: the property 'm' is missing", '$.n: must be of type integer, not string']
    """
    found = _Check(schema).mismatches(schema, value, (), 0)
    return [f"{_place(path)}: {why}" for path, why in islice(found, most)]


class _Check:
    """One check of one value."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0

    def mismatches(self, schema: Any, value: Any, path: _Path, depth: int) -> Iterator[_Mismatch]:
        self._steps += 1
        if self._steps > MAX_STEPS or depth > MAX_DEPTH:
            return
        if schema is False:
            yield path, "is not allowed here"
        if not isinstance(schema, dict):
            return
        if isinstance(ref := schema.get("$ref"), str):
            yield from self.mismatches(_resolve(ref, self._root), value, path, depth + 1)
        if wrong := _wrong_kind(schema, value):
            yield path, wrong
            return  # whatever else is wrong follows from it
        yield from self._parts(schema, value, path, depth + 1)
        if isinstance(value, dict):
            yield from self._object(schema, value, path, depth + 1)
        elif isinstance(value, list):
            yield from self._array(schema, value, path, depth + 1)
        elif isinstance(value, str):
            if isinstance(pattern := schema.get("pattern"), str) and _matches(pattern, value) is False:
                yield path, f"must match the pattern {pattern}"
        elif _is_number(value):
            yield from ((path, wrong) for wrong in _wrong_number(schema, value))
        yield from ((path, wrong) for wrong in _wrong_size(schema, value))

    def _allows(self, schema: Any, value: Any, depth: int) -> bool:
        return next(self.mismatches(schema, value, (), depth), None) is None

    def _parts(self, schema: dict[str, Any], value: Any, path: _Path, depth: int) -> Iterator[_Mismatch]:
        for part in _list(schema.get("allOf")):
            yield from self.mismatches(part, value, path, depth)
        for keyword in ("anyOf", "oneOf"):
            if branches := _list(schema.get(keyword)):
                yield from self._branches(branches, value, path, depth, only_one=keyword == "oneOf")
        if "not" in schema and self._allows(schema["not"], value, depth):
            yield path, "must not match the schema in `not`"
        if "if" in schema:
            branch = "then" if self._allows(schema["if"], value, depth) else "else"
            yield from self.mismatches(schema.get(branch, True), value, path, depth)

    def _branches(
        self, branches: list[Any], value: Any, path: _Path, depth: int, *, only_one: bool
    ) -> Iterator[_Mismatch]:
        nearest: _Mismatch | None = None
        matched = 0
        for branch in branches:
            wrong = next(self.mismatches(branch, value, path, depth), None)
            if wrong is None:
                matched += 1
                if not only_one:
                    return
            elif nearest is None or len(wrong[0]) > len(nearest[0]):
                nearest = wrong
        if matched > 1:
            yield path, "matches more than one of the schemas in `oneOf`"
        elif not matched and nearest is not None:
            # The branch in which the value went furthest is most likely the one that was meant.
            yield nearest if len(nearest[0]) > len(path) or len(branches) == 1 else (path, _describe_branches(branches))

    def _object(self, schema: dict[str, Any], value: dict[str, Any], path: _Path, depth: int) -> Iterator[_Mismatch]:
        for key in _list(schema.get("required")):
            if isinstance(key, str) and key not in value:
                yield path, f"the property {key!r} is missing"
        for key, needed in _dict(schema.get("dependentRequired")).items():
            if key in value:
                for other in _list(needed):
                    if isinstance(other, str) and other not in value:
                        yield path, f"the property {other!r} is missing: {key!r} requires it"
        properties, patterns = _dict(schema.get("properties")), _dict(schema.get("patternProperties"))
        additional = schema.get("additionalProperties", True)
        for key, one in value.items():
            inside, known = (*path, key), key in properties
            if known:
                yield from self.mismatches(properties[key], one, inside, depth)
            for pattern, part in patterns.items():
                matched = _matches(pattern, key)
                known = known or matched is not False
                if matched:
                    yield from self.mismatches(part, one, inside, depth)
            if known:
                continue
            if additional is False:
                yield path, f"the property {_short(key)!r} is not allowed"
            else:
                yield from self.mismatches(additional, one, inside, depth)

    def _array(self, schema: dict[str, Any], value: list[Any], path: _Path, depth: int) -> Iterator[_Mismatch]:
        items, prefix = schema.get("items", True), schema.get("prefixItems")
        if isinstance(items, list):  # before draft 2020-12
            items, prefix = schema.get("additionalItems", True), items
        first = _list(prefix)
        for index, one in enumerate(value):
            yield from self.mismatches(first[index] if index < len(first) else items, one, (*path, index), depth)
        if schema.get("uniqueItems") is True and len(value) <= _UNIQUE_ITEMS:
            seen: set[bytes] = set()
            for index, one in enumerate(value):
                text = encode(_sorted(one))
                if text in seen:
                    yield (*path, index), "must not be equal to another item"
                    return
                seen.add(text)


def _wrong_kind(schema: dict[str, Any], value: Any) -> str | None:
    declared = schema.get("type")
    names = [name for name in (declared if isinstance(declared, list) else [declared]) if isinstance(name, str)]
    if names and all(name in _TYPES for name in names):
        names += ["null"] if schema.get("nullable") is True else []
        if not any(_TYPES[name](value) for name in names):
            return f"must be of type {' or '.join(names)}, not {_type_of(value)}"
    if "const" in schema and not _same(schema["const"], value):
        return f"must be {_show(schema['const'])}"
    choices = schema.get("enum")
    if isinstance(choices, list) and choices and not any(_same(one, value) for one in choices):
        return f"must be one of {_show(choices)}"
    return None


def _wrong_number(schema: dict[str, Any], value: float) -> Iterator[str]:
    for keyword, compare, words in _BOUNDS:
        limit = schema.get(keyword)
        if limit is True and keyword.startswith("exclusive"):  # draft 4
            limit = schema.get(keyword.removeprefix("exclusive").lower())
        if _is_number(limit) and not compare(value, limit):
            yield f"must be {words} {limit}"
    step = schema.get("multipleOf")
    if _is_number(step) and step > 0 and not _is_multiple(value, step):
        yield f"must be a multiple of {step}"


def _is_multiple(value: float, step: float) -> bool:
    """In decimal, where 0.3 is a multiple of 0.1."""
    try:
        return not Decimal(str(value)) % Decimal(str(step))
    except (ArithmeticError, ValueError):  # too many digits
        return True


def _wrong_size(schema: dict[str, Any], value: Any) -> Iterator[str]:
    for kind, least, most, noun in _SIZES:
        if isinstance(value, kind):
            low, high = schema.get(least), schema.get(most)
            if _is_number(low) and len(value) < low:
                yield f"must have at least {low} {noun}"
            if _is_number(high) and len(value) > high:
                yield f"must have at most {high} {noun}"


def _describe_branches(branches: list[Any]) -> str:
    kinds = [branch.get("type") if isinstance(branch, dict) else None for branch in branches]
    names = list(dict.fromkeys(kind for kind in kinds if isinstance(kind, str)))
    return (
        f"must be of type {' or '.join(names)}" if len(names) == len(branches) else "matches none of the alternatives"
    )


def _matches(pattern: str, text: str) -> bool | None:
    """Whether the pattern is found in the text; None: unknown, since it is invalid or could take too long.

    >>> _matches("^[a-z]+$", "moon"), _matches("^[a-z]+$", "8"), _matches("^(a+)+$", "a" * 40), _matches("(", "")
    (True, False, None, None)
    """
    compiled, longest = _compile(pattern)
    return None if compiled is None or len(text) > longest else compiled.search(text) is not None


@lru_cache(256)
def _compile(pattern: str) -> tuple[re.Pattern[str] | None, int]:
    """The compiled pattern, and the length of the longest text that it is matched with."""
    shape = _ATOMS.sub("a", pattern)
    if len(pattern) > _PATTERN_SIZE or _REFERENCE.search(pattern) or _REPEATED_GROUP.search(shape):
        return None, 0
    # Each optional part doubles the ways, each group multiplies them by its branches, each repeat by the length.
    ways = 2 ** shape.count("?") * (shape.count("|") + 1) ** (shape.count("(") + 1 if "|" in shape else 0)
    repeats = len(_REPEAT.findall(shape)) + (not shape.startswith("^"))
    try:
        return re.compile(pattern), int((_PATTERN_STEPS / ways) ** (1 / max(repeats, 1)))
    except (re.error, RecursionError, ArithmeticError, ValueError):
        return None, 0


def _resolve(ref: str, root: Any) -> Any:
    """What a local reference points to; anything is allowed by any other."""
    if ref != "#" and not ref.startswith("#/"):
        return True
    place = root
    for step in ref.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, list):
            place = place[int(key)] if key.isdecimal() and len(key) < 9 and int(key) < len(place) else True
        else:
            place = place.get(key, True) if isinstance(place, dict) else True
    return place


def _place(path: _Path) -> str:
    """
    >>> _place(("days", 1, "max temp"))
    "$.days[1]['max temp']"
    """
    steps = (f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{_short(step)!r}]" for step in path)
    return "$" + "".join(steps)


def _type_of(value: Any) -> str:
    return next((name for name in _TYPES if name != "integer" and _TYPES[name](value)), "unknown")


def _short(value: str | int) -> str | int:
    return value[:MAX_SHOWN] + "…" if isinstance(value, str) and len(value) > MAX_SHOWN else value


def _show(value: Any) -> str:
    text = encode(value).decode("utf-8", "replace")
    return text if len(text) <= 5 * MAX_SHOWN else text[: 5 * MAX_SHOWN] + "…"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if isinstance(one, (dict, list)) and isinstance(other, (dict, list)):
        return encode(_sorted(one)) == encode(_sorted(other))
    return bool(one == other)


def _sorted(value: Any) -> Any:
    """The same value written in one way: keys in order, and 1.0 as 1."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
