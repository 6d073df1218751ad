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
    """Raised by a tool to report an error. The model gets the message verbatim."""

    code = "tool_failed"


class AgentTool(Struct, frozen=True, kw_only=True):
    """A tool and the function that implements it. Calling the tool calls the function.

    Use the `tool` decorator to create one from a function. If you construct one yourself from an external JSON schema,
    leave out `signature`: the function then gets the model's arguments unchecked, as keyword arguments.
    """

    name: str
    """The name of the tool."""
    description: str | None = None
    """The description for the model."""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """The JSON schema of the parameters."""
    function: Callable[..., Any]
    """The function, async or not."""
    timeout: float | None = None
    """The time limit in seconds. None uses the agent's `tool_timeout`; 0 or less means no limit."""
    asks: bool = False
    """Whether each call needs permission from the agent's `allow` function."""
    signature: Signature | None = None
    """The parsed signature that checks and converts the arguments."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)

    @property
    def declared(self) -> Tool:
        """The tool as a `Tool` value, for a request."""
        return Tool(self.name, self.description, self.parameters)

    def read(self, arguments: str) -> tuple[list[Any], dict[str, Any]]:
        """Parse the arguments of a call, as JSON, into positional and keyword arguments for the function.

        Raises:
            ArgumentsInvalid: The arguments are not a JSON object, or do not match the signature.
        """
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
    """Turn a function, async or not, into a tool. The schema comes from the type hints and the docstring.

    Use it as `@tool` or with arguments, as in `@tool(asks=True)`. The docstring can describe the parameters in Google,
    NumPy or Sphinx style.

    Args:
        function: The function.
        name: The name of the tool; by default the name of the function.
        description: The description for the model; by default the docstring.
        timeout: The time limit in seconds. None uses the agent's `tool_timeout`; 0 or less means no limit.
        asks: Whether each call needs permission from the agent's `allow` function.

    Raises:
        InvalidInput: The name is invalid, or the signature cannot be described as a JSON schema.

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
                f"invalid tool name {whole!r}: use up to 64 letters, digits, _ and -, starting with a letter or _",
                field="tools",
            )
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            raise InvalidInput(f"{whole} is a generator function; a tool must return one result", field="tools")
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
            raise InvalidInput(f"duplicate tool name {one.name!r}", field="tools")
        found[one.name] = one
    return found
