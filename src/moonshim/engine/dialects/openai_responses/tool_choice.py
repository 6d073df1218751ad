"""`tool_choice` <-> canonical choice."""

from __future__ import annotations

from typing import Any, Final

from moonshim.engine.dialects.openai_responses.content import Json
from moonshim.engine.dialects.openai_responses.names import Names
from moonshim.engine.dialects.openai_responses.tools import kind_of
from moonshim.engine.values.conversation import ToolChoice
from moonshim.errors import InvalidInput

__all__ = ["parse_choice", "render_choice"]

_NAMED: Final = frozenset({"function", "custom"})


def parse_choice(choice: Any, names: Names) -> ToolChoice | None:
    """The client's choice; None if it made none.

    >>> parse_choice({"type": "function", "name": "ls"}, Names())
    ToolChoice(mode='tool', name='ls', allowed=None)
    """
    match choice:
        case None:
            return None
        case "auto" | "none" | "required":
            return ToolChoice(choice)
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list(tools)}:
            return ToolChoice(mode, allowed=tuple(_chosen(tool, names) for tool in tools))
        case {"type": str()}:
            return ToolChoice("tool", _chosen(choice, names))
    raise InvalidInput("tool_choice must be auto, none, required, or an object with a type", field="tool_choice")


def _chosen(entry: Any, names: Names) -> str:
    """The name of the tool that an entry refers to: by name, or by type if there is only one of that type."""
    kind, name = (entry.get("type"), entry.get("name")) if isinstance(entry, dict) else (None, None)
    if not isinstance(kind, str):
        raise InvalidInput("a chosen tool needs a type", field="tool_choice")
    if kind in _NAMED:
        if not isinstance(name, str) or not name:
            raise InvalidInput("a chosen function needs a name", field="tool_choice.name")
        namespace = entry.get("namespace")
        flat = names.flat(namespace if isinstance(namespace, str) else None, name)
        if flat in names.tools:
            return flat
        inside = [tool.name for tool in names.tools.values() if names.said(tool.name)[1] == name]
        return inside[0] if len(inside) == 1 else flat
    return next((tool.name for tool in names.tools.values() if kind_of(tool) == kind), kind)


def render_choice(choice: ToolChoice, names: Names) -> Any:
    """The choice in the form of Responses.

    >>> render_choice(ToolChoice("auto", allowed=("ls",)), Names())
    {'type': 'allowed_tools', 'mode': 'auto', 'tools': [{'type': 'function', 'name': 'ls'}]}
    """
    if choice.mode == "tool":
        return _entry(choice.name or "", names)
    if choice.allowed is None or choice.mode == "none":
        return choice.mode
    return {"type": "allowed_tools", "mode": choice.mode, "tools": [_entry(name, names) for name in choice.allowed]}


def _entry(flat: str, names: Names) -> Json:
    tool = names.tools.get(flat)
    kind = kind_of(tool) if tool is not None else "function"
    if kind not in _NAMED:
        return {"type": kind}
    namespace, name = names.said(flat)
    return {"type": kind, "name": name} | ({"namespace": namespace} if namespace else {})
