"""Native calls in odd deltas: what a reader of the stream gets to see."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import pytest
from msgspec.structs import replace

from moonshim.simulator.faults.calls import FAULTS
from moonshim.simulator.request import Json, SimCall
from tests.simulator.faults.answers import (
    LS,
    PARIS,
    answer_to,
    apply_speech,
    by_name,
    payloads_of,
    round_of,
    sim_request,
)

ROWS: Final = by_name(FAULTS)
ID, OTHER_ID = "functions.get_weather:0", "functions.Bash:1"


def chunks_of(name: str, *calls: tuple[str, str], text: str = "") -> list[Json]:
    """What the stream says, but for the role."""
    answer = answer_to(sim_request(stream=True), *calls or (PARIS,), text=text, reasoning="")
    chunks: list[Json] = payloads_of(ROWS[name], answer)
    return chunks


def deltas_of(name: str, *calls: tuple[str, str], text: str = "") -> list[Json]:
    return [choice["delta"] for chunk in chunks_of(name, *calls, text=text) for choice in chunk["choices"]]


def entries_of(name: str, *calls: tuple[str, str]) -> list[Json]:
    return [entry for delta in deltas_of(name, *calls) for entry in delta.get("tool_calls") or ()]


def functions_of(name: str, *calls: tuple[str, str], field: str = "arguments") -> list[Any]:
    """This field of every function that has it."""
    return [entry["function"][field] for entry in entries_of(name, *calls) if field in (entry["function"] or {})]


def message_of(name: str, *calls: tuple[str, str], text: str = "") -> Json:
    answer = answer_to(sim_request(), *calls or (PARIS,), text=text)
    message: Json = payloads_of(ROWS[name], answer)["choices"][0]["message"]
    return message


def test_the_name_comes_behind_the_arguments() -> None:
    *before, last = entries_of("arguments-before-name")
    assert all("name" not in entry["function"] for entry in before)
    assert "".join(entry["function"]["arguments"] for entry in before) == PARIS[1]
    assert last == {"index": 0, "function": {"name": "get_weather"}}


def test_a_name_comes_in_two_pieces() -> None:
    assert functions_of("split-name", field="name") == ["get_we", "ather"]
    assert "".join(functions_of("split-name")) == PARIS[1]


def test_an_id_comes_with_the_last_delta() -> None:
    *before, last = entries_of("late-id", PARIS, LS)[: len(entries_of("late-id"))]
    assert not any("id" in entry for entry in before)
    assert last["id"] == ID


def test_an_id_comes_late_even_where_a_call_has_one_delta() -> None:
    first, second = entries_of("late-id", ("rest", ""))
    assert "id" not in first
    assert second == {"index": 0, "id": "functions.rest:0", "function": {"arguments": ""}}


INDEXES: Final[dict[str, Callable[[int], list[Any]]]] = {
    "missing-index": lambda index: [],
    "string-index": lambda index: [str(index)],
    "shared-index": lambda index: [0],
}


@pytest.mark.parametrize("name", INDEXES)
def test_indexes_are_wrong_on_every_delta(name: str) -> None:
    right, wrong = entries_of("role-in-each-chunk", PARIS, LS), entries_of(name, PARIS, LS)
    received = [[entry["index"]] if "index" in entry else [] for entry in wrong]
    assert received == [INDEXES[name](entry["index"]) for entry in right]


def test_identity_stands_on_every_delta() -> None:
    assert [entry["id"] for entry in entries_of("repeated-id")] == [ID] * len(entries_of("repeated-id"))
    headers = [
        (entry["id"], entry["type"], entry["function"]["name"]) for entry in entries_of("repeated-header", PARIS, LS)
    ]
    assert set(headers) == {(ID, "function", "get_weather"), (OTHER_ID, "function", "Bash")}


def test_identity_is_null_or_empty_behind_the_first_delta() -> None:
    first, *others = entries_of("null-header")
    assert (first["id"], first["function"]["name"]) == (ID, "get_weather")
    assert all((one["id"], one["type"], one["function"]["name"]) == (None, None, None) for one in others)
    assert all((one["id"], one["function"]["name"]) == ("", "") for one in entries_of("empty-header")[1:])


def test_a_call_begins_with_a_function_or_arguments_that_are_null() -> None:
    first, second, *_ = entries_of("null-function")
    assert first == {"index": 0, "id": ID, "type": "function", "function": None}
    assert second["function"] == {"name": "get_weather", "arguments": ""}
    assert functions_of("null-arguments")[0] is None
    assert "".join(functions_of("null-arguments")[1:]) == PARIS[1]


def test_types_are_missing() -> None:
    assert not any("type" in entry for entry in entries_of("missing-type"))
    assert not any("type" in call for call in message_of("missing-type")["tool_calls"])


def test_arguments_are_an_object() -> None:
    assert functions_of("object-arguments") == [{"city": "Paris"}]
    assert message_of("object-arguments")["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}


def test_arguments_that_are_no_object_stay_the_text_that_they_are() -> None:
    assert "".join(functions_of("object-arguments", ("Bash", "{oh"))) == "{oh"
    assert message_of("object-arguments", ("Bash", "[1]"))["tool_calls"][0]["function"]["arguments"] == "[1]"


def test_each_delta_repeats_the_arguments_so_far() -> None:
    received = functions_of("cumulative-arguments", PARIS)
    assert received[-1] == PARIS[1]
    assert all(later.startswith(earlier) for earlier, later in pairwise(received))


def test_the_whole_arguments_come_again() -> None:
    assert "".join(functions_of("arguments-again", PARIS)) == PARIS[1] * 2
    last = next(one for one in chunks_of("arguments-again-in-finish", PARIS, LS) if one["choices"][0]["finish_reason"])
    again = last["choices"][0]["delta"]["tool_calls"]
    assert [(call["id"], call["function"]["arguments"]) for call in again] == [(ID, PARIS[1]), (OTHER_ID, LS[1])]


def test_the_arguments_of_the_last_call_are_text() -> None:
    deltas = deltas_of("arguments-in-text", PARIS, LS, text="I look.")
    last = max(at for at, delta in enumerate(deltas) if delta.get("tool_calls"))
    assert "".join(functions_of("arguments-in-text", PARIS, LS)) == PARIS[1]
    assert "".join(delta.get("content", "") for delta in deltas[last:]) == f" {LS[1]}<|tool_call_end|>"
    message = message_of("arguments-in-content", PARIS, LS, text="I look.")
    assert message["content"] == f"I look. {LS[1]}<|tool_call_end|>"
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == [PARIS[1], ""]


def test_calls_come_as_one() -> None:
    assert functions_of("merged-calls", PARIS, LS, field="name") == ["get_weather"]
    assert "".join(functions_of("merged-calls", PARIS, LS)) == PARIS[1] + LS[1]


def test_calls_come_in_one_piece_or_all_at_once() -> None:
    assert functions_of("whole-call", PARIS, LS) == [PARIS[1], LS[1]]
    lists = [delta["tool_calls"] for delta in deltas_of("calls-at-once", PARIS, LS) if delta.get("tool_calls")]
    assert [[call["function"]["arguments"] for call in calls] for calls in lists] == [[PARIS[1], LS[1]]]


def test_calls_come_in_turns() -> None:
    indexes = [entry["index"] for entry in entries_of("interleaved-calls", PARIS, LS)]
    assert indexes[:6] == [0, 1, 0, 1, 0, 1]
    texts = {0: "", 1: ""}
    for entry in entries_of("interleaved-calls", PARIS, LS):
        texts[entry["index"]] += entry["function"]["arguments"]
    assert texts == {0: PARIS[1], 1: LS[1]}


def test_the_finish_comes_with_the_last_piece_of_a_call() -> None:
    last = [chunk["choices"][0] for chunk in chunks_of("finish-with-last-call") if chunk["choices"]][-1]
    assert last["finish_reason"] == "tool_calls"
    assert PARIS[1].endswith(last["delta"]["tool_calls"][0]["function"]["arguments"])


def test_calls_come_before_the_text() -> None:
    kinds = [next(iter(delta)) for delta in deltas_of("calls-before-text", text="I look.") if delta][1:]
    assert kinds == sorted(kinds, reverse=True)
    assert set(kinds) == {"content", "tool_calls"}
    answer = answer_to(sim_request(wire="anthropic", stream=True), PARIS, text="I look.")
    starts = [
        event for event in payloads_of(ROWS["calls-before-text"], answer) if event["type"] == "content_block_start"
    ]
    assert [one["content_block"]["type"] for one in starts] == ["thinking", "tool_use", "text"]
    assert [one["index"] for one in starts] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("null-tool-calls", "tool_calls", None),
        ("empty-tool-calls", "tool_calls", []),
        ("null-content", "content", None),
        ("empty-content", "content", ""),
        ("role-in-each-chunk", "role", "assistant"),
    ],
)
def test_a_field_stands_in_every_delta(name: str, field: str, value: Any) -> None:
    received = [delta[field] for delta in deltas_of(name, text="I look.")]
    assert value in received
    assert {json.dumps(one) for one in received if not one} <= {json.dumps(value)}


def test_a_message_without_text_has_no_content_or_null() -> None:
    assert "content" not in message_of("missing-content")
    assert message_of("missing-content", text="I look.")["content"] == "I look."
    assert message_of("null-content")["content"] is None


def test_only_the_last_chunk_has_a_finish_reason() -> None:
    choices = [chunk["choices"][0] for chunk in chunks_of("missing-finish-key") if chunk["choices"]]
    assert [choice["finish_reason"] for choice in choices if "finish_reason" in choice] == ["tool_calls"]


def test_two_faults_at_once_do_both() -> None:
    answer = replace(answer_to(sim_request(stream=True), PARIS, LS), text="", reasoning="")
    chunks: list[Json] = payloads_of(ROWS["missing-index"], answer)
    fault = ROWS["repeated-id"].chunks
    assert fault is not None
    entries = [entry for one in fault(chunks, answer) for entry in (delta(one).get("tool_calls") or ())]
    assert {entry["id"] for entry in entries} == {ID, OTHER_ID}
    assert not any("index" in entry for entry in entries)


def delta(chunk: Json) -> Json:
    return chunk["choices"][0]["delta"] if chunk["choices"] else {}


def test_the_last_call_comes_again_under_a_new_id() -> None:
    asked = sim_request(history=round_of(SimCall("functions.Bash:0", *LS)))
    reply = apply_speech(ROWS["same-call-again"], answer_to(asked, PARIS))
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [("functions.get_weather:1", *LS)]
    assert ROWS["same-call-again"].lost


def test_a_tool_is_called_only_where_that_is_forbidden() -> None:
    for choice, names in (("none", ["get_weather"]), ("auto", [])):
        answer = answer_to(replace(sim_request(), tool_choice=choice))
        assert [call.name for call in apply_speech(ROWS["call-unasked"], answer).calls] == names


LONG: Final = ("put", json.dumps({"words": "word " * 20_000}))


@pytest.mark.parametrize("name", ["object-arguments", "null-header", "interleaved-calls", "cumulative-arguments"])
def test_a_long_call_goes_wrong_as_a_short_one_does_and_nobody_waits_for_it(name: str) -> None:
    received = functions_of(name, LONG, LONG)
    if name == "object-arguments":
        assert received == [json.loads(LONG[1])] * 2
    elif name == "cumulative-arguments":
        assert sum(map(len, received)) < 50_000_000  # everything again with each of 40,000 pieces would be gigabytes
        assert received.count(LONG[1]) == 2
    else:
        assert sum(map(len, received)) == 2 * len(LONG[1])
