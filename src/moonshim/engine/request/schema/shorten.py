"""A schema in Moonshot's flavour that is too large -> a shorter one that accepts the same values.

What it repeats is written once, which loses nothing. Only then are titles removed and descriptions cut, those deep in
the schema before those of the parameters themselves. The result depends on the schema and the limit alone, so a tool is
sent with the same bytes in every turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import Struct

from moonshim.engine.request.schema.merge import Json
from moonshim.engine.request.schema.weight import size_of

__all__ = ["shorten_schema"]

_NOTES: Final = ("title", "description")
_STEPS: Final = (
    (2000, 4000), (1000, 2000), (400, 1000), (200, 400), (100, 200), (50, 200), (50, 100), (0, 100), (0, 50), (0, 0),
)  # fmt: skip
"""Longest description of a nested level, and of the schema and its parameters themselves, in characters."""
_SHORTEST_SHARED: Final = 60
"""Bytes of a repeated schema that are worth a definition: a reference takes about 30."""
_Cut: TypeAlias = Callable[[Json, int], Json]


def shorten_schema(schema: Json, limit: int, changes: list[str]) -> Json:
    """The schema with at most `limit` bytes, if that is possible; as short as possible if not."""
    shared = _Sharing(schema)
    if shared.count:
        schema = shared.result
        changes.append("At path 'root': repeated schemas were moved into $defs, because it is too large")
        if size_of(schema) <= limit:
            return schema
    untitled = _map_levels(schema, lambda level, _: {key: value for key, value in level.items() if key != "title"})
    if untitled != schema:
        schema = untitled
        changes.append("At path 'root': titles were removed, because it is too large")
        if size_of(schema) <= limit:
            return schema
    shorter, nested, top = schema, *_STEPS[0]
    for nested, top in _STEPS:
        shorter = _map_levels(schema, _cut_to(nested, top))
        if size_of(shorter) <= limit:
            break
    if shorter != schema:
        changes.append(
            "At path 'root': descriptions were cut, because it is too large:"
            f" to {top} characters for parameters, to {nested} below them"
        )
    return shorter


def _cut_to(nested: int, top: int) -> _Cut:
    def cut(level: Json, depth: int) -> Json:
        text, room = level.get("description"), top if depth <= 1 else nested
        if not isinstance(text, str) or len(text) <= room:
            return level
        if not room:
            return {key: value for key, value in level.items() if key != "description"}
        return level | {"description": f"{text[: room - 1].rstrip()}…"}

    return cut


def _map_levels(schema: Json, change: _Cut, depth: int = 0) -> Json:
    """The schema with every level changed; `depth` counts levels, and those in definitions are never at the top."""
    out = _map_children(schema, lambda below: _map_levels(below, change, depth + 1))
    if "$defs" in out:
        out["$defs"] = {name: _map_levels(each, change, 2) for name, each in out["$defs"].items()}
    return change(out, depth)


def _map_children(level: Json, change: Callable[[Json], Any]) -> Json:
    out = dict(level)
    if "properties" in out:
        out["properties"] = {name: change(below) for name, below in out["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(out.get(keyword), dict):
            out[keyword] = change(out[keyword])
    if "anyOf" in out:
        out["anyOf"] = [change(branch) for branch in out["anyOf"]]
    return out


class _Body(Struct):
    """A level without its title and description. Equal levels have one body."""

    level: Json
    """Its subschemas are pairs of a body's number and the notes at this place."""
    size: int
    is_slashed: bool
    """Whether a key in it has a slash, which Moonshot does not accept in a definition."""
    uses: int = 0


class _Sharing:
    """The schema with every body that several others contain as a definition. Work is linear in its size."""

    def __init__(self, schema: Json) -> None:
        self._bodies: list[_Body] = []
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        definitions = schema.get("$defs", {})
        root = self._read({key: value for key, value in schema.items() if key != "$defs"})
        known = {name: self._read(each) for name, each in definitions.items()}
        self._name_shared(definitions.keys())
        self.count = len(self._names)
        """Number of new definitions."""
        self.result = self._write_body(root)
        written = {name: self._write_body(pair) for name, pair in known.items()}
        written |= {name: self._write_level(self._bodies[number].level) for number, name in self._names.items()}
        if written:
            self.result["$defs"] = written

    def _read(self, level: Json) -> tuple[int, Json]:
        """The number of its body, and its notes."""
        notes: Json = {key: level[key] for key in _NOTES if key in level}
        body = _map_children({key: value for key, value in level.items() if key not in _NOTES}, self._read)
        text = json.dumps(body)
        if text not in self._numbers:
            below = _pairs(body)
            size = len(text) + sum(self._bodies[number].size for number, _ in below)
            slashed = _has_slash(body) or any(self._bodies[number].is_slashed for number, _ in below)
            self._numbers[text] = len(self._bodies)
            self._bodies.append(_Body(body, size, slashed))
            for number, _ in below:
                self._bodies[number].uses += 1
        return self._numbers[text], notes

    def _name_shared(self, taken: Any) -> None:
        for number, body in enumerate(self._bodies):
            if body.uses > 1 and body.size > _SHORTEST_SHARED and not body.is_slashed:
                at = len(self._names) + 1
                while f"shared_{at}" in taken or f"shared_{at}" in self._names.values():
                    at += 1
                self._names[number] = f"shared_{at}"

    def _write(self, pair: tuple[int, Json]) -> Json:
        name = self._names.get(pair[0])
        return self._write_body(pair) if name is None else {"$ref": f"#/$defs/{name}", **pair[1]}

    def _write_body(self, pair: tuple[int, Json]) -> Json:
        return {**self._write_level(self._bodies[pair[0]].level), **pair[1]}

    def _write_level(self, level: Json) -> Json:
        out = dict(level)
        if "properties" in out:
            out["properties"] = {name: self._write(pair) for name, pair in out["properties"].items()}
        for keyword in ("items", "additionalProperties"):
            if isinstance(out.get(keyword), tuple):
                out[keyword] = self._write(out[keyword])
        if "anyOf" in out:
            out["anyOf"] = [self._write(pair) for pair in out["anyOf"]]
        return out


def _pairs(level: Json) -> list[tuple[int, Json]]:
    """The subschemas of a body."""
    found = [*level.get("properties", {}).values(), *level.get("anyOf", ())]
    return found + [
        level[keyword] for keyword in ("items", "additionalProperties") if isinstance(level.get(keyword), tuple)
    ]


def _has_slash(value: Any) -> bool:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if any("/" in key for key in part):
                return True
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
    return False
