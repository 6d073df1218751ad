"""The events of one response -> the message for the history, complete or as far as it came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from moonshim.agent.shorten import cut_middle
from moonshim.engine.assemble import Assembler
from moonshim.engine.ids import CanonicalIds
from moonshim.engine.values.conversation import Message, Part, Text, ToolCall, Usage
from moonshim.engine.values.events import BlockClosed, Event, Failed, Finished, Repaired
from moonshim.engine.wire.json_codec import decode_object

__all__ = ["MessageAccumulator", "text_of"]

_MALFORMED: Final = frozenset({"arguments_cut_off", "arguments_invalid"})
"""Codes of responses that arrived as the model wrote them, with a call that cannot be run."""
_CUT_OFF: Final = (
    "Error: the response was cut off before the arguments of this call were complete. Nothing was run. "
    "Make the call again. If the arguments are very long, split the work into smaller steps."
)
_INVALID: Final = (
    "Error: the arguments of this call are not a valid JSON object{}. Nothing was run. "
    "Make the call again, with one JSON object that matches the tool's parameters."
)
_BESIDE: Final = (
    "Error: not run, because the arguments of another call in the same response are malformed. Make the call again."
)


class MessageAccumulator:
    """Collects the events of one response."""

    def __init__(self) -> None:
        self._assembler = Assembler()
        self._incomplete: set[int] = set()
        self._invalid: list[str] = []
        self.reason = ""
        self.failure: str | None = None
        self.is_malformed = False
        """Whether the response failed only because the arguments of a call are malformed."""
        self.usage: Usage | None = None

    def feed(self, event: Event) -> None:
        self._assembler.feed(event)
        match event:
            case BlockClosed(index=index, complete=False):
                self._incomplete.add(index)
            case Repaired(rule="arguments_invalid", detail=detail):
                self._invalid.append(detail)
            case Finished():
                self.reason, self.usage = event.reason or "stop", event.usage
            case Failed():
                self.failure = event.message or event.code
                self.is_malformed = event.code in _MALFORMED and bool(self._incomplete)

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

    def errors(self, message: Message) -> dict[str, str]:
        """What is wrong with the arguments of calls of the message, for the model, by the id of the call."""
        blocks = [index for index, _ in self._assembler.tool_calls()]
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        incomplete = [call for block, call in zip(blocks, calls, strict=True) if block in self._incomplete]
        if not self._invalid:
            return {call.id: _CUT_OFF for call in incomplete}
        # The end of a malformed response leaves other calls open too.
        malformed = [
            call.id for call in incomplete if decode_object(call.arguments.encode("utf-8", "surrogatepass")) is None
        ]
        # A repair does not say to which call it belongs.
        what = f": {cut_middle(self._invalid[0], 200)}" if len(malformed) == 1 else ""
        return {call.id: _INVALID.format(what) if call.id in malformed else _BESIDE for call in incomplete}

    def words(self) -> Message | None:
        """The text so far, without calls: these have not been run, and the last one may be incomplete."""
        parts = tuple(part for part in self._assembler.message.parts if not isinstance(part, ToolCall))
        return Message("assistant", parts) if text_of(Message("assistant", parts)).strip() else None


def text_of(message: Message) -> str:
    """The text of a message, without reasoning and calls."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))
