"""A schema in Moonshot's flavour -> the same schema within Moonshot's limits, with every recursion terminated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moonshim.engine.request.schema.merge import Json
from moonshim.engine.request.schema.shorten import shorten_schema
from moonshim.engine.request.schema.weight import MAX_SCHEMA_BYTES, child_path, own_weight, size_of, subschemas

__all__ = ["SchemaTooLarge", "enforce_limits", "too_large"]

_MAX_DEPTH: Final = 30
_MAX_PROPERTIES: Final = 3000
_MAX_STEPS: Final = 20_000
"""Maximum number of references followed through cycles before the schema counts as too deep."""
_ALL_TYPES: Final = ["string", "number", "boolean", "null", "object", "array"]
_MAX_NESTING: Final = 100
_PREFIX: Final = "#/$defs/"


class SchemaTooLarge(Exception):
    """Why Moonshot would refuse the schema, and where."""

    def __init__(self, message: str, path: str = "root") -> None:
        super().__init__(f"At path '{path}': {message}")


def too_large(limit: int) -> str:
    """The message for a schema that stays too large."""
    return f"schema exceeds the maximum allowed size of {limit} bytes"


def enforce_limits(schema: Json, changes: list[str], limit: int = MAX_SCHEMA_BYTES) -> Json:
    """Enforce the limits, `limit` being that of its size. Raises `SchemaTooLarge` if rewriting cannot help."""
    schema = _inline_slashed(schema, changes)
    _check_keys(schema)
    schema = _ensure_size(schema, changes, limit)
    ending = _ensure_termination(schema, changes)
    _check_depth(ending)
    return ending if ending is schema else _ensure_size(ending, changes, limit)


def _ensure_size(schema: Json, changes: list[str], limit: int) -> Json:
    if size_of(schema) <= limit:
        return schema
    shorter = shorten_schema(schema, limit, changes)
    if size_of(shorter) > limit:
        raise SchemaTooLarge(too_large(limit))
    return shorter


def _walk(schema: Json) -> Iterator[Json]:
    waiting = [schema, *schema.get("$defs", {}).values()]
    while waiting:
        level = waiting.pop()
        yield level
        waiting += (below for _, below in subschemas(level))


def _check_keys(schema: Json) -> None:
    total = sum(len(level.get("properties", ())) for level in _walk(schema))
    if total > _MAX_PROPERTIES:
        raise SchemaTooLarge(f"{total} properties exceed the maximum of {_MAX_PROPERTIES}")


def _check_depth(schema: Json) -> None:
    """Check the nesting of properties, including referenced definitions, each entered once per path."""
    levels = {"#": schema, **{f"{_PREFIX}{name}": each for name, each in schema.get("$defs", {}).items()}}
    reach = {name: _own_depth(level) for name, level in levels.items()}
    known = _known_depths(reach)
    steps = 0
    for start in levels:
        # The root is not entered again from itself; a definition may still lead back to it.
        waiting = [(start, 0, frozenset() if start == "#" else frozenset({start}))]
        while waiting:
            name, depth, entered = waiting.pop()
            own, edges = reach[name]
            steps += name not in known
            if steps > _MAX_STEPS or depth + known.get(name, own) > _MAX_DEPTH:
                raise SchemaTooLarge(
                    f"schema depth exceeds maximum limit of {_MAX_DEPTH}",
                    "root" if start == "#" else start[2:].replace("/", "."),
                )
            if name not in known:
                waiting += (
                    (target, depth + offset, entered | {target})
                    for target, offset in edges.items()
                    if target not in entered and (name, target) != ("#", "#")
                )


def _own_depth(level: Json) -> tuple[int, dict[str, int]]:
    """The depth of a schema by itself, and the depth of each reference in it."""
    deepest, edges = 0, dict[str, int]()
    waiting = [(level, 0)]
    while waiting:
        part, depth = waiting.pop()
        deepest = max(deepest, depth)
        if "$ref" in part:
            edges[part["$ref"]] = max(depth, edges.get(part["$ref"], 0))
        waiting += ((below, depth + is_property) for is_property, below in subschemas(part))
    return deepest, edges


def _known_depths(reach: dict[str, tuple[int, dict[str, int]]]) -> dict[str, int]:
    """The depth of every definition that leads into no cycle, each computed once."""
    users: dict[str, list[str]] = {}
    for name, (_, edges) in reach.items():
        for target in edges:
            users.setdefault(target, []).append(name)
    missing = {name: len(edges) for name, (_, edges) in reach.items()}
    ready = [name for name, count in missing.items() if not count]
    known: dict[str, int] = {}
    while ready:
        name = ready.pop()
        own, edges = reach[name]
        known[name] = max([own, *(offset + known[target] for target, offset in edges.items())])
        for user in users.get(name, ()):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return known


def _target(schema: Json, reference: str) -> Json:
    target: Json = schema if reference == "#" else schema["$defs"][reference.removeprefix(_PREFIX)]
    return target


# --- an end ----------------------------------------------------------------------------------------------------------


def _ensure_termination(schema: Json, changes: list[str]) -> Json:
    if _all_terminate(schema):
        return schema
    # Moonshot does not see that a list can be empty, or that a schema without a type accepts anything.
    helped: Json = _add_exits(schema)
    if not _all_terminate(helped):
        raise SchemaTooLarge("detected infinite recursion without termination condition")
    changes.append(
        "At path 'root': the end of each recursive list, and of each level without a type, was made explicit"
    )
    return helped


def _all_terminate(schema: Json) -> bool:
    if _terminates(schema, schema):
        return True
    waiting = [schema]
    while waiting:
        level = waiting.pop()
        if "$ref" in level and not _terminates(schema, level):
            return False
        waiting += (below for _, below in subschemas(level))
    return True


def _terminates(root: Json, start: Json) -> bool:
    """Whether Moonshot finds a path that is certain to terminate."""
    entered: set[str] = set()
    waiting = [start]
    while waiting:
        level = waiting.pop()
        types = level.get("type", [])
        names = types if isinstance(types, list) else [types]
        if not level or any(name not in ("object", "array") for name in names):
            return True
        if "array" in names:
            if not level.get("items"):
                return True
            waiting.append(level["items"])
        elif "object" in names:
            properties, required = level.get("properties"), level.get("required")
            if not properties or not required:
                return True
            waiting += (properties[name] for name in required if name in properties)
        waiting += level.get("anyOf", ())
        reference = level.get("$ref")
        if reference is not None and reference not in entered:
            entered.add(reference)
            waiting.append(_target(root, reference))
    return False


def _add_exits(value: Any) -> Any:
    """The same schema with an empty list as an alternative to each list, and all types where none is given."""
    out = dict(value)
    for keyword in ("properties", "$defs"):
        if keyword in out:
            out[keyword] = {name: _add_exits(below) for name, below in out[keyword].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(out.get(keyword), dict):
            out[keyword] = _add_exits(out[keyword])
    if "anyOf" in out:
        out["anyOf"] = [_add_exits(branch) for branch in out["anyOf"]]
    if out and out.keys() <= {"title", "description"}:
        return {"type": _ALL_TYPES, **out}
    if out.get("type") in ("array", ["array"]) and out.get("items") and not out.get("minItems") and "$defs" not in out:
        notes = {keyword: out.pop(keyword) for keyword in ("title", "description") if keyword in out}
        return {"anyOf": [{"type": "array", "maxItems": 0}, out], **notes}
    return out


# --- definitions whose names Moonshot does not take -------------------------------------------------------------------


def _inline_slashed(schema: Json, changes: list[str]) -> Json:
    """Inline definitions that have a slash in a property name."""
    definitions = schema.get("$defs", {})
    slashed = [name for name, each in definitions.items() if _has_slash(each)]
    if not slashed:
        return schema
    room, names = [MAX_SCHEMA_BYTES], {*slashed}
    out: Json = _inline(schema, names, definitions, (), room)
    remaining = {
        name: _inline(each, names, definitions, (), room) for name, each in definitions.items() if name not in names
    }
    del out["$defs"]
    if remaining:
        out["$defs"] = remaining
    changes += [
        f"At path '{child_path('', '$defs', name)}': was inlined where it is used, because a name in it has a slash"
        for name in slashed
    ]
    return _inline_slashed(out, changes)


def _has_slash(value: Any) -> bool:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as level:
                if any("/" in key for key in level):
                    return True
                waiting += level.values()
            case list() as level:
                waiting += level
    return False


def _inline(
    level: Json, names: set[str], definitions: Json, inside: tuple[str, ...], room: list[int], nested: int = 0
) -> Json:
    room[0] -= own_weight(level)
    if room[0] < 0:
        raise SchemaTooLarge(too_large(MAX_SCHEMA_BYTES))
    reference = str(level.get("$ref", "")).removeprefix(_PREFIX)
    if reference in inside or nested > _MAX_NESTING:
        raise SchemaTooLarge("it refers to itself and contains a name with a slash", f"$defs.{reference or inside[-1]}")
    if reference in names:
        target = _inline(definitions[reference], names, definitions, (*inside, reference), room, nested + 1)
        # What is said here is about this use of the definition.
        return target | {keyword: level[keyword] for keyword in ("title", "description") if keyword in level}

    def deeper(below: Json) -> Json:
        return _inline(below, names, definitions, inside, room, nested + 1)

    out = dict(level)
    if "properties" in out:
        out["properties"] = {name: deeper(below) for name, below in out["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(out.get(keyword), dict):
            out[keyword] = deeper(out[keyword])
    if "anyOf" in out:
        out["anyOf"] = [deeper(branch) for branch in out["anyOf"]]
    return out
