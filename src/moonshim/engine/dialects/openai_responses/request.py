"""Responses request <-> canonical request, lossless for everything that Responses can express."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias

from msgspec.structs import replace

from moonshim.engine.dialects.openai_responses.extras import (
    DIALECT,
    Json,
    ResponsesMessageExtras,
    ResponsesRequestExtras,
    body_fields,
    extras_of,
    is_loaded,
    request_extras,
    tool_extras,
)
from moonshim.engine.dialects.openai_responses.fields import FIELDS, check_other_fields, unsupported_fields
from moonshim.engine.dialects.openai_responses.messages.parse import ItemReader, with_canonical_ids
from moonshim.engine.dialects.openai_responses.messages.render import ItemRenderer
from moonshim.engine.dialects.openai_responses.tools import (
    ToolNamespaces,
    parse_choice,
    parse_tools,
    plain_name,
    render_choice,
    render_tools,
)
from moonshim.engine.dialects.protocol import with_overrides
from moonshim.engine.signing import Signer
from moonshim.engine.values.conversation import Change, Message, Request, Sampling, Text, Tool
from moonshim.engine.values.type_names import describe_type
from moonshim.engine.wire.json_fields import STRING, read_field, read_not_empty, wrong_type
from moonshim.errors import InvalidInput

__all__ = ["CONTINUES", "parse_request", "render_request"]

CONTINUES: Final = "moonshim_continues"
"""A private field: what a body continued before its input was completed."""
_KNOWN: Final = frozenset({"model", "input", "instructions", "tools", "tool_choice", CONTINUES}).union(
    *(field.keys for field in FIELDS.values())
)
_WITHOUT_INPUT: Final = ("previous_response_id", "conversation", "prompt")
"""What a request may continue or be built from instead of an input."""
_LOADING: Final = frozenset({"tool_search_output", "additional_tools"})
"""Items that declare tools in the middle of a conversation."""
_Identity: TypeAlias = tuple[bool, str | None, str]
"""Whether the host runs a tool; namespace and name, in the client's form."""
_INSTRUCTIONS: Final[Json] = {DIALECT: ResponsesMessageExtras(instructions=True)}
_BARE: Final[Json] = {DIALECT: ResponsesMessageExtras(bare=True)}


# --- body -> request --------------------------------------------------------------------------------------------


def parse_request(body: Any, signer: Signer) -> tuple[Request, list[Change]]:
    """Parse a body. Raises `InvalidInput` with the invalid field.

    >>> request, _ = parse_request({"model": "kimi-k3", "instructions": "Be brief.", "input": "hi"}, Signer())
    >>> [(message.role, place) for message, place in zip(request.messages, request.locations)]
    [('system', 'instructions'), ('user', 'input')]
    """
    if not isinstance(body, dict):
        raise InvalidInput(f"expected a request body that is an object, got {describe_type(body)}")
    model = read_not_empty(body, "model", STRING)
    check_other_fields(body)
    tools = _parse_tools(body)
    names = ToolNamespaces(tools or ())
    messages, places, changes = _parse_input(body, names, signer)
    values = {name: field.read(body) for name, field in FIELDS.items()}
    sampling = {key.partition(".")[2]: values.pop(key) for key in list(values) if key.startswith("sampling.")}
    fields = {key: value for key, value in body.items() if key != "input"}
    absent: Literal["null", "missing"] | None = None
    if not isinstance(body.get("input"), (str, list)):
        absent = "null" if "input" in body else "missing"
    request = Request(
        model=model,
        messages=tuple(messages),
        tools=None if tools is None else tuple(tools),
        tool_choice=parse_choice(body.get("tool_choice"), names),
        sampling=Sampling(**sampling),
        locations=tuple(places),
        extras={DIALECT: ResponsesRequestExtras(fields, absent)},
        **values,
    )
    return request, changes


def _parse_tools(body: Json) -> list[Tool] | None:
    """The declared tools, and those loaded by items of the input, once each.

    A loaded tool never takes the joined name of an earlier one. A tool loaded with a different definition appears
    twice, as it may in `tools`.
    """
    definitions, taken = body.get("tools"), set[str]()
    tools = None if definitions is None else parse_tools(definitions, "tools", taken)
    items = body.get("input")
    known: dict[_Identity, Tool] | None = None
    for number, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, dict) or not isinstance(kind := item.get("type"), str) or kind not in _LOADING:
            continue
        where = f"input[{number}].tools"
        loaded = parse_tools(item.get("tools") or [], where, set())
        tools = [] if tools is None else tools
        if known is None:
            known = {_identity(tool): tool for tool in reversed(tools)}
        # A tool without a namespace keeps its name, wherever it is.
        taken.update(tool.name for tool in loaded if tool.namespace is None)
        for tool in loaded:
            first = known.get(_identity(tool))
            if first is None:
                located = tool if tool.namespace is None else _with_unique_name(tool, where, taken)
                tools.append(known.setdefault(_identity(tool), _mark_loaded(located)))
            elif not _is_same_definition(first, tool):
                tools.append(_mark_loaded(tool, first.name))
    return tools


def _identity(tool: Tool) -> _Identity:
    return tool.kind == "server", *plain_name(tool)


def _is_same_definition(one: Tool, other: Tool) -> bool:
    """Whether two definitions are equal; a deferred tool may have been loaded since."""
    return (one.kind, one.description, one.parameters) == (other.kind, other.description, other.parameters)


def _with_unique_name(tool: Tool, where: str, taken: set[str]) -> Tool:
    """A tool in a namespace, under a unique joined name."""
    extras = tool_extras(tool)
    return parse_tools([{**(extras.namespace or {}), "tools": [extras.definition]}], where, taken)[0]


def _mark_loaded(tool: Tool, name: str | None = None) -> Tool:
    extras = replace(tool_extras(tool), loaded=True)
    if name is None or extras.flat is None:
        return replace(tool, extras={DIALECT: extras})
    return replace(tool, name=name, extras={DIALECT: replace(extras, flat=name)})


def _loaded_tools(tools: Iterable[Tool]) -> list[Tool]:
    """The tools that items have loaded, under the names with which the items were parsed."""
    return [replace(tool, name=tool_extras(tool).flat or tool.name) for tool in tools if is_loaded(tool)]


def _parse_input(body: Json, names: ToolNamespaces, signer: Signer) -> tuple[list[Message], list[str], list[Change]]:
    messages, places = list[Message](), list[str]()
    instructions, input = read_field(body, "instructions", STRING), body.get("input")
    if instructions is not None:
        messages.append(Message("system", (Text(instructions),), _INSTRUCTIONS))
        places.append("instructions")
    if isinstance(input, str):
        return [*messages, Message("user", (Text(input),), _BARE)], [*places, "input"], []
    continues = any(body.get(key) is not None for key in _WITHOUT_INPUT)
    if input is None and continues:
        return messages, places, []
    if input is None:
        raise InvalidInput("input is required", field="input")
    if not isinstance(input, list):
        raise wrong_type("input", "a string or a list of items", input)
    if not input and not messages and not continues:
        raise InvalidInput("input must not be empty", field="input")
    reader = ItemReader(names, signer)
    for item in input:
        reader.add(item)
    messages += with_canonical_ids(reader.messages())
    return messages, places + reader.locations, reader.changes


# --- request -> body --------------------------------------------------------------------------------------------


def render_request(request: Request) -> tuple[Json, list[Change]]:
    """The body of this request, and what Responses cannot express."""
    received, changes = body_fields(request), list[Change]()
    body: Json = {"model": request.model}
    body |= {key: value for key, value in received.items() if key not in _KNOWN}
    for field in FIELDS.values():
        value, received_value = field.current(request), {key: received[key] for key in field.keys if key in received}
        body |= (
            received_value if received_value and field.read(received) == value else field.write(value, received_value)
        )
    now = ToolNamespaces(request.tools or ())
    declared = parse_tools(received["tools"]) if isinstance(received.get("tools"), list) else []
    before = ToolNamespaces([*declared, *_loaded_tools(request.tools or ())])
    if request.tools is not None:
        tools = render_tools(request.tools, received.get("tools"), declared, changes)
        if tools or "tools" in received or not request.tools:
            body["tools"] = tools
    elif received.get("tools", 0) is None:
        body["tools"] = None
    if "tool_choice" in received and parse_choice(received["tool_choice"], before) == request.tool_choice:
        body["tool_choice"] = received["tool_choice"]
    elif request.tool_choice is not None:
        body["tool_choice"] = render_choice(request.tool_choice, now)
    _render_input(body, request, received, before, now, changes)
    changes += [
        Change("cannot_say", f"Responses does not support {name}", name) for name in unsupported_fields(request)
    ]
    return with_overrides(body, request.body_overrides), changes


def _render_input(
    body: Json, request: Request, received: Json, before: ToolNamespaces, now: ToolNamespaces, changes: list[Change]
) -> None:
    messages, places = list(request.messages), list(request.locations)
    if messages and _is_instructions(messages[0], received):
        text = messages.pop(0).parts[0]
        assert isinstance(text, Text)
        body["instructions"] = text.text
        del places[:1]
    elif received.get("instructions", 0) is None:
        body["instructions"] = None
    absent = request_extras(request).input
    if not messages and absent is not None:
        body |= {"input": None} if absent == "null" else {}
    elif len(messages) == 1 and _is_bare(messages[0]):
        body["input"] = messages[0].parts[0].text  # type: ignore[union-attr]
    else:
        renderer = ItemRenderer(messages, before, now, for_host=True)
        located = zip(messages, [*places, *[""] * len(messages)], strict=False)
        body["input"] = [item for message, place in located for item in renderer.render(message, place)]
        changes += renderer.changes


def _is_instructions(message: Message, received: Json) -> bool:
    """Whether a first message is written as `instructions`: it was received so, or it is one text from another
    dialect."""
    if message.role != "system" or len(message.parts) != 1 or not isinstance(message.parts[0], Text):
        return False
    extras = extras_of(message)
    return extras.instructions or (not extras.items and not received.get("instructions"))


def _is_bare(message: Message) -> bool:
    return extras_of(message).bare and len(message.parts) == 1 and isinstance(message.parts[0], Text)
