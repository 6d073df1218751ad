"""The client's tool choice -> the closest one that this host accepts and obeys."""

from __future__ import annotations

from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.extras import declared_tools
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.values.conversation import Change, Request, ToolChoice
from moonshim.errors import InvalidOption

__all__ = ["fit_choice", "is_obeyed"]

_PLACE = "tool_choice"


def fit_choice(request: Request, profile: HostProfile, *, thinking: bool, default: str) -> tuple[Request, list[Change]]:
    """Adapt the tool choice. The list of tools is never narrowed: it is part of the prompt."""
    changes: list[Change] = []
    choice = request.tool_choice
    if not request.tools and not _declares_in_messages(request):
        if choice is None:
            return request, []
        return replace(request, tool_choice=None), [
            Change("tool_choice", "tool_choice dropped: the request has no tools", _PLACE)
        ]
    if choice is None and default:
        choice = _default_choice(default, request)
        changes.append(Change("tool_choice_default", f"set to {default!r}: the client set no tool_choice", _PLACE))
    if choice is None:
        return request, []
    if choice.allowed is not None and not profile.allowed_tools:
        changes.append(
            Change("tool_choice", "allowed_tools dropped: the host cannot restrict which tools may be called", _PLACE)
        )
        choice = replace(choice, allowed=None)
    if choice.mode == "tool" and not profile.named_choice:
        changes.append(
            Change("tool_choice", f"sent as 'required': the host ignores a choice by name ({choice.name})", _PLACE)
        )
        choice = ToolChoice("required")
    if thinking and choice.mode not in profile.tool_choice_with_thinking:
        word = f"the tool {choice.name}" if choice.mode == "tool" else repr(choice.mode)
        changes.append(Change("tool_choice", f"sent as 'auto': {word} cannot be forced while the model thinks", _PLACE))
        choice = ToolChoice("auto")
    return (replace(request, tool_choice=choice) if changes else request), changes


def is_obeyed(choice: ToolChoice, profile: HostProfile, *, thinking: bool) -> bool:
    """Whether the host accepts this choice as it is, and does what it says."""
    if choice.mode == "tool" and not profile.named_choice:
        return False
    return not thinking or choice.mode in profile.tool_choice_with_thinking


def _default_choice(word: str, request: Request) -> ToolChoice:
    match word:
        case "auto" | "none" | "required":
            return ToolChoice(word)
    if any(tool.name == word for tool in request.tools or ()):
        return ToolChoice("tool", word)
    raise InvalidOption(
        f"toolChoiceDefault must be auto, none, required or the name of a tool, not {word!r}",
        field="toolChoiceDefault",
    )


def _declares_in_messages(request: Request) -> bool:
    """Whether a system message declares tools (K3)."""
    return any(message.role == "system" and bool(declared_tools(message)) for message in request.messages)
