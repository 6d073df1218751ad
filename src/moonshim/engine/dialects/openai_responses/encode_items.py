"""One block of an answer becomes one output item, and the events that tell it while it grows."""

from __future__ import annotations

from typing import Protocol

from moonshim.engine.dialects.openai_responses.extras import Json
from moonshim.engine.dialects.openai_responses.messages.compaction import render_compaction
from moonshim.engine.dialects.openai_responses.messages.items import CALLS
from moonshim.engine.dialects.openai_responses.messages.searches import PREFIX
from moonshim.engine.dialects.openai_responses.tools import kind_of, plain_name
from moonshim.engine.dialects.protocol import ResponseContext
from moonshim.engine.formats.free_text import InputReader
from moonshim.engine.signing import SignedPayload
from moonshim.engine.values.events import BlockOpened, BlockSigned
from moonshim.engine.values.searches import SearchEnded, SearchStarted, TextCited
from moonshim.engine.values.text_pieces import TextPieces
from moonshim.engine.wire.json_codec import decode_object

__all__ = ["CompactionItem", "ItemEncoder", "MessageItem", "ResultsItem", "SearchItem", "open_item"]


class ItemEncoder(Protocol):
    """An item that grows. Events come without their sequence number, and without the place of the item."""

    pieces: TextPieces
    """What was told so far."""

    def opened(self) -> list[Json]: ...
    def grown(self, text: str) -> list[Json]: ...
    def piece(self, text: str) -> Json | None:
        """What tells one more piece behind others; None where a piece is not told as it comes."""

    def signed(self, signed: BlockSigned) -> None: ...
    def closed(self, *, complete: bool) -> list[Json]: ...
    @property
    def whole(self) -> Json:
        """The item as it stands."""


def open_item(opened: BlockOpened, reply: ResponseContext, tail: str) -> ItemEncoder:
    """The item for a block; `tail` is what its identifier ends in."""
    match opened.kind:
        case "text":
            return MessageItem(f"msg_{tail}")
        case "reasoning":
            return _Thought(f"rs_{tail}", reply)
        case "call":
            return _open_call(opened, reply, tail)


def _added(item: Json) -> Json:
    return {"type": "response.output_item.added", "item": item}


def _done(item: Json) -> Json:
    return {"type": "response.output_item.done", "item": item}


def _status(complete: bool) -> str:
    return "completed" if complete else "incomplete"


class MessageItem:
    """Text: a message of one part."""

    def __init__(self, id: str) -> None:
        self._id = id
        self.pieces = TextPieces()
        self._status = "in_progress"
        self._annotations: list[Json] = []

    def opened(self) -> list[Json]:
        item = {**self.whole, "content": []}
        return [_added(item), self._event("response.content_part.added", part=self._part(""))]

    def grown(self, text: str) -> list[Json]:
        self.pieces.append(text)
        return [self.piece(text)]

    def piece(self, text: str) -> Json:
        return self._event("response.output_text.delta", delta=text, logprobs=[])

    def signed(self, signed: BlockSigned) -> None:
        pass

    def cited(self, cited: TextCited) -> list[Json]:
        """A link in the text, to a page that a search found."""
        result = cited.result
        annotation = {
            "type": "url_citation",
            "start_index": cited.start,
            "end_index": cited.end,
            "url": result.url,
            "title": result.title,
        }
        self._annotations.append(annotation)
        number = len(self._annotations) - 1
        return [self._event("response.output_text.annotation.added", annotation_index=number, annotation=annotation)]

    def closed(self, *, complete: bool) -> list[Json]:
        self._status, text = _status(complete), "".join(self.pieces)
        return [
            self._event("response.output_text.done", text=text, logprobs=[]),
            self._event("response.content_part.done", part=self._part(text)),
            _done(self.whole),
        ]

    @property
    def whole(self) -> Json:
        content = [self._part("".join(self.pieces))]
        return {"id": self._id, "type": "message", "status": self._status, "content": content, "role": "assistant"}

    def _part(self, text: str) -> Json:
        return {"type": "output_text", "annotations": [*self._annotations], "logprobs": [], "text": text}

    def _event(self, type: str, **fields: object) -> Json:
        return {"type": type, "item_id": self._id, "content_index": 0, **fields}


class _Thought:
    """Reasoning: a summary of one part, and all of it sealed, so that it survives clients that drop what they see.

    It is sealed whether the client asked for it or not. One that did not ask keeps the
    item as it came, or drops it whole; and what is to be kept is known before what will
    be asked for next.
    """

    def __init__(self, id: str, reply: ResponseContext) -> None:
        self._id = id
        self._reply = reply
        self.pieces = TextPieces()
        self._signed: BlockSigned | None = None
        self._status = "in_progress"
        self._token: str | None = None

    def opened(self) -> list[Json]:
        return [_added(self.whole)]

    def grown(self, text: str) -> list[Json]:
        if not text:
            return []
        first = not self.pieces
        self.pieces.append(text)
        begin = [self._event("response.reasoning_summary_part.added", part=_summary(""))] if first else []
        return [*begin, self.piece(text)]

    def piece(self, text: str) -> Json:
        return self._event("response.reasoning_summary_text.delta", delta=text)

    def signed(self, signed: BlockSigned) -> None:
        self._signed = signed

    def closed(self, *, complete: bool) -> list[Json]:
        signed, text = self._signed or BlockSigned(0), "".join(self.pieces)
        self._token = self._reply.signer.sign(SignedPayload(text, signed.signature, signed.details, signed.field))
        self._status, out = _status(complete), list[Json]()
        if self.pieces:
            out.append(self._event("response.reasoning_summary_text.done", text=text))
            out.append(self._event("response.reasoning_summary_part.done", part=_summary(text)))
        return [*out, _done(self.whole)]

    @property
    def whole(self) -> Json:
        summary = [_summary("".join(self.pieces))] if self.pieces else []
        item = {"id": self._id, "type": "reasoning", "summary": summary, "status": self._status}
        return item if self._token is None else {**item, "encrypted_content": self._token}

    def _event(self, type: str, **fields: object) -> Json:
        return {"type": type, "item_id": self._id, "summary_index": 0, **fields}


def _summary(text: str) -> Json:
    return {"type": "summary_text", "text": text}


class _WholeItem:
    """An item without deltas."""

    def __init__(self) -> None:
        self.pieces = TextPieces()

    def grown(self, text: str) -> list[Json]:
        return []

    def piece(self, text: str) -> None:
        return None

    def signed(self, signed: BlockSigned) -> None:
        pass

    def closed(self, *, complete: bool) -> list[Json]:
        return []


class CompactionItem(_WholeItem):
    """A summary, which takes the place of the conversation before it: signed when it is complete."""

    def __init__(self, id: str, reply: ResponseContext) -> None:
        super().__init__()
        self._id, self._reply = id, reply

    def opened(self) -> list[Json]:
        return []

    def grown(self, text: str) -> list[Json]:
        self.pieces.append(text)
        return []

    def closed(self, *, complete: bool) -> list[Json]:
        return [_added(self.whole), _done(self.whole)]

    @property
    def whole(self) -> Json:
        return render_compaction("".join(self.pieces), self._reply.signer, self._id)


class ResultsItem(_WholeItem):
    """What the model was given of a search: clients return an item of reasoning unread."""

    def __init__(self, id: str, token: str) -> None:
        super().__init__()
        self.whole: Json = {
            "id": id,
            "type": "reasoning",
            "summary": [],
            "status": "completed",
            "encrypted_content": token,
        }

    def opened(self) -> list[Json]:
        return [_added(self.whole), _done(self.whole)]


class SearchItem(_WholeItem):
    """A web search that was run for the response. It has no deltas: its events say only how far it is."""

    def __init__(self, started: SearchStarted, *, with_sources: bool) -> None:
        self._started, self._with_sources = started, with_sources
        super().__init__()
        self._id = PREFIX + started.id
        self._ended: SearchEnded | None = None

    def opened(self) -> list[Json]:
        return [_added(self.whole), self._event("in_progress"), self._event("searching")]

    def finished(self, ended: SearchEnded) -> list[Json]:
        """The search is over. There is no event for one that failed, only a status."""
        self._ended = ended
        return [*([] if ended.error else [self._event("completed")]), _done(self.whole)]

    @property
    def whole(self) -> Json:
        ended = self._ended
        action: Json = {"type": "search", "query": self._started.query}
        if self._with_sources and ended is not None:
            action["sources"] = [{"type": "url", "url": result.url} for result in ended.results]
        status = "in_progress" if ended is None else "failed" if ended.error else "completed"
        return {"id": self._id, "type": "web_search_call", "status": status, "action": action}

    def _event(self, word: str) -> Json:
        return {"type": f"response.web_search_call.{word}", "item_id": self._id}


# --- calls ------------------------------------------------------------------------------------------------------


def _open_call(opened: BlockOpened, reply: ResponseContext, tail: str) -> ItemEncoder:
    name = opened.name or ""
    tool = reply.tools.get(name)
    if tool is None:
        tool = next((one for one in reply.request.tools or () if one.name == name and one.kind != "server"), None)
    namespace, said = (None, name) if tool is None else plain_name(tool)
    header: Json = {"call_id": opened.call_id or "", "name": said}
    header |= {"namespace": namespace} if namespace is not None else {}
    match kind_of(tool) if tool is not None else "function":
        case "custom":
            return _FreeCall(f"ctc_{tail}", header)
        case "tool_search":
            return _SearchCall(f"tsc_{tail}", header)
        case _:
            return _Call(f"fc_{tail}", header)


class _Call:
    """A call of a function.

    One that broke off is never told as done: clients run what is done, and half a
    command is another command.
    """

    _TYPE = "function_call"
    _EVENT = "response.function_call_arguments"

    def __init__(self, id: str, header: Json) -> None:
        self._id = id
        self._header = header
        self.pieces = TextPieces()
        self._status = "in_progress"

    def opened(self) -> list[Json]:
        return [_added(self.whole)]

    def grown(self, text: str) -> list[Json]:
        return self._told(text)

    def signed(self, signed: BlockSigned) -> None:
        pass

    def closed(self, *, complete: bool) -> list[Json]:
        self._status = _status(complete)
        if not complete:
            return []
        payload = {CALLS[self._TYPE].payload: "".join(self.pieces)}
        return [{"type": f"{self._EVENT}.done", "item_id": self._id, **self._name(), **payload}, _done(self.whole)]

    @property
    def whole(self) -> Json:
        payload = {CALLS[self._TYPE].payload: "".join(self.pieces)}
        return {"id": self._id, "type": self._TYPE, "status": self._status, **payload, **self._header}

    def _told(self, text: str) -> list[Json]:
        if not text:
            return []
        self.pieces.append(text)
        return [self._piece(text)]

    def piece(self, text: str) -> Json | None:
        return self._piece(text)

    def _piece(self, text: str) -> Json:
        return {"type": f"{self._EVENT}.delta", "item_id": self._id, "delta": text}

    def _name(self) -> Json:
        return {"name": self._header["name"]}


class _FreeCall(_Call):
    """A call of a custom tool: the one string among its arguments, taken out while it streams."""

    _TYPE = "custom_tool_call"
    _EVENT = "response.custom_tool_call_input"

    def __init__(self, id: str, header: Json) -> None:
        super().__init__(id, header)
        self._reader = InputReader()

    def grown(self, text: str) -> list[Json]:
        return self._told(self._reader.feed(text))

    def piece(self, text: str) -> None:
        return None

    def closed(self, *, complete: bool) -> list[Json]:
        return [*self._told(self._reader.close()), *super().closed(complete=complete)]

    def _name(self) -> Json:
        return {}


class _SearchCall(_Call):
    """A search for tools that the client runs itself: told whole, as its arguments are an object."""

    _TYPE = "tool_search_call"

    def __init__(self, id: str, header: Json) -> None:
        super().__init__(id, {"call_id": header["call_id"], "execution": "client"})

    def grown(self, text: str) -> list[Json]:
        self.pieces.append(text)
        return []

    def piece(self, text: str) -> None:
        return None

    def closed(self, *, complete: bool) -> list[Json]:
        self._status = _status(complete)
        return [_done(self.whole)] if complete else []

    @property
    def whole(self) -> Json:
        asked = decode_object("".join(self.pieces).encode("utf-8", "surrogatepass"))
        return {"id": self._id, "type": self._TYPE, "status": self._status, "arguments": asked or {}, **self._header}
