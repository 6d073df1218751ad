"""System prompts -> without lines that change in every request, at positions and under roles that the host accepts."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.extras import as_system_prompt, came
from moonshim.engine.dialects.openai_chat.extras import keep_parts, unusual_role, with_usual_role, without_form
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Message, Text

__all__ = ["condition_roles", "strip_billing", "system_as_text"]

_BILLING: Final = re.compile(r"^x-anthropic-billing-header:[^\n]*(?:\n|\Z)", re.MULTILINE)


def strip_billing(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Remove the first line of Claude Code's prompt: it differs in every request and defeats the prompt cache."""
    out = list[LocatedMessage]()
    for one in messages:
        message = one.message
        if message.role == "system" and any(_has_billing(part) for part in message.parts):
            changes.append(
                Change(
                    "billing_line", "x-anthropic-billing-header changes with every request: no cache fits", one.place
                )
            )
            parts = tuple(Text(_BILLING.sub("", p.text)) if isinstance(p, Text) else p for p in message.parts)
            message = keep_parts(replace(message, parts=parts), lambda part: part != Text(""))
        out.append(one.as_message(message))
    return out


def _has_billing(part: object) -> bool:
    return isinstance(part, Text) and "x-anthropic-billing-header:" in part.text and bool(_BILLING.search(part.text))


def condition_roles(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Replace roles that not all hosts know: `developer` becomes `system`, an unknown role `user`."""
    out = list[LocatedMessage]()
    for one in messages:
        role = unusual_role(one.message)
        if role is not None:
            changes.append(
                Change("role", f"role {role!r} is not known everywhere: sent as {one.message.role}", one.place)
            )
            one = one.as_message(with_usual_role(one.message))
        out.append(one)
    return out


def system_as_text(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Turn later system messages into user text in place, for hosts with a single prompt at the top."""
    out, top = list[LocatedMessage](), True
    for one in messages:
        top = top and one.message.role == "system"
        if not top and one.message.role == "system":
            changes.append(
                Change(
                    "system_as_text",
                    "a system message in the middle is said as user text: the host has no place for it",
                    one.place,
                )
            )
            one = one.as_message(_said(one.message))
        elif top and came(one.message):
            changes.append(
                Change("system_first", "a system message before the first turn belongs to the system prompt", one.place)
            )
            one = one.as_message(as_system_prompt(one.message))
        out.append(one)
    return out


def _said(message: Message) -> Message:
    text = "\n".join(part.text for part in message.parts if isinstance(part, Text))
    others = tuple(part for part in message.parts if not isinstance(part, Text))
    bare = without_form(message)
    return replace(bare, role="user", parts=(Text(f"<system>\n{text}\n</system>"), *others))
