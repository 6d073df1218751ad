"""Runs a vector through the engine and compares the output with what its file expects."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from moonshim import Failed, Finished, Mender, Message, Reasoning, Repaired, Text, ToolCall
from moonshim.engine.dialects.protocol import ResponseContext
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.plan import Plan, plan_for
from tests.support.streams import (
    Listener,
    ReceivedCall,
    ReceivedChoice,
    find_markers,
    parse_payloads,
    read_chunks,
    read_sse,
)
from tests.support.vector_files import Expected, ExpectedCall, Vector

REPORTS: Final = frozenset(
    {
        "arguments_truncated",
        "arguments_unfinished",
        "empty_answer",
        "not_a_chunk",
        "not_json",
        "undeclared_tool",
    }
)
"""Rules that report something and change nothing: they may be reported for a mended stream, too."""


class Run:
    """One stream through one mender, fed in these pieces; asserts that the input was not modified."""

    def __init__(self, vector: Vector, pieces: Iterable[bytes], **changes: Any) -> None:
        told = vector.arguments(**changes)
        before = copy.deepcopy(told)
        self.mender = Mender(**told, framing=vector.framing)
        out = bytearray()
        for piece in pieces:
            out += self.mender.feed(piece)
        self.before_flush = len(out)
        self.out = bytes(out + self.mender.flush())
        assert told == before, "the mender changed what was passed to it"

    @property
    def rules(self) -> list[str]:
        return [repair.rule for repair in self.mender.repairs]

    def values(self, vector: Vector) -> list[Any]:
        """What a client of this framing reads."""
        return read_values(self.out, vector)


def plan_of(vector: Vector, client: str) -> Plan:
    """The plan of a request to a Chat host, for a client of this dialect."""
    plan = plan_for(**vector.arguments())
    plan.client, plan.upstream = dialect_named(client), dialect_named("openai_chat")
    plan.reply = ResponseContext(model=vector.model)
    return plan


def read_values(out: bytes, vector: Vector) -> list[Any]:
    if vector.framing == "ndjson":
        assert not out or out.endswith(b"\n")
        return parse_payloads(line for line in out.decode().split("\n") if line)
    assert b"\r" not in out, "line ends are LF"
    return parse_payloads(read_sse(out))


def same(what: str, got: Any, wanted: Any) -> None:
    assert got == wanted, f"{what}: {got!r}, and should be {wanted!r}"


# -- actual and expected output --------------------------------------------------------------------------------------


def check_stream(vector: Vector, field: str, came: bytes, run: Run) -> None:
    """Everything that the vector expects of a stream."""
    expect, values = vector.expected_in(field), run.values(vector)
    same("leaked", find_markers(values, expect.keeps), [])
    listener = read_chunks(values, strict=expect.balanced)
    check_received(expect, field, listener, summary=True)
    finished = all(heard.finish is not None for heard in listener.choices.values())
    if finished and vector.framing == "sse":
        assert values[-1] == "[DONE]", "[DONE] is last"
    check_repairs(expect, run.mender.repairs)
    for wanted in expect.contains:
        assert wanted.encode() in run.out, f"{wanted!r} is missing in {run.out!r}"
    for unwanted in expect.lacks:
        assert unwanted.encode() not in run.out
    if expect.clean and expect.error is not None:
        unchanged, _, _ = came.rpartition(b"\n\ndata: {")
        same("a clean stream, up to its ending", run.out[: len(unchanged)], unchanged)
    elif expect.clean:
        same("a clean stream", run.out, came)
    if expect.balanced:
        for index, heard in listener.choices.items():
            same("order in the message", joined_parts(run.mender.message_of(index)), heard.order)
            same("calls in the message", _calls_of(run.mender.message_of(index)), heard.calls)
    check_ending(expect, run.mender.ending)


def check_received(expect: Expected, field: str, listener: Listener, *, summary: bool) -> None:
    for index, one in enumerate([expect, *expect.others]):
        _check_choice(one, field, listener[index], summary=summary)
    same("choices", sorted(listener.choices), list(range(1 + len(expect.others))))
    if expect.usage is not None:
        same("usage", listener.usages, [expect.usage])


def _check_choice(expect: Expected, field: str, heard: ReceivedChoice, *, summary: bool) -> None:
    own = expect.text
    same("content", heard.content, expect.content + (own if field in ("content", "") else ""))
    same("reasoning", heard.reasoning, expect.reasoning + (own if field not in ("content", "") else ""))
    fields = expect.fields or ([field] if field not in ("content", "") and heard.reasoning else None)
    if fields is not None:
        same("fields of the reasoning", sorted(heard.fields), sorted(fields))
    if expect.balanced:
        check_calls(expect.calls, heard.calls)
    same("finish", heard.finish, expect.finish)
    if expect.error is None:
        same("error", heard.error, None)
    else:
        assert heard.error is not None, "an error event is missing"
        same("error", heard.error["code"], expect.error)
    if expect.order is not None and summary:
        own_kind = "text" if field in ("content", "") else "reasoning"
        same("order", heard.order, [(own_kind if kind == "own" else kind, text) for kind, text in expect.order])
    if summary:
        same("no summary", heard.summary is None, expect.summary is None)
        told = [ReceivedCall(one["id"], **one["function"]) for one in heard.summary or ()]
        check_calls(expect.summary or [], told)


def check_calls(expected: Sequence[ExpectedCall], heard: Sequence[ReceivedCall]) -> None:
    same("names", [call.name for call in heard], [call.name for call in expected])
    for wanted, got in zip(expected, heard, strict=True):
        if isinstance(wanted.arguments, str):
            same("arguments", got.arguments, wanted.arguments)
        else:
            same(f"arguments {got.arguments!r}", json.loads(got.arguments), wanted.arguments)
        if wanted.id is not None:
            same("id", got.id, wanted.id)


def check_repairs(expect: Expected, repairs: Sequence[Repaired]) -> None:
    rules = {repair.rule for repair in repairs}
    assert rules >= set(expect.repairs), f"not reported: {set(expect.repairs) - rules}, only {sorted(rules)}"
    if expect.clean:
        ending = set() if expect.error is None else {"failed"}
        assert rules <= set(expect.repairs) | REPORTS | ending, f"nothing was wrong, but {repairs}"
    for rule, detail in expect.details.items():
        assert any(repair.rule == rule and detail in repair.detail for repair in repairs), f"{rule}: {repairs}"


def check_ending(expect: Expected, ending: Finished | Failed | None) -> None:
    if expect.error is None:
        assert isinstance(ending, Finished), ending
        same("ending", ending.reason, expect.finish)
    else:
        assert isinstance(ending, Failed), ending
        same("ending", (ending.code, ending.retryable), (expect.error, True))


# -- messages --------------------------------------------------------------------------------------------------


def joined_parts(message: Message) -> list[tuple[str, str]]:
    """The parts of a message as a client sees them: adjacent parts of one kind are joined."""
    heard = ReceivedChoice()
    for part in message.parts:
        match part:
            case Text(text=text) if text:
                heard.add("text", text)
            case Reasoning(text=text) if text:
                heard.add("reasoning", text)
            case ToolCall(name=name):
                heard.add("call", name)
    return heard.order


def _calls_of(message: Message) -> list[ReceivedCall]:
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    return [ReceivedCall(call.wire_id or "", call.name, call.arguments) for call in calls]


def sorted_parts(message: Message) -> tuple[str, str, list[ReceivedCall]]:
    """The content of a message, by channel."""
    order = joined_parts(message)
    reasoning = "".join(text for kind, text in order if kind == "reasoning")
    content = "".join(text for kind, text in order if kind == "text")
    return reasoning, content, _calls_of(message)
