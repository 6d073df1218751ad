"""A tool name in its namespace <-> the single name that a model sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from moonshim.engine.dialects.openai_responses.extras import tool_extras
from moonshim.engine.values.conversation import Tool

__all__ = ["Names", "Said", "flat_name", "plain_name"]

Said: TypeAlias = tuple[str | None, str]
"""Namespace, if any, and name, in the client's form."""

_BETWEEN: Final = "__"


def flat_name(namespace: str | None, name: str) -> str:
    """The name that a model sees, unless another tool has it.

    >>> flat_name("github", "search"), flat_name("mcp__github__", "search"), flat_name(None, "ls")
    ('github__search', 'mcp__github__search', 'ls')
    """
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith(_BETWEEN) else f"{namespace}{_BETWEEN}{name}"


def plain_name(tool: Tool) -> Said:
    """Namespace and name of a tool in the client's form; without the namespace if its name has lost that.

    >>> plain_name(Tool("github__search", namespace="github"))
    ('github', 'search')
    """
    if not tool.namespace:
        return None, tool.name
    extras = tool_extras(tool)
    name = None if extras.definition is None else extras.definition.get("name")
    if isinstance(name, str) and extras.flat == tool.name:
        return tool.namespace, name
    start = flat_name(tool.namespace, "")
    return (tool.namespace, tool.name[len(start) :]) if tool.name.startswith(start) else (None, tool.name)


class Names:
    """Resolves namespace and name to a tool, and a model's tool name to the client's form.

    >>> names = Names([Tool("a__b", namespace="a"), Tool("ls")])
    >>> names.flat("a", "b"), names.said("a__b"), names.said("ls"), names.flat(None, "b")
    ('a__b', ('a', 'b'), (None, 'ls'), 'b')
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        # A function may have the name of a hosted tool; it is the one that can be called.
        listed = sorted(tools, key=lambda tool: tool.kind != "server")
        self.tools = {tool.name: tool for tool in listed}
        self._said = {name: plain_name(tool) for name, tool in self.tools.items() if tool.namespace}
        self._flat = {said: name for name, said in self._said.items()}

    def flat(self, namespace: str | None, name: str) -> str:
        return (self._flat.get((namespace, name)) or flat_name(namespace, name)) if namespace else name

    def said(self, flat: str) -> Said:
        return self._said.get(flat, (None, flat))
