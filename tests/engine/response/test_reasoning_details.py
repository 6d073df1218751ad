"""Entries of `reasoning_details`, encrypted ones above all: the host gets back every one that it sent."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any, Final

import pytest

from moonshim import Mender, Reasoning, mend_chunks, mend_response
from moonshim.config import Config, ProviderConfig
from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator
from tests.support.gateway.hosts import run
from tests.support.gateway.running import running
from tests.support.streams import chunk, sse

SUMMARY: Final = {"type": "summary", "summary": "I look around."}
SECRET: Final = {"type": "encrypted", "encrypted": "c2VjcmV0"}
CALL: Final = {"index": 0, "id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
TOOLS: Final[Any] = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
QUESTION: Final = {"role": "user", "content": "What is here?"}
KEPT: Final = Reasoning("I look around.", details=({"type": "summary"}, SECRET), field="reasoning_details")
"""The text of an entry is that of the thought: it is kept once."""


def details(*entries: dict[str, Any]) -> dict[str, Any]:
    return chunk({"reasoning_details": list(entries)})


STREAM: Final = [
    details({"index": 0, "type": "summary", "summary": "I look"}),
    details({"index": 0, "type": "summary", "summary": " around."}),
    details({"index": 1, "type": "encrypted", "encrypted": "c2Vj"}),
    details({"index": 1, "type": "encrypted", "encrypted": "cmV0"}),
    chunk({"tool_calls": [CALL]}),
    chunk({}, "tool_calls"),
]


def test_a_mended_stream_tells_the_entries_whatever_the_chunking() -> None:
    data = sse(STREAM)
    for size in (1, 7, len(data)):
        mender = Mender(model="k3")
        out = b"".join(mender.feed(data[at : at + size]) for at in range(0, len(data), size)) + mender.flush()
        assert out == data
        assert mender.message.parts[0] == KEPT, size


def test_a_whole_answer_tells_the_same_entries_as_a_stream() -> None:
    message = {"role": "assistant", "content": None, "reasoning_details": [SUMMARY, SECRET], "tool_calls": [CALL]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    mended = mend_response(body, model="k3")
    assert mended.body is body
    assert mended.message.parts[0] == KEPT


def test_entries_between_thoughts_belong_to_the_thought_before_them() -> None:
    stream = [
        chunk({"reasoning_content": "One."}),
        details({"index": 0, "type": "encrypted", "encrypted": "b25l"}),
        chunk({"content": "Look."}),
        chunk({"reasoning_content": "Two."}),
        chunk({"content": " Again.", "reasoning_details": [{"index": 1, "type": "encrypted", "encrypted": "dHdv"}]}),
        chunk({"content": " And again."}),
        chunk({}, "stop"),
    ]
    mender = Mender(model="k3")
    assert mender.feed(sse(stream)) + mender.flush() == sse(stream)
    thoughts = [part for part in mender.message.parts if isinstance(part, Reasoning)]
    assert [(part.text, [one["encrypted"] for one in part.details]) for part in thoughts] == [
        ("One.", ["b25l"]),
        ("Two.", ["dHdv"]),
    ]


def test_chunks_that_were_parsed_already_leave_as_they_came() -> None:
    assert list(mend_chunks(STREAM, model="k3")) == STREAM


class Thinker:
    """Thinks, calls a tool, and answers when it has the result."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        if question.round == 1:
            return IntendedResponse(reasoning="I look around.", calls=(IntendedCall("ls", "{}"),))
        return IntendedResponse(reasoning="Now I know.", text="One file.")


def posted(url: str, messages: list[Any], *, stream: bool) -> dict[str, Any]:
    """What the client has of the answer, as packages put it together."""
    body = {"model": "k3", "messages": messages, "tools": TOOLS, "stream": stream}
    headers = {"content-type": "application/json", "user-agent": "kimi-cli"}
    asked = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked) as answer:
        data = answer.read()
    if not stream:
        message: dict[str, Any] = json.loads(data)["choices"][0]["message"]
        return message
    said: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
    entries: dict[int, dict[str, Any]] = {}
    for line in data.decode().splitlines():
        chunks = json.loads(line[6:])["choices"] if line.startswith("data: {") else []
        for name, value in (chunks[0]["delta"] if chunks else {}).items():
            if name == "tool_calls" and "id" in value[0]:
                said[name].append({key: value[0][key] for key in ("id", "type")} | {"function": CALL["function"]})
            elif name == "reasoning_content" and value:
                said[name] = said.get(name, "") + value
            elif name == "reasoning_details":
                for one in value:
                    known = entries.setdefault(one["index"], {})
                    grown = {key: known.get(key, "") + one[key] for key in ("summary", "encrypted") if key in one}
                    known |= one | grown
    return said | {"reasoning_details": list(entries.values())}


@pytest.mark.parametrize("host_streams", ["both", "only", "never"])
@pytest.mark.parametrize("client_streams", [True, False], ids=["stream", "whole"])
def test_a_host_gets_its_entries_back_whoever_streams(client_streams: bool, host_streams: str) -> None:
    async def test() -> None:
        async with Simulator(behaviour="kimi-coding", model=Thinker()) as server:
            overrides = {"streaming": host_streams}
            host = ProviderConfig(
                name="kimi",
                api_base_url=f"{server.url}/coding/v1",
                host="kimi-coding",
                models=("k3",),
                overrides=overrides,
            )
            async with running(Config(providers=(host,))) as gateway:
                said = await asyncio.to_thread(posted, gateway.url, [QUESTION], stream=client_streams)
                told = {one["type"]: one for one in said["reasoning_details"]}
                assert told["summary"]["summary"] == "I look around."
                assert told["encrypted"]["encrypted"]
                bare = {key: said[key] for key in ("content", "tool_calls")} | {"role": "assistant"}
                for kept in (bare, said):
                    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "a.txt"}
                    await asyncio.to_thread(posted, gateway.url, [QUESTION, kept, result], stream=client_streams)
                    sent = server.requests[-1].body["messages"][1]
                    secret = told["encrypted"]["encrypted"]
                    assert {name: sent[name] for name in sent if "reasoning" in name} == {
                        "reasoning_details": [SUMMARY, {"type": "encrypted", "encrypted": secret}]
                    }
            assert not server.refusals

    run(test())
