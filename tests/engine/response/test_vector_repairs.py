"""Law 2 for every client: what is reported to a Chat client is reported to the others, streamed and whole.

Every vector is read for clients of each dialect. Below them are shapes of single chunks that one dialect can pass on
and another cannot: their text arrives, or a repair reports it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import pytest
from msgspec import Struct

from moonshim import Mender, Repaired, mend_response
from moonshim.engine.dialects.protocol import ResponseContext
from moonshim.engine.dialects.registry import CLIENT_DIALECTS, dialect_named
from moonshim.engine.plan import Plan, plan_for
from moonshim.engine.upstream_events import UpstreamEvent
from moonshim.engine.values.conversation import Usage
from tests.engine.response.test_pipeline import Ear, Said, heard_again
from tests.support.looped import looped
from tests.support.streams import chunk, parse_payloads, read_sse, sse
from tests.support.vector_checks import Run, plan_of
from tests.support.vector_files import Vector, fields_of, files

Delivery: TypeAlias = Literal["stream", "whole"]

DELIVERIES: Final[tuple[Delivery, ...]] = ("stream", "whole")
VECTORS: Final = {f"{file}/{vector.name}": vector for file, group in files().items() for vector in group}


def unreported(vector: Vector, client: str, delivery: Delivery) -> Iterator[tuple[str, set[str]]]:
    """The rules that are reported to a Chat client and not to this one, by the field that the text is sent in."""
    for field in fields_of(vector):
        if delivery == "stream":
            stream = vector.stream(field, 3)
            chat = Run(vector, [stream]).mender.repairs
            mender = Mender(plan=plan_of(vector, client), framing=vector.framing)
            mender.feed(stream)
            mender.flush()
            repairs = mender.repairs
        else:
            body = vector.body(field)
            if body is None:
                continue
            chat = mend_response(body, **vector.arguments()).repairs
            repairs = mend_response(body, plan=plan_of(vector, client)).repairs
        wanted = {repair.rule for repair in chat} | set(vector.expect.repairs)
        if missing := wanted - {repair.rule for repair in repairs}:
            yield field, missing


@pytest.mark.parametrize("name", VECTORS)
@looped("client", CLIENT_DIALECTS)
@looped("delivery", DELIVERIES)
def test_every_client_hears_of_what_was_repaired(name: str, client: str, delivery: Delivery) -> None:
    assert dict(unreported(VECTORS[name], client, delivery)) == {}


# -- single shapes -----------------------------------------------------------------------------------------------------


class Shape(Struct, kw_only=True):
    """A response in an unusual shape, and what every client must know of it."""

    chunks: list[dict[str, Any]] = []
    """The middle of a stream; none: a stream has no such thing."""
    body: dict[str, Any] | None = None
    """The whole response; None: there is no such thing."""
    reasoning: str = ""
    text: str = ""
    calls: list[tuple[str, str]] = []
    rules: set[str] = set()
    """What is reported to a Chat client."""
    others: set[str] | None = None
    """What is reported to clients of other dialects, if that differs."""
    reported: str = ""
    """What does not arrive, and is in the report."""
    finish: str = "stop"
    usage: Usage | None = None
    is_exact: bool = False
    """It leaves for a Chat client as it came."""

    def rules_for(self, client: str) -> set[str]:
        return self.rules if client == "openai_chat" or self.others is None else self.others

    @property
    def stream(self) -> list[dict[str, Any]]:
        return [chunk({"role": "assistant"}), *self.chunks, chunk({}, self.finish)]


def whole(message: dict[str, Any] | None, finish: str = "stop", **choice: Any) -> dict[str, Any]:
    body = {"id": "chatcmpl-7", "object": "chat.completion", "created": 1700000000, "model": "kimi-k2.5"}
    said = {} if message is None else {"message": {"role": "assistant", "content": None, **message}}
    return {**body, "choices": [{"index": 0, **said, "finish_reason": finish, **choice}]}


def both(delta: dict[str, Any], **more: Any) -> Shape:
    """The same fields in a delta, and in the message of a whole response."""
    return Shape(chunks=[chunk(delta)], body=whole(delta, more.get("finish", "stop")), **more)


CALL: Final = {
    "index": 0,
    "id": "functions.ls:0",
    "type": "function",
    "function": {"name": "ls", "arguments": '{"a":1}'},
}
PARTS: Final = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
USAGE: Final = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
REASONING: Final = "Let me see what is there."
SHAPES: Final[dict[str, Shape]] = {
    "content as a list of parts": both({"content": PARTS}, text="Hello", rules={"content_shape"}),
    "content as a list, with a part that has no text": both(
        {"content": [*PARTS, {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}]},
        text="Hello",
        rules={"content_shape"},
        reported="b.png",
    ),
    "content as a list of only a part that has no text": both(
        {"content": [{"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}]},
        rules={"content_shape"},
        reported="b.png",
    ),
    "content as an empty list": both(
        {"content": [], "reasoning_content": REASONING},
        reasoning=REASONING,
        rules={"content_shape", "empty_answer"},
        reported="[]",
    ),
    "reasoning as parts of content": both(
        {"content": [{"type": "thinking", "thinking": REASONING}, *PARTS]},
        reasoning=REASONING,
        text="Hello",
        rules={"content_shape"},
    ),
    "reasoning as parts of content, in parts of its own": both(
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": REASONING}]}]},
        reasoning=REASONING,
        rules={"content_shape", "empty_answer"},
    ),
    "an entry of tool_calls that is no object": both(
        {"tool_calls": ["a stray string", CALL]},
        calls=[("ls", '{"a":1}')],
        rules={"tool_delta"},
        reported="a stray string",
        finish="tool_calls",
    ),
    "only entries of tool_calls that are no objects": both(
        {"content": "Hi", "tool_calls": ["a stray string"]}, text="Hi", rules={"tool_delta"}, reported="a stray string"
    ),
    "function_call instead of tool_calls": both(
        {"function_call": {"name": "ls", "arguments": '{"a":1}'}},
        calls=[("ls", '{"a":1}')],
        rules={"tool_delta", "id_missing"},
        finish="tool_calls",
    ),
    "two reasoning fields with different text": both(
        {"reasoning_content": REASONING, "reasoning": "Something else.", "content": "Hi"},
        reasoning=REASONING,
        text="Hi",
        rules={"reasoning_conflict"},
        reported="Something else.",
    ),
    "a finish reason in the delta": Shape(
        chunks=[chunk({"content": "Hi", "finish_reason": "stop"})], text="Hi", rules={"finish_reason"}
    ),
    "usage in the choice": Shape(
        chunks=[{**chunk({}), "choices": [{"index": 0, "delta": {"content": "Hi"}, "usage": USAGE}]}],
        body=whole({"content": "Hi"}, usage=USAGE),
        text="Hi",
        rules={"usage_moved"},
        usage=Usage(input_tokens=3, output_tokens=4, raw=USAGE),
    ),
    "unknown fields of a delta": both(
        {"content": "Hi", "invented_tomorrow": {"a": "the value"}},
        text="Hi",
        others={"not_said"},
        reported="the value",
        is_exact=True,
    ),
    "empty unknown fields of a delta": both({"content": "Hi", "invented_tomorrow": None}, text="Hi", is_exact=True),
    "text without a delta": Shape(
        chunks=[{**chunk({}), "choices": [{"index": 0, "text": "Hi", "finish_reason": None}]}],
        text="Hi",
        rules={"choice_shape"},
    ),
    "choices that are no list": Shape(
        chunks=[{**chunk({"content": "Hi"}), "choices": {}}, chunk({"content": "Hi"})],
        text="Hi",
        rules={"not_a_chunk"},
        is_exact=True,
    ),
    "choices that are no list, in a whole response": Shape(
        body={**whole(None), "choices": {}}, rules={"not_a_chunk"}, others={"not_a_chunk", "failed"}, is_exact=True
    ),
    "reasoning in a field, then the same in reasoning_details": Shape(
        chunks=[
            chunk({"reasoning": REASONING[:12]}),
            chunk({"reasoning": REASONING[12:]}),
            chunk({"reasoning_details": [{"type": "reasoning.text", "text": REASONING}]}),
            chunk({"content": "Hi"}),
        ],
        reasoning=REASONING,
        text="Hi",
        others={"reasoning_repeated"},
        is_exact=True,
    ),
}


def plan_for_client(client: str) -> Plan:
    plan = plan_for(model="kimi-k2.5")
    plan.client, plan.upstream = dialect_named(client), dialect_named("openai_chat")
    plan.reply = ResponseContext(model="kimi-k2.5")
    plan.hides_usage = False
    return plan


class Received:
    """What a client of this dialect gets, and what is reported."""

    def __init__(self, shape: Shape, client: str, delivery: Delivery) -> None:
        plan, dialect = plan_for_client(client), dialect_named(client)
        read: list[UpstreamEvent]
        self.repairs: list[Repaired]
        if delivery == "stream":
            mender = Mender(plan=plan)
            came = sse(shape.stream)
            out = mender.feed(came) + mender.flush()
            self.repairs, self.usage, self.is_same = mender.repairs, mender.normalized_usage, out == came
            payloads = [one for one in parse_payloads(read_sse(out)) if isinstance(one, dict)]
            read = heard_again(dialect, payloads)
        else:
            assert shape.body is not None
            mended = mend_response(shape.body, plan=plan)
            self.repairs, self.usage, self.is_same = mended.repairs, mended.usage, mended.body == shape.body
            read = dialect.decode_response(mended.body)
        self.said: Said = Ear(read).said

    @property
    def report(self) -> str:
        return json.dumps([repair.detail for repair in self.repairs])


@pytest.mark.parametrize("name", SHAPES)
@looped("client", CLIENT_DIALECTS)
@looped("delivery", DELIVERIES)
def test_every_text_of_an_unusual_shape_arrives_or_is_reported(name: str, client: str, delivery: Delivery) -> None:
    shape = SHAPES[name]
    if (shape.body is None) if delivery == "whole" else not shape.chunks:
        return
    received = Received(shape, client, delivery)
    assert {repair.rule for repair in received.repairs} == shape.rules_for(client)
    assert received.said[1:] == (shape.text, shape.calls)
    if client == "openai_chat" and shape.is_exact:
        assert received.is_same
    else:
        assert received.said[0] == shape.reasoning
        assert shape.reported in received.report
    if shape.usage is not None:
        assert received.usage == shape.usage
