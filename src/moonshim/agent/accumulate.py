"""The events of one answer -> the message that the history keeps of it, whole or as far as it came."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from moonshim.engine.assemble import Assembler
from moonshim.engine.ids import CanonicalIds
from moonshim.engine.values.conversation import Message, Part, Text, ToolCall, Usage
from moonshim.engine.values.events import BlockClosed, Event, Failed, Finished

__all__ = ["MessageAccumulator", "text_of"]


class MessageAccumulator:
    """The events of one answer, put together."""

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
        """The answer as the history keeps it: what was said, the calls and the reasoning, always all three.

        Hosts refuse a call whose reasoning is missing ("thinking is enabled but reasoning_content is missing in
        assistant tool call message"), and a model that does not see why it called goes astray. An identifier that a
        former call has, which hosts do give, would make a result answer the wrong one.
        """
        ids = CanonicalIds()
        for message in history:
            for part in message.parts:
                if isinstance(part, ToolCall):
                    ids.keep(part.id)
        parts: list[Part] = []
        for part in self._assembler.message.parts:
            if isinstance(part, ToolCall):
                parts.append(replace(part, id=ids.new(part.wire_id or part.id), wire_id=None))
            elif part != Text(""):
                parts.append(part)
        return Message("assistant", tuple(parts))

    def cut_off(self, message: Message) -> frozenset[str]:
        """The calls of the message whose arguments are not whole."""
        blocks = [index for index, _ in self._assembler.tool_calls()]
        calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
        return frozenset(call for block, call in zip(blocks, calls, strict=True) if block in self._cut_off)

    def words(self) -> Message | None:
        """What was said so far, without calls: nobody has run them, and the last one may be half."""
        parts = tuple(part for part in self._assembler.message.parts if not isinstance(part, ToolCall))
        return Message("assistant", parts) if text_of(Message("assistant", parts)).strip() else None


def text_of(message: Message) -> str:
    """What is said in it, without thoughts and calls."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))
