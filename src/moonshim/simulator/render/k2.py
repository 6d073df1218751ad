"""A request -> the prompt of K2, K2-Thinking, K2.5, K2.6 or K2.7: one grammar, with ids as they were sent.

Known from their templates: K2-Thinking, and the structure of K2. The templates of K2.5, K2.6 and K2.7 were not read
directly but from quotations and reimplementations; these agree on how tools are declared, on what becomes of reasoning,
and on how the prompt ends. Inferred: that JSON is compact where tools are declared as JSON, and everything about
continued answers (`partial`). As far as is known, `tool_choice` and `response_format` do not reach the prompt of these
models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from moonshim.simulator.host.markers import k2_section
from moonshim.simulator.render.history_ids import rename_ids
from moonshim.simulator.render.messages import PromptMessage, messages_of
from moonshim.simulator.render.prompt_inputs import dump_compact, initial_tools, retains_reasoning, tool_entries
from moonshim.simulator.render.typescript import typescript_of
from moonshim.simulator.request import SimRequest

__all__ = ["render_k2"]

_END: Final = "<|im_end|>"
_MIDDLE: Final = "<|im_middle|>"
_OPENINGS: Final = {"user": "<|im_user|>", "assistant": "<|im_assistant|>"}
_SYSTEM: Final = "<|im_system|>"
_MEDIA: Final = {
    "image": "<|media_start|>image<|media_content|><|media_pad|><|media_end|>\n",
    "video": "<|media_start|>video<|media_content|><|media_pad|><|media_end|>\n",
}
_MEDIA_25: Final = {
    "image": "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>\n",
    "video": "<|kimi_k25_video_placeholder|>\n",
}


class _Template(Struct, frozen=True, kw_only=True):
    """How the template of one generation differs from the others."""

    system: str = "You are Kimi, an AI assistant created by Moonshot AI."
    """The system message when the client sends none first; empty: none."""
    thinks: Literal["", "itself", "opened"] = "opened"
    """Answers have no reasoning; the model opens it itself; or the prompt has opened it already."""
    keeps: Literal["since", "asked", "always"] = "since"
    """Reasoning is retained since the last answer without calls; or all of it on request; or always."""
    typescript: bool = True
    media: Mapping[str, str]


_TEMPLATES: Final[dict[str, _Template]] = {
    "k2": _Template(thinks="", typescript=False, media=_MEDIA),
    "k2-thinking": _Template(thinks="itself", typescript=False, media=_MEDIA),
    "k2.5": _Template(media=_MEDIA_25),
    "k2.6": _Template(keeps="asked", media=_MEDIA_25),
    "k2.7": _Template(keeps="always", system="", media=_MEDIA_25),
}


def render_k2(request: SimRequest, *, renamed: bool) -> str:
    template = _TEMPLATES.get(request.generation, _TEMPLATES["k2"])
    messages = messages_of(rename_ids(request.turns) if renamed else request.turns, template.media)
    thinking = request.thinking or template.thinks == "itself" or template.keeps == "always"
    history_length = _history_length(messages, template, request) if thinking else len(messages)
    lines = [_declaration(request, template)]
    if template.system and (not messages or messages[0].role != "system"):
        lines.append(f"{_SYSTEM}system{_MIDDLE}{template.system}{_END}")
    lines += [_message(message, template, with_reasoning=at >= history_length) for at, message in enumerate(messages)]
    if messages and messages[-1].partial:
        return "".join(lines).removesuffix(_END)
    return "".join(lines) + f"<|im_assistant|>assistant{_MIDDLE}" + _opening(template, thinking=thinking)


def _opening(template: _Template, *, thinking: bool) -> str:
    if template.thinks != "opened":
        return ""
    return "<think>" if thinking else "<think></think>"


def _declaration(request: SimRequest, template: _Template) -> str:
    tools = tool_entries(initial_tools(request))
    if not tools:
        return ""
    # For TypeScript, keys are sorted first, also for the JSON that replaces it.
    text = typescript_of(tools) if template.typescript else ""
    return f"{_SYSTEM}tool_declare{_MIDDLE}{text or dump_compact(tools, in_order=template.typescript)}{_END}"


def _history_length(messages: list[PromptMessage], template: _Template, request: SimRequest) -> int:
    """How many messages, from the first, are history: their reasoning is not rendered again."""
    if template.keeps == "always" or (template.keeps == "asked" and retains_reasoning(request)):
        return 0
    final = (at for at in range(len(messages) - 1, -1, -1) if _is_final(messages[at]))
    return next(final, -1) + 1


def _is_final(message: PromptMessage) -> bool:
    return message.role == "assistant" and not message.calls and not message.partial


def _message(message: PromptMessage, template: _Template, *, with_reasoning: bool) -> str:
    head = f"{_OPENINGS.get(message.role, _SYSTEM)}{message.name or message.role}{_MIDDLE}"
    if message.role == "tool":
        return f"{head}## Return of {message.call_id}\n{message.content}{_END}"
    if message.role != "assistant":
        return f"{head}{message.content}{_END}"
    thoughts = f"<think>{message.reasoning if with_reasoning else ''}</think>" if template.thinks else ""
    calls = k2_section(message.calls) if message.calls else ""
    return f"{head}{thoughts}{message.content}{calls}{_END}"
