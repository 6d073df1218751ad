"""A request -> what it demands of the answer, in its fields or in the words of its last messages: a schema, a call."""

from __future__ import annotations

import re
from typing import Any, Final

from moonshim.engine.wire.json_codec import decode_object
from moonshim.simulator.request import SimRequest

__all__ = ["demanded_schema", "demanded_tool", "was_corrected"]

_ANY_OBJECT: Final = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
_SCHEMA: Final = re.compile(r"schema:\s*```(?:json)?\s*(\{.*?\})\s*```", re.DOTALL)
_JSON_ONLY: Final = re.compile(r"must be raw JSON data", re.IGNORECASE)
_CALL: Final = re.compile(r"(?:MUST call|Call) the tool `([^`]+)`")
_ANY_CALL: Final = re.compile(r"MUST call tools|Call one of the tools")


def demanded_schema(request: SimRequest) -> Any:
    """The schema of the answer: of a field, or of the last words, as a model reads both; None: any text will do."""
    schema = _schema_in_fields(request.body) or _schema_in_words(closing_words(request))
    return _ANY_OBJECT if schema is None and _is_json_mode(request.body) else schema


def demanded_tool(request: SimRequest) -> str:
    """`auto`, `none`, `required`, or the name of a tool. What the last words demand counts where the field is free."""
    if request.tool_choice != "auto":
        return request.tool_choice
    words = closing_words(request)
    if named := _CALL.search(words):
        return named[1]
    return "required" if _ANY_CALL.search(words) else "auto"


def was_corrected(request: SimRequest) -> bool:
    """Whether the request says that the last answer cannot be used."""
    spoken = [turn for turn in request.turns if turn.role != "system"]
    if len(spoken) < 2 or spoken[-1].role != "user" or spoken[-2].calls:
        return False
    return "cannot be used" in spoken[-1].text


def closing_words(request: SimRequest) -> str:
    """What stands after the last answer."""
    texts: list[str] = []
    for turn in reversed(request.turns):
        if turn.role == "assistant" and not turn.partial:
            break
        texts.append(turn.text)
    return "\n".join(reversed(texts))


def _schema_in_fields(body: Any) -> Any:
    """Chat's `response_format`, or `output_config.format` of Messages."""
    output = body.get("output_config")
    given = (
        body.get("response_format") or body.get("output_format") or (isinstance(output, dict) and output.get("format"))
    )
    match given:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}} | {
            "type": "json_schema",
            "schema": dict(schema),
        }:
            return schema
    return None


def _is_json_mode(body: Any) -> bool:
    format = body.get("response_format")
    return isinstance(format, dict) and format.get("type") == "json_object"


def _schema_in_words(words: str) -> Any:
    found = list(_SCHEMA.finditer(words))
    if found:
        return decode_object(found[-1][1].encode())
    return _ANY_OBJECT if _JSON_ONLY.search(words) else None
