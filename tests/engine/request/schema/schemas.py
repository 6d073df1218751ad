"""Schemas as clients send them, and values for them, for property tests."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

__all__ = ["root_schemas", "values"]

NAMES: Final = ("a", "b", "c", "x/y", "required", "Key1")
_names = st.sampled_from(NAMES)
_leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 6), st.sampled_from([0.5, 2.0, -1.5]), st.sampled_from(["", "a", "abc"])
)
_TYPES: Final = ("string", "integer", "number", "boolean", "null", "object", "array")
_counts = st.integers(0, 3)
_REFERENCES: Final = ("#", "#/$defs/A", "#/$defs/B", "#/definitions/C", "#/$defs/A/properties/a", "#/properties/a")

values = st.recursive(
    _leaves,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_names, below, max_size=3),
    max_leaves=5,
)


def _words(**of: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=of)


_notes = _words(
    title=st.just("T"),
    description=st.sampled_from(["What it is.", ""]),
    default=values,
    examples=st.just([1]),
    deprecated=st.just(True),
)
_plain = _words(
    type=st.sampled_from(_TYPES) | st.lists(st.sampled_from(_TYPES), min_size=1, max_size=3),
    enum=st.lists(values, min_size=1, max_size=4),
    const=values,
    minLength=_counts,
    maxLength=_counts,
    pattern=st.sampled_from(["^a", "b"]),
    format=st.sampled_from(["date", "uri"]),
    minimum=st.sampled_from([-1, 0, 0.5, 2]),
    maximum=st.sampled_from([0, 1.5, 5]),
    exclusiveMinimum=st.sampled_from([-1, 0.5]),
    exclusiveMaximum=st.sampled_from([3, 4.5]),
    multipleOf=st.sampled_from([2, 0.5]),
)


def _typed(below: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """What people write: one type with the keywords that go with it."""
    return st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("string")}, optional={"enum": st.just(["a", "abc"]), "minLength": _counts}
        ),
        st.fixed_dictionaries({"type": st.just("integer")}, optional={"exclusiveMinimum": st.just(0)}),
        st.fixed_dictionaries({"type": st.just("array")}, optional={"items": below, "maxItems": _counts}),
        st.fixed_dictionaries({"type": st.just("object")}, optional=_of_object(below)),
        st.builds(lambda one, default: {"anyOf": [one, {"type": "null"}], "default": default}, below, st.none()),
        st.builds(lambda one: {"allOf": [one], "description": "One."}, below),
    )


def _of_object(below: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "properties": st.dictionaries(_names, below, max_size=3),
        "required": st.lists(_names, max_size=2),
        "additionalProperties": st.booleans() | below,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "[0-9]"]), below, max_size=2),
        "minProperties": st.integers(0, 1),
        "propertyNames": st.just({}),
    }


def _anything(below: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    some = st.lists(below, min_size=1, max_size=3)
    deep = _words(
        items=below,
        prefixItems=some,
        minItems=_counts,
        maxItems=_counts,
        uniqueItems=st.just(True),
        anyOf=some,
        oneOf=some,
        allOf=some,
        **{"not": below, "if": below, "then": below, "else": below},
        **_of_object(below),
    )
    reference = _words(**{"$ref": st.sampled_from(_REFERENCES)})
    return st.builds(lambda *parts: _few([word for part in parts for word in part.items()]), deep, reference, _plain)


def _few(words: list[tuple[str, Any]]) -> dict[str, Any]:
    """Not all keywords at once: nothing would fit them."""
    return dict(words[:: max(1, len(words) // 3)])


_leaf = st.one_of(
    st.builds(lambda name: {"type": name}, st.sampled_from(_TYPES)),
    st.builds(lambda to: {"$ref": to}, st.sampled_from(_REFERENCES)),
    st.builds(lambda to: {"$ref": to, "description": "There."}, st.sampled_from(_REFERENCES)),
    st.builds(lambda plain, notes: _few([*plain.items(), *notes.items()]), _plain, _notes),
    st.booleans(),
    st.just({}),
)
_schemas = st.recursive(_leaf, lambda below: _typed(below) | _anything(below), max_leaves=6)


def _root(words: dict[str, Any], below: dict[str, Any], a: Any, definitions: list[Any]) -> dict[str, Any]:
    one, two, three = definitions
    properties = {"a": a, **below.pop("properties", {})}
    defs = {"A": {"type": "object", "properties": {"a": one}}, "B": two}
    return {**words, "type": "object", **below, "properties": properties, "$defs": defs, "definitions": {"C": three}}


root_schemas = st.builds(
    _root,
    _words(**{"$schema": st.just("https://json-schema.org/draft/2020-12/schema"), "title": st.just("Root")}),
    _words(**_of_object(_schemas)) | _words(anyOf=st.lists(_schemas, min_size=1, max_size=2), required=st.just(["a"])),
    _schemas,
    st.lists(_schemas, min_size=3, max_size=3),
)
