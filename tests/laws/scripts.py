"""A script (who says what, in which order) -> the chunks of a stream, the bytes of a stream, a whole response.

A script fixes the text of every run; how the text is cut over events is an argument. So
the same script gives every stream that must mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Final

import moonshim
from moonshim.engine.values.conversation import Message
from moonshim.engine.values.events import Failed, Finished, Repaired
from tests.support.streams import DONE, Listener, dump_json, in_field, parse_payloads, read_chunks, read_sse

__all__ = ["TOOLS", "Call", "Cut", "Outcome", "Run", "Script", "Setting", "frames", "mend", "pieces"]

Cut = Callable[[str], list[str]]
"""How one text is spread over events."""


def _tool(name: str, **properties: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties)[:1],
    }
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS: Final = (
    _tool("read", path="string"),
    _tool("read_file", file="string", lines="array"),
    _tool("search", query="string", limit="number"),
    _tool("search_files", glob="string", options="object"),
    _tool("mcp.fs-list", dir="string", deep="boolean"),
)
"""Names that are beginnings of one another, and one with a dot and a dash."""
_DECLARED: Final[dict[str, list[dict[str, Any]] | None]] = {"all": list(TOOLS), "none": [], "unknown": None}


@dataclass(frozen=True)
class Setting:
    """What the mender is told before the stream begins."""

    model: str = "kimi-k2.5"
    tools: str = "all"
    """Which tools were declared: all of them, none, or nobody knows."""
    tool_choice: str | None = None
    options: moonshim.KimiOptions | None = None

    @property
    def told(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "tools": _DECLARED[self.tools],
            "tool_choice": self.tool_choice,
            "options": self.options,
        }

    def mender(self, **more: Any) -> moonshim.Mender:
        return moonshim.Mender(**self.told, **more)

    @property
    def mends_deltas(self) -> bool:
        """Whether native deltas come out clean, so that a strict client can read them."""
        if self.options is None:
            return moonshim.is_kimi_model(self.model)
        return self.options.repair_deltas

    @property
    def reads_markers(self) -> bool:
        if self.options is None:
            return moonshim.is_kimi_model(self.model)
        return self.options.manual_tool_parsing


@dataclass(frozen=True)
class Run:
    """Speech in one field, or in several that are copies of one another."""

    text: str
    fields: tuple[str, ...] = ("content",)
    choice: int = 0

    @property
    def sent(self) -> str:
        """All that goes over the wire, copies not counted."""
        return self.text

    def deltas(self, cut: Cut) -> Iterator[dict[str, Any]]:
        for piece in cut(self.text):
            delta: dict[str, Any] = {}
            for name in self.fields:
                delta |= in_field(name, piece)
            yield delta


@dataclass(frozen=True)
class Call:
    """A native call, in one of the shapes that hosts send it."""

    name: str
    arguments: str
    id: str | None = None
    index: int | str | None = 0
    shape: str = "clean"
    choice: int = 0

    def deltas(self, cut: Cut) -> Iterator[dict[str, Any]]:
        for entry in _SHAPES[self.shape](self, cut):
            if self.index is not None:
                entry = {"index": self.index, **entry}
            yield {"tool_calls": [entry]}

    @property
    def sent(self) -> str:
        """All that goes over the wire of its arguments."""
        return self.arguments * (2 if self.shape == "doubled" else 1)

    @property
    def whole(self) -> dict[str, Any]:
        """As a response that does not stream has it."""
        entry: dict[str, Any] = {"type": "function", "function": {"name": self.name, "arguments": self.arguments}}
        return entry | ({"id": self.id} if self.id is not None else {})


Entries = Iterator[dict[str, Any]]


def _header(call: Call, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    identity = {} if call.id is None else {"id": call.id}
    function = {"name": call.name if name is None else name, "arguments": arguments}
    return {**identity, "type": "function", "function": function}


def _grown(text: str) -> dict[str, Any]:
    return {"function": {"arguments": text}}


def _clean(call: Call, cut: Cut) -> Entries:
    yield _header(call)
    yield from map(_grown, cut(call.arguments))


def _whole(call: Call, cut: Cut) -> Entries:
    yield _header(call, arguments=call.arguments)


def _id_always(call: Call, cut: Cut) -> Entries:
    yield _header(call)
    for text in cut(call.arguments):
        yield _grown(text) | ({"id": call.id} if call.id is not None else {})


def _name_always(call: Call, cut: Cut) -> Entries:
    yield _header(call)
    for text in cut(call.arguments):
        yield _header(call, arguments=text)


def _name_in_pieces(call: Call, cut: Cut) -> Entries:
    middle = max(1, len(call.name) // 2)
    yield _header(call, call.name[:middle])
    yield {"function": {"name": call.name[middle:]}}
    yield from map(_grown, cut(call.arguments))


def _arguments_first(call: Call, cut: Cut) -> Entries:
    yield {} if call.id is None else {"id": call.id}
    yield from map(_grown, cut(call.arguments))
    yield {"type": "function", "function": {"name": call.name}}


def _empty_first(call: Call, cut: Cut) -> Entries:
    yield _header(call, arguments="{}")
    yield from map(_grown, cut(call.arguments))


def _doubled(call: Call, cut: Cut) -> Entries:
    yield _header(call)
    yield from map(_grown, cut(call.arguments + call.arguments))


def _nameless(call: Call, cut: Cut) -> Entries:
    yield _header(call, "")
    yield from map(_grown, cut(call.arguments))


_SHAPES: Final[dict[str, Callable[[Call, Cut], Entries]]] = {
    "clean": _clean,
    "whole": _whole,
    "id_always": _id_always,
    "name_always": _name_always,
    "name_in_pieces": _name_in_pieces,
    "arguments_first": _arguments_first,
    "empty_first": _empty_first,
    "doubled": _doubled,
    "nameless": _nameless,
}
SHAPES: Final = tuple(_SHAPES)
LEGIBLE_SHAPES: Final = tuple(shape for shape in SHAPES if shape not in ("empty_first", "doubled", "nameless"))
"""Those that say nothing else than the whole call does."""


@dataclass(frozen=True)
class Script:
    """One answer, or several choices of it, from the first chunk to the last."""

    parts: tuple[Run | Call, ...]
    finish: str | None = "stop"
    finish_in_delta: bool = False
    usage: str | None = None
    done: bool = True
    setting: Setting = field(default_factory=Setting)

    @property
    def choices(self) -> list[int]:
        return sorted({part.choice for part in self.parts} | {0})

    def chunks(self, cut: Cut = lambda text: [text] if text else []) -> list[dict[str, Any]]:
        out = [self._chunk(choice, {"role": "assistant"}) for choice in self.choices]
        for part in self.parts:
            out += [self._chunk(part.choice, delta) for delta in part.deltas(cut)]
        usage = {"prompt_tokens": 3, "completion_tokens": 4}
        if self.finish is not None:
            for choice in self.choices:
                in_delta = {"finish_reason": self.finish} if self.finish_in_delta else {}
                chunk = self._chunk(choice, in_delta, None if in_delta else self.finish)
                if choice == 0 and self.usage == "top":
                    chunk["usage"] = usage
                elif choice == 0 and self.usage == "choice":
                    chunk["choices"][0]["usage"] = usage
                out.append(chunk)
        if self.usage == "last":
            out.append(self._chunk(0, {}) | {"choices": [], "usage": usage})
        return out

    def _chunk(self, choice: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        identity = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 17, "model": self.setting.model}
        return {**identity, "choices": [{"index": choice, "delta": delta, "finish_reason": finish}]}

    def frames(self, cut: Cut = lambda text: [text] if text else []) -> list[bytes]:
        return frames(self.chunks(cut), done=self.done)


def frames(chunks: Sequence[Any], *, done: bool = True) -> list[bytes]:
    """Each chunk as an event of its own."""
    return [b"data: %b\n\n" % dump_json(chunk) for chunk in chunks] + ([b"data: [DONE]\n\n"] if done else [])


def pieces(sizes: Sequence[int]) -> Cut:
    """Cut a text into pieces of these sizes, over and over."""

    def cut(text: str) -> list[str]:
        out: list[str] = []
        at = 0
        for size in cycle(sizes):
            if at >= len(text):
                return out
            out.append(text[at : at + size])
            at += size
        return out

    return cut


@dataclass
class Outcome:
    """All that a mender has to say for itself after a stream."""

    data: bytes
    repairs: list[Repaired]
    messages: dict[int, Message]
    ending: Finished | Failed | None
    setting: Setting

    @property
    def values(self) -> list[Any]:
        return parse_payloads(read_sse(self.data))

    def heard(self) -> Listener:
        """What a client has understood, or an assertion that fails where it would be confused."""
        return read_chunks(self.values, strict=self.setting.mends_deltas)

    @property
    def done(self) -> bool:
        return DONE in self.values


def mend(setting: Setting, data: Sequence[bytes], choices: Sequence[int] = (0,)) -> Outcome:
    """Feed these pieces one by one."""
    mender = setting.mender()
    out = b"".join([mender.feed(piece) for piece in data]) + mender.flush()
    messages = {choice: mender.message_of(choice) for choice in choices}
    return Outcome(out, mender.repairs, messages, mender.ending, setting)
