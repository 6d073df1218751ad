"""The references of a tool's schema -> how deep they lead, and whether a value could ever be finished."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moonshim.simulator.rules.schema_words import Json, Path, Refused

__all__ = ["check_references", "depth_behind", "references"]


def resolve(root: Json, reference: str) -> Json | None:
    """What a reference names; nothing where the way does not lead over objects only, as Moonshot reads it."""
    found: Any = root
    for part in reference[2:].split("/") if reference != "#" else ():
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def references(schema: Any, path: Path = (), *, definitions: bool = False) -> Iterator[tuple[str, Path]]:
    """Each reference below, with its place; those inside definitions only on demand."""
    if isinstance(schema.get("$ref"), str):
        yield schema["$ref"], path
    for name, below in _below(schema):
        yield from references(below, (*path, *name), definitions=definitions)
    defs = schema.get("$defs")
    if definitions and isinstance(defs, dict):
        for key, below in defs.items():
            yield from references(below, (*path, "$defs", key))


def _below(schema: Json) -> Iterator[tuple[Path, Json]]:
    properties = schema.get("properties")
    for key, below in properties.items() if isinstance(properties, dict) else ():
        yield ("properties", key), below
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield (word,), schema[word]
    for branch in schema.get("anyOf", ()):
        yield ("anyOf",), branch


def depth_behind(root: Json, reference: str, known: dict[str, int]) -> int:
    """How many levels of properties stand behind a reference, each definition entered once on the way."""
    target = resolve(root, reference)
    return 0 if target is None or reference == "#" else _depth(root, target, frozenset({reference}), known)[0]


def _depth(root: Json, schema: Json, entered: frozenset[str], known: dict[str, int]) -> tuple[int, bool]:
    """The depth, and whether it is the same from everywhere, which is what may be remembered."""
    deepest, certain = 0, True
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference in entered:
        certain = False
    elif isinstance(reference, str) and (target := resolve(root, reference)) is not None:
        if reference not in known:
            deepest, certain = _depth(root, target, entered | {reference}, known)
            if certain:
                known[reference] = deepest
        deepest = known.get(reference, deepest)
    for name, below in _below(schema):
        if name != ("items",):  # Moonshot does not look behind items here
            depth, sure = _depth(root, below, entered, known)
            deepest, certain = max(deepest, (name[0] == "properties") + depth), certain and sure
    return deepest, certain


def check_references(root: Json) -> None:
    """Raises where a reference leads nowhere, or round and round without end."""
    for reference, _ in references(root, definitions=True):
        if resolve(root, reference) is None:
            raise Refused(f"invalid $ref path: {reference}", ())
    if _ends(root, root, set()):
        return
    for reference, path in references(root):
        target = resolve(root, reference)
        if target is not None and not _ends(root, target, {reference}):
            raise Refused("detected infinite recursion without termination condition", path)


def _ends(root: Json, schema: Json, entered: set[str]) -> bool:
    """Whether Moonshot sees an end: one required property that ends is enough for it, an empty list is not."""
    types = schema.get("type", [])
    names = types if isinstance(types, list) else [types]
    if not schema or any(name not in ("object", "array") for name in names):
        return True
    if "array" in names:
        if not schema.get("items") or _ends(root, schema["items"], entered):
            return True
    elif "object" in names:
        required, properties = schema.get("required"), schema.get("properties")
        if not required or not properties:
            return True
        if any(_ends(root, below, entered) for key, below in properties.items() if key in required):
            return True
    branches = [(branch, {*entered}) for branch in schema.get("anyOf", ())]
    if any(_ends(root, branch, seen) for branch, seen in branches):
        return True
    entered.update(*(seen for _, seen in branches))
    reference = schema.get("$ref")
    if not isinstance(reference, str) or reference in entered:
        return False
    entered.add(reference)
    target = resolve(root, reference)
    return target is not None and _ends(root, target, entered)
