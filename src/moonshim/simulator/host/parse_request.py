"""A request that passed all rules -> a `SimRequest`, whatever its dialect.

Never fails on any JSON value: parts of an unexpected shape are ignored.
"""

from __future__ import annotations

import json
from typing import Any, Final

from moonshim.simulator.request import (
    Json,
    OfferedTool,
    Part,
    Role,
    SimCall,
    SimMedia,
    SimRequest,
    SimResult,
    SimTurn,
    Wire,
)
from moonshim.simulator.rules.contracts import contract
from moonshim.simulator.rules.thinking_rules import will_think

__all__ = ["parse_request"]

_ROLES: Final[dict[Any, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_MEDIA: Final = {
    "image_url": SimMedia(),
    "image": SimMedia(),
    "video_url": SimMedia("video"),
    "video": SimMedia("video"),
}
_WORDS: Final = {"any": "required"}
"""What Messages names differently."""


def parse_request(body: Any, *, wire: Wire, model: str, generation: str, host: str = "generic") -> SimRequest:
    """Never raises. `host` is a row of `rules.contracts.HOSTS`: it decides which thinking parameter counts.

    >>> ask = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
    >>> parse_request(ask, wire="openai_chat", model="kimi-k3", generation="k3").words
    'Hi'
    """
    body = body if isinstance(body, dict) else {}
    chat = wire == "openai_chat"
    turns = _chat_turns(body, generation) if chat else _messages_turns(body)
    tools = _chat_tools(body.get("tools")) if chat else _messages_tools(body.get("tools"))
    return SimRequest(
        wire=wire,
        model=model,
        generation=generation,
        turns=tuple(turns),
        tools=_once((*tools, *(tool for turn in turns for tool in turn.tools))),
        tool_choice=_choice(body.get("tool_choice"), generation),
        thinking=will_think(body, contract(generation, host)),
        stream=body.get("stream") is True,
        wants_usage=not chat or _object(body.get("stream_options")).get("include_usage") is True,
        max_tokens=_limit(body.get("max_completion_tokens")) or _limit(body.get("max_tokens")),
        body=body,
    )


# --- Chat Completions -------------------------------------------------------------------------------------------


def _chat_turns(body: Json, generation: str) -> list[SimTurn]:
    turns: list[SimTurn] = []
    names: dict[str, str] = {}
    messages = _objects(body.get("messages"))
    for at, message in enumerate(messages):
        role = _ROLES.get(_text(message.get("role")), "user")
        text, parts = _content(message.get("content"))
        if role == "tool":
            id = _text(message.get("tool_call_id"))
            result = SimResult(id, names.get(id, ""), text, parts=parts)
            turns.append(SimTurn(role=role, name=_text(message.get("name")), results=(result,)))
            continue
        calls = tuple(map(_chat_call, _objects(message.get("tool_calls")))) if role == "assistant" else ()
        names |= {call.id: call.name for call in calls}
        turns.append(
            SimTurn(
                role=role,
                name=_text(message.get("name")),
                text=text,
                parts=parts,
                reasoning=_reasoning(message) if role == "assistant" else None,
                calls=calls,
                tools=_chat_tools(message.get("tools")) if generation.startswith("k3") and role == "system" else (),
                partial=message.get("partial") is True and role == "assistant" and at == len(messages) - 1,
            )
        )
    return turns


def _chat_call(call: Json) -> SimCall:
    function = _object(call.get("function"))
    return SimCall(_text(call.get("id")), _text(function.get("name")), _arguments(function.get("arguments")))


def _chat_tools(tools: Any) -> tuple[OfferedTool, ...]:
    declared = ((tool, _object(tool.get("function"))) for tool in _objects(tools))
    return tuple(
        OfferedTool(name, _text(function.get("description")), _object(function.get("parameters")), tool)
        for tool, function in declared
        if (name := _text(function.get("name")))
    )


def _reasoning(message: Json) -> str | None:
    """The first field that has any, in the order in which Moonshot's own client looks for them."""
    if isinstance(reasoning := message.get("reasoning_content"), str):
        return reasoning
    if details := _objects(message.get("reasoning_details")):
        return "".join(_text(entry.get("text")) or _text(entry.get("summary")) for entry in details)
    reasoning = message.get("reasoning")
    return reasoning if isinstance(reasoning, str) else None


# --- Messages ---------------------------------------------------------------------------------------------------


def _messages_turns(body: Json) -> list[SimTurn]:
    turns: list[SimTurn] = []
    names: dict[str, str] = {}
    system, _ = _content(body.get("system"))
    if system:
        turns.append(SimTurn(role="system", text=system))
    messages = _objects(body.get("messages"))
    for at, message in enumerate(messages):
        role = _ROLES.get(_text(message.get("role")), "user")
        content = message.get("content")
        text, parts = _content(content)
        blocks = _objects(content)
        if role != "assistant":
            results = tuple(_result(block, names) for block in blocks if block.get("type") == "tool_result")
            turns.append(SimTurn(role="tool" if results else role, text=text, parts=parts, results=results))
            continue
        thoughts = [block for block in blocks if block.get("type") in ("thinking", "redacted_thinking")]
        calls = tuple(_use(block) for block in blocks if block.get("type") == "tool_use")
        names |= {call.id: call.name for call in calls}
        turns.append(
            SimTurn(
                role=role,
                text=text,
                parts=parts,
                reasoning="".join(_text(block.get("thinking")) for block in thoughts) if thoughts else None,
                calls=calls,
                partial=at == len(messages) - 1 and not calls,
            )
        )
    return turns


def _use(block: Json) -> SimCall:
    return SimCall(_text(block.get("id")), _text(block.get("name")), _arguments(block.get("input")))


def _result(block: Json, names: dict[str, str]) -> SimResult:
    id = _text(block.get("tool_use_id"))
    text, parts = _content(block.get("content"))
    return SimResult(id, names.get(id, ""), text, block.get("is_error") is True, parts)


def _messages_tools(tools: Any) -> tuple[OfferedTool, ...]:
    """Tools in OpenAI's format have no name here, so the model never sees them, as on the real endpoint."""
    return tuple(
        OfferedTool(name, _text(tool.get("description")), _object(tool.get("input_schema")))
        for tool in _objects(tools)
        if (name := _text(tool.get("name")))
    )


# --- both -------------------------------------------------------------------------------------------------------


def _choice(choice: Any, generation: str) -> str:
    """K3 ignores which tool is named."""
    if isinstance(choice, str):
        return choice if choice in ("auto", "none", "required") else "auto"
    choice = _object(choice)
    kind = _text(choice.get("type"))
    if kind in ("function", "tool"):
        named = _text(_object(choice.get("function")).get("name")) or _text(choice.get("name"))
        return "auto" if generation.startswith("k3") or not named else named
    kind = _WORDS.get(kind, kind)
    return kind if kind in ("auto", "none", "required") else "auto"


def _content(content: Any) -> tuple[str, tuple[Part, ...]]:
    """The text, and the parts in order if there is more than one text."""
    if isinstance(content, str):
        return content, ()
    parts: list[Part] = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict) and part.get("type") == "text":
            parts.append(_text(part.get("text")))
        elif isinstance(part, dict) and (media := _MEDIA.get(_text(part.get("type")))):
            parts.append(media)
    text = "".join(part for part in parts if isinstance(part, str))
    return text, () if parts == [text] else tuple(parts)


def _arguments(value: Any) -> str:
    """JSON text. A string is used verbatim: the model sees any mistake in it."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps({} if value is None else value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return "{}"


def _once(tools: tuple[OfferedTool, ...]) -> tuple[OfferedTool, ...]:
    return tuple({tool.name: tool for tool in reversed(tools)}.values())[::-1]


def _limit(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
