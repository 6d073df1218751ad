"""Any JSON Schema keywords on one level -> keywords that Moonshot supports, with the same or a wider meaning.

Dropped keywords only ever narrow the accepted values. Short ones are added to the description, where the model reads
them; every value valid under the old schema stays valid.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from moonshim.engine.request.schema.merge import Json, is_number, is_same_json

__all__ = ["ELSEWHERE", "append_notes", "convert_keywords", "render_note"]

_SUPPORTED: Final = frozenset(
    {
        "type", "enum", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
        "minLength", "maxLength", "pattern", "minimum", "maximum", "anyOf", "allOf", "$ref",
        "title", "description", "default",
    }
)  # fmt: skip
ELSEWHERE: Final = frozenset({"$defs", "definitions", "$id"})
"""Read only through references; the root keeps those it may have."""
_DESCRIBED: Final = frozenset(
    {
        "format", "examples", "multipleOf", "uniqueItems", "minProperties", "maxProperties", "not", "if", "then",
        "else", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "contains", "minContains",
        "maxContains", "unevaluatedProperties", "unevaluatedItems", "contentEncoding", "contentMediaType",
        "contentSchema", "deprecated", "readOnly", "writeOnly", "patternProperties", "prefixItems",
    }
)  # fmt: skip
_LONGEST_NOTE: Final = 300


def append_notes(description: Any, *notes: str) -> str:
    """Append notes to a description, in brackets.

    >>> append_notes("When it begins.", "format: date-time")
    'When it begins. [format: date-time]'
    """
    suffix = f"[{'; '.join(notes)}]"
    return f"{description} {suffix}" if isinstance(description, str) and description else suffix


def render_note(keyword: str, value: Any) -> str | None:
    """A keyword as a note, or None if it is too long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{keyword}: {text}" if len(text) <= _LONGEST_NOTE else None


def convert_keywords(schema: Json, changes: list[str]) -> Json:
    """Never raises, and modifies only its own copies; each change is one sentence without its path."""
    keywords = dict(schema)
    notes: list[str] = []
    for convert in (_const, _one_of, _nullable, _tuple, _pattern_properties, _exclusive):
        convert(keywords, notes, changes)
    for keyword in [keyword for keyword in keywords if keyword not in _SUPPORTED]:
        value = keywords.pop(keyword)
        if keyword in ELSEWHERE:
            continue
        note = render_note(keyword, value) if keyword in _DESCRIBED else None
        if note is not None:
            notes.append(note)
        changes.append(f"{keyword} is not supported and was {'moved into the description' if note else 'removed'}")
    for keyword in ("title", "description"):
        if keyword in keywords and not isinstance(keywords[keyword], str):
            del keywords[keyword]
            changes.append(f"{keyword} was removed, because it is not a string")
    if notes:
        keywords["description"] = append_notes(keywords.get("description"), *notes)
    return keywords


def _const(keywords: Json, notes: list[str], changes: list[str]) -> None:
    if "const" not in keywords:
        return
    value = keywords.pop("const")
    enum = keywords.get("enum")
    if not isinstance(enum, list) or any(is_same_json(value, entry) for entry in enum):
        keywords["enum"] = [value]
    else:
        keywords["enum"] = []
    changes.append("const became an enum of one value")


def _one_of(keywords: Json, notes: list[str], changes: list[str]) -> None:
    if "oneOf" not in keywords:
        return
    branches = keywords.pop("oneOf")
    if "anyOf" in keywords:
        keywords["allOf"] = [*_as_list(keywords.get("allOf")), {"anyOf": branches}]
    else:
        keywords["anyOf"] = branches
    changes.append("oneOf became anyOf, which also accepts values that match several of its schemas")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _nullable(keywords: Json, notes: list[str], changes: list[str]) -> None:
    """OpenAPI's way to allow null."""
    if "nullable" not in keywords:
        return
    if keywords.pop("nullable") is True:
        if isinstance(keywords.get("type"), str):
            keywords["type"] = [keywords["type"], "null"]
        if isinstance(keywords.get("enum"), list):
            keywords["enum"] = [*keywords["enum"], None]
        if isinstance(keywords.get("anyOf"), list):
            keywords["anyOf"] = [*keywords["anyOf"], {"type": "null"}]
    changes.append("nullable became the type null")


def _tuple(keywords: Json, notes: list[str], changes: list[str]) -> None:
    """Positional items become items of any of these types."""
    if isinstance(keywords.get("items"), list):
        keywords["prefixItems"], rest = keywords.pop("items"), keywords.pop("additionalItems", True)
        keywords["items"] = rest
    prefix = keywords.get("prefixItems")
    if not isinstance(prefix, list):
        return
    rest, most = keywords.pop("items", True), keywords.get("maxItems")
    if rest is False:
        keywords["maxItems"] = min(most, len(prefix)) if is_number(most) else len(prefix)
    bounded = rest is False or (is_number(most) and most <= len(prefix))
    if prefix and (bounded or rest is not True):
        keywords["items"] = {"anyOf": prefix if bounded else [*prefix, rest]}
    elif not prefix and rest is not True:
        keywords["items"] = rest


def _pattern_properties(keywords: Json, notes: list[str], changes: list[str]) -> None:
    """A property allowed by a pattern must stay allowed."""
    patterns, others = keywords.get("patternProperties"), keywords.get("additionalProperties", True)
    if isinstance(patterns, dict) and patterns and others is not True:
        kinds = list(patterns.values())
        keywords["additionalProperties"] = {"anyOf": kinds if others is False else [*kinds, others]}


def _exclusive(keywords: Json, notes: list[str], changes: list[str]) -> None:
    """Exact for integers; for other numbers the bound itself is accepted too."""
    for keyword, limit, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        if keyword not in keywords:
            continue
        value = keywords.pop(keyword)
        bound = keywords.get(limit) if value is True else value
        if not is_number(bound):
            changes.append(f"{keyword} was removed")
            continue
        if keywords.get("type") == "integer":
            bound = (math.floor(bound) if step > 0 else math.ceil(bound)) + step
            changes.append(f"{keyword} became {limit} {bound}")
        else:
            notes.append(f"{keyword}: {bound}")
            changes.append(f"{keyword} became {limit}, and the exclusion was moved into the description")
        before = keywords.get(limit)
        if is_number(before):
            bound = max(bound, before) if step > 0 else min(bound, before)
        keywords[limit] = bound
