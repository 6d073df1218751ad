"""Reads declared schemas: which kinds of values they allow at each place, and which schema applies inside.

Schemas are other people's: whatever is not understood has no opinion, which is always safe. So is what a value costs to
be compared with: nothing here grows with the product of a schema and a response, and no pattern is ever run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, ge, gt, le, lt, or_
from typing import Any, Final, TypeAlias

__all__ = [
    "ARRAY",
    "FRACTION",
    "KIND_OF_BRACKET",
    "KIND_OF_WORD",
    "NUMBER",
    "OBJECT",
    "Node",
    "Schema",
    "SchemaPosition",
]

_BITS: Final = tuple(1 << bit for bit in range(7))
_NULL, _BOOLEAN, _INTEGER, FRACTION, _STRING, ARRAY, OBJECT = _BITS
NUMBER: Final = _INTEGER | FRACTION
_ALL: Final = sum(_BITS)
_MENDABLE: Final = _BOOLEAN | NUMBER | ARRAY | OBJECT

_NAMES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
_KIND_NAMED: Final = dict(zip(_NAMES, _BITS, strict=True)) | {"number": NUMBER}
_KIND_OF: Final[dict[type, int]] = dict(zip((type(None), bool, int, float, str, list, dict), _BITS, strict=True))
_STARTS: Final = ((_NULL, "n"), (_BOOLEAN, "tf"), (NUMBER, "-0123456789"), (ARRAY, "["), (OBJECT, "{"))
"""What the text of each kind can begin with."""
KIND_OF_WORD: Final = {"null": _NULL, "true": _BOOLEAN, "false": _BOOLEAN}
KIND_OF_BRACKET: Final = {"{": OBJECT, "[": ARRAY}

_BOUNDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": ge,
    "maximum": le,
    "exclusiveMinimum": gt,
    "exclusiveMaximum": lt,
}

# What goes beyond these has no opinion.
_INDEX_DIGITS: Final = 9
_EXPAND_DEPTH: Final = 64
_CHECK_DEPTH: Final = 64
_ALTERNATIVES: Final = 64
_TOGETHER: Final = 16
_NODES: Final = 1024
_LARGE_CHOICES: Final = 32
"""How many objects and lists among the choices a value is compared with."""


class _Leaf:
    """What one schema object says itself, without the keywords that lead to others for the same value."""

    def __init__(self, schema: dict[Any, Any]) -> None:
        self.kinds = _declared_kinds(schema)
        self.strings = [one for one in (*_list(schema.get("enum")), schema.get("const")) if isinstance(one, str)]
        items, prefix = schema.get("items"), schema.get("prefixItems")
        if isinstance(items, list):
            items, prefix = schema.get("additionalItems"), items
        properties, additional = schema.get("properties"), schema.get("additionalProperties")
        properties = properties if isinstance(properties, dict) else {}
        self.named: dict[int, dict[Any, Any]] = {OBJECT: properties, ARRAY: dict(enumerate(_list(prefix)))}
        # A pattern may or may not catch a key that is not declared: no opinion.
        self.rest = {OBJECT: True if schema.get("patternProperties") else additional, ARRAY: items}
        self._choices = _Choices([*_list(schema.get("enum")), *([schema["const"]] if "const" in schema else [])])
        self._bounds = [(compare, limit) for key, compare in _BOUNDS.items() if _is_number(limit := schema.get(key))]
        self._required = frozenset(key for key in _list(schema.get("required")) if isinstance(key, str))
        self._closed = additional is False and not schema.get("patternProperties")
        inside = any(self.named.values()) or additional is not None or items is not None
        said = self._choices.count or self._bounds or self._required
        self.has_opinion = inside or bool(said) or self.kinds != _ALL

    def allows(self, value: Any, *, alone: bool) -> bool:
        """Whether the value itself is allowed, whatever is in it. `alone`: no other part of an `allOf` adds keys."""
        if not self._choices.allow(value):
            return False
        if isinstance(value, dict):
            return self._required <= value.keys() and not (
                self._closed and alone and not value.keys() <= self.named[OBJECT].keys()
            )
        return not _is_number(value) or all(compare(value, limit) for compare, limit in self._bounds)


class _Choices:
    """The values of `enum` and `const`. True is not 1 among them, though Python says so."""

    def __init__(self, values: list[Any]) -> None:
        self.count = len(values)
        self._small = frozenset((type(one) is bool, one) for one in values if not isinstance(one, (dict, list)))
        self._large = [one for one in values if isinstance(one, (dict, list))]

    def allow(self, value: Any) -> bool:
        if not self.count:
            return True
        if isinstance(value, (dict, list)):
            return len(self._large) > _LARGE_CHOICES or value in self._large
        return (type(value) is bool, value) in self._small


_REST: Final = object()
"""Stands for every property, or item, that is not declared by name, or place."""

_Leaves: TypeAlias = tuple[_Leaf, ...]
"""All of them hold at once; none of them: anything goes."""
_Alternatives: TypeAlias = tuple[_Leaves, ...]
"""One of them holds; none: nothing is allowed."""

_ANYTHING: Final[_Alternatives] = ((),)


class Node:
    """What the schema says about one place in the value."""

    def __init__(self, schema: Schema, alternatives: _Alternatives) -> None:
        kinds = reduce(or_, map(_common, alternatives), 0)
        self.mendable = 0 if kinds & _STRING or not kinds & _MENDABLE else kinds
        """The kinds that a string may be taken for: none where strings are allowed."""
        self.starts = "\\" + "".join(start for kind, start in _STARTS if kind & self.mendable)
        self.strings = frozenset(one for leaves in alternatives for leaf in leaves for one in leaf.strings)
        """Those that were declared by name, and so stay what they are."""
        self._schema = schema
        self._alternatives = alternatives
        self._inside: dict[int, SchemaPosition] = {}

    def accepts(self, value: Any, depth: int = 0) -> bool:
        """Whether the schema, as far as it is understood, accepts this value here."""
        kind = _kind_of_value(value)
        fitting = (leaves for leaves in self._alternatives if not leaves or _common(leaves) & kind)
        if not any(all(leaf.allows(value, alone=len(leaves) == 1) for leaf in leaves) for leaves in fitting):
            return not self._alternatives
        if depth >= _CHECK_DEPTH or not isinstance(value, (dict, list)):
            return True
        inside = self.inside(kind)
        steps = value.items() if isinstance(value, dict) else enumerate(value)
        return not inside.has_opinion or all(inside.at(step).accepts(one, depth + 1) for step, one in steps)

    def inside(self, kind: int) -> SchemaPosition:
        """What is said about the inside of an object, or of an array, in this place."""
        if kind not in self._inside:
            fitting = [leaves for leaves in self._alternatives if _common(leaves) & kind]
            self._inside[kind] = SchemaPosition(self._schema, fitting, kind)
        return self._inside[kind]


class SchemaPosition:
    """What the schema says about the properties of an object, by name, or the items of an array, by place."""

    def __init__(self, schema: Schema, alternatives: list[_Leaves], kind: int) -> None:
        self._schema = schema
        self._alternatives = alternatives
        self._kind = kind
        self._declared = [named for leaves in alternatives for leaf in leaves if (named := leaf.named[kind])]
        self._named: dict[str | int, Node] = {}
        self._rest = self._find(_REST)
        self.has_opinion = bool(self._declared) or self._rest is not schema.anything

    def at(self, step: str | int) -> Node:
        found = self._named.get(step)
        if found is None:
            if not any(step in named for named in self._declared):
                return self._rest
            found = self._named[step] = self._find(step)
        return found

    def _find(self, step: object) -> Node:
        found: list[_Alternatives] = []
        for leaves in self._alternatives:
            # What one part of an `allOf` declares, the others do not mean to forbid.
            schemas = [named[step] for leaf in leaves if step in (named := leaf.named[self._kind])]
            schemas = schemas or [leaf.rest[self._kind] for leaf in leaves]
            found.append(_all_of([self._schema.expand(schema) for schema in schemas]))
        return self._schema.node(_any_of(found))


class Schema:
    """A declared schema, read where the value leads. Whatever its shape, reading it ends and never raises."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._expanded: dict[int, tuple[Any, _Alternatives]] = {}
        self._under_way: set[int] = set()
        self.anything = Node(self, _ANYTHING)
        self._nodes: dict[_Alternatives, Node] = {_ANYTHING: self.anything}
        self.top = self.node(self.expand(root))

    def node(self, alternatives: _Alternatives) -> Node:
        """Equal places are one node, so that a schema that contains itself stays finite."""
        found = self._nodes.get(alternatives or _ANYTHING)
        if found is None and len(self._nodes) < _NODES:
            found = self._nodes[alternatives] = Node(self, alternatives)
        return found or self.anything

    def expand(self, schema: Any) -> _Alternatives:
        """`$ref`, `allOf`, `anyOf` and `oneOf` taken apart."""
        if schema is False:
            return ()
        if not isinstance(schema, dict):
            return _ANYTHING
        me = id(schema)
        if me in self._expanded:
            return self._expanded[me][1]
        if me in self._under_way or len(self._under_way) >= _EXPAND_DEPTH:
            return _ANYTHING
        self._under_way.add(me)
        leaf = _Leaf(schema)
        factors: list[_Alternatives] = [((leaf,),) if leaf.has_opinion else _ANYTHING]
        factors.append(self.expand(self._resolve(schema.get("$ref"))))
        factors += [self.expand(part) for part in _list(schema.get("allOf"))]
        for choice in ("anyOf", "oneOf"):
            if branches := _list(schema.get(choice)):
                factors.append(_any_of([self.expand(branch) for branch in branches]))
        self._under_way.discard(me)
        # The schema is kept with its answer: as long as it lives, nothing else has its identity.
        self._expanded[me] = schema, _all_of(factors)
        return self._expanded[me][1]

    def _resolve(self, ref: Any) -> Any:
        """What a local reference points to; no opinion for any other."""
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            return True
        place = self._root
        for step in ref.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, list):
                is_index = step.isdecimal() and len(step) < _INDEX_DIGITS and int(step) < len(place)
                place = place[int(step)] if is_index else True
            elif isinstance(place, dict):
                place = place.get(step, True)
            else:
                return True
        return place


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _kind_of_value(value: Any) -> int:
    if isinstance(value, float):
        return NUMBER if value.is_integer() else FRACTION
    return _KIND_OF.get(type(value), _ALL)


def _any_of(choices: Sequence[_Alternatives]) -> _Alternatives:
    found = tuple(dict.fromkeys(leaves for choice in choices for leaves in choice))
    return _ANYTHING if () in found or len(found) > _ALTERNATIVES else found


def _all_of(factors: Sequence[_Alternatives]) -> _Alternatives:
    """Every combination. A part that would make too many is left out: that only allows more."""
    combined = _ANYTHING
    for factor in factors[:_ALTERNATIVES]:
        if factor == _ANYTHING or len(combined) * len(factor) > _ALTERNATIVES:
            continue
        joined = dict.fromkeys(tuple(dict.fromkeys(one + other)) for one in combined for other in factor)
        if all(len(leaves) <= _TOGETHER for leaves in joined):
            combined = tuple(joined)
    return combined


def _common(leaves: _Leaves) -> int:
    return reduce(and_, (leaf.kinds for leaf in leaves), _ALL)


def _declared_kinds(schema: dict[Any, Any]) -> int:
    declared = schema.get("type")
    kinds = _NULL if schema.get("nullable") is True else 0
    for name in declared if isinstance(declared, list) else [declared]:
        kinds |= _KIND_NAMED.get(name, _ALL) if isinstance(name, str) else _ALL
    for choices in (_list(schema.get("enum")), [schema["const"]] if "const" in schema else []):
        if choices:
            kinds &= reduce(or_, (_KIND_OF.get(type(choice), _ALL) for choice in choices))
    return kinds


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
