"""The events of an answer become the chunks of a Chat stream, or one whole Chat response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias, assert_never

from moonshim.engine.dialects.openai_chat.chunk import error_chunk
from moonshim.engine.dialects.openai_chat.delta import write_piece
from moonshim.engine.dialects.openai_chat.reasoning import TEXT_KEYS
from moonshim.engine.dialects.openai_chat.usage import write_usage
from moonshim.engine.dialects.protocol import TEXT, ResponseContext, Template
from moonshim.engine.formats.free_text import InputReader, extract_input
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    CallPiece,
    Failed,
    Finished,
    Opaque,
    Repaired,
    Started,
)
from moonshim.engine.values.searches import ClientEvent, SearchEnded, SearchStarted, TextCited
from moonshim.engine.values.verdicts import CallsJudged

__all__ = ["ChatEncoder", "encode_choices", "encode_response"]

Json: TypeAlias = dict[str, Any]

_FIELDS: Final = {"text": "content", "reasoning": "reasoning_content"}


class ChatEncoder:
    """Writes one choice: a role first, an index on every tool delta, one finish, usage where it was asked for."""

    def __init__(self, reply: ResponseContext, *, index: int = 0, frame: Json | None = None) -> None:
        """`frame`: the fields that name the response, the same object for all its choices."""
        self._reply, self._index = reply, index
        self._frame: Json = {} if frame is None else frame
        self._has_role = False
        self._kinds: dict[int, str] = {}
        self._numbers: dict[int, int] = {}
        self._detailed = 0
        self._thoughts: dict[int, list[str] | None] = {}
        """The text of each open block of reasoning, which an entry of its details may repeat; None: not known."""
        self._custom: dict[int, InputReader] = {}
        self._offsets: dict[int, int] = {}
        """Where each text block starts in the content: its citations count from there."""
        self._length = self._annotated = 0

    def for_choice(self, index: int) -> ChatEncoder:
        """The encoder of another choice of the same response."""
        return ChatEncoder(self._reply, index=index, frame=self._frame)

    def feed(self, event: ClientEvent) -> list[Json]:
        """The chunks that tell this event."""
        match event:
            case Started():
                return self._start(event)
            case BlockOpened(kind="call"):
                return [*self._started(), *self._open_call(event)]
            case BlockOpened(index=index, kind=kind):
                self._kinds[index] = _FIELDS[kind]
                if kind == "reasoning":
                    self._thoughts[index] = []
                else:
                    self._offsets[index] = self._length
                return self._started()
            case BlockDelta(index=index, text=text) if index in self._custom:
                return self._grow_custom(index, self._custom[index].feed(text))
            case BlockDelta(index=index, text=text):
                if (pieces := self._thoughts.get(index)) is not None:
                    pieces.append(text)
                elif index in self._offsets:
                    self._length += len(text)
                return [self._grown(index, text)]
            case BlockSigned(index=index):
                written = _details(event, self._thoughts.get(index))
                details = [{"index": self._next_detail(), **one} for one in written]
                return [self._chunk({"reasoning_details": details})] if details else []
            case BlockClosed(index=index):
                return self._close(index)
            case Finished():
                return [*self._started(), *self._finish(event)]
            case Failed():
                return [error_chunk(event, {"index": self._index} if self._index else None)]
            case Opaque(payload=payload):
                return [*self._started(), self._chunk({}, fields=payload)]
            case TextCited():
                # Clients put the entries of a stream together by their index.
                self._annotated += 1
                numbered = {"index": self._annotated - 1, **_annotation(event, self._offsets[event.index])}
                return [self._chunk({"annotations": [numbered]})]
            case Repaired() | SearchStarted() | SearchEnded() | CallsJudged():
                return []
            case _:
                assert_never(event)

    def template(self, index: int) -> Template | None:
        """How the next piece of this block is told."""
        if index in self._thoughts:
            self._thoughts[index] = None  # pieces that are written so are not heard of
        return None if index in self._custom else Template(self._grown(index, TEXT))

    def _grown(self, index: int, text: str) -> Json:
        number = self._numbers.get(index)
        if number is None:
            return self._chunk({self._kinds[index]: text})
        return self._chunk({"tool_calls": [write_piece(CallPiece(number, arguments=text))]})

    def _next_detail(self) -> int:
        """Clients put the entries of a stream together by their index."""
        self._detailed += 1
        return self._detailed - 1

    def _start(self, started: Started) -> list[Json]:
        if self._has_role:
            return []
        self._has_role = True
        if not self._frame:
            self._frame |= {
                "id": _id(started.id or self._reply.id),
                "object": "chat.completion.chunk",
                "created": started.created if started.created is not None else self._reply.created,
                "model": self._reply.model,
            }
        return [self._chunk({"role": "assistant", "content": ""})]

    def _started(self) -> list[Json]:
        return [] if self._has_role else self._start(Started())

    def _open_call(self, opened: BlockOpened) -> list[Json]:
        number = self._numbers[opened.index] = len(self._numbers)
        if _is_custom(opened.name, self._reply):
            entry = {"index": number, "id": opened.call_id, "type": "custom"}
            self._custom[opened.index] = InputReader()
            return [
                self._chunk({"tool_calls": [{**entry, "custom": {"name": _name(opened, self._reply), "input": ""}}]})
            ]
        return [
            self._chunk({"tool_calls": [write_piece(CallPiece(number, opened.call_id, _name(opened, self._reply)))]})
        ]

    def _close(self, index: int) -> list[Json]:
        self._thoughts.pop(index, None)
        reader = self._custom.pop(index, None)
        return [] if reader is None else self._grow_custom(index, reader.close())

    def _grow_custom(self, index: int, text: str) -> list[Json]:
        """The free text of a call grows, as it arrives."""
        if not text:
            return []
        entry = {"index": self._numbers[index], "type": "custom", "custom": {"input": text}}
        return [self._chunk({"tool_calls": [entry]})]

    def _finish(self, finished: Finished) -> list[Json]:
        out = [self._chunk({}, finished.reason)]
        if self._reply.request.include_usage and finished.usage is not None:
            out.append({**self._frame, "choices": [], "usage": write_usage(finished.usage)})
        return out

    def _chunk(self, delta: Json, finish: str | None = None, fields: Mapping[str, Any] | None = None) -> Json:
        choice = {"index": self._index, "delta": delta, **(fields or {}), "finish_reason": finish}
        return {**self._frame, "choices": [choice]}


def encode_response(events: Sequence[ClientEvent], reply: ResponseContext) -> Json:
    """The whole response that these events tell; an answer that broke off is an error."""
    return encode_choices({0: events}, reply)


def encode_choices(choices: Mapping[int, Sequence[ClientEvent]], reply: ResponseContext) -> Json:
    """The whole response with these choices, by their index.

    If the first one broke off, it is an error. If another one did, that has no finish reason, and the error is beside
    the choices.
    """
    started, usage = Started(), None
    written, failures = list[Json](), list[Json]()
    for index, events in sorted(choices.items()):
        ending = next((event for event in events if isinstance(event, (Finished, Failed))), None)
        if isinstance(ending, Failed):
            if index == 0:
                return error_chunk(ending)
            failures.append(error_chunk(ending, {"index": index}))
        elif ending is not None and ending.usage is not None:
            usage = ending.usage
        started = next((event for event in events if isinstance(event, Started)), started)
        written.append({"index": index, **_whole_choice(events, reply)})
    body: Json = {
        "id": _id(started.id or reply.id),
        "object": "chat.completion",
        "created": started.created if started.created is not None else reply.created,
        "model": reply.model,
        "choices": written,
    }
    if usage is not None:
        body["usage"] = write_usage(usage)
    return body | (failures[0] if failures else {})


def _whole_choice(events: Iterable[ClientEvent], reply: ResponseContext) -> Json:
    """The message of these events, and how it ended."""
    calls = list[Json]()
    texts: dict[str, list[list[str]]] = {"content": [], "reasoning_content": []}
    where: dict[int, list[str]] = {}
    details: list[Json] = []
    annotations: list[Json] = []
    logprobs: dict[str, list[Any]] = {}
    reason: str | None = None
    for event in events:
        match event:
            case BlockOpened(kind="call"):
                where[event.index] = []
                calls.append({"block": event.index, "opened": event})
            case BlockOpened(index=index, kind=kind):
                where[index] = []
                texts[_FIELDS[kind]].append(where[index])
            case BlockDelta(index=index, text=text):
                where[index].append(text)
            case BlockSigned():
                details += _details(event, where[event.index])
            case TextCited():
                before = sum(
                    len(piece) for text in texts["content"] if text is not where[event.index] for piece in text
                )
                annotations.append(_annotation(event, before))
            case Opaque(payload={"logprobs": dict(more)}):
                for name, entries in more.items():
                    logprobs.setdefault(name, []).extend(entries if isinstance(entries, list) else ())
            case Finished():
                reason = event.reason
            case _:
                pass
    content, reasoning = ("".join(chain.from_iterable(texts[field])) for field in ("content", "reasoning_content"))
    message: Json = {"role": "assistant", "content": content if content or not calls else None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if details:
        message["reasoning_details"] = details
    if annotations:
        message["annotations"] = annotations
    if calls:
        message["tool_calls"] = [_whole_call(one["opened"], "".join(where[one["block"]]), reply) for one in calls]
    kept = {"logprobs": {name: entries or None for name, entries in logprobs.items()}} if logprobs else {}
    return {"message": message, **kept, "finish_reason": reason}


def _annotation(cited: TextCited, offset: int) -> Json:
    """A link in the content, which starts `offset` characters before the text of its block."""
    result = cited.result
    citation = {
        "start_index": offset + cited.start,
        "end_index": offset + cited.end,
        "url": result.url,
        "title": result.title,
    }
    return {"type": "url_citation", "url_citation": citation}


def _whole_call(opened: BlockOpened, arguments: str, reply: ResponseContext) -> Json:
    name = _name(opened, reply)
    if _is_custom(opened.name, reply):
        return {"id": opened.call_id, "type": "custom", "custom": {"name": name, "input": extract_input(arguments)}}
    return write_piece(CallPiece(None, opened.call_id, name, arguments))


def _name(opened: BlockOpened, reply: ResponseContext) -> str | None:
    """The client's own name of a tool."""
    tool = reply.tools.get(opened.name or "")
    return tool.name if tool is not None else opened.name


def _is_custom(name: str | None, reply: ResponseContext) -> bool:
    tool = reply.tools.get(name or "")
    return tool is not None and tool.kind == "custom"


def _details(signed: BlockSigned, thought: list[str] | None) -> list[Json]:
    """What the client has to hand back beside the reasoning, in the shape that OpenRouter made known.

    An entry that the host sent with the text of the thought has that text again; where it is not known, there is
    no such entry: nobody can use one without its text.
    """
    details = list[Json]()
    for one in signed.details:
        key = None if one.get("signature") else TEXT_KEYS.get(str(one.get("type")))
        if key is None or key in one:
            details.append(dict(one))
        elif thought:
            details.append({**one, key: "".join(thought)})
    if signed.signature is not None and not any("signature" in one for one in details):
        details.append({"type": "reasoning.text", "signature": signed.signature})
    return details


def _id(id: str) -> str:
    return id if id.startswith("chatcmpl") else f"chatcmpl-{id.removeprefix('msg_').removeprefix('resp_')}"
