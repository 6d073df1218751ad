"""A function's signature -> the JSON schema of its arguments, and a reader that checks them against the type hints."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct

from moonshim.agent.schema.docstrings import describe
from moonshim.agent.shorten import cut_middle, describe_error
from moonshim.engine.wire.json_codec import decode_object
from moonshim.errors import InvalidInput

__all__ = ["ArgumentsInvalid", "Signature", "read_signature"]

_REFUSED: Final = {
    inspect.Parameter.VAR_POSITIONAL: "*{} is not supported; declare each parameter by name",
    inspect.Parameter.VAR_KEYWORD: "**{} is not supported; declare each parameter by name",
}
_LONGEST_ERROR: Final = 2000
_MANY: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE: Final = ("items", "additionalProperties", "not", "contains")
_NAMED: Final = ("properties", "$defs", "patternProperties")


class ArgumentsInvalid(Exception):
    """The arguments of a call cannot be used; the message says why, for the model that wrote them."""


class Signature(Struct, frozen=True):
    """A function's parameters: `schema` for the model, `read` for the model's arguments."""

    description: str
    schema: dict[str, Any]
    takes: type[Struct]
    positional: tuple[inspect.Parameter, ...] = ()
    """Positional-only parameters."""

    def read(self, arguments: str) -> tuple[list[Any], dict[str, Any]]:
        """The arguments to call the function with, or `ArgumentsInvalid`."""
        given = read_object(arguments)
        # Not only msgspec's own error: user-defined classes validate their values and raise what they like, and lone
        # surrogates raise another.
        try:
            taken = msgspec.convert(given, self.takes, dec_hook=_convert)
        except Exception as error:
            try:
                # Models write "3" for 3 and 3.0 for 3: anything unambiguous is accepted.
                taken = msgspec.convert(given, self.takes, dec_hook=_convert, strict=False)
            except Exception:
                raise ArgumentsInvalid(f"{_short_message(error)}. {_summarize_schema(self.schema)}") from None
        named = {name: value for name, value in _fields(taken) if value is not UNSET}
        last = max((place for place, one in enumerate(self.positional) if one.name in named), default=-1)
        by_place = [named.pop(one.name, one.default) for one in self.positional[: last + 1]]
        return by_place, named


def read_object(arguments: str) -> dict[str, Any]:
    """Parse a JSON object. An empty string is an empty object: K2 calls tools without parameters that way."""
    if not arguments.strip():
        return {}
    given = decode_object(arguments.encode("utf-8", "surrogatepass"))
    if given is None:
        raise ArgumentsInvalid(f"The arguments must be a JSON object{_why_not(arguments)}")
    return given


def _short_message(error: Exception) -> str:
    """A short error message. Some errors repeat the whole value, and some cannot be formatted."""
    words = describe_error(error)
    message = words.partition(": ")[2] if isinstance(error, msgspec.ValidationError) else words
    return cut_middle(message, _LONGEST_ERROR)


def _why_not(arguments: str) -> str:
    try:
        value = msgspec.json.decode(arguments.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f": {error}"
    return f", not {type(value).__name__}"


def read_signature(function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> Signature:
    """A function's signature, from its hints and its docstring. `names`: what hints may refer to besides its globals.

    >>> def wait(seconds: float, why: str = "") -> None:
    ...     '''Do nothing for a while.
    ...
    ...     :param seconds: how long
    ...     '''
    >>> read_signature(wait).schema["properties"]
    {'seconds': {'type': 'number', 'description': 'how long'}, 'why': {'type': 'string', 'default': ''}}
    """
    owner = getattr(function, "__name__", None) or type(function).__name__
    documented = describe(_docstring(function))
    hints = _hints(function, names or {}, owner)
    parameters = _parameters(function, owner)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for one in parameters:
        hint = hints.get(one.name, Any)
        if one.default is inspect.Parameter.empty:
            fields.append((one.name, hint))
        else:
            fields.append((one.name, _or_none(hint) if one.default is None else hint, UNSET))
    try:
        takes = msgspec.defstruct(f"{owner}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
        schema = _schema_of(takes)
    except InvalidInput:
        raise
    except Exception as error:  # msgspec has no single error for hints that it does not support
        why = str(error).splitlines()[-1]
        raise InvalidInput(f"the type hints of {owner} have no JSON schema: {why}", field="tools") from error
    for one in parameters:
        properties = schema["properties"][one.name]
        description = _hint_description(hints.get(one.name)) or documented.parameters.get(one.name)
        if description and "description" not in properties:
            properties["description"] = description
        default = _plain(one.default)
        if default is not UNSET and default is not None:
            properties["default"] = default
    positional = tuple(one for one in parameters if one.kind is inspect.Parameter.POSITIONAL_ONLY)
    return Signature(documented.description, schema, takes, positional)


def _parameters(function: Callable[..., Any], owner: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"cannot read the signature of {owner}: {error}", field="tools") from error
    for number, one in enumerate(parameters):
        if one.kind in _REFUSED:
            raise InvalidInput(f"{owner}: {_REFUSED[one.kind].format(one.name)}", field="tools")
        if number == 0 and one.name in ("self", "cls"):
            raise InvalidInput(f"{owner} is an unbound method; use tool(instance.{owner})", field="tools")
    return parameters


def _docstring(function: Any) -> str | None:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function.__doc__
    return type(function).__call__.__doc__ or type(function).__doc__


def _hints(function: Callable[..., Any], names: Mapping[str, Any], owner: str) -> dict[str, Any]:
    inner = inspect.unwrap(function)
    if not inspect.isroutine(inner):
        inner = getattr(inner, "func", None) or type(inner).__call__  # a partial, or a callable object
    try:
        return get_type_hints(inner, localns={**names, **_closure_names(inner)}, include_extras=True)
    except TypeError:
        return {}
    except Exception as error:  # a quoted hint is code, and can fail in any way
        raise InvalidInput(f"cannot resolve the type hints of {owner}: {error}", field="tools") from error


def _closure_names(function: Any) -> dict[str, Any]:
    """The names that a nested function sees in its enclosing ones."""
    try:
        return dict(inspect.getclosurevars(function).nonlocals)
    except (TypeError, ValueError):
        return {}


def _or_none(hint: Any) -> Any:
    """`x: int = None` is common, and means that None is allowed."""
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return hint if plain is Any or type(None) in get_args(plain) else hint | None


def _hint_description(hint: Any) -> str | None:
    """`Annotated[str, "what it means"]`, or an object with a description, such as pydantic's `Field`."""
    if get_origin(hint) is not Annotated:
        return None
    for extra in get_args(hint)[1:]:
        description = extra if isinstance(extra, str) else getattr(extra, "description", None)
        if isinstance(description, str) and description:
            return description
    return None


def _plain(value: Any) -> Any:
    """A default as JSON, or UNSET."""
    if value is inspect.Parameter.empty:
        return UNSET
    if isinstance(value, PurePath):
        return str(value)
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return UNSET


def _fields(taken: Struct) -> list[tuple[str, Any]]:
    return [(name, getattr(taken, name)) for name in taken.__struct_fields__]


# -- schemas -------------------------------------------------------------------------------------------------------


def _schema_of(takes: type[Struct]) -> dict[str, Any]:
    definitions: dict[str, Any] = {}

    def hook(kind: type) -> dict[str, Any]:
        if issubclass(kind, PurePath):
            return {"type": "string", "format": "path"}
        if _is_pydantic(kind):
            return _pydantic_schema(kind, definitions)
        raise NotImplementedError(f"unsupported type {kind.__qualname__}")

    (root,), components = msgspec.json.schema_components([takes], schema_hook=hook, ref_template="#/$defs/{name}")
    schema: dict[str, Any] = components.pop(root["$ref"].removeprefix("#/$defs/"))
    definitions = {**components, **definitions}
    if definitions:
        schema["$defs"] = definitions
    _drop_titles(schema)
    return schema


def _is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def _pydantic_schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Its own definitions move to the root, under unique names: that is where its references point."""
    own = f"{kind.__name__}."
    schema: dict[str, Any] = kind.model_json_schema(ref_template=f"#/$defs/{own}{{model}}")
    for name, definition in schema.pop("$defs", {}).items():
        if definitions.setdefault(own + name, definition) != definition:
            raise InvalidInput(f"two pydantic models are called {kind.__name__}; rename one", field="tools")
    return schema


def _drop_titles(schema: Any) -> None:
    """A title repeats the property's name, and its tokens are paid for in every round."""
    todo = [schema]
    while todo:
        one = todo.pop()
        if not isinstance(one, dict):
            continue
        if isinstance(one.get("title"), str):
            del one["title"]
        for key in _MANY:
            todo.extend(one.get(key) or ())
        todo.extend(one[key] for key in _ONE if key in one)
        for key in _NAMED:
            todo.extend((one.get(key) or {}).values())


def _convert(kind: type, value: Any) -> Any:
    """Convert a value of a type that msgspec does not know."""
    if issubclass(kind, PurePath):
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return (Path if kind is PurePath else kind)(value)
    validate: Any = kind.model_validate  # type: ignore[attr-defined]
    try:
        return validate(value)
    except ValueError as error:
        raise ValueError(_pydantic_error_text(error)) from None


def _pydantic_error_text(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in errors())


def _summarize_schema(schema: dict[str, Any]) -> str:
    """A summary of the parameters: the model has the schema."""
    required = schema.get("required", [])
    optional = [name for name in schema["properties"] if name not in required]
    parts = [f"{word}: {', '.join(names)}" for word, names in (("required", required), ("optional", optional)) if names]
    return f"Parameters: {'; '.join(parts) or 'none'}."
