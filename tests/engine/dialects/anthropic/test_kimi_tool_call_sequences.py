"""The named sequences of tool_use events that Kimi's Messages endpoints send, and what becomes of each.

A line of `kimi_tool_call_sequences.ndjson` is one sequence: its `events`, the `input` that is meant, and the rules
of the `repairs` that must be reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

import moonshim

Json = dict[str, Any]

_FILE: Final = Path(__file__).with_name("kimi_tool_call_sequences.ndjson")
SEQUENCES: Final[dict[str, Json]] = {
    line["name"]: line for line in map(json.loads, _FILE.read_text("utf-8").splitlines())
}
ASKED: Final[dict[str, Json]] = {
    "openai_chat": {"messages": [{"role": "user", "content": "Go."}]},
    "anthropic": {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 100},
    "openai_responses": {"input": "Go."},
}


def _mended(client: str, pieces: Iterable[bytes]) -> moonshim.Mender:
    body = {"model": "kimi-k2.5", "stream": True, **ASKED[client]}
    mender = moonshim.Mender(plan=moonshim.prepare_request(body, dialect=client, upstream="anthropic").plan)
    for piece in pieces:
        mender.feed(piece)
    mender.flush()
    return mender


@pytest.mark.parametrize("client", ASKED)
@pytest.mark.parametrize("name", SEQUENCES)
def test_the_call_is_whole_and_every_repair_is_reported(name: str, client: str) -> None:
    sequence = SEQUENCES[name]
    stream = b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in sequence["events"])
    for pieces in ([stream], [stream[at : at + 1] for at in range(len(stream))]):
        mender = _mended(client, pieces)
        (call,) = mender.message.parts
        assert isinstance(call, moonshim.ToolCall)
        assert (call.wire_id, call.name, json.loads(call.arguments)) == ("toolu_find", "find_files", sequence["input"])
        assert isinstance(mender.ending, moonshim.Finished)
        assert mender.ending.reason == "tool_calls"
        assert [repair.rule for repair in mender.repairs] == sequence["repairs"]


def test_input_that_the_deltas_replaced_is_in_the_report() -> None:
    events = SEQUENCES["start_input_plus_other_delta"]["events"]
    stream = b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)
    (repair,) = _mended("anthropic", [stream]).repairs
    assert json.loads(repair.detail) == {"pattern": "*.lock"}
