"""What the first bytes of a recording say: the kind, the model, or that it is none of the three."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.gateway.observe.recording import BLANK_LIMIT, HEAD_LIMIT, NotARecording, Recording, Sniffer

CHUNK = '{"model": "kimi-k2", "choices": [{"index": 0, "delta": {"content": "a"}}]}'
RESPONSE = '{"model": "kimi-k2", "choices": [{"index": 0, "message": {"content": "a"}}]}'
PRETTY = json.dumps(json.loads(RESPONSE), indent=2)
SUMMARY = '{"model": "kimi-k2", "choices": [{"index": 0, "delta": {}, "message": {"tool_calls": []}}]}'
BOM = "\ufeff"

READ = {
    "SSE": (f"data: {CHUNK}\n\n", ("sse", "kimi-k2")),
    "SSE without a space": (f"data:{CHUNK}\n\n", ("sse", "kimi-k2")),
    "SSE with CRLF": (f"data: {CHUNK}\r\n\r\n", ("sse", "kimi-k2")),
    "SSE with CR": (f"data: {CHUNK}\r\r", ("sse", "kimi-k2")),
    "SSE with a byte order mark": (f"{BOM}data: {CHUNK}\n\n", ("sse", "kimi-k2")),
    "SSE after blank lines": (f"\n\n\r\ndata: {CHUNK}\n\n", ("sse", "kimi-k2")),
    "SSE after comments": (f": keep-alive\n\n: again\n\ndata: {CHUNK}\n\n", ("sse", "kimi-k2")),
    "SSE with other fields": (f"event: x\nid: 1\nretry: 5\ndata: {CHUNK}\n\n", ("sse", "kimi-k2")),
    "SSE with a field nobody knows": (f"id: 1\nname: x\ndata: {CHUNK}\n\n", ("sse", "kimi-k2")),
    "SSE over several data lines": ('data: {"model": "kimi-k2",\ndata: "choices": []}\n\n', ("sse", "kimi-k2")),
    "SSE without an end": (f"data: {CHUNK}", ("sse", "kimi-k2")),
    "SSE without a model": ('data: {"choices": []}\n\n' + f"data: {CHUNK}\n\n", ("sse", None)),
    "SSE whose first event is no chunk": (f"data: hello\n\ndata: {{}}\n\ndata: {CHUNK}\n\n", ("sse", "kimi-k2")),
    "SSE with an end alone": ("data: [DONE]\n\n", ("sse", None)),
    "SSE of comments": (": keep-alive\n\n", ("sse", None)),
    "SSE with an empty field": (f"data\n\ndata: {CHUNK}\n\n", ("sse", "kimi-k2")),
    "SSE with a first event over the limit": (
        f'data: {{"a": "{"x" * HEAD_LIMIT}"}}\n\ndata: {CHUNK}\n\n',
        ("sse", None),
    ),
    "NDJSON": (f"{CHUNK}\n{CHUNK}\n", ("ndjson", "kimi-k2")),
    "NDJSON of one line": (f"{CHUNK}\n", ("ndjson", "kimi-k2")),
    "NDJSON of one line without an end": (CHUNK, ("ndjson", "kimi-k2")),
    "NDJSON with CRLF and blank lines": (f"\r\n{CHUNK}\r\n\r\n{CHUNK}\r\n", ("ndjson", "kimi-k2")),
    "NDJSON with a byte order mark": (f"{BOM}{CHUNK}\n", ("ndjson", "kimi-k2")),
    "NDJSON whose first line is no chunk": (f'{{"trace": 1}}\n{CHUNK}\n', ("ndjson", "kimi-k2")),
    "NDJSON without any chunk": ('{"a": 1}\n{"b": 2}\n', ("ndjson", None)),
    "NDJSON with a summary beside the delta": (f"{SUMMARY}\n", ("ndjson", "kimi-k2")),
    "NDJSON with a broken first line": (f'{{"choi\n{CHUNK}\n', ("ndjson", "kimi-k2")),
    "JSON": (RESPONSE, ("json", "kimi-k2")),
    "JSON with a line end": (f"{RESPONSE}\n\n", ("json", "kimi-k2")),
    "JSON over many lines": (PRETTY, ("json", "kimi-k2")),
    "JSON over many lines with a byte order mark": (f"{BOM}{PRETTY}\n", ("json", "kimi-k2")),
    "JSON with half a character": (RESPONSE.replace('"a"', r'"\ud83d"'), ("json", "kimi-k2")),
    "JSON with no choices left": ('{"object": "chat.completion", "choices": []}', ("json", None)),
    "JSON of an error": ('{"error": {"message": "no"}}', ("json", None)),
}
REFUSED = {
    "nothing": ("", "the input is empty"),
    "white space": (" \n\r\n\t", "the input is empty"),
    "a byte order mark": (BOM, "the input is empty"),
    "text": ("Hello, world\n", "not a recording"),
    "a prefix of a field": ("dat", "not a recording"),
    "a field's name alone": ("data", "not a recording"),
    "a word that begins like a field": ("database: x\n", "not a recording"),
    "YAML": ("id: 1\nname: x\n", "not a recording"),
    "YAML with a blank line": ("id: 1\nname: x\n\ndata: 1\n", "not a recording"),
    "a long text that begins like a field": ("id: 1\n" + "x\n" * HEAD_LIMIT, "not a recording"),
    "much white space": ("\n" * (BLANK_LIMIT + 1) + f"data: {CHUNK}\n\n", "not a recording"),
    "an array": (f"[{CHUNK}]", "a JSON array"),
    "HTTP headers": (f"HTTP/1.1 200 OK\r\n\r\ndata: {CHUNK}\n\n", "curl without -i"),
    "JSON that breaks off": (PRETTY[:-20], "truncated"),
    "a line of JSON that breaks off": (RESPONSE[:-20], "truncated"),
    "JSON that is wrong": ("{wrong}", "malformed"),
    "an object of something else": ('{"name": "x"}', "without `choices`"),
    "choices that are no list": ('{"choices": 1}', "without `choices`"),
    "two responses": (f"{RESPONSE}\n{RESPONSE}\n", "several complete responses"),
    "a chunk over many lines": (json.dumps(json.loads(CHUNK), indent=1), "jq -c ."),
}


def sniff(data: bytes, size: int) -> Recording:
    sniffer = Sniffer()
    for at in range(0, len(data), size):
        found = sniffer.feed(data[at : at + size])
        assert sniffer.head == data[: at + size]
        if found is not None:
            return found
    return sniffer.flush()


def sizes(data: bytes) -> list[int]:
    return [1, 2, 7, 1000, 1 << 24] if len(data) < 10_000 else [65_536, 1 << 24]


@pytest.mark.parametrize(("text", "expected"), READ.values(), ids=READ.keys())
def test_a_recording_is_told_by_its_content_whatever_the_chunking(text: str, expected: tuple[str, str | None]) -> None:
    data = text.encode()
    for size in sizes(data):
        found = sniff(data, size)
        assert (found.kind, found.model) == expected
        assert (found.body is not None) == (found.kind == "json")


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_recording_is_refused_with_a_reason(text: str, reason: str) -> None:
    data = text.encode()
    for size in sizes(data):
        with pytest.raises(NotARecording, match=reason):
            sniff(data, size)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("data: x\n".encode("utf-16"), "UTF-16"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"\x00" * 100_000, "not a recording"),
        (b'{"choices": [{"message": {"content": "\xff"}}]}', "not UTF-8"),
        (b"{" + b'"a":[' * 100_000, "looks like JSON"),
    ],
)
def test_bytes_that_are_no_text_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(NotARecording, match=reason):
        sniff(data, 65_536)


@pytest.mark.parametrize("text", [f"data: {CHUNK}\n\n", f"{CHUNK}\n"])
def test_a_stream_is_known_with_the_end_of_its_first_chunk(text: str) -> None:
    data = text.encode()
    assert Sniffer().feed(data[:-2]) is None
    assert Sniffer().feed(data) is not None


def test_junk_is_refused_at_its_first_byte() -> None:
    with pytest.raises(NotARecording):
        Sniffer().feed(b"\x00")


@given(st.binary(max_size=60) | st.text("{}[]\"':datchoies, \n\r", max_size=60).map(str.encode), st.integers(1, 9))
def test_any_bytes_are_read_or_refused_alike_for_every_chunking(data: bytes, size: int) -> None:
    def outcome(size: int) -> object:
        try:
            return sniff(data, size)
        except NotARecording as error:
            return str(error)

    assert outcome(size) == outcome(100)
