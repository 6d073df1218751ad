"""The bytes of streams: framed and cut in odd ways, and read by the rules of the standard all the same."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from moonshim.simulator.fault import Fault, Stall
from moonshim.simulator.faults import FAULTS as ALL
from moonshim.simulator.faults import in_order
from moonshim.simulator.faults.frames import FAULTS
from moonshim.simulator.host.behaviours import BEHAVIOURS
from moonshim.simulator.request import Wire
from moonshim.simulator.response import HostResponse
from moonshim.simulator.wire.playback import SimResponse, simulate_response
from tests.simulator.faults.answers import PARIS, WIRES, answer_to, by_name, sim_request

ROWS: Final = by_name(FAULTS)
FRAMED: Final = [
    name for name, row in ROWS.items() if row.frames is not None and name not in {"json-lines", "not-streamed"}
]


def intended(wire: Wire, *, stream: bool = True) -> HostResponse:
    return answer_to(sim_request(wire=wire, stream=stream), PARIS, text="Ich schaue: 漢字 ä 😀.")


def sent(*faults: Fault, wire: Wire = "openai_chat", stream: bool = True) -> SimResponse:
    asked = intended(wire, stream=stream)
    return simulate_response(
        asked.request,
        asked.intended,
        behaviour=BEHAVIOURS["moonshot"],
        faults=faults,
        answer_id="chatcmpl-1",
        created=1,
    )


def writes(*names: str, wire: Wire = "openai_chat", stream: bool = True) -> list[bytes]:
    faults = in_order(ALL[name] for name in names)
    return [piece for piece in sent(*faults, wire=wire, stream=stream).pieces if isinstance(piece, bytes)]


def payloads(data: bytes) -> list[Any]:
    """As WHATWG HTML 9.2.6 has it, but that the end of the stream ends the last event too."""
    text = data.decode().removeprefix("\ufeff")
    events: list[list[str]] = [[]]
    for line in re.split(r"\r\n|\n|\r", text):
        if not line:
            events.append([])
        elif line.startswith("data:"):
            events[-1].append(line[5:].removeprefix(" "))
    found = ["\n".join(lines) for lines in events if lines]
    return [json.loads(one) if one.lstrip().startswith("{") else one.strip() for one in found]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", FRAMED)
def test_a_reader_by_the_standard_reads_the_same(name: str, wire: Wire) -> None:
    if wire not in ROWS[name].wires:
        return
    got, clean = payloads(b"".join(writes(name, wire=wire))), payloads(b"".join(writes(wire=wire)))
    assert [without(one, "obfuscation") for one in got] == clean


def without(value: Any, key: str) -> Any:
    return {k: v for k, v in value.items() if k != key} if isinstance(value, dict) else value


@pytest.mark.parametrize("cut", ["by-character", "in-lumps", "undivided"])
def test_chunks_have_more_or_less_in_them(cut: str) -> None:
    texts = [
        chunk["choices"][0]["delta"].get("content", "")
        for chunk in payloads(b"".join(writes(cut)))[:-1]
        if chunk["choices"]
    ]
    text = "Ich schaue: 漢字 ä 😀."
    assert "".join(texts) == text
    longest = max(map(len, texts))
    assert {"by-character": longest == 1, "in-lumps": longest > 8, "undivided": longest == len(text)}[cut]


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("no-space", rb"(?m)^data:\{", rb"(?m)^data: "),
        ("comments", rb"(?m)^: OPENROUTER PROCESSING$", rb"\n\n:.*\n\n"),
        ("keep-alives", rb"(?m)^: keep-alive\n\n", rb"\n: .*\ndata"),
        ("blank-lines", rb"\n\n\n\n", rb"\r"),
        ("event-fields", rb"event: message\ndata|id: 0\nretry: 3000\n", rb"\r"),
        ("empty-events", rb"event: ping\n\n", rb"\r"),
        ("trailing-space", rb"\}  \n\n", rb"\}\n\n"),
        ("several-data-lines", rb'\ndata: "choices":', rb"\r"),
        ("crlf", rb"\r\n\r\n", rb"[^\r]\n"),
        ("cr", rb"\r\r", rb"\n"),
        ("byte-order-mark", rb"\A\xef\xbb\xbfdata: ", rb"\n\xef\xbb\xbf"),
        ("unended", rb"\[DONE\]\Z", rb"\r"),
        ("json-lines", rb"\A\{.*\}\n\Z", rb"data:|\n\n|DONE"),
    ],
)
def test_the_bytes_are_these(name: str, has: bytes, has_not: bytes) -> None:
    data = b"".join(writes(name))
    assert re.search(has, data, re.DOTALL)
    assert not re.search(has_not, data)


def test_one_event_is_huge() -> None:
    sizes = sorted(map(len, writes("huge-frame")))
    assert sizes[-1] > 1024 * 1024
    assert sizes[-2] < 1024


def test_events_of_messages_have_no_names() -> None:
    assert b"event:" in b"".join(writes(wire="anthropic"))
    assert b"event:" not in b"".join(writes("no-event-lines", wire="anthropic"))


def test_writes_end_anywhere() -> None:
    clean = b"".join(writes())
    assert writes("one-write") == [clean]
    assert {len(piece) for piece in writes("split-bytes")} == {1}
    for name in ("uneven-writes", "split-characters"):
        assert b"".join(writes(name)) == clean
        assert not all(piece.endswith(b"\n\n") for piece in writes(name))


def test_writes_end_inside_every_character_of_several_bytes() -> None:
    cut = [piece for piece in writes("split-characters") if piece and piece[-1] >= 0xC0]
    assert len(cut) == len(re.findall(r"[^\x00-\x7f]", b"".join(writes()).decode()))


def test_a_whole_answer_can_come_byte_by_byte() -> None:
    assert {len(piece) for piece in writes("split-bytes", stream=False)} == {1}
    assert b"".join(writes("split-bytes", stream=False)) == b"".join(writes(stream=False))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("json-lines", "application/x-ndjson"),
        ("stream-called-json", "application/json"),
        ("stream-called-text", "text/plain; charset=utf-8"),
        ("not-streamed", "application/json"),
    ],
)
def test_the_stream_is_called_something_else(name: str, kind: str) -> None:
    assert sent(ROWS[name]).headers["content-type"] == kind


@pytest.mark.parametrize("wire", WIRES)
def test_a_whole_answer_comes_in_the_place_of_a_stream(wire: Wire) -> None:
    assert b"".join(writes("not-streamed", wire=wire)) == b"".join(writes(wire=wire, stream=False))


def test_nobody_ends_the_connection() -> None:
    assert isinstance(sent(ROWS["stays-open"]).pieces[-1], Stall)


def test_faults_of_the_text_act_before_those_that_cut_it() -> None:
    pieces = writes("split-bytes", "no-space", "crlf")
    assert {len(piece) for piece in pieces} == {1}
    assert b"".join(pieces).startswith(b"data:{")
    assert b"".join(pieces).endswith(b"data:[DONE]\r\n\r\n")
