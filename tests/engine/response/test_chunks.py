"""Parsed chunks in, parsed chunks out: plain and async, the same objects where nothing was wrong."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from moonshim.engine.response.chunks import mend_chunks
from moonshim.engine.values.conversation import Tool
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidInput
from tests.support.streams import chunk, read_chunks

CALL = "<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
CLEAN = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hi <"}),
    chunk({"content": "b"}),
    chunk({}, "stop"),
]
BROKEN = [chunk({"content": "Hi " + CALL[:30]}), chunk({"content": CALL[30:]}), chunk({}, "stop")]


async def one_by_one(chunks: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    for one in chunks:
        yield one


def mended(chunks: list[dict[str, Any]], way: str, **more: Any) -> list[dict[str, Any]]:
    if way == "plain":
        return list(mend_chunks(chunks, model="kimi-k2.5", **more))

    async def collected() -> list[dict[str, Any]]:
        return [one async for one in mend_chunks(one_by_one(chunks), model="kimi-k2.5", **more)]

    return asyncio.run(collected())


@pytest.mark.parametrize("way", ["plain", "async"])
class TestBothWays:
    def test_a_clean_chunk_is_the_same_object(self, way: str) -> None:
        out = mended(CLEAN, way)
        assert len(out) == len(CLEAN)
        assert all(went is came for went, came in zip(out, CLEAN, strict=True))

    def test_a_call_in_markers_becomes_native(self, way: str) -> None:
        heard = read_chunks(mended(BROKEN, way))[0]
        assert [(call.id, call.name, call.arguments) for call in heard.calls] == [("functions.ls:0", "ls", "{}")]
        assert (heard.content, heard.finish) == ("Hi ", "tool_calls")

    def test_what_was_passed_stays_as_it_was(self, way: str) -> None:
        chunks = copy.deepcopy(BROKEN)
        mended(chunks, way)
        assert chunks == BROKEN

    def test_a_stream_that_just_ends_gets_an_error_chunk(self, way: str) -> None:
        *rest, last = mended([chunk({"content": "Hi"})], way)
        assert [one["choices"][0]["delta"] for one in rest] == [{"content": "Hi"}]
        assert last["error"]["retryable"] is True

    def test_a_stream_without_any_chunk_gets_an_error_chunk(self, way: str) -> None:
        (only,) = mended([], way)
        assert only["error"]["retryable"] is True

    @pytest.mark.parametrize("bad", ["data: {}", b"{}", None, 7, ["a"]])
    def test_a_chunk_that_is_no_dict_is_an_error_that_says_so(self, way: str, bad: Any) -> None:
        with pytest.raises(InvalidInput, match=type(bad).__name__) as caught:
            mended([bad], way)
        assert caught.value.field == "chunks"

    def test_what_is_not_a_chunk_passes(self, way: str) -> None:
        ping = {"type": "ping"}
        out = mended([ping, *CLEAN], way)
        assert out[0] is ping

    def test_tools_history_and_options_count(self, way: str) -> None:
        history = [{"role": "assistant", "tool_calls": [{"id": "functions.ls:0", "function": {"name": "ls"}}]}]
        heard = read_chunks(mended(BROKEN, way, tools=[Tool("ls")], history=history))[0]
        assert [call.id for call in heard.calls] == ["functions.ls:1"]
        assert read_chunks(mended(BROKEN, way, tools=[]))[0].content == "Hi " + CALL
        assert read_chunks(mended(BROKEN, way, tool_choice="none"))[0].content == "Hi " + CALL
        assert read_chunks(mended(BROKEN, way, options=KimiOptions()))[0].content == "Hi " + CALL


@pytest.mark.parametrize("bad", ["data: {}", b"data", {"choices": []}, None, 7])
def test_chunks_that_are_no_stream_are_an_error_at_once(bad: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        mend_chunks(bad, model="kimi-k2.5")
    assert caught.value.field == "chunks"


@pytest.mark.parametrize(
    ("name", "value"), [("model", None), ("tools", "ls"), ("tools", {"name": "ls"}), ("history", "hi"), ("history", 7)]
)
def test_bad_arguments_are_an_error_at_once_that_names_them(name: str, value: Any) -> None:
    passed: dict[str, Any] = {"model": "kimi-k2.5", name: value}
    with pytest.raises(InvalidInput) as caught:
        mend_chunks([], **passed)
    assert caught.value.field == name


def test_a_chunk_leaves_before_the_next_one_is_asked_for() -> None:
    asked = 0

    def source() -> Iterator[dict[str, Any]]:
        nonlocal asked
        for one in CLEAN:
            asked += 1
            yield one

    out = mend_chunks(source(), model="kimi-k2.5")
    assert next(out) is CLEAN[0]
    assert asked == 1


def test_a_model_that_is_no_kimi_is_passed_through() -> None:
    assert list(mend_chunks([*BROKEN[:2], chunk({}, "stop")], model="gpt-4o")) == BROKEN


def test_a_summary_names_a_watched_call_and_one_from_markers_that_have_the_same_number() -> None:
    entry = {"index": 0, "id": "functions.cat:1", "type": "function", "function": {"name": "cat", "arguments": "{}"}}
    options = KimiOptions(manual_tool_parsing=True, assemble_tool_deltas=True)
    came = [chunk({"content": CALL}), chunk({"tool_calls": [entry]}), chunk({}, "tool_calls")]
    *_, last = mend_chunks(came, model="kimi-k2.5", options=options)
    assert [call["function"]["name"] for call in last["choices"][0]["message"]["tool_calls"]] == ["ls", "cat"]
