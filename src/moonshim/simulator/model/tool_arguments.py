"""A tool's schema -> arguments that it allows: only the required ones, and the same each time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from moonshim.simulator.model.known_tools import KnownFacts, guesses
from moonshim.simulator.model.sample_text import texts_for
from moonshim.simulator.model.schema_check import TYPES, Check, allows, is_number, is_same, resolve, types_of
from moonshim.simulator.model.schema_merge import merge_schema
from moonshim.simulator.request import Json, OfferedTool

__all__ = ["arguments_for", "names_in", "sample"]

DEEPEST: Final = 12
SHALLOW: Final = 5
"""Below this depth, the simplest of several choices is taken, so that recursive schemas terminate."""
MOST_STEPS: Final = 2000
MOST_ITEMS: Final = 1000
_NAME: Final = re.compile(r"(?<=[a-z,] )[A-Z][\w-]+(?: [A-Z][\w-]+){0,2}")


def names_in(words: str) -> list[str]:
    """Names in a text: capitalised words that do not start a sentence.

    >>> names_in("What is the weather in New York, and in Paris? Tell me.")
    ['New York', 'Paris']
    """
    return list(dict.fromkeys(_NAME.findall(words)))


def arguments_for(
    tool: OfferedTool, facts: KnownFacts, *, text: str | None = None, optional: bool = False, number: int = 1
) -> Json:
    """Arguments for a tool: sensible ones for a tool that clients are known to offer; otherwise a sample of its schema.

    `text` is the content of free-text values. The default is a name that the user mentions, the `number`th for the
    `number`th call, or a marker word.
    """
    known = guesses(tool.name, facts if text is None else KnownFacts(text, facts.words))
    if known:
        return _Sampler(tool.schema, facts.mark, False).guide(known)
    names = names_in(facts.words)
    word = text or (names[number - 1] if number <= len(names) else facts.mark)
    value = sample(tool.schema, word=word, optional=optional)
    if not value and (text or names):
        value = _with_first_text(tool.schema, word)
    return value if isinstance(value, dict) else {}


def sample(schema: Any, *, word: str = "moonshim", optional: bool = False) -> Any:
    """A value that a schema allows, as far as it can be read; `word` is the content of free-text values.

    >>> sample({"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}},
    ...         "required": ["n"]})
    {'n': 1}
    >>> sample({"enum": ["b", "a"]}), sample({"type": ["integer", "null"], "minimum": 5})
    ('b', 5)
    """
    if not isinstance(schema, dict):
        return {}
    top = {"type": "object"} | schema if not _constrains_type(schema) else schema
    return _Sampler(top, word, optional).value(top)


def _constrains_type(schema: Json) -> bool:
    return any(key in schema for key in ("type", "$ref", "enum", "const", "anyOf", "oneOf", "allOf"))


def _with_first_text(schema: Json, word: str) -> Json:
    """For a tool without required parameters: fill its first free-text one, if the user mentions a value for it."""
    properties = schema.get("properties")
    for name, part in properties.items() if isinstance(properties, dict) else ():
        if (
            isinstance(part, dict)
            and types_of(part) == ["string"]
            and allows(part, word, schema)
            and "format" not in part
        ):
            made = {name: word}
            return made if allows(schema, made) else {}
    return {}


class _Sampler:
    """Generates values for one schema, in a bounded number of steps."""

    def __init__(self, root: Any, word: str, optional: bool) -> None:
        self._root = root
        self._word = word
        self._optional = optional
        self._allows = Check(root).allows
        self._steps = 0

    def guide(self, known: Json) -> Json:
        """An object in which known parameters have their known values, where the schema allows them."""
        root = resolve(self._root, self._root) if isinstance(self._root, dict) else {}
        if not isinstance(root.get("properties"), dict):
            # Nothing is declared: use the first parameter that the tool is known for.
            return {key: value[0] if isinstance(value, tuple) else value for key, value in [*known.items()][:1]}
        made = self._shape(root, known)
        return made if isinstance(made, dict) else {}

    def _shape(self, schema: Any, guess: Any, depth: int = 0, key: str = "") -> Any:
        """A guess, adapted to the schema."""
        if isinstance(guess, tuple):
            return next((one for one in guess if self._allows(schema, one)), self.value(schema, depth, key))
        if not isinstance(schema, dict):
            return guess
        schema = resolve(schema, self._root)
        properties = schema.get("properties")
        if isinstance(guess, dict) and isinstance(properties, dict):
            made = {
                name: self._shape(part, guess[name], depth + 1, name)
                for name, part in properties.items()
                if name in guess
            }
            return made | {name: self.value(part, depth + 1, name) for name, part in self._missing(schema, made)}
        if isinstance(guess, list) and "items" in schema:
            return [self._shape(schema["items"], one, depth + 1) for one in guess]
        return guess if self._allows(schema, guess) else self.value(schema, depth, key)

    def value(self, schema: Any, depth: int = 0, key: str = "") -> Any:
        """The first candidate that is allowed; if none is, the first one."""
        self._steps += 1
        if not isinstance(schema, dict) or depth > DEEPEST or self._steps > MOST_STEPS:
            return self._simplest(schema)
        first: Any = ...
        for candidate in self._candidates(merge_schema(schema, self._root), depth, key):
            if self._allows(schema, candidate):
                return candidate
            first = candidate if first is ... else first
        return self._word if first is ... else first

    def _simplest(self, schema: Any) -> Any:
        kinds = types_of(schema) if isinstance(schema, dict) else []
        made = {"object": {}, "array": [], "integer": 1, "number": 1, "boolean": True, "null": None}
        return made.get(kinds[0], self._word) if kinds else self._word

    def _candidates(self, schema: Json, depth: int, key: str) -> Iterator[Any]:
        if "const" in schema:
            yield schema["const"]
        if (
            self._optional
            and depth
            and key not in ("", None)
            and "null" in types_of(schema)
            and "default" not in schema
        ):
            yield None
        if "default" in schema:
            yield schema["default"]
        if isinstance(enum := schema.get("enum"), list):
            yield from enum
        for choice in ("anyOf", "oneOf"):
            parts = schema.get(choice)
            if isinstance(parts, list) and parts:
                rest = {name: value for name, value in schema.items() if name != choice}
                ordered = sorted(parts, key=_weight) if depth > SHALLOW else parts
                for part in ordered:
                    yield self.value({**rest, "allOf": [*rest.get("allOf", ()), part]}, depth + 1, key)
        if isinstance(examples := schema.get("examples"), list):
            yield from examples
        for kind in types_of(schema) or _likely(schema):
            yield from self._of_kind(kind, schema, depth, key)

    def _of_kind(self, kind: str, schema: Json, depth: int, key: str) -> Iterator[Any]:
        match kind:
            case "object":
                yield self._object(schema, depth)
            case "array":
                yield self._array(schema, depth, key)
            case "string":
                yield from texts_for(schema, word=self._word, key=key)
            case "integer" | "number":
                yield from _some_numbers(schema, whole=kind == "integer")
            case "boolean":
                yield from (True, False)
            case "null":
                yield None

    def _object(self, schema: Json, depth: int) -> Json:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        made = {name: self.value(part, depth + 1, name) for name, part in self._missing(schema, {})}
        minimum = schema.get("minProperties")
        least = minimum if isinstance(minimum, int) else 0
        for name, part in properties.items():
            enough = len(made) >= least and not (self._optional and depth < SHALLOW)
            if name not in made and not enough and part is not False:
                made[name] = self.value(part, depth + 1, name)
        other = schema.get("additionalProperties", True)
        for number in range(len(made), min(least, MOST_ITEMS)):
            if other is not False:
                made[f"{self._word}-{number}"] = self.value(other, depth + 1)
        return {name: made[name] for name in [*properties, *made] if name in made}

    def _missing(self, schema: Json, made: Json) -> Iterator[tuple[str, Any]]:
        """Required properties that are still missing."""
        required, properties = schema.get("required"), schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        for name in required if isinstance(required, list) else ():
            if isinstance(name, str) and name not in made:
                yield name, known.get(name, schema.get("additionalProperties", True))

    def _array(self, schema: Json, depth: int, key: str) -> list[Any]:
        first = schema.get("prefixItems")
        parts = first if isinstance(first, list) else []
        least = schema.get("minItems")
        least = least if isinstance(least, int) else 0
        if self._optional and depth < SHALLOW and schema.get("maxItems") != 0:
            least = max(least, 1)
        made = [self.value(part, depth + 1) for part in parts[: max(least, 0)]]
        if "contains" in schema:
            made.append(self.value({"allOf": [schema["contains"], schema.get("items", {})]}, depth + 1))
        unique = schema.get("uniqueItems") is True
        items = schema.get("items", True)
        while len(made) < min(least, MOST_ITEMS):
            made.append(self._another(items, made, depth) if unique else self.value(items, depth + 1))
        return made

    def _another(self, items: Any, made: list[Any], depth: int) -> Any:
        """An item that is not in the list yet."""
        own, self._word = self._word, f"{self._word}-{len(made) + 1}" if made else self._word
        first = self.value(items, depth + 1)
        self._word = own
        part = merge_schema(items, self._root) if isinstance(items, dict) else {}
        for one in chain([first], _others(part, len(made))):
            if self._allows(items, one) and not any(is_same(one, other) for other in made):
                return one
        return first


def _others(items: Json, number: int) -> Iterator[Any]:
    """More values like the items of a list that already has `number` of them."""
    yield from items["enum"] if isinstance(items.get("enum"), list) else ()
    step = items["multipleOf"] if is_number(items.get("multipleOf")) else 1
    started = next(_some_numbers(items, whole="integer" in types_of(items)), 0)
    yield from (started + step * offset for offset in (number, *range(-number, number)))
    yield from (True, False, None)


def _likely(schema: Json) -> tuple[str, ...]:
    """The types that a schema without `type` is probably about; string first."""
    about = {
        "object": ("properties", "required", "additionalProperties", "minProperties"),
        "array": ("items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems"),
        "number": ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"),
    }
    facts = [kind for kind, keys in about.items() if any(key in schema for key in keys)]
    return (*facts, *(kind for kind in ("string", *TYPES) if kind not in facts))


def _some_numbers(schema: Json, *, whole: bool) -> Iterator[float]:
    """The same, with a fallback for bounds and steps that exceed Python's floats."""
    try:
        yield from _numbers(schema, whole=whole)
    except (OverflowError, ValueError):
        yield from (schema[key] for key in ("minimum", "maximum") if is_number(schema.get(key)))
        yield 1


def _numbers(schema: Json, *, whole: bool) -> Iterator[float]:
    """Numbers that may be allowed, the most ordinary first."""

    def bound(*keys: str) -> float | None:
        return next((schema[key] for key in keys if is_number(schema.get(key))), None)

    least, most, step = bound("minimum", "exclusiveMinimum"), bound("maximum", "exclusiveMaximum"), bound("multipleOf")
    if step:
        start = math.ceil((least if least is not None else min(step, most) if most is not None else step) / step)
        if most is not None and start * step > most:
            start = math.floor(most / step)
        yield from ((start + offset) * step for offset in (0, 1, -1, 2))
    if least is None and most is None:
        yield 1 if whole else 1.5
        return
    low = least if least is not None else most - 1 if most is not None else 0
    high = most if most is not None else low + 1
    for value in (low, 1, math.floor(low) + 1, math.ceil(low), high, math.ceil(high) - 1, math.floor(high)):
        yield int(value) if whole and float(value).is_integer() else value
    yield (low + high) / 2


def _weight(part: Any) -> int:
    """How complex a choice is: null is the lightest."""
    if not isinstance(part, dict):
        return 1
    if types_of(part) == ["null"]:
        return 0
    return 1 if types_of(part) and types_of(part)[0] not in ("object", "array") else 3 if "$ref" in part else 2
