"""A parsed request and an estimate of its tokens -> the route that applies to it. Decisions only, no I/O.

The first route that is configured, can be used by the client's key, and matches the request is chosen:

| route | matches |
|---|---|
| `image` | the last user turn has an image |
| `web_search` | a web search that the host runs is declared |
| `long_context` | the estimate is over the limit, or the conversation was on this route before |
| `background` | the requested name is one of `background_models` |
| `think` | thinking is requested |
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, assert_never

from moonshim.config import RouteName, Routes, Target, profile_of
from moonshim.config.model import ROUTE_NAMES
from moonshim.engine.prepare import ParsedRequest
from moonshim.engine.values.conversation import Media, Message, Part, Tool, ToolResult

__all__ = ["choose_route", "sees_images"]

_MESSAGES: Final = "anthropic"
_WEB_SEARCH: Final = ("web_search", "$web_search")


def choose_route(
    parsed: ParsedRequest, tokens: int, routes: Routes, usable: Container[RouteName], *, was_long: bool = False
) -> RouteName | None:
    """The route of a request; None: its model is resolved by its name alone.

    `tokens`: the estimated size of the prompt. `usable`: the routes with a target that the client may use.
    `was_long`: the conversation has been on the route `long_context`, and stays there.

    >>> from moonshim.engine.prepare import read_request
    >>> body = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}], "reasoning_effort": "high"}
    >>> choose_route(read_request(body), 116, Routes(), {"think", "long_context"})
    'think'
    """
    for name in ROUTE_NAMES:
        if name in usable and _matches(name, parsed, tokens, routes, was_long):
            return name
    return None


def _matches(name: RouteName, parsed: ParsedRequest, tokens: int, routes: Routes, was_long: bool) -> bool:
    request = parsed.request
    match name:
        case "image":
            return any(_is_image(part) for message in _last_user_turn(request.messages) for part in message.parts)
        case "web_search":
            return any(_is_web_search(tool) for tool in request.tools or ())
        case "long_context":
            return was_long or tokens > routes.long_context_tokens
        case "background":
            model = request.model.lower()
            return any(fnmatchcase(model, pattern.lower()) for pattern in routes.background_models)
        case "think":
            return _wants_thinking(parsed)
        case _:
            assert_never(name)


def _last_user_turn(messages: Sequence[Message]) -> Iterator[Message]:
    """What the user said last, and the results of tools since: a tool loop stays on the route it began on.

    Text directly after tool results does not begin a turn: Claude Code adds reminders there.
    """
    turn: list[Message] = []
    for message in reversed(messages):
        if message.role == "assistant" or message.role == "tool":
            if turn and turn[-1].role == "user" and message.role == "assistant":
                break
            if message.role == "tool":
                turn.append(message)
        elif message.role == "user":
            turn.append(message)
    return iter(turn)


def _is_image(part: Part) -> bool:
    if isinstance(part, ToolResult):
        return any(_is_image(inner) for inner in part.parts)
    return isinstance(part, Media) and part.kind == "image"


def _is_web_search(tool: Tool) -> bool:
    return tool.kind == "server" and tool.name.startswith(_WEB_SEARCH)


def _wants_thinking(parsed: ParsedRequest) -> bool:
    thinking = parsed.request.thinking
    if thinking.enabled is not None:
        return thinking.enabled
    # In Messages, `output_config.effort` is about the whole response.
    return thinking.budget is not None or (thinking.effort is not None and parsed.dialect != _MESSAGES)


def sees_images(target: Target) -> bool:
    """Whether this model at this provider accepts images."""
    return "image" in profile_of(target).media
