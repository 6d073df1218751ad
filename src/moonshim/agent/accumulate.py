"""The events of one response -> the message for the history, complete or as far as it came."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from moonshim.engine.assemble import Assembler
from moonshim.engine.ids import CanonicalIds
from moonshim.engine.values.conversation import Message, Part, Text, ToolCall, Usage
from moonshim.engine.values.events import BlockClosed, Event, Failed, Finished

__all__ = ["MessageAccumulator", "text_of"]


class MessageAccumulator:
    """Collects the events of one response."""

    def __init__(self) -> None:
        self._assembler = Assembler()
        self._cut_off: set[int] = set()
        self.reason = ""
        self.failure: str | None = None
        self.usage: Usage | None = None

    def feed(self, event: Event) -> None:
        self._assembler.feed(event)
        match event:
            case BlockClosed(index=index, complete=False):
                self._cut_off.add(index)
            case Finished():
                self.reason, self.usage = event.reason or "stop", event.usage
            case Failed():
                self.failure = event.message or event.code

    def message(self, history: Iterable[Message]) -> Message:
        """The response as stored in the history: text, calls and reasoning, always all three.

        Hosts refuse a call whose reasoning is missing ("thinking is enabled but reasoning_content is missing in
        assistant tool call message"), and a model that does not see why it made a call goes astray. Hosts also repeat
        ids of earlier calls, which would attach a result to the wrong one, so repeated ids are replaced.
        """
        ids = CanonicalIds()
        for message in history:
            for part in message.parts:
                if isinstance(part, ToolCall):
                    ids.reserve(part.id)
        parts: list[Part] = []
        for part in self._assembler.message.parts:
            if isinstance(part, ToolCall):
                parts.append(replace(part, id=ids.new(part.wire_id or part.id), wire_id=None))
            elif part != Text(""):
                parts.append(part)
        return Message("assistant", tuple(parts))

    def incomplete_calls(self, message: Message) -> frozenset[str]:
        """The calls of the message whose arguments are incomplete."""
        blocks = [index for index, _ in self._assembler.tool_calls()]
        calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
        return frozenset(call for block, call in zip(blocks, calls, strict=True) if block in self._cut_off)

    def words(self) -> Message | None:
        """The text so far, without calls: these have not been run, and the last one may be incomplete."""
        parts = tuple(part for part in self._assembler.message.parts if not isinstance(part, ToolCall))
        return Message("assistant", parts) if text_of(Message("assistant", parts)).strip() else None


def text_of(message: Message) -> str:
    """The text of a message, without reasoning and calls."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))
