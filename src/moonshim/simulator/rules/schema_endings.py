"""The references of a tool's schema -> how deep they lead, and whether a value could ever be finite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator.rules.schema_words import Json, Path, SchemaRejected

__all__ = ["References"]

MOST_STEPS: Final = 100_000
"""A few hundred mutual references can be followed in more ways than there is time for."""
_ENDLESS: Final = "detected infinite recursion without termination condition"


class References:
    """Follows the references of one schema, within a server's time limit."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._depths: dict[str, int] = {}
        self._steps = 0

    def depth_of(self, reference: str) -> int:
        """How many levels of properties a reference adds, entering each definition once on the way."""
        target = self._resolve(reference)
        return 0 if target is None or reference == "#" else self._depth(target, frozenset({reference}))[0]

    def check(self) -> None:
        """Raise if a reference is dangling or endlessly recursive."""
        for reference, _ in _references(self._root, definitions=True):
            if self._resolve(reference) is None:
                raise SchemaRejected(f"invalid $ref path: {reference}", ())
        if self._ends(self._root, set()):
            return
        for reference, path in _references(self._root):
            target = self._resolve(reference)
            if target is not None and not self._ends(target, {reference}):
                raise SchemaRejected(_ENDLESS, path)

    def _resolve(self, reference: str) -> Json | None:
        """The target of a reference; None if the path leads through anything but objects, as Moonshot reads it."""
        found: Any = self._root
        for part in reference[2:].split("/") if reference != "#" else ():
            found = found.get(part) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else None

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise SchemaRejected(_ENDLESS, ())

    def _depth(self, schema: Json, entered: frozenset[str]) -> tuple[int, bool]:
        """The depth, and whether it is the same from everywhere, which makes it cacheable."""
        self._step()
        deepest, certain = 0, True
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference in entered:
            certain = False
        elif isinstance(reference, str) and (target := self._resolve(reference)) is not None:
            if reference not in self._depths:
                deepest, certain = self._depth(target, entered | {reference})
                if certain:
                    self._depths[reference] = deepest
            deepest = self._depths.get(reference, deepest)
        for name, below in _below(schema):
            if name != ("items",):  # Moonshot does not look inside items here
                depth, sure = self._depth(below, entered)
                deepest, certain = max(deepest, (name[0] == "properties") + depth), certain and sure
        return deepest, certain

    def _ends(self, schema: Json, entered: set[str]) -> bool:
        """Whether Moonshot sees an end: one required property that ends is enough for it, an empty list is not."""
        self._step()
        types = schema.get("type", [])
        names = types if isinstance(types, list) else [types]
        if not schema or any(name not in ("object", "array") for name in names):
            return True
        if "array" in names:
            if not schema.get("items") or self._ends(schema["items"], entered):
                return True
        elif "object" in names:
            required, properties = {*schema.get("required", ())}, schema.get("properties")
            if not required or not properties:
                return True
            if any(self._ends(below, entered) for key, below in properties.items() if key in required):
                return True
        branches = [(branch, {*entered}) for branch in schema.get("anyOf", ())]
        if any(self._ends(branch, seen) for branch, seen in branches):
            return True
        entered.update(*(seen for _, seen in branches))
        reference = schema.get("$ref")
        if not isinstance(reference, str) or reference in entered:
            return False
        entered.add(reference)
        target = self._resolve(reference)
        return target is not None and self._ends(target, entered)


def _references(schema: Any, path: Path = (), *, definitions: bool = False) -> Iterator[tuple[str, Path]]:
    """Each reference below, with its path; those inside definitions only on request."""
    if isinstance(schema.get("$ref"), str):
        yield schema["$ref"], path
    for name, below in _below(schema):
        yield from _references(below, (*path, *name), definitions=definitions)
    defs = schema.get("$defs")
    if definitions and isinstance(defs, dict):
        for key, below in defs.items():
            yield from _references(below, (*path, "$defs", key))


def _below(schema: Json) -> Iterator[tuple[Path, Json]]:
    properties = schema.get("properties")
    for key, below in properties.items() if isinstance(properties, dict) else ():
        yield ("properties", key), below
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield (word,), schema[word]
    for branch in schema.get("anyOf", ()):
        yield ("anyOf",), branch
