"""System prompts -> without lines that change in every request, at positions and under roles that the host accepts."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.extras import as_system_prompt, is_received
from moonshim.engine.dialects.openai_chat.extras import keep_parts, unusual_role, with_usual_role, without_form
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Message, Text

__all__ = ["normalize_roles", "strip_billing", "system_as_text"]

_BILLING: Final = re.compile(r"^x-anthropic-billing-header:[^\n]*(?:\n|\Z)", re.MULTILINE)


def strip_billing(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Remove the first line of Claude Code's prompt: it differs in every request and defeats the prompt cache."""
    out = list[LocatedMessage]()
    for located in messages:
        message = located.message
        if message.role == "system" and any(_has_billing(part) for part in message.parts):
            changes.append(
                Change(
                    "billing_line",
                    "x-anthropic-billing-header removed: it changes with every request and defeats the prompt cache",
                    located.place,
                )
            )
            parts = tuple(Text(_BILLING.sub("", p.text)) if isinstance(p, Text) else p for p in message.parts)
            message = keep_parts(replace(message, parts=parts), lambda part: part != Text(""))
        out.append(located.with_message(message))
    return out


def _has_billing(part: object) -> bool:
    return isinstance(part, Text) and "x-anthropic-billing-header:" in part.text and bool(_BILLING.search(part.text))


def normalize_roles(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Replace roles that not all hosts know: `developer` becomes `system`, an unknown role `user`."""
    out = list[LocatedMessage]()
    for located in messages:
        role = unusual_role(located.message)
        if role is not None:
            changes.append(
                Change(
                    "role", f"role {role!r} sent as {located.message.role!r}: not every host supports it", located.place
                )
            )
            located = located.with_message(with_usual_role(located.message))
        out.append(located)
    return out


def system_as_text(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Turn later system messages into user text in place, for hosts with a single prompt at the top."""
    out, top = list[LocatedMessage](), True
    for located in messages:
        top = top and located.message.role == "system"
        if not top and located.message.role == "system":
            changes.append(
                Change(
                    "system_as_text",
                    "system message sent as user text: the host accepts system prompts only at the top",
                    located.place,
                )
            )
            located = located.with_message(_as_user_message(located.message))
        elif top and is_received(located.message):
            changes.append(
                Change(
                    "system_first", "system message before the first turn moved into the system prompt", located.place
                )
            )
            located = located.with_message(as_system_prompt(located.message))
        out.append(located)
    return out


def _as_user_message(message: Message) -> Message:
    text = "\n".join(part.text for part in message.parts if isinstance(part, Text))
    others = tuple(part for part in message.parts if not isinstance(part, Text))
    bare = without_form(message)
    return replace(bare, role="user", parts=(Text(f"<system>\n{text}\n</system>"), *others))
