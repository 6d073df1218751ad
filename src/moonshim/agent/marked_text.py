"""The events of a response <-> pieces of marked text, for code that passes strings around.

Each piece is one string that starts with a marker for its type:

| Piece | Meaning |
|---|---|
| `[REASONING]…` | reasoning text |
| `[SIGNATURE]{…}` | the data that the host expects back with the preceding reasoning: `signature`, `details`, `field` |
| `[TOOL_CALLS][…]` | complete calls, in the format of the OpenAI API |
| `[USAGE]{…}` | the end of the response: token usage, if known, and `finish_reason` |
| `[FAILED]{…}` | the response failed: `code`, `message`, `retryable`; incomplete calls are not included |
| `[TEXT]…` | text that itself starts with one of these markers |
| anything else | text, verbatim |

If the model itself writes `[TOOL_CALLS]`, the piece starts with `[TEXT]` and is text to its end, so it is never
mistaken for a call. Keep the pieces separate: if you join them into one string, the end of the reasoning is lost.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, Final, overload

from moonshim.engine.values.conversation import TOKEN_COUNTS, Usage, token_count
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, BlockSigned, Event, Failed, Finished
from moonshim.errors import InvalidInput

__all__ = ["MarkedTextReader", "MarkedTextWriter", "as_marked_text", "parse_marked_text"]

REASONING: Final = "[REASONING]"
SIGNATURE: Final = "[SIGNATURE]"
CALLS: Final = "[TOOL_CALLS]"
USAGE: Final = "[USAGE]"
FAILED: Final = "[FAILED]"
TEXT: Final = "[TEXT]"
MARKS: Final = (REASONING, SIGNATURE, CALLS, USAGE, FAILED, TEXT)


class _Call:
    """A call whose events are arriving."""

    def __init__(self, opened: BlockOpened) -> None:
        self.opened, self.whole = opened, False
        self.arguments: list[str] = []


class MarkedTextWriter:
    """Events in, pieces out. Several responses may follow each other; events that belong to no response are ignored."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._kinds: dict[int, str] = {}
        self._silent: set[int] = set()
        """Reasoning blocks without any text yet."""
        self._calls: dict[int, _Call] = {}

    def feed(self, event: object) -> list[str]:
        """Return the pieces for this event."""
        match event:
            case BlockOpened(kind="call"):
                self._calls[event.index] = _Call(event)
            case BlockOpened():
                self._kinds[event.index] = event.kind
                if event.kind == "reasoning":
                    self._silent.add(event.index)
                return self._write_calls()
            case BlockDelta(index=index, text=text):
                return self._add_arguments(index, text)
            case BlockSigned():
                signature = {"signature": event.signature, "details": list(event.details), "field": event.field}
                signed = SIGNATURE + _json({key: value for key, value in signature.items() if value})
                return [*self._write_reasoning(event.index), signed]
            case BlockClosed(index=index, complete=complete):
                if index in self._calls:
                    self._calls[index].whole = complete
                return self._write_reasoning(index)
            case Finished():
                counted = {name: getattr(event.usage, name) for name in TOKEN_COUNTS} if event.usage is not None else {}
                fields = {name: value for name, value in counted.items() if value is not None}
                return [*self._end(), USAGE + _json(fields | {"finish_reason": event.reason})]
            case Failed():
                fields = {"code": event.code, "message": event.message, "retryable": event.retryable}
                return [*self._end(), FAILED + _json(fields)]
        return []

    def _add_arguments(self, index: int, text: str) -> list[str]:
        if index in self._calls:
            self._calls[index].arguments.append(text)
            return []
        if not text:
            return []
        if self._kinds.get(index) == "reasoning":
            self._silent.discard(index)
            return [REASONING + text]
        return [TEXT + text if text.startswith(MARKS) else text]

    def _write_reasoning(self, index: int) -> list[str]:
        """Empty reasoning is reported too: hosts distinguish it from none."""
        if index not in self._silent:
            return []
        self._silent.discard(index)
        return [REASONING]

    def _end(self) -> list[str]:
        pieces = [
            *(piece for index in sorted(self._silent) for piece in self._write_reasoning(index)),
            *self._write_calls(),
        ]
        self._begin()
        return pieces

    def _write_calls(self) -> list[str]:
        """Calls are written together, and before any other content."""
        whole = [call for call in self._calls.values() if call.whole]
        self._calls = {index: call for index, call in self._calls.items() if not call.whole}
        return [CALLS + _json([_entry(call) for call in whole])] if whole else []


class MarkedTextReader:
    """Pieces in, events out: the inverse of `MarkedTextWriter`. Consecutive text is one block."""

    def __init__(self) -> None:
        self._next = 0
        self._open: tuple[int, str] | None = None

    def feed(self, piece: str) -> list[Event]:
        """Return the events of this piece; raise `InvalidInput` if its content does not match its marker."""
        mark = next((mark for mark in MARKS if piece.startswith(mark)), "")
        rest = piece[len(mark) :]
        match mark:
            case "[REASONING]":
                return self._read_text("reasoning", rest)
            case "[TEXT]" | "":
                return self._read_text("text", rest)
            case "[SIGNATURE]":
                return self._read_signature(_object(rest, mark))
            case "[TOOL_CALLS]":
                return [*self._close(), *self._read_call(rest)]
            case "[USAGE]":
                return [*self._end(), _read_finished(_object(rest, mark))]
            case _:
                fields = _object(rest, mark)
                failed = Failed(
                    str(fields.get("code")), str(fields.get("message")), fields.get("retryable") is not False
                )
                return [*self._end(), failed]

    def flush(self) -> list[Event]:
        """End of the pieces."""
        return self._end()

    def _read_text(self, kind: Any, text: str) -> list[Event]:
        events: list[Event] = []
        if self._open is None or self._open[1] != kind:
            events += self._close()
            self._open = (self._next, kind)
            self._next += 1
            events.append(BlockOpened(self._open[0], kind))
        if text:
            events.append(BlockDelta(self._open[0], text))
        return events

    def _read_signature(self, fields: dict[str, Any]) -> list[Event]:
        if self._open is None or self._open[1] != "reasoning":
            raise InvalidInput(f"{SIGNATURE} must follow {REASONING}", field="piece")
        details = fields.get("details")
        entries = tuple(one for one in details if isinstance(one, dict)) if isinstance(details, list) else ()
        signed = BlockSigned(self._open[0], fields.get("signature"), entries, fields.get("field"))
        return [signed, *self._close()]

    def _read_call(self, text: str) -> list[Event]:
        events: list[Event] = []
        entries = _parse_json(text, CALLS)
        for entry in entries if isinstance(entries, list) else [None]:
            match entry:
                case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
                    index, self._next = self._next, self._next + 1
                    events += [BlockOpened(index, "call", call_id, name), BlockDelta(index, arguments)]
                    events.append(BlockClosed(index))
                case _:
                    raise InvalidInput(f"{CALLS} must be followed by a list of calls, not {text[:80]!r}", field="piece")
        return events

    def _close(self) -> list[Event]:
        if self._open is None:
            return []
        index, self._open = self._open[0], None
        return [BlockClosed(index)]

    def _end(self) -> list[Event]:
        events = self._close()
        self._next = 0
        return events


@overload
def as_marked_text(events: AsyncIterable[object]) -> AsyncIterator[str]: ...


@overload
def as_marked_text(events: Iterable[object]) -> Iterator[str]: ...


def as_marked_text(events: Iterable[object] | AsyncIterable[object]) -> Iterator[str] | AsyncIterator[str]:
    """Convert the events of a provider or an agent to pieces of marked text, one by one.

    Args:
        events: An iterable or async iterable of events.

    Returns:
        An iterator, or an async iterator if `events` is async. See `moonshim.agent.marked_text` for the markers.

    >>> events = [BlockOpened(0, "text"), BlockDelta(0, "[USAGE] is a word"), BlockClosed(0), Finished("stop")]
    >>> list(as_marked_text(events))
    ['[TEXT][USAGE] is a word', '[USAGE]{"finish_reason": "stop"}']
    """
    return _write_async(events) if isinstance(events, AsyncIterable) else _write(events)


def _write(events: Iterable[object]) -> Iterator[str]:
    writer = MarkedTextWriter()
    for event in events:
        yield from writer.feed(event)


async def _write_async(events: AsyncIterable[object]) -> AsyncIterator[str]:
    writer = MarkedTextWriter()
    try:
        async for event in events:
            for piece in writer.feed(event):
                yield piece
    finally:
        # A consumer that stops reading pieces needs no more events either.
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def parse_marked_text(pieces: Iterable[str]) -> Iterator[Event]:
    """Convert pieces of marked text back to events. The inverse of `as_marked_text`.

    Raises:
        InvalidInput: The content of a piece does not match its marker.

    >>> [type(event).__name__ for event in parse_marked_text(["[REASONING]Hm.", "Hello", '[USAGE]{}'])]
    ['BlockOpened', 'BlockDelta', 'BlockClosed', 'BlockOpened', 'BlockDelta', 'BlockClosed', 'Finished']
    """
    reader = MarkedTextReader()
    for piece in pieces:
        yield from reader.feed(piece)
    yield from reader.flush()


def _entry(call: _Call) -> dict[str, Any]:
    function = {"name": call.opened.name or "", "arguments": "".join(call.arguments)}
    return {"id": call.opened.call_id or "", "type": "function", "function": function}


def _read_finished(fields: dict[str, Any]) -> Finished:
    counts: dict[str, Any] = {name: token_count(fields.get(name)) for name in TOKEN_COUNTS}
    known = any(value is not None for value in counts.values())
    reason = fields.get("finish_reason")
    return Finished(reason if isinstance(reason, str) else "stop", usage=Usage(**counts) if known else None)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _parse_json(text: str, mark: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(f"{mark} must be followed by JSON, not {text[:80]!r}", field="piece") from None


def _object(text: str, mark: str) -> dict[str, Any]:
    value = _parse_json(text, mark)
    if not isinstance(value, dict):
        raise InvalidInput(f"{mark} must be followed by a JSON object, not {text[:80]!r}", field="piece")
    return value
