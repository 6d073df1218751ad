"""Chat Completions: the order of a stream, and that it says what the whole answer says."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from moonshim.simulator.response import Cut
from moonshim.simulator.wire.chat import chat_chunks, chat_whole
from tests.simulator.asking import MEANT, answer, sim_request

USAGE = {"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 130}


def kinds(chunks: list[dict[str, Any]]) -> list[str]:
    """What each chunk brings, each kind once in a row."""
    found: list[str] = []
    for chunk in chunks:
        choice = chunk["choices"][0] if chunk["choices"] else None
        kind = "usage" if choice is None else "finish" if choice["finish_reason"] else next(iter(choice["delta"]))
        if found[-1:] != [kind]:
            found.append(kind)
    return found


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of a stream."""
    message: dict[str, Any] = {"reasoning_content": "", "content": "", "tool_calls": {}}
    for delta in (chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]):
        message["reasoning_content"] += delta.get("reasoning_content", "")
        message["content"] += delta.get("content", "")
        for entry in delta.get("tool_calls", ()):
            call = message["tool_calls"].setdefault(entry["index"], {"id": "", "name": "", "arguments": ""})
            call["id"] += entry.get("id", "")
            call["name"] += entry["function"].get("name", "")
            call["arguments"] += entry["function"]["arguments"]
    return message


def test_a_stream_comes_in_the_order_of_moonshot() -> None:
    order = ["role", "reasoning_content", "content", "tool_calls", "finish", "usage"]
    assert kinds(chat_chunks(answer())) == order


@pytest.mark.parametrize("cut", get_args(Cut))
def test_a_stream_says_what_the_whole_answer_says(cut: Cut) -> None:
    streamed, message = joined(chat_chunks(answer(cut=cut))), chat_whole(answer())["choices"][0]["message"]
    assert streamed["content"] == message["content"] == MEANT.text
    assert streamed["reasoning_content"] == message["reasoning_content"] == MEANT.reasoning
    assert list(streamed["tool_calls"].values()) == [
        {"id": call["id"]} | call["function"] for call in message["tool_calls"]
    ]


def test_the_first_entry_of_a_call_names_it_and_the_others_bring_arguments_only() -> None:
    entries = [entry for chunk in chat_chunks(answer()) if chunk["choices"] for entry in _entries(chunk)]
    first = [entry for entry in entries if "id" in entry]
    assert [entry["function"]["name"] for entry in first] == ["weather", "time_of-day"]
    assert all(entry["function"]["arguments"] == "" and entry["type"] == "function" for entry in first)
    assert all(entry.keys() == {"index", "function"} for entry in entries if "id" not in entry)


def _entries(chunk: dict[str, Any]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = chunk["choices"][0]["delta"].get("tool_calls", [])
    return entries


def test_moonshot_tells_its_usage_in_the_choice_and_again_when_asked() -> None:
    *_, finish, last = chat_chunks(answer())
    assert finish["choices"][0]["usage"] == last["usage"]
    assert last["choices"] == []
    assert USAGE.items() <= last["usage"].items()
    assert last["usage"]["cached_tokens"] == last["usage"]["prompt_tokens_details"]["cached_tokens"] == 64
    assert last["usage"]["completion_tokens_details"] == {"reasoning_tokens": 8}


def test_who_does_not_ask_for_the_usage_gets_no_chunk_for_it() -> None:
    last = chat_chunks(answer(request=sim_request(stream=True, wants_usage=False)))[-1]
    assert last["choices"][0]["finish_reason"] == "tool_calls"


def test_other_hosts_tell_their_usage_at_the_end_only() -> None:
    *_, finish, last = chat_chunks(answer(usage_in=("last",)))
    assert "usage" not in finish["choices"][0]
    assert last["usage"] == USAGE


def test_an_answer_without_thoughts_and_calls_has_no_fields_for_them() -> None:
    message = chat_whole(answer(reasoning="", calls=(), finish="stop"))["choices"][0]["message"]
    assert message == {"role": "assistant", "content": MEANT.text}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("reasoning", {"reasoning": "Hm."}),
        (
            "reasoning_details",
            {"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "index": 0}]},
        ),
        ("reasoning_summary", {"reasoning_details": [{"index": 0, "type": "summary", "summary": "Hm."}]}),
    ],
)
def test_thoughts_stand_in_the_field_of_the_host(field: str, expected: dict[str, Any]) -> None:
    thought = answer(reasoning="Hm.", reasoning_field=field, cut="whole")
    assert chat_chunks(thought)[1]["choices"][0]["delta"] == expected
    assert chat_whole(thought)["choices"][0]["message"].keys() >= expected.keys()


def test_a_summary_is_followed_by_what_is_encrypted_and_numbered_in_streams_only() -> None:
    signed = answer(reasoning="Hm.", reasoning_field="reasoning_summary", signature="c2ln", cut="whole")
    assert chat_chunks(signed)[2]["choices"][0]["delta"] == {
        "reasoning_details": [{"index": 1, "type": "encrypted", "encrypted": "c2ln"}]
    }
    assert chat_whole(signed)["choices"][0]["message"]["reasoning_details"] == [
        {"type": "summary", "summary": "Hm."},
        {"type": "encrypted", "encrypted": "c2ln"},
    ]
