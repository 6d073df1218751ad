"""Events of Messages that are repeated, missing or filled in other places."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from moonshim.simulator.faults.messages import FAULTS
from moonshim.simulator.request import Json
from moonshim.simulator.response import HostResponse
from tests.simulator.faults.answers import LS, PARIS, answer_to, by_name, payloads_of, sim_request

ROWS: Final = by_name(FAULTS)


def answer(*, stream: bool = True, signature: str = "") -> HostResponse:
    asked = sim_request("k2.5", "anthropic", stream=stream)
    return replace(answer_to(asked, PARIS, LS), signature=signature)


def events_of(name: str, *, signature: str = "") -> list[Json]:
    events: list[Json] = payloads_of(ROWS[name], answer(signature=signature))
    return events


def of(kind: str, name: str) -> list[Json]:
    return [event for event in events_of(name) if event["type"] == kind]


def test_every_block_is_stopped_twice_and_signed_the_first_time() -> None:
    stops = of("content_block_stop", "block-stopped-twice")
    assert [stop["index"] for stop in stops] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert ["signature" in stop for stop in stops] == [True, False] * 4


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("block-not-stopped", "content_block_stop"),
        ("no-message-delta", "message_delta"),
        ("no-message-stop", "message_stop"),
        ("no-message-start", "message_start"),
    ],
)
def test_an_event_is_missing(name: str, kind: str) -> None:
    assert of(kind, name) == []
    assert of(kind, "ping-flood")


def test_the_message_is_started_again_before_its_end() -> None:
    kinds = [event["type"] for event in events_of("message-started-again")]
    assert kinds[-30:] == ["message_start"] * 29 + ["message_stop"]
    assert kinds.count("message_start") == 30


def test_pings_come_before_everything() -> None:
    kinds = [event["type"] for event in events_of("ping-flood")]
    assert kinds[:3] == ["ping", "ping", "message_start"]
    assert kinds.count("ping") > len(kinds) / 2


def inputs_of(name: str) -> list[Any]:
    blocks = [event["content_block"] for event in of("content_block_start", name)]
    return [block["input"] for block in blocks if block["type"] == "tool_use"]


def deltas_of(name: str) -> str:
    return "".join(event["delta"].get("partial_json", "") for event in of("content_block_delta", name))


def test_the_input_stands_at_the_start_alone_or_with_deltas_or_as_a_text() -> None:
    objects = [{"city": "Paris"}, {"command": "ls"}]
    assert (inputs_of("input-at-start"), deltas_of("input-at-start")) == (objects, "")
    assert (inputs_of("input-twice"), deltas_of("input-twice")) == (objects, PARIS[1] + LS[1])
    assert (inputs_of("input-as-text"), deltas_of("input-as-text")) == ([PARIS[1], LS[1]], "")
    whole = payloads_of(ROWS["input-as-text"], answer(stream=False))
    assert [block["input"] for block in whole["content"] if block["type"] == "tool_use"] == [PARIS[1], LS[1]]


def test_indexes_have_gaps() -> None:
    assert [event["index"] for event in of("content_block_start", "index-gaps")] == [0, 2, 4, 6]
    assert [event["index"] for event in of("content_block_stop", "index-gaps")] == [0, 2, 4, 6]


def test_a_block_starts_before_the_last_is_stopped() -> None:
    edges = [
        (event["type"][14:], event["index"])
        for event in events_of("overlapping-blocks")
        if event["type"] in {"content_block_start", "content_block_stop"}
    ]
    assert edges[:4] == [("start", 0), ("start", 1), ("stop", 0), ("start", 2)]
    assert edges[-1] == ("stop", 3)


@pytest.mark.parametrize(
    ("name", "at_start", "deltas"),
    [
        ("signed", "", ["a2ltaS1zaW11bGF0b3I" * 9]),
        ("unsigned", "", []),
        ("no-signature", None, []),
        ("empty-signature", None, [""]),
    ],
)
def test_thoughts_are_signed_or_not(name: str, at_start: str | None, deltas: list[str]) -> None:
    for signature in ("", "c2VlbiBiZWZvcmU"):
        events = events_of(name, signature=signature)
        block = next(one["content_block"] for one in events if one["type"] == "content_block_start")
        signed = [one["delta"]["signature"] for one in events if "signature" in one.get("delta", {})]
        assert block.get("signature") == at_start
        assert signed == ([signature] if name == "signed" and signature else deltas)


def test_a_whole_answer_is_signed_or_not() -> None:
    contents = {name: payloads_of(ROWS[name], answer(stream=False, signature="s"))["content"][0] for name in ROWS}
    assert contents["signed"]["signature"] == "s"
    assert contents["unsigned"]["signature"] == ""
    assert "signature" not in contents["no-signature"]


def test_tokens_are_not_told_at_the_start_or_at_the_end() -> None:
    assert "usage" not in of("message_start", "no-start-usage")[0]["message"]
    assert "usage" in of("message_delta", "no-start-usage")[0]
    assert "usage" not in of("message_delta", "no-delta-usage")[0]
    assert "usage" in of("message_start", "no-delta-usage")[0]["message"]
