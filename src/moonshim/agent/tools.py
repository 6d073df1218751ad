"""A Python function -> a tool that a model can call: its schema, and how the model's arguments are read."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, overload

from msgspec import Struct, field

from moonshim.agent.schema.signatures import ArgumentsInvalid, Signature, read_object, read_signature
from moonshim.engine.values.conversation import Tool
from moonshim.errors import InvalidInput, MoonshimError

__all__ = ["AgentTool", "ArgumentsInvalid", "ToolFailed", "tool", "tools_by_name"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class ToolFailed(MoonshimError):
    """A tool could not do its job; the model gets the message verbatim."""

    code = "tool_failed"


class AgentTool(Struct, frozen=True, kw_only=True):
    """A tool with its function. It can be called like that function, too.

    A tool made by hand, from an external schema, has no `signature`: its function gets whatever the model wrote, as
    keyword arguments.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    function: Callable[..., Any]
    timeout: float | None = None
    """Seconds; None: the agent's default; 0 or less: no limit."""
    asks: bool = False
    """Each call needs permission."""
    signature: Signature | None = None

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)

    @property
    def declared(self) -> Tool:
        """The tool as a request declares it."""
        return Tool(self.name, self.description, self.parameters)

    def read(self, arguments: str) -> tuple[list[Any], dict[str, Any]]:
        """The arguments to call the function with; `ArgumentsInvalid` says what is wrong."""
        return ([], read_object(arguments)) if self.signature is None else self.signature.read(arguments)


@overload
def tool(function: Callable[..., Any], /) -> AgentTool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, timeout: float | None = None, asks: bool = False
) -> Callable[[Callable[..., Any]], AgentTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    asks: bool = False,
) -> AgentTool | Callable[[Callable[..., Any]], AgentTool]:
    """Make a tool of a function, async or not: its schema comes from the type hints and the docstring.

    >>> @tool
    ... def add(a: int, b: int = 1) -> int:
    ...     '''Add two numbers.'''
    ...     return a + b
    >>> add.name, add.description, add.parameters["required"], add(2, 3)
    ('add', 'Add two numbers.', ['a'], 5)
    """
    known = dict(sys._getframe(1).f_locals)  # hints may refer to classes local to the enclosing function

    def decorate(inner: Callable[..., Any]) -> AgentTool:
        whole = _name_of(inner) if name is None else name
        if not _NAME.fullmatch(whole):
            raise InvalidInput(
                f"{whole!r} is no name for a tool: letters, digits, _ and -, at most 64, and a letter first",
                field="tools",
            )
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            raise InvalidInput(f"{whole} is a generator: a tool returns one result", field="tools")
        signature = read_signature(inner, known)
        return AgentTool(
            name=whole,
            description=description if description is not None else signature.description or None,
            parameters=signature.schema,
            function=inner,
            timeout=timeout,
            asks=asks,
            signature=signature,
        )

    return decorate if function is None else decorate(function)


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__


def tools_by_name(tools: Iterable[AgentTool | Callable[..., Any]]) -> dict[str, AgentTool]:
    """The tools by name. Plain functions become tools; duplicate names are an error."""
    found: dict[str, AgentTool] = {}
    for given in tools:
        one = given if isinstance(given, AgentTool) else tool(given)
        if one.name in found:
            raise InvalidInput(f"two tools are called {one.name}", field="tools")
        found[one.name] = one
    return found
