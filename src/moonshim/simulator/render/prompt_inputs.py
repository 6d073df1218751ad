"""A request -> the inputs of the prompt besides its turns: tools, effort, retained reasoning, tool choice, format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from moonshim.simulator.request import Json, OfferedTool, SimRequest

__all__ = ["choice", "dump_compact", "effort", "initial_tools", "response_format", "retains_reasoning", "tool_entries"]

_EFFORTS: Final = {"low": "low", "medium": "high", "high": "high", "xhigh": "max", "max": "max"}
"""`medium` and `xhigh` are aliases that Kimi Code documents; the platform ignores unknown values."""
_COMPACT: Final = (",", ":")


def dump_compact(value: Any, *, in_order: bool = False) -> str:
    """Compact JSON as Moonshot's encoders write it: only necessary escapes.

    >>> dump_compact({"b": "ü", "a": [1, 2]}), dump_compact({"b": 1, "a": {"d": 1, "c": 2}}, in_order=True)
    ('{"b":"ü","a":[1,2]}', '{"a":{"c":2,"d":1},"b":1}')
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=_COMPACT, sort_keys=in_order)
    except RecursionError:
        return '"nested too deeply to display"'


def initial_tools(request: SimRequest) -> tuple[OfferedTool, ...]:
    """The tools of the request itself, without those that its messages add later."""
    later = {tool.name: tool for turn in request.turns for tool in turn.tools}
    return tuple(tool for tool in request.tools if later.get(tool.name) != tool)


def tool_entries(tools: Iterable[OfferedTool]) -> list[Json]:
    """As entries of Chat's `tools`. Those of Messages are converted; inferred, as their host shows none.

    >>> tool_entries([OfferedTool("ls", "List", {"type": "object"})])
    [{'type': 'function', 'function': {'name': 'ls', 'description': 'List', 'parameters': {'type': 'object'}}}]
    """
    return [tool.declared or _entry(tool) for tool in tools]


def _entry(tool: OfferedTool) -> Json:
    text: Json = {"name": tool.name}
    if tool.description:
        text["description"] = tool.description
    if tool.schema:
        text["parameters"] = tool.schema
    return {"type": "function", "function": text}


def effort(request: SimRequest) -> str:
    """`low`, `high` or `max`. `thinking` takes precedence over `reasoning_effort`; the default is `max`."""
    body = request.body
    places = (
        _inside(body, "thinking").get("effort"),
        _inside(body, "chat_template_kwargs").get("thinking_effort"),
        body.get("reasoning_effort"),
        _inside(body, "output_config").get("effort"),
    )
    effort_value = next((place for place in places if place is not None), None)
    return _EFFORTS.get(effort_value, "max") if isinstance(effort_value, str) else "max"


def retains_reasoning(request: SimRequest) -> bool:
    """Whether `thinking.keep` is `all`, which open hosts call `preserve_thinking`."""
    keep = _inside(request.body, "thinking").get("keep") == "all"
    return keep or _inside(request.body, "chat_template_kwargs").get("preserve_thinking") is True


def choice(request: SimRequest) -> str:
    """`required`, `none`, or empty: the model never sees which tool a client names."""
    given = request.body.get("tool_choice")
    named = isinstance(given, dict) and given.get("type") in ("function", "tool")
    return request.tool_choice if request.tool_choice in ("required", "none") and not named else ""


def response_format(request: SimRequest) -> Json:
    """`response_format` of Chat; Messages has no field that is known to reach the model."""
    return _inside(request.body, "response_format") if request.wire == "openai_chat" else {}


def _inside(body: Json, key: str) -> Json:
    value = body.get(key)
    return value if isinstance(value, dict) else {}
