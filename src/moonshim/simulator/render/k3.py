"""A request -> the prompt of K3 and K3.1 in XTML, which never contains an id of a call.

Known from Moonshot's encoder and its ports, except for the following. Inferred: a continued answer (`partial`) is left
open. Where the encoder would fail, the prompt contains what there is: a result that belongs to no call gets the name of
the call at its position, or none; arguments that are JSON but not an object go into a `json` element.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moonshim.simulator.host.markers import k3_close, k3_open, k3_tools
from moonshim.simulator.render.messages import PromptMessage, messages_of
from moonshim.simulator.render.prompt_inputs import (
    choice,
    dump_compact,
    effort,
    initial_tools,
    response_format,
    tool_entries,
)
from moonshim.simulator.request import Json, SimCall, SimRequest

__all__ = ["render_k3"]

_MEDIA: Final = {"image": "<|media_pad|>", "video": "<|media_pad|>"}
_END: Final = k3_close("message") + "<|end_of_msg|>"
_TOOLS: Final = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{}\n```"
_MORE_TOOLS: Final = """## New Tools Available
The system dynamically extends the toolset via lazy-loading.
You have access to all existing and extended tools.
Here are the specs for the extended tools.

```json
{}
```"""
_EFFORT: Final = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort={}`."
)
_CHOICES: Final = {
    "required": "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.",
    "none": "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.",
}
_RAW: Final = (
    "The system is invoked with `response_format={}`.\nYour response must be raw JSON data "
    "without markdown code blocks (```json) or any additional formatting."
)
_SCHEMA: Final = "\nThe JSON data must match the following schema:\n```json\n{}\n```"


def render_k3(request: SimRequest) -> str:
    return "".join(_lines(request))


def _lines(request: SimRequest) -> Iterator[str]:
    if tools := tool_entries(initial_tools(request)):
        yield _system("tool-declare", _TOOLS.format(dump_compact(tools, in_order=True)))
    if request.thinking:
        yield _system("thinking-effort", _EFFORT.format(effort(request)))
    messages = messages_of(request.turns, _MEDIA)
    yield from _conversation(messages, thinking=request.thinking)
    if chosen := choice(request):
        yield _system("tool-choice", _CHOICES[chosen])
    if instruction := _format_instruction(response_format(request)):
        yield _system("response-format", instruction)
    if messages and messages[-1].partial:
        yield _answer(messages[-1], thinking=request.thinking)
    else:
        yield k3_open("message", role="assistant") + k3_open("think" if request.thinking else "response")


def _conversation(messages: list[PromptMessage], *, thinking: bool) -> Iterator[str]:
    calls: tuple[SimCall, ...] = ()
    instruction = 0
    results: list[PromptMessage] = []
    for message in messages:
        if message.role == "tool":
            results.append(message)
            continue
        yield from _results(results, calls, instruction)
        instruction += len(results)
        results = []
        if message.role == "assistant":
            calls, instruction = message.calls, 0
            if not message.partial:
                yield _answer(message, thinking=thinking)
        elif message.tools:
            yield _system("tool-declare", _MORE_TOOLS.format(dump_compact(message.tools, in_order=True)))
        else:
            yield _open_message(message) + message.content + _END
    yield from _results(results, calls, instruction)


def _answer(message: PromptMessage, *, thinking: bool) -> str:
    """Every earlier answer keeps its reasoning; one without any has an empty element for it."""
    text = _open_message(message)
    if thinking:
        text += k3_open("think") + (message.reasoning if message.reasoning.strip() else "") + k3_close("think")
    text += k3_open("response") + message.content
    if message.partial:
        return text
    return text + k3_close("response") + (k3_tools(message.calls) if message.calls else "") + _END


def _results(results: list[PromptMessage], calls: tuple[SimCall, ...], instruction: int) -> Iterator[str]:
    """In the order of the calls that they belong to; as they came, if one of them belongs to none.

    `instruction`: how many results of the same answer come before these. The index counts results, not calls.
    """
    places: dict[str, int] = {}
    for at, call in enumerate(calls):
        places.setdefault(call.id, at)
    for at, call in enumerate(calls):
        places.setdefault(f"{call.name}:{at}", at)  # vLLM reads this too
    if all(result.call_id in places for result in results):
        results = sorted(results, key=lambda result: places[result.call_id])
    for index, result in enumerate(results, instruction + 1):
        if result.call_id in places:
            name = calls[places[result.call_id]].name
        else:
            name = result.tool or result.name or (calls[index - 1].name if index <= len(calls) else "")
        yield k3_open("message", role="tool", tool=name, index=str(index)) + result.content + _END


def _open_message(message: PromptMessage) -> str:
    named = {"name": message.name} if message.name else {}
    return k3_open("message", role=message.role, **named)


def _system(kind: str, text: str) -> str:
    return k3_open("message", role="system", type=kind) + text + _END


def _format_instruction(form: Json) -> str:
    kind = form.get("type")
    if kind not in ("json_object", "json_schema"):
        return ""
    instruction = _RAW.format(kind)
    if kind == "json_object":
        return instruction
    wrapped = form.get("json_schema")
    inner = wrapped if isinstance(wrapped, dict) else {}
    schema = inner.get("schema", inner.get("json_schema", wrapped))
    return instruction + _SCHEMA.format(dump_compact(schema, in_order=True))
