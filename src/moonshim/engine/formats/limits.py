"""A tool definition -> the reason why a tool format cannot represent it, or None.

| format | cannot represent |
|---|---|
| openai, qwen, deepseek | names outside `[A-Za-z0-9_-]{1,64}`; Kimi's built-in functions (`$web_search`); \
custom tools, except openai itself |
| kimi | names outside `[A-Za-z][A-Za-z0-9_-]{0,255}`, except its built-in functions; custom tools |
| anthropic | names outside `[A-Za-z0-9_-]{1,128}`; `anyOf`, `oneOf`, `allOf` at the top of the schema |
| mistral | names outside `[A-Za-z0-9_-]{1,64}` |
| gemma | names its `call:name{key:value}` cannot write; a parameter called `description`, `type`, `properties`, \
`required` or `nullable`, which its template takes for schema keywords; a parameter without a single `type` |
| xml | names and parameters that `<function=…>` and `<parameter=…>` cannot write |
| all but the first four | tools that a host runs itself; a schema that does not describe an object |

The schemas of the four formats of OpenAI's own protocol are not checked: the host decides which it accepts.
"""

from __future__ import annotations

import re
from typing import Any, Final

from moonshim.engine.formats.detect import ToolFormat
from moonshim.engine.values.conversation import Tool

__all__ = ["OPENAI_PROTOCOL", "invalid_name", "unsupported_reason"]

OPENAI_PROTOCOL: Final[tuple[ToolFormat, ...]] = ("openai", "kimi", "qwen", "deepseek")

# platform.openai.com/docs/api-reference/chat, api-docs.deepseek.com and help.aliyun.com have the same sentence.
_OPENAI_NAME: Final = (re.compile(r"[a-zA-Z0-9_-]{1,64}"), "letters, digits, _ and - (at most 64)")
_NAMES: Final[dict[str, tuple[re.Pattern[str], str]]] = {
    "openai": _OPENAI_NAME,
    "qwen": _OPENAI_NAME,
    "deepseek": _OPENAI_NAME,
    "kimi": (
        re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,255}"),
        "letters, digits, _ and -, with a letter first (at most 256)",
    ),
    "anthropic": (re.compile(r"[a-zA-Z0-9_-]{1,128}"), "letters, digits, _ and - (at most 128)"),
    "mistral": _OPENAI_NAME,
    "gemma": (re.compile(r"[\w.-]+"), "letters, digits, _, . and -"),
    "xml": (re.compile(r"[^<>\s]+"), "characters other than whitespace, < and >"),
}
_KEYS: Final[dict[str, re.Pattern[str]]] = {
    "gemma": re.compile(r"[^:,{}<>\s]+"),
    "xml": re.compile(r"[^<>\r\n]+"),
}
_GEMMA_KEYWORDS: Final = frozenset({"description", "type", "properties", "required", "nullable"})
_UNIONS: Final = ("anyOf", "oneOf", "allOf")


def unsupported_reason(tool: Tool, format: ToolFormat, hosted_type: str | None) -> str | None:
    """Why this format cannot represent the tool, apart from its name, or None if it can.

    `hosted_type` is the `type` of a definition that is not a function.
    """
    builtin = hosted_type == "builtin_function" or tool.name.startswith("$")
    if builtin and format != "kimi":
        return "it is a built-in function of the Kimi API"
    if hosted_type == "custom" and format != "openai":
        return "only the OpenAI API supports custom tools"
    if format in OPENAI_PROTOCOL:
        return None
    if hosted_type is not None:
        return f"a tool of type {hosted_type!r} runs at the host that provides it"
    return _schema_reason(tool.parameters or {}, format)


def invalid_name(tool: Tool, format: ToolFormat, hosted_type: str | None) -> str | None:
    """Why this format cannot represent the name of a tool that the client runs, or None if it can."""
    named = _NAMES.get(format)
    if named is None or hosted_type not in (None, "custom") or tool.name.startswith("$"):
        return None
    return None if named[0].fullmatch(tool.name) else f"its name may contain only {named[1]}"


def _schema_reason(schema: dict[str, Any], format: ToolFormat) -> str | None:
    kind = schema.get("type", "object")
    if kind != "object" and not (format != "anthropic" and isinstance(kind, str) and kind.lower() == "object"):
        return f"the type of its schema must be 'object', not {kind!r}"
    if format == "anthropic":
        union = next((word for word in _UNIONS if word in schema), None)
        return None if union is None else f"{union} is not allowed at the top level of a schema"
    keys = _KEYS.get(format)
    properties = schema.get("properties")
    if keys is None or not isinstance(properties, dict):
        return None
    for key in properties:
        if keys.fullmatch(key) is None:
            return f"the parameter name {key!r} contains characters that the format does not allow"
    return _gemma_reason(schema) if format == "gemma" else None


def _gemma_reason(schema: dict[str, Any]) -> str | None:
    todo: list[tuple[str, dict[str, Any]]] = [("", schema)]
    while todo:
        path, holder = todo.pop()
        properties = holder.get("properties")
        for key, inner in properties.items() if isinstance(properties, dict) else ():
            where = f"{path}{key}"
            if key in _GEMMA_KEYWORDS:
                return f"the parameter name {where!r} is a schema keyword"
            if not isinstance(inner, dict) or not _has_one_type(inner):
                return f"the parameter {where!r} must have a single type"
            todo.append((where + ".", inner))
            items = inner.get("items")
            if isinstance(items, dict):
                todo.append((where + "[].", items))
    return None


def _has_one_type(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    if isinstance(kind, list):
        return len([one for one in kind if one != "null"]) == 1 and kind[0] != "null"
    return isinstance(kind, str)
