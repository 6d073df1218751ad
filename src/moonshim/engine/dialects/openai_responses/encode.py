"""Events become the payloads of a Responses stream, or one whole response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, assert_never

from moonshim.engine.dialects.openai_responses.encode_items import (
    CompactionItem,
    ItemEncoder,
    MessageItem,
    ResultsItem,
    SearchItem,
    open_item,
)
from moonshim.engine.dialects.openai_responses.errors import render_failed
from moonshim.engine.dialects.openai_responses.extras import Json, asks_for_compaction, body_fields
from moonshim.engine.dialects.openai_responses.messages.searches import sign_results
from moonshim.engine.dialects.openai_responses.response_object import echo, response_id, write_usage
from moonshim.engine.dialects.protocol import NUMBER, TEXT, ResponseContext, Template
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    Failed,
    Finished,
    Opaque,
    Repaired,
    Started,
)
from moonshim.engine.values.searches import ClientEvent, SearchEnded, SearchStarted, TextCited
from moonshim.engine.values.verdicts import CallsJudged

__all__ = ["ResponsesEncoder", "encode_response"]

_BlockEvent: TypeAlias = BlockOpened | BlockDelta | BlockSigned | BlockClosed
_SOURCES: Final = "web_search_call.action.sources"
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesEncoder:
    """Writes one answer: created, each block as an item of its own, and one ending with the whole output.

    Events are numbered from 0 and items from 0, in the order they opened; identifiers
    are made of the host's own for the answer, so that the same answer has the same.

    One item is open at a time, as in OpenAI's own streams: agno gives each delta to the item
    that was added last. Events of another block wait until the open one is closed.

    Where the client asked for a compaction, the text is the summary in it, and there is no other item.
    """

    def __init__(self, reply: ResponseContext) -> None:
        self._reply = reply
        self._number = 0
        self._object: Json = {}
        self._items: list[ItemEncoder] = []
        self._open: int | None = None
        """The block that is open; its item is the last."""
        self._waiting: dict[int, list[_BlockEvent]] = {}
        self._compacts = asks_for_compaction(reply.request)
        self._hidden: set[int] = set()
        """Blocks that a client that asked for a compaction does not get."""
        self._searches: list[SearchStarted] = []
        """Searches that are not over; the item of the first is the last one."""
        self._results: list[SearchEnded] = []
        """Searches whose results follow when the others are over too."""

    def feed(self, event: ClientEvent) -> list[Json]:
        """The payloads that tell this event."""
        match event:
            case Started():
                return self._start(event)
            case BlockOpened() | BlockDelta() | BlockSigned() | BlockClosed():
                if isinstance(event, BlockOpened) and self._compacts and event.kind != "text":
                    self._hidden.add(event.index)
                return self._started() if event.index in self._hidden else self._in_turn(event)
            case Finished() | Failed():
                return [*self._started(), *self._close_all(), *self._end(event)]
            case SearchStarted():
                self._searches.append(event)
                return [*self._started(), *(self._open_search() if len(self._searches) == 1 else [])]
            case SearchEnded():
                return self._end_search(event)
            case TextCited(index=index):
                item = self._items[-1] if self._open == index else None
                return self._placed(item.cited(event)) if isinstance(item, MessageItem) else []
            case Repaired() | Opaque() | CallsJudged():
                return []
            case _:
                assert_never(event)

    def template(self, index: int) -> Template | None:
        """How the next piece of this block is told; its item keeps the text, and its number is the next one."""
        if self._open != index:
            return None
        item = self._items[-1]
        pieces, payload = item.pieces, item.piece(TEXT)
        if payload is None or not pieces:
            return None
        number, self._number = self._number, NUMBER
        (payload,) = self._placed([payload])
        self._number = number

        def count(text: str) -> int:
            pieces.append(text)
            number = self._number
            self._number = number + 1
            return number

        return Template(payload, count)

    def _start(self, started: Started) -> list[Json]:
        if self._object:
            return []
        self._object = {
            "id": response_id(self._reply.id if self._reply.is_named else started.id or self._reply.id),
            "object": "response",
            "created_at": self._reply.created if started.created is None else started.created,
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": self._reply.model,
            "output": [],
            **echo(self._reply.request),
            "usage": None,
        }
        return self._numbered(
            [{"type": f"response.{word}", "response": self._object} for word in ("created", "in_progress")]
        )

    def _started(self) -> list[Json]:
        return [] if self._object else self._start(Started())

    def _in_turn(self, event: _BlockEvent) -> list[Json]:
        if self._open is not None and self._open != event.index:
            self._waiting.setdefault(event.index, []).append(event)
            return []
        out = self._write(event)
        while self._open is None and self._waiting:
            out += self._write_waiting()
        return out

    def _write_waiting(self) -> list[Json]:
        """Everything that waits of the block that opened first."""
        return [one for event in self._waiting.pop(next(iter(self._waiting))) for one in self._write(event)]

    def _write(self, event: _BlockEvent) -> list[Json]:
        match event:
            case BlockOpened(index=index):
                begin = self._started()
                tail = f"{self._object['id'][5:]}_{len(self._items)}"
                item = CompactionItem(f"cmp_{tail}", self._reply) if self._compacts else None
                self._items.append(item or open_item(event, self._reply, tail))
                self._open = index
                return begin + self._placed(self._items[-1].opened())
            case BlockDelta(text=text):
                return self._placed(self._items[-1].grown(text))
            case BlockSigned():
                self._items[-1].signed(event)
                return []
            case BlockClosed(complete=complete):
                self._open = None
                return self._placed(self._items[-1].closed(complete=complete))
            case _:
                assert_never(event)

    def _open_search(self) -> list[Json]:
        closing = self._close_all()
        included = body_fields(self._reply.request).get("include")
        with_sources = isinstance(included, list) and _SOURCES in included
        item = SearchItem(self._searches[0], with_sources=with_sources)
        self._items.append(item)
        return closing + self._placed(item.opened())

    def _end_search(self, ended: SearchEnded) -> list[Json]:
        """Searches end in the order in which they started."""
        item = self._items[-1]
        assert isinstance(item, SearchItem), "no search is open"
        out = self._placed(item.finished(ended))
        self._searches.pop(0)
        if ended.results:
            self._results.append(ended)
        if self._searches:
            return out + self._open_search()
        for one in self._results:
            results = ResultsItem(f"rs_ws_{one.id}", sign_results(one, self._reply.signer))
            self._items.append(results)
            out += self._placed(results.opened())
        self._results = []
        return out

    def _close_all(self) -> list[Json]:
        """Blocks that are still open when an answer breaks off, and those that wait for them."""
        out: list[Json] = []
        while self._open is not None or self._waiting:
            out += self._write_waiting() if self._open is None else self._write(BlockClosed(self._open, complete=False))
        return out

    def _end(self, ending: Finished | Failed) -> list[Json]:
        status, changed = "completed", Json()
        if isinstance(ending, Failed):
            status, changed = "failed", {"error": render_failed(ending)}
        else:
            reason = _INCOMPLETE.get(ending.reason)
            if reason is not None:
                status, changed = "incomplete", {"incomplete_details": {"reason": reason}}
            elif self._reply.clock is not None:
                changed["completed_at"] = max(int(self._reply.clock()), self._object["created_at"])
            changed["usage"] = None if ending.usage is None else write_usage(ending.usage)
        output = [item.whole for item in self._items]
        return self._numbered(
            [
                {
                    "type": f"response.{status}",
                    "response": {**self._object, **changed, "status": status, "output": output},
                }
            ]
        )

    def _placed(self, payloads: list[Json]) -> list[Json]:
        for payload in payloads:
            payload["output_index"] = len(self._items) - 1
        return self._numbered(payloads)

    def _numbered(self, payloads: list[Json]) -> list[Json]:
        for payload in payloads:
            payload["sequence_number"] = self._number
            self._number += 1
        return payloads


def encode_response(events: Sequence[ClientEvent], reply: ResponseContext) -> Json:
    """The whole response that these events tell: what the last payload of a stream has.

    >>> encode_response([Finished("stop")], ResponseContext(model="kimi-k3"))["status"]
    'completed'
    """
    encoder, last = ResponsesEncoder(reply), Json()
    for event in events:
        for payload in encoder.feed(event):
            last = payload
    response: Json = last.get("response", {})
    return response
