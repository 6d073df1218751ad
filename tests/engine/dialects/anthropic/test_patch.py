"""Messages over Messages: events leave as the host sent them; one that had to change keeps the host's other fields."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from moonshim import Mender, mend_chunks, mend_response, prepare_request
from moonshim.engine.plan import Plan

Json = dict[str, Any]

CALL: Final = '<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>'
MESSAGE: Final[Json] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "kimi-k2.5",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 1},
}
START: Final[Json] = {"type": "message_start", "message": MESSAGE, "invented_tomorrow": 1}
PING: Final[Json] = {"type": "ping"}
INVENTED: Final[Json] = {"type": "invented_tomorrow", "value": [1]}


def plan() -> Plan:
    tool = {"name": "ls", "input_schema": {"type": "object", "properties": {"a": {}}}}
    request = {"model": "kimi-k2.5", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
    return prepare_request(request, dialect="anthropic", upstream="anthropic", host="generic").plan


def opened(index: int, kind: str = "text", **more: Any) -> Json:
    block = {"type": kind, kind: "", **more} if kind != "tool_use" else {"type": kind, "input": {}, **more}
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, text: str, kind: str = "text", **more: Any) -> Json:
    field = "partial_json" if kind == "input_json" else kind
    return {"type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", field: text}, **more}


def closed(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def ending(reason: str = "end_turn") -> list[Json]:
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None, "invented_tomorrow": 2},
            "usage": {"output_tokens": 4},
        },
        {"type": "message_stop"},
    ]


def block(index: int, *texts: str, kind: str = "text") -> list[Json]:
    return [opened(index, kind), *(delta(index, text, kind) for text in texts), closed(index)]


def written(payloads: list[Json]) -> list[Json]:
    return list(mend_chunks(payloads, plan=plan()))


TOOL: Final = opened(0, "tool_use", id="toolu_1", name="ls", invented_tomorrow=3)

EMPTY: Final = delta(0, "", "input_json")
CLEAN: Final[dict[str, list[Json]]] = {
    "text": [*block(0, "a", "b <", "c")],
    "signed thinking, then text": [
        opened(0, "thinking"),
        delta(0, "a", "thinking"),
        delta(0, "x", "signature"),
        closed(0),
        *block(1, "b"),
    ],
    "a call without input": [TOOL, EMPTY, closed(0)],
    "a call without input, which many deltas say": [TOOL, *[EMPTY] * 20, closed(0)],
    "a call without input, and another": [
        *(TOOL, EMPTY, closed(0)),
        *(opened(1, "tool_use", id="toolu_2", name="ls"), delta(1, "", "input_json"), closed(1)),
    ],
    "a call with many empty deltas": [
        TOOL,
        *[EMPTY] * 20,
        delta(0, '{"a": {', "input_json"),
        *[EMPTY] * 20,
        delta(0, "}}", "input_json"),
        EMPTY,
        closed(0),
    ],
    "a call whose input is an empty object": [TOOL, EMPTY, delta(0, "{}", "input_json"), closed(0)],
    "a call, whose input starts with nothing": [
        TOOL,
        *(delta(0, text, "input_json") for text in ("", '{"a', '": 1}')),
        closed(0),
    ],
    "pings before and inside a block": [PING, opened(0), PING, delta(0, "a"), PING, closed(0)],
    "an event that nobody knows": [*block(0, "a"), INVENTED, *block(1, "b")],
    "a block that nobody knows": [opened(0, "invented", data="x"), closed(0), *block(1, "b")],
}


@pytest.mark.parametrize("case", CLEAN)
def test_a_clean_event_is_the_same_object(case: str) -> None:
    payloads = [START, *CLEAN[case], *ending("tool_use" if case.startswith("a call") else "end_turn")]
    out = written(payloads)
    assert out == payloads
    assert all(one is other for one, other in zip(out, payloads, strict=True))


def test_a_call_without_any_delta_gets_one_and_that_is_reported() -> None:
    payloads = [START, TOOL, closed(0), *ending("tool_use")]
    expected = [START, TOOL, delta(0, "{}", "input_json"), closed(0), *ending("tool_use")]
    assert written(payloads) == expected
    mender = Mender(plan=plan())
    mender.feed(b"".join(b"data: %b\n\n" % json.dumps(payload).encode() for payload in payloads))
    assert [repair.rule for repair in mender.repairs] == ["arguments_empty"]


def test_a_whole_call_without_input_is_clean() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}
    body = {**MESSAGE, "content": [block], "stop_reason": "tool_use"}
    mended = mend_response(body, plan=plan())
    assert mended.body is body
    assert mended.repairs == []


def test_an_event_that_has_to_change_keeps_the_other_fields() -> None:
    came = delta(0, "Look.<|tool_calls_section_begin|><|tool_calls_section_end|>", trace="7")
    out = written([START, opened(0), came, closed(0), *ending()])
    assert out == [START, opened(0), {**came, "delta": {"type": "text_delta", "text": "Look."}}, closed(0), *ending()]


def test_a_wrong_stop_reason_is_replaced_where_it_came() -> None:
    payloads = [START, TOOL, delta(0, "{}", "input_json"), closed(0), *ending("end_turn")]
    out = written(payloads)
    assert (out[:-2], out[-1]) == (payloads[:-2], payloads[-1])
    assert out[-2]["delta"] == ending("tool_use")[0]["delta"]


def test_after_a_call_from_markers_blocks_have_other_numbers_than_the_host_s() -> None:
    out = written([START, *block(0, "Look.", CALL), *block(1, "Done."), *ending()])
    blocks = [(one["index"], one["content_block"]["type"]) for one in out if one["type"] == "content_block_start"]
    assert blocks == [(0, "text"), (1, "tool_use"), (2, "text")]
    texts = {
        index: "".join(
            one["delta"].get("text") or one["delta"].get("partial_json") or ""
            for one in out
            if one["type"] == "content_block_delta" and one["index"] == index
        )
        for index in range(3)
    }
    assert texts == {0: "Look.", 1: '{"a": 1}', 2: "Done."}
    assert [one["index"] for one in out if one["type"] == "content_block_stop"] == [0, 1, 2]


def test_after_such_a_call_what_belongs_to_no_block_still_leaves_as_it_came() -> None:
    payloads = [START, *block(0, CALL), PING, INVENTED, *block(1, "Done."), *ending("tool_use")]
    out = written(payloads)
    assert out[0] is START
    assert [one for one in out if one["type"] in ("ping", "invented_tomorrow")] == [PING, INVENTED]
    assert (out[-2]["delta"]["stop_reason"], out[-1]) == ("tool_use", {"type": "message_stop"})


def test_of_pings_that_wait_for_the_start_of_a_block_only_one_waits() -> None:
    out = written([START, opened(0), PING, PING, delta(0, "a"), closed(0), *ending()])
    assert out == [START, PING, opened(0), PING, delta(0, "a"), closed(0), *ending()]


# -- whole responses ---------------------------------------------------------------------------------------------------


def body(*content: Json, reason: str = "end_turn") -> Json:
    return {**MESSAGE, "content": list(content), "stop_reason": reason, "invented_tomorrow": 1}


def test_a_clean_response_is_the_same_object() -> None:
    clean = body({"type": "text", "text": "a", "citations": None}, {"type": "invented", "data": "x"})
    assert mend_response(clean, plan=plan()).body is clean


def test_a_response_that_has_to_change_keeps_the_other_fields() -> None:
    mended = mend_response(body({"type": "text", "text": f"Look.{CALL}"}), plan=plan()).body
    assert mended["content"][0] == {"type": "text", "text": "Look."}
    assert (mended["content"][1]["type"], mended["content"][1]["input"]) == ("tool_use", {"a": 1})
    assert (mended["stop_reason"], mended["invented_tomorrow"], mended["id"]) == ("tool_use", 1, "msg_1")
