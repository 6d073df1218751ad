"""What a response is, its first bytes say, whatever its content type."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from moonshim.engine.response.reply import Form, ResponseStream, detect_form, read_reply
from moonshim.engine.values.conversation import Text, ToolCall
from moonshim.engine.values.events import Finished
from moonshim.engine.wire.sse import BYTE_ORDER_MARK
from moonshim.errors import Problem
from tests.engine.response.reply.asking import CLIENTS, answer_of, as_form, plan_for_pair, read

LABELS: Final[tuple[Form, ...]] = ("json", "sse", "ndjson")
CHUNK: Final = b'{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}'
BODY: Final = b'{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"content":"a \\"delta\\""}}]}'
IS: Final[dict[bytes, Form]] = {
    b'data: {"choices":[]}\n\n': "sse",
    b'data:{"choices":[]}\r\n\r\n': "sse",
    b"event: message_start\ndata: {}\n\n": "sse",
    b"id: 7\ndata: {}\n\n": "sse",
    b"retry: 10\n\n": "sse",
    b": hello\n\n": "sse",
    b"\r\n\n  data: {}\n\n": "sse",
    BYTE_ORDER_MARK + b"data: {}\n\n": "sse",
    b"\n" + BYTE_ORDER_MARK + b" data: {}\n\n": "sse",
    CHUNK + b"\n" + CHUNK + b"\n": "ndjson",
    CHUNK + b"\r\n\r\n \n" + CHUNK: "ndjson",
    b'{"choices":[],"prompt_filter_results":[]}\n' + CHUNK: "ndjson",
    BODY: "json",
    BODY + b"\n": "json",
    BODY + b"\n" + BODY + b"\n": "json",
    json.dumps(json.loads(BODY), indent=2).encode(): "json",
    json.dumps(json.loads(CHUNK), indent=2).encode(): "json",
    CHUNK + b"\n and more": "json",
    b'{"error":{"message":"no"}}\n': "json",
    b'{"error":{"message":"no"}}\n{"error":{"message":"no"}}\n': "json",
    b'{"type":"message","content":[]}': "json",
    b"<html>": "json",
    b"date: yesterday": "json",
    b"[]": "json",
    b"null": "json",
    b"": "json",
    b" \n": "json",
    b"da": "json",
    CHUNK[:40]: "json",
}
"""By the first bytes of a response that is labelled as JSON, to a client that wanted no stream."""


@pytest.mark.parametrize(("data", "form"), IS.items())
def test_the_first_bytes_decide_however_they_are_split(data: bytes, form: Form) -> None:
    plan = plan_for_pair("openai_chat")
    assert detect_form(data, "json", is_stream_wanted=False) == form
    whole, _ = read(plan, data, "json", "json")
    for size in (1, 2, 3, 5):
        assert read(plan, data, "json", "json", size=size)[0] == whole


@pytest.mark.parametrize(("data", "form"), [(CHUNK, "ndjson"), (CHUNK + b"\n", "ndjson"), (CHUNK + b"\n x", "ndjson")])
def test_one_line_is_enough_where_a_stream_was_wanted(data: bytes, form: Form) -> None:
    assert detect_form(data, "json", is_stream_wanted=True) == form
    assert detect_form(data, "json", is_stream_wanted=False) == "json"


@pytest.mark.parametrize(
    ("data", "label", "form"),
    [
        (b"foo: bar\ndata: {}\n\n", "sse", "sse"),
        (b"<html>", "sse", "sse"),
        (b'{"error":{}}', "sse", "json"),
        (BODY, "sse", "json"),
        (CHUNK + b"\n", "sse", "ndjson"),
        (b"data: {}\n\n", "ndjson", "sse"),
        (BODY, "ndjson", "json"),
        (b'{"error":{}}\n', "ndjson", "ndjson"),
        (b'{"type":"ping"}\n', "ndjson", "ndjson"),
        (b"{broken\n", "ndjson", "ndjson"),
    ],
)
def test_a_label_counts_unless_the_first_bytes_contradict_it(data: bytes, label: Form, form: Form) -> None:
    assert detect_form(data, label, is_stream_wanted=True) == form


def said(reading: ResponseStream) -> tuple[str, list[tuple[str, Any]]]:
    parts = reading.message.parts
    calls = [(part.name, json.loads(part.arguments)) for part in parts if isinstance(part, ToolCall)]
    return "".join(part.text for part in parts if isinstance(part, Text)), calls


@pytest.mark.parametrize("output_format", ["sse", "json"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("form", LABELS)
@pytest.mark.parametrize("label", LABELS)
def test_every_form_is_read_under_every_label(label: Form, form: Form, client: str, output_format: Form) -> None:
    plan, data = plan_for_pair(client), as_form(answer_of("openai_chat"), form)
    right, _ = read(plan, data, form, output_format)
    for size in (1, 7, 10_000):
        out, reading = read(plan, data, label, output_format, size=size)
        assert said(reading) == ("Look.", [("ls", {"n": 0})])
        assert isinstance(reading.ending, Finished)
        assert (reading.problem, size < 10_000 or out == right) == (None, True)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("form", ["sse", "ndjson"])
def test_a_stream_leaves_at_once_whatever_it_is_called(form: Form, label: Form) -> None:
    """After each frame of the host, the client has what the frame brings."""
    plan, data = plan_for_pair("openai_chat"), as_form(answer_of("openai_chat"), form)
    labelled, named = (read_reply(plan, input_format=one, output_format="sse", may_retry=True) for one in (label, form))
    end = b"\n\n" if form == "sse" else b"\n"
    frames = [frame + end for frame in data.split(end) if frame]
    assert len(frames) > 3
    for frame in frames:
        assert labelled.feed(frame) == named.feed(frame)
    assert labelled.flush() == named.flush()


@pytest.mark.parametrize("output_format", ["sse", "json"])
@pytest.mark.parametrize("labels", [("json", "json"), ("json", "sse"), ("sse", "json"), ("ndjson", "json")], ids=str)
@pytest.mark.parametrize(
    "forms", [("sse", "sse"), ("sse", "ndjson"), ("ndjson", "sse"), ("json", "sse"), ("json", "ndjson")], ids=str
)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_empty_answer_is_asked_for_again_and_the_second_may_come_in_another_form(
    client: str, forms: tuple[Form, Form], labels: tuple[Form, Form], output_format: Form
) -> None:
    empty, full = answer_of("openai_chat", "", calls=0), answer_of("openai_chat", thought="")
    reading = read_reply(plan_for_pair(client), input_format=labels[0], output_format=output_format, may_retry=True)
    for byte in as_form(empty, forms[0]):
        reading.feed(bytes([byte]))
    assert reading.wants_retry
    assert reading.retry_reason == "empty_answer"
    reading.start_retry(labels[1])
    second = as_form(full, forms[1])
    for at in range(0, len(second), 3):
        reading.feed(second[at : at + 3])
    reading.flush()
    assert isinstance(reading.ending, Finished), reading.problem
    assert said(reading) == ("Look.", [("ls", {"n": 0})])
    assert reading.usage is not None
    assert reading.usage.output_tokens == 8


def test_a_connection_that_breaks_before_the_form_is_known_is_an_error() -> None:
    broke = Problem(status=502, kind="server", message="gone", code="upstream_broke")
    for data in (b"", b"da", b"{", CHUNK):
        reading = read_reply(plan_for_pair("openai_chat"), input_format="json", output_format="sse")
        out = reading.feed(data) + reading.fail(broke)
        assert b"gone" in out
        assert reading.problem is not None
        assert reading.flush() == b""


def test_a_body_that_is_too_large_ends_while_its_form_is_unknown() -> None:
    reading = read_reply(plan_for_pair("openai_chat"), input_format="json", output_format="sse", limit=100)
    for _ in range(30):
        reading.feed(b'{"a": "' if _ == 0 else b"aaaaaaa")
    assert reading.problem is not None
    assert reading.problem.code == "answer_too_large"
