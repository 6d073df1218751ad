"""Streams that can be made as long as one likes: each kind is a place where work or memory could grow out of hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import moonshim
from moonshim.engine.grammar.kimi.k3_arguments import HOLD_LIMIT
from moonshim.engine.repair.repair_log import KEPT_REPAIRS
from tests.laws.scripts import TOOLS
from tests.support.streams import chunk, dump_json, split_text

__all__ = ["KINDS", "Workload"]

SMALL_BUFFER: Final = 8192
"""The `buffer_limit` of the kinds that are held on purpose."""


Deltas = Callable[[int, int], Iterator[dict[str, Any]]]
"""How many characters, in pieces of which size -> the deltas."""


@dataclass(frozen=True)
class Workload:
    """The deltas of a stream that grows with `size` (in characters), and what the mender is told."""

    deltas: Deltas
    step: int = 4
    """How many characters come in a frame."""
    model: str = "kimi-k2.5"
    tools: tuple[dict[str, Any], ...] = TOOLS
    options: dict[str, Any] = field(default_factory=dict)
    held: int = 0
    """Characters that are held on purpose."""
    told: int = 0
    """Repairs that are kept for the report."""
    per_call: int = 0
    """What may be remembered of each call for the rest of the stream (its identifier, its number), in bytes."""

    def kept(self, frames: Sequence[bytes]) -> int:
        """The bytes that may be used beyond what every stream may."""
        calls = sum(frame.count(b'"id": "functions') + frame.count(b"_argument_begin") for frame in frames)
        # Held characters are in pieces, are joined before they leave, and leave as JSON: so they are there four times.
        return 5 * self.held + 128 * self.told + self.per_call * calls + 256 * max(0, len(self.tools) - len(TOOLS))

    def frames(self, size: int, step: int | None = None) -> list[bytes]:
        """So many characters, by as many a frame as is usual for the kind, or by `step`."""
        deltas = list(self.deltas(size, step or self.step))
        ending = chunk({}, "stop", model=self.model)
        sent = [
            chunk({"role": "assistant"}, model=self.model),
            *(chunk(one, model=self.model) for one in deltas),
            ending,
        ]
        return [b"data: %b\n\n" % dump_json(one) for one in sent] + [b"data: [DONE]\n\n"]

    def mender(self) -> moonshim.Mender:
        options = moonshim.KimiOptions.mending(**self.options)
        return moonshim.Mender(model=self.model, tools=list(self.tools), options=options, collect=False)


Made = Callable[[int], str]
_BEGIN: Final = "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
_END: Final = "<|tool_call_end|><|tool_calls_section_end|>"
_K3_BEGIN: Final = '<|open|>tools<|sep|><|open|>call tool="read" index="1"<|sep|>'
_K3_ARGUMENT: Final = '<|open|>argument key="path" type="{}"<|sep|>'
_K3_END: Final = "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
_SOUP: Final = (
    "<|tool_call_begin|>|><|<think>read:0<|tool_call_end|></think><|open|>x<|tool_calls_section_end|>{<|sep|>}"
    '<|tool_call_argument_begin|>"<|tool_call_begin|>functions.read:1<|tool_call_argument_begin|>{"a": 1} '
)


def _field(made: Made, name: str = "content") -> Deltas:
    return lambda size, step: ({name: piece} for piece in split_text(made(size), step))


def _native(made: Made, name: str = "read_file", id_: str = "functions.read_file:0") -> Deltas:
    def deltas(size: int, step: int) -> Iterator[dict[str, Any]]:
        yield _entry(0, id_, name, "")
        for piece in split_text(made(size), step):
            yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}

    return deltas


def _entry(index: int, id_: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": id_, "type": "function", "function": function}]}


def _native_calls(size: int, step: int) -> Iterator[dict[str, Any]]:
    for place in range(size // 64):
        yield _entry(place, f"functions.read_file:{place}", "read_file", f'{{"path": "a{place}"}}')


def _shared_index(size: int, step: int) -> Iterator[dict[str, Any]]:
    for place in range(size // 64):
        yield _entry(0, f"functions.read_file:{place}", "read_file", f'{{"path": "a{place}"}}')


def _repeated(text: str) -> Made:
    return lambda size: text * (size // len(text) + 1)


def _object(size: int) -> str:
    return '{"path": "' + "some words and \\n more " * (size // 22) + '"}'


def _around(before: str, middle: Made, after: str = "") -> Made:
    return lambda size: before + middle(size) + after


def _marker_calls(size: int) -> str:
    calls = (
        f'<|tool_call_begin|>functions.read:{place}<|tool_call_argument_begin|>{{"path": "a{place}"}}<|tool_call_end|>'
        for place in range(size // 96)
    )
    return "<|tool_calls_section_begin|>" + "".join(calls) + "<|tool_calls_section_end|>"


_SPACE: Final = _repeated("  \n ")
_WORDS: Final = _repeated("Some words, read aloud: 12 of them. ")
_TOOLS_500: Final = tuple(
    {"type": "function", "function": {"name": f"tool_{place}_of_many", "parameters": {"type": "object"}}}
    for place in range(500)
)
_SMALL: Final = {"buffer_limit": SMALL_BUFFER}
_ASSEMBLED: Final = {**_SMALL, "tool_call_streaming": "assembled"}
_PER_CALL: Final = 2560

KINDS: Final[dict[str, Workload]] = {
    "plain text": Workload(_field(_WORDS), 4),
    "plain text of K3": Workload(_field(_WORDS), 4, "kimi-k3"),
    "reasoning": Workload(_field(_WORDS, "reasoning_content"), 4),
    "tiny frames": Workload(_field(_WORDS), 1),
    "many tools": Workload(_field(_repeated("tool_1 tool_499_of_many functions.tool_7 ")), 3, tools=_TOOLS_500),
    "arguments by one": Workload(_field(_around(_BEGIN, _object, _END)), 1),
    "arguments by four": Workload(_field(_around(_BEGIN, _object, _END)), 4),
    "native arguments by one": Workload(_native(_object), 1),
    "native arguments by four": Workload(_native(_object), 4),
    # The schema, as it was read, stays for as long as the call.
    "schema": Workload(_native(_object), 4, options={"repair_arguments": "schema"}, held=4000),
    "calls in markers": Workload(_field(_marker_calls), 16, per_call=_PER_CALL),
    "native calls": Workload(_native_calls, 64, per_call=_PER_CALL),
    "native calls that share an index": Workload(_shared_index, 64, per_call=_PER_CALL),
    "marker soup": Workload(_field(_repeated(_SOUP)), 5, per_call=_PER_CALL),
    "marker soup of K3": Workload(_field(_repeated(_SOUP)), 5, "kimi-k3", per_call=_PER_CALL),
    "almost markers": Workload(_field(_repeated("<|tool_call_ <|<<|tool_calls_section_begin| ")), 3),
    "space between markers": Workload(_field(_around(_BEGIN + "{}<|tool_call_end|>", _SPACE, "x")), 16),
    "space behind a section": Workload(_field(_around(_BEGIN + "{}" + _END, _SPACE, "x")), 16),
    "space before arguments": Workload(_field(_around(_BEGIN, _SPACE, "{}" + _END)), 16),
    "space behind arguments": Workload(_field(_around(_BEGIN + '{"a": 1}', _SPACE, _END)), 16),
    "space behind an empty object": Workload(_field(_around(_BEGIN + "{}", _SPACE, _END)), 16),
    "space behind a native empty object": Workload(_native(_around("{}", _SPACE)), 16),
    "space in a tag of K3": Workload(_field(_around("<|open|>call ", _SPACE, "x")), 16, "kimi-k3"),
    "space in a call of K3": Workload(_field(_around(_K3_BEGIN, _SPACE, _K3_END)), 16, "kimi-k3"),
    "braces": Workload(_field(_around(_BEGIN, _repeated("{"))), 4),
    "native braces": Workload(_native(_repeated("{")), 4),
    "backslashes": Workload(_field(_around(_BEGIN + '{"a": "', _repeated("\\"))), 3),
    "native backslashes": Workload(_native(_around('{"a": "', _repeated("\\"))), 3),
    "invalid escapes": Workload(_native(_around('{"a": "', _repeated("\\q\n"))), 3, told=KEPT_REPAIRS),
    "an unclosed string": Workload(_field(_around(_BEGIN + '{"a": "', _repeated("<|tool_call_end|> x "))), 5),
    "junk before arguments": Workload(
        _field(_around(_BEGIN, _repeated("so, "), "{}" + _END)), 16, options=_SMALL, held=SMALL_BUFFER
    ),
    "native junk before arguments": Workload(
        _native(_around("", _repeated("so, "), "{}")), 16, options=_SMALL, held=SMALL_BUFFER
    ),
    "text behind arguments": Workload(
        _field(_around(_BEGIN + '{"a": 1}', _WORDS, _END)), 16, options=_SMALL, held=SMALL_BUFFER
    ),
    "native text behind arguments": Workload(
        _native(_around('{"a": 1}', _WORDS)), 16, options=_SMALL, held=SMALL_BUFFER
    ),
    "arguments over and over": Workload(_native(_repeated('{"a": 1}')), 16, options=_SMALL, held=SMALL_BUFFER),
    "a header that never ends": Workload(_field(_around("<|tool_call_begin|>", _repeated("name"))), 16),
    "a bare name that never ends": Workload(_field(_repeated("functions.read_file:000 ")), 5),
    "digits": Workload(_field(_around("read:", _repeated("0"))), 5),
    "an assembled call": Workload(_field(_around(_BEGIN, _object, _END)), 16, options=_ASSEMBLED, held=SMALL_BUFFER),
    "an assembled native call": Workload(_native(_object), 16, options=_ASSEMBLED, held=SMALL_BUFFER),
    "a call without a name": Workload(
        _field(_around("<|tool_call_begin|>3<|tool_call_argument_begin|>", _object, _END)),
        16,
        options=_SMALL,
        held=SMALL_BUFFER,
    ),
    "a native call without a name": Workload(_native(_object, "", "call_1"), 16, options=_SMALL, held=SMALL_BUFFER),
    "a string of K3": Workload(
        _field(_around(_K3_BEGIN + _K3_ARGUMENT.format("string"), _WORDS, _K3_END)), 4, "kimi-k3"
    ),
    "an object of K3": Workload(
        _field(_around(_K3_BEGIN + _K3_ARGUMENT.format("object"), _object, _K3_END)), 4, "kimi-k3"
    ),
    "a number of K3": Workload(
        _field(_around(_K3_BEGIN + _K3_ARGUMENT.format("number"), _repeated("7"), _K3_END)),
        16,
        "kimi-k3",
        held=HOLD_LIMIT,
    ),
}
