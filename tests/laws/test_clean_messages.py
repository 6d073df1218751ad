"""Law 8 for Messages over Messages: a clean stream leaves byte for byte, at any chunking."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

import moonshim
from moonshim.engine.plan import Plan
from tests.laws.strategies import byte_splits

Json = dict[str, Any]

# Full of what may begin a marker and does not, also at the ends of deltas.
_PIECES: Final = (
    "a",
    "<",
    "<|",
    "<|to",
    "</",
    "<th",
    "\n",
    " ",
    "你",
    "🙂",
    "</div>",
    "1 < 2",
    "{",
    "functions",
    "x:1",
)
# A longer delta with an undecided end is split: a known limit.
_LONGEST: Final = 27
words: Final = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=5).map("".join).map(lambda text: text[:_LONGEST])
# What is surely the beginning of a marker goes on over the end of a block: no clean block ends in it.
deltas: Final = st.lists(words, min_size=1, max_size=5).filter(
    lambda texts: not "".join(texts).endswith(("<|t", "<|to"))
)
_extra: Final[st.SearchStrategy[Json]] = st.just({}) | st.sampled_from(({"x_trace": "7"}, {"later": {"a": [1, None]}}))
_values: Final = words | st.integers(0, 99) | st.booleans() | st.none() | st.lists(words, max_size=2)
inputs: Final = st.dictionaries(st.sampled_from(("path", "old", "你")), _values, min_size=1, max_size=3)


@st.composite
def speech(draw: st.DrawFn, kind: str) -> list[Json]:
    start: Json = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else draw(_extra))
    grown: list[Json] = [{"type": f"{kind}_delta", kind: piece} for piece in draw(deltas)]
    if kind == "thinking":
        grown.append({"type": "signature_delta", "signature": "EqoBCkgIARABGAIiQL8"})
    return [start, *grown]


@st.composite
def redacted(draw: st.DrawFn) -> list[Json]:
    return [{"type": "redacted_thinking", "data": draw(st.sampled_from(("EmwKAhgB", "AbC=")))}]


@st.composite
def call(draw: st.DrawFn) -> list[Json]:
    text = json.dumps(draw(inputs), ensure_ascii=draw(st.booleans()))
    cuts = sorted(draw(st.sets(st.integers(1, len(text) - 1), max_size=4)))
    pieces = ["", *(text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True))]
    start = {"type": "tool_use", "id": "", "name": draw(st.sampled_from(("ls", "mcp__git-log"))), "input": {}}
    start |= draw(_extra)
    return [start, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces)]


USAGE: Final = {
    "input_tokens": 25,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 7,
    "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 1,
    "service_tier": "standard",
    "inference_geo": "not_available",
}
ENDINGS: Final = (
    {"stop_reason": "end_turn", "stop_sequence": None},
    {"stop_reason": "stop_sequence", "stop_sequence": "END"},
    {"stop_reason": "max_tokens", "stop_sequence": None},
    {"stop_reason": "refusal", "stop_sequence": None},
    {"stop_reason": "end_turn", "stop_sequence": None, "container": None},
)


@st.composite
def streams(draw: st.DrawFn) -> list[Json]:
    """The events of an answer as the protocol has them, with everything that it allows."""
    thinks = st.lists(speech("thinking") | redacted(), max_size=3)
    says = st.lists(speech("text") | speech("thinking"), max_size=3)
    blocks = [*draw(thinks), *draw(says), *draw(st.lists(call(), max_size=3))]
    calls = sum(block[0]["type"] == "tool_use" for block in blocks)
    message = {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "model": "kimi-k2.5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": draw(st.just(USAGE) | st.just({"input_tokens": 25, "output_tokens": 1})),
        **draw(_extra),
    }
    out: list[Json] = [{"type": "message_start", "message": message}]
    for number, (start, *grown) in enumerate(blocks):
        start = start | {"id": f"toolu_01A09q90qw90lq91{number}"} if "id" in start else start
        out.append({"type": "content_block_start", "index": number, "content_block": start})
        if draw(st.booleans()):
            out.append({"type": "ping"})
        out += [{"type": "content_block_delta", "index": number, "delta": delta, **draw(_extra)} for delta in grown]
        out.append({"type": "content_block_stop", "index": number})
    ending = {"stop_reason": "tool_use", "stop_sequence": None} if calls else draw(st.sampled_from(ENDINGS))
    counted = draw(st.sampled_from(({"output_tokens": 15}, USAGE | {"output_tokens": 15})))
    out.append({"type": "message_delta", "delta": ending, "usage": counted, **draw(_extra)})
    return [*out, {"type": "message_stop", **draw(_extra)}]


def frames(payloads: list[Json], *, compact: bool, ascii_only: bool) -> list[bytes]:
    written = [
        json.dumps(payload, ensure_ascii=ascii_only, separators=(",", ":") if compact else None) for payload in payloads
    ]
    return [
        f"event: {payload['type']}\ndata: {text}\n\n".encode() for payload, text in zip(payloads, written, strict=True)
    ]


def plan() -> Plan:
    body = {"model": "kimi-k2.5", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    return moonshim.prepare_request(body, dialect="anthropic", upstream="anthropic", host="generic").plan


def mend(pieces: list[bytes]) -> tuple[bytes, moonshim.Mender]:
    mender = moonshim.Mender(plan=plan())
    out = b"".join([mender.feed(piece) for piece in pieces])
    return out + mender.flush(), mender


@given(streams(), st.booleans(), st.booleans(), st.data())
def test_a_clean_stream_leaves_byte_for_byte(
    payloads: list[Json], compact: bool, ascii_only: bool, data: st.DataObject
) -> None:
    given_frames = frames(payloads, compact=compact, ascii_only=ascii_only)
    whole = b"".join(given_frames)
    out, mender = mend(given_frames)
    assert out == whole
    # That somebody only thinks is worth a note, and changes nothing.
    assert {repaired.rule for repaired in mender.repairs} <= {"empty_answer"}
    assert mend([whole])[0] == whole
    assert mend(data.draw(byte_splits(whole)))[0] == whole


@given(streams())
def test_a_clean_payload_is_the_same_object(payloads: list[Json]) -> None:
    out = list(moonshim.mend_chunks(payloads, plan=plan()))
    assert [id(one) for one in out] == [id(payload) for payload in payloads]


START: Final[Json] = {"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": USAGE}}
PING: Final[Json] = {"type": "ping"}
OPENS: Final[Json] = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
SAYS: Final[Json] = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
CITES: Final[Json] = {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}}
STOPS: Final[Json] = {"type": "content_block_stop", "index": 0}


def parsed(*payloads: Json) -> list[list[Json]]:
    """What leaves after each of these payloads, behind the start of a message."""
    mender = moonshim.Mender(plan=plan())
    mender.feed(b"".join(frames([START], compact=True, ascii_only=True)))
    out = [mender.feed(frame) for frame in frames(list(payloads), compact=True, ascii_only=True)]
    return [[json.loads(line[6:]) for line in one.decode().splitlines() if line.startswith("data: ")] for one in out]


def test_a_sign_of_life_stays_behind_the_start_of_its_block() -> None:
    assert parsed(OPENS, PING, SAYS)[1:] == [[], [OPENS, PING, SAYS]]


def test_signs_of_life_go_on_while_a_block_has_nothing_to_say() -> None:
    assert [len(one) for one in parsed(OPENS, PING, PING, PING, SAYS)[1:]] == [0, 1, 1, 3]


def test_a_citation_before_the_first_word_stays_in_its_block() -> None:
    assert parsed(OPENS, CITES, CITES, SAYS, CITES, STOPS)[1:] == [
        [],
        [],
        [OPENS, CITES, CITES, SAYS],
        [CITES],
        [STOPS],
    ]
