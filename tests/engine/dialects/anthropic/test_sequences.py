"""The named sequences of `sequences.json`: what a Messages host may send, and what every client then has.

Each is run in its own events, byte by byte and in pieces of several sizes, over each of the
client dialects. In the file `stream` are the payloads of the host, `message` is the assembled
answer (a call is its identifier, name and arguments; reasoning its text and the host's
signature), and `chat` and `messages` are what clients of these dialects have in the end;
a `signature` of null is one that we mint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import moonshim
from moonshim.engine.dialects.registry import CLIENT_DIALECTS
from moonshim.engine.values.conversation import Part, Reasoning, Text, ToolCall
from moonshim.engine.values.events import Failed, Finished
from tests.engine.dialects.anthropic import strategies
from tests.engine.dialects.anthropic.reading import MessagesReader, ResponsesReader
from tests.support.looped import looped
from tests.support.streams import DONE, dump_json, parse_payloads, read_chunks, read_sse, split_bytes

Json = dict[str, Any]

SEQUENCES: Final[dict[str, Json]] = json.loads(Path(__file__).with_name("sequences.json").read_text("utf-8"))
SIZES: Final = (1, 2, 3, 7, 64)
ASKED: Final = {"openai_responses": {"input": "hi"}}
TOOL: Final[Json] = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS: Final[dict[str, Json]] = {
    "openai_chat": {"type": "function", "function": {"name": "ls", "parameters": TOOL}},
    "anthropic": {"name": "ls", "input_schema": TOOL},
    "openai_responses": {"type": "function", "name": "ls", "parameters": TOOL},
}
ENDINGS: Final = {
    "stop": "response.completed",
    "tool_calls": "response.completed",
    "length": "response.incomplete",
    "error": "response.failed",
}


def payloads_of(sequence: Json) -> list[Json]:
    out: list[Json] = []
    for one in sequence["stream"]:
        out += [one["event"]] * one["times"] if "times" in one else [one]
    return out


def frame(payload: Json, framing: str) -> bytes:
    line = b"" if "no event line" in framing else f"event: {payload['type']}\n".encode()
    data = {key: value for key, value in payload.items() if key != "type" or "no type" not in framing}
    return line + (b"data:" if framing == "no space" else b"data: ") + dump_json(data) + b"\n\n"


def frames_of(sequence: Json) -> list[bytes]:
    return [frame(payload, sequence.get("framing", "")) for payload in payloads_of(sequence)]


def prepared(client: str) -> moonshim.Prepared:
    body = {"model": "kimi-k2.5", "max_tokens": 100, "stream": True, "tools": [TOOLS[client]]}
    body |= ASKED.get(client, {"messages": [{"role": "user", "content": "hi"}]})
    return moonshim.prepare_request(
        body, dialect=client, upstream="anthropic", host="generic", model="kimi-k2.5", secret=b"test"
    )


def mended(client: str, pieces: Iterable[bytes]) -> tuple[bytes, moonshim.Mender]:
    mender = moonshim.Mender(plan=prepared(client).plan)
    out = b"".join([mender.feed(piece) for piece in pieces])
    return out + mender.flush(), mender


def plain(part: Part) -> list[str]:
    match part:
        case Text(text=text):
            return ["text", text]
        case Reasoning(text=text, signature=signature):
            return ["reasoning", text] if signature is None else ["reasoning", text, signature]
        case ToolCall():
            return ["call", part.wire_id or "", part.name, part.arguments]
        case _:
            raise AssertionError(part)


def ending_of(mender: moonshim.Mender) -> str:
    match mender.ending:
        case Finished(reason=reason):
            return reason
        case Failed(code=code):
            return f"error:{code}"
        case None:
            return "none"


def read_chat(data: bytes, sequence: Json) -> None:
    listener = read_chunks(parse_payloads(read_sse(data)))
    heard, failed = listener[0], "error" in sequence["chat"]
    ending = {"error": (heard.error or {}).get("code")} if failed else {"finish": heard.finish}
    calls = [[call.id, call.name, call.arguments] for call in heard.calls]
    said = {"content": heard.content, "reasoning": heard.reasoning, "calls": calls, **ending}
    assert said == sequence["chat"]
    assert listener.done is not failed
    assert (DONE in read_sse(data)) is not failed


def read_messages(data: bytes, sequence: Json) -> None:
    assert MessagesReader(data).said == sequence["messages"]


def read_responses(data: bytes, sequence: Json) -> None:
    reader = ResponsesReader(data)
    chat = sequence["chat"]
    assert reader.text == chat["content"]
    assert reader.calls == chat["calls"]
    assert reader.ending == ENDINGS[chat.get("finish", "error")]


READERS: Final = {"openai_chat": read_chat, "anthropic": read_messages, "openai_responses": read_responses}


@looped("client", CLIENT_DIALECTS)
@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES.keys())
def test_every_client_has_what_was_meant_at_any_chunking(sequence: Json, client: str) -> None:
    frames = frames_of(sequence)
    whole = b"".join(frames)
    reference, mender = mended(client, frames)
    READERS[client](reference, sequence)
    assert [plain(part) for part in mender.message.parts] == sequence["message"]
    assert ending_of(mender) == sequence["ending"]
    for pieces in ([whole], *(split_bytes(whole, size) for size in SIZES)):
        data, again = mended(client, pieces)
        assert data == reference
        assert (again.message, again.ending, again.repairs) == (mender.message, mender.ending, mender.repairs)


@looped("client", CLIENT_DIALECTS)
@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES.keys())
def test_people_who_hold_payloads_get_the_same(sequence: Json, client: str) -> None:
    given = [json.loads(dump_json(payload)) for payload in payloads_of(sequence)]
    before = json.dumps(given)
    out = list(moonshim.mend_chunks(given, plan=prepared(client).plan))
    assert json.dumps(given) == before, "what was passed in was changed"
    data = b"".join(b"event: %b\ndata: %b\n\n" % (one.get("type", "").encode(), dump_json(one)) for one in out)
    failed = "error" in sequence["chat"]
    READERS[client](data + (b"data: [DONE]\n\n" if client == "openai_chat" and not failed else b""), sequence)


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES.keys())
def test_where_the_host_finished_arguments_are_json_and_calls_are_the_reason(sequence: Json) -> None:
    """The data itself keeps what the documents promise."""
    chat, messages = sequence["chat"], sequence["messages"]
    calls = [part[1:] for part in sequence["message"] if part[0] == "call"]
    assert calls == chat["calls"]
    assert len(calls) == sum(block["type"] == "tool_use" for block in messages["content"])
    if chat.get("finish") in ("stop", "tool_calls"):
        assert [type(json.loads(arguments)) for _, _, arguments in calls] == [dict] * len(calls)
        assert chat["finish"] == ("tool_calls" if calls else "stop")
        assert messages["stop_reason"] == ("tool_use" if calls else "end_turn")


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES.keys())
def test_a_mended_stream_of_messages_needs_nothing_more(sequence: Json) -> None:
    once, first = mended("anthropic", frames_of(sequence))
    twice, second = mended("anthropic", [once])
    assert twice == once
    if "error" not in sequence["messages"]:
        assert [plain(part)[-1] for part in second.message.parts if isinstance(part, ToolCall)] == [
            plain(part)[-1] for part in first.message.parts if isinstance(part, ToolCall)
        ]


def noisy(draw: st.DrawFn, payload: Json) -> Json:
    """The payload with any JSON in one of its places."""
    key = draw(st.sampled_from(sorted(payload)))
    inner = payload[key]
    deeper = isinstance(inner, dict) and inner and draw(st.booleans())
    return payload | {key: noisy(draw, inner) if deeper else draw(strategies.any_json)}


@st.composite
def bent_streams(draw: st.DrawFn) -> list[Json]:
    """Events of several sequences in any order, some of them with odd values."""
    known = [payload for sequence in SEQUENCES.values() for payload in payloads_of(sequence)]
    chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=12))
    return [noisy(draw, payload) if draw(st.booleans()) else payload for payload in chosen]


@given(bent_streams(), st.sampled_from(CLIENT_DIALECTS))
def test_whatever_a_host_sends_nothing_raises_and_the_cut_is_invisible(payloads: list[Json], client: str) -> None:
    frames = [b"data: %b\n\n" % dump_json(payload) for payload in payloads]
    assert mended(client, frames)[0] == mended(client, [b"".join(frames)])[0]
