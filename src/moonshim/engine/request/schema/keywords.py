"""Any JSON Schema keywords on one level -> keywords that Moonshot supports, with the same or a wider meaning.

Dropped keywords only ever narrow the accepted values. Short ones are added to the description, where the model reads
them; every value valid under the old schema stays valid.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from moonshim.engine.request.schema.merge import Json, is_number, same

__all__ = ["ELSEWHERE", "noted", "supported", "told"]

_KEPT: Final = frozenset(
    {
        "type", "enum", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
        "minLength", "maxLength", "pattern", "minimum", "maximum", "anyOf", "allOf", "$ref",
        "title", "description", "default",
    }
)  # fmt: skip
ELSEWHERE: Final = frozenset({"$defs", "definitions", "$id"})
"""Read only through references; the root keeps those it may have."""
_TOLD: Final = frozenset(
    {
        "format", "examples", "multipleOf", "uniqueItems", "minProperties", "maxProperties", "not", "if", "then",
        "else", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "contains", "minContains",
        "maxContains", "unevaluatedProperties", "unevaluatedItems", "contentEncoding", "contentMediaType",
        "contentSchema", "deprecated", "readOnly", "writeOnly", "patternProperties", "prefixItems",
    }
)  # fmt: skip
_SHORT: Final = 300


def noted(description: Any, *notes: str) -> str:
    """Append notes to a description, in brackets.

    >>> noted("When it begins.", "format: date-time")
    'When it begins. [format: date-time]'
    """
    said = f"[{'; '.join(notes)}]"
    return f"{description} {said}" if isinstance(description, str) and description else said


def told(word: str, value: Any) -> str | None:
    """A keyword as a note, or None if it is too long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{word}: {text}" if len(text) <= _SHORT else None


def supported(schema: Json, changes: list[str]) -> Json:
    """Never raises, and modifies only its own copies; each change is one sentence without its path."""
    words = dict(schema)
    notes: list[str] = []
    for convert in (_const, _one_of, _nullable, _tuple, _pattern_properties, _exclusive):
        convert(words, notes, changes)
    for word in [word for word in words if word not in _KEPT]:
        value = words.pop(word)
        if word in ELSEWHERE:
            continue
        note = told(word, value) if word in _TOLD else None
        if note is not None:
            notes.append(note)
        changes.append(f"{word} is not supported and was {'moved into the description' if note else 'left out'}")
    for word in ("title", "description"):
        if word in words and not isinstance(words[word], str):
            del words[word]
            changes.append(f"{word} was left out, since it is no text")
    if notes:
        words["description"] = noted(words.get("description"), *notes)
    return words


def _const(words: Json, notes: list[str], changes: list[str]) -> None:
    if "const" not in words:
        return
    value = words.pop("const")
    enum = words.get("enum")
    if not isinstance(enum, list) or any(same(value, entry) for entry in enum):
        words["enum"] = [value]
    else:
        words["enum"] = []
    changes.append("const became an enum of one value")


def _one_of(words: Json, notes: list[str], changes: list[str]) -> None:
    if "oneOf" not in words:
        return
    branches = words.pop("oneOf")
    if "anyOf" in words:
        words["allOf"] = [*_list(words.get("allOf")), {"anyOf": branches}]
    else:
        words["anyOf"] = branches
    changes.append("oneOf became anyOf, so that several of its schemas may fit")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _nullable(words: Json, notes: list[str], changes: list[str]) -> None:
    """OpenAPI's way to allow null."""
    if "nullable" not in words:
        return
    if words.pop("nullable") is True:
        if isinstance(words.get("type"), str):
            words["type"] = [words["type"], "null"]
        if isinstance(words.get("enum"), list):
            words["enum"] = [*words["enum"], None]
        if isinstance(words.get("anyOf"), list):
            words["anyOf"] = [*words["anyOf"], {"type": "null"}]
    changes.append("nullable became the type null")


def _tuple(words: Json, notes: list[str], changes: list[str]) -> None:
    """Positional items become items of any of these types."""
    if isinstance(words.get("items"), list):
        words["prefixItems"], rest = words.pop("items"), words.pop("additionalItems", True)
        words["items"] = rest
    prefix = words.get("prefixItems")
    if not isinstance(prefix, list):
        return
    rest, most = words.pop("items", True), words.get("maxItems")
    if rest is False:
        words["maxItems"] = min(most, len(prefix)) if is_number(most) else len(prefix)
    bounded = rest is False or (is_number(most) and most <= len(prefix))
    if prefix and (bounded or rest is not True):
        words["items"] = {"anyOf": prefix if bounded else [*prefix, rest]}
    elif not prefix and rest is not True:
        words["items"] = rest


def _pattern_properties(words: Json, notes: list[str], changes: list[str]) -> None:
    """A property allowed by a pattern must stay allowed."""
    patterns, others = words.get("patternProperties"), words.get("additionalProperties", True)
    if isinstance(patterns, dict) and patterns and others is not True:
        kinds = list(patterns.values())
        words["additionalProperties"] = {"anyOf": kinds if others is False else [*kinds, others]}


def _exclusive(words: Json, notes: list[str], changes: list[str]) -> None:
    """Exact for integers; for other numbers the bound itself is accepted too."""
    for word, limit, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        if word not in words:
            continue
        value = words.pop(word)
        bound = words.get(limit) if value is True else value
        if not is_number(bound):
            changes.append(f"{word} was left out")
            continue
        if words.get("type") == "integer":
            bound = (math.floor(bound) if step > 0 else math.ceil(bound)) + step
            changes.append(f"{word} became {limit} {bound}")
        else:
            notes.append(f"{word}: {bound}")
            changes.append(f"{word} became {limit}, and that it is excluded was moved into the description")
        before = words.get(limit)
        if is_number(before):
            bound = max(bound, before) if step > 0 else min(bound, before)
        words[limit] = bound
