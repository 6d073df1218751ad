"""Calls and results of a history -> under the host's tool names, with arguments that are JSON objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.extras import without_result_name
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.request.tools.tool_names import ToolNames
from moonshim.engine.values.conversation import Change, Message, Part, ToolCall, ToolResult
from moonshim.engine.wire.json_codec import decode_object

__all__ = ["MendArguments", "adapt_calls"]

MendArguments: TypeAlias = Callable[[str], str | None]
"""Arguments that are not a JSON object -> repaired arguments, or None when they cannot be repaired."""

_EMPTY: Final = "{}"


def adapt_calls(
    messages: list[LocatedMessage],
    names: ToolNames,
    declared: Iterable[str],
    mend: MendArguments | None,
    changes: list[Change],
) -> list[LocatedMessage]:
    """Rename calls and results, and repair arguments that hosts refuse. Valid arguments stay unchanged, byte for
    byte.

    The new name of a declared tool was already reported with its declaration.
    """
    adapter = _CallAdapter(names, mend, changes)
    adapter.reported.update(declared)
    return [located.with_message(adapter.adapt_message(located.message, located.place)) for located in messages]


class _CallAdapter:
    def __init__(self, names: ToolNames, mend: MendArguments | None, changes: list[Change]) -> None:
        self._names, self._mend, self._changes = names, mend, changes
        self.reported: set[str] = set()

    def adapt_message(self, message: Message, place: str | None) -> Message:
        parts = tuple(self._adapt_part(part, place) for part in message.parts)
        if all(located is other for located, other in zip(parts, message.parts, strict=True)):
            return message
        if message.role == "tool":
            # The name stored with the message is the old one.
            message = without_result_name(message)
        return replace(message, parts=parts)

    def _adapt_part(self, part: Part, place: str | None) -> Part:
        match part:
            case ToolCall():
                name, arguments = self._host_name(part.name, place), self._arguments(part, place)
                same = name == part.name and arguments == part.arguments
                return part if same else replace(part, name=name, arguments=arguments)
            case ToolResult(name=str(old)):
                name = self._host_name(old, place)
                return part if name == old else replace(part, name=name)
        return part

    def _host_name(self, name: str, place: str | None) -> str:
        host_name = self._names.resolve(name)
        if host_name != name and name not in self.reported:
            self.reported.add(name)
            detail = f"calls of {name!r} renamed to {host_name!r}, a name that the host accepts"
            if not name:
                detail = f"calls without a name sent as calls of {host_name!r}: the host requires a name"
            self._changes.append(Change("tool_name", detail, place))
        return host_name

    def _arguments(self, call: ToolCall, place: str | None) -> str:
        if decode_object(call.arguments.encode("utf-8", "surrogatepass")) is not None:
            return call.arguments
        mended = None if self._mend is None else self._mend(call.arguments)
        if mended is None or decode_object(mended.encode("utf-8", "surrogatepass")) is None:
            mended = _EMPTY
        excerpt = call.arguments if len(call.arguments) <= 40 else call.arguments[:40] + "…"
        outcome = "replaced with {}" if mended == _EMPTY else "repaired"
        self._changes.append(
            Change(
                "arguments",
                f"arguments of {call.name or 'a nameless call'} {outcome}: they were not a JSON object: {excerpt!r}",
                place,
            )
        )
        return mended
