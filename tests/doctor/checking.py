"""Hosts on real sockets, healthy and not, and the report of a check on each."""

from __future__ import annotations

import json
from typing import Any, Final

from moonshim.config import Config, KeySource, ProviderConfig, Secret
from moonshim.doctor.check import check_providers
from moonshim.doctor.findings import Finding, ProviderReport
from moonshim.doctor.report import advice
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, run, whole

KEY: Final = "a-key-that-looks-like-nothing"
MODEL: Final = "kimi-k2.5"
SENTENCE: Final = "It rains in Paris."
ARGUMENTS: Final = '{"city":"Paris"}'
MARKERS: Final = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    f"{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>"
)
PAGE: Final = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>Hello</body></html>"
Json = dict[str, Any]


# --- hosts ------------------------------------------------------------------------------------------------------


def chat_stream(*deltas: Json, finish: str = "stop", usage: bool = True) -> bytes:
    frame: Json = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    chunks: list[Json] = [frame | {"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append(frame | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if usage:
        chunks.append(frame | {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10}})
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def native_call(call_id: str = "functions.get_weather:0", arguments: str = ARGUMENTS, **said: Any) -> bytes:
    function = {"name": "get_weather", "arguments": arguments}
    entry = {"index": 0, "id": call_id, "type": "function", "function": function}
    return chat_stream({"role": "assistant", **said}, {"tool_calls": [entry]}, finish="tool_calls")


def messages_stream(*blocks: tuple[Json, Json], finish: str) -> bytes:
    usage = {"input_tokens": 90, "output_tokens": 9}
    message = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": usage}
    events: list[Json] = [{"type": "message_start", "message": message}]
    for index, (block, delta) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": finish, "stop_sequence": None}, "usage": usage})
    events.append({"type": "message_stop"})
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def events(stream: bytes) -> bytes:
    return whole(stream, headers=("content-type: text/event-stream",))


def error(status: str, message: str, kind: str = "invalid_request_error") -> bytes:
    return whole(json.dumps({"error": {"message": message, "type": kind}}).encode(), status=status)


NOT_FOUND: Final = whole(b'{"error":"url.not_found","message":"no such path"}', status="404 Not Found")
EMPTY: Final = error("400 Bad Request", "model is required")
MODELS: Final = whole(json.dumps({"data": [{"id": "kimi-k2.5"}, {"id": "kimi-k3"}, {"id": "glm-5"}]}).encode())


def chat_host(
    first: bytes | None = None, second: bytes | None = None, *, models: bytes = MODELS, path: str = "/v1"
) -> Script:
    """Chat under a path: what it says at first, and what behind a result."""

    async def script(peer: Peer, asked: HostRequest) -> None:
        if (asked.method, asked.path) == ("GET", f"{path}/models"):
            await peer.send(models)
        elif (asked.method, asked.path) != ("POST", f"{path}/chat/completions"):
            await peer.send(NOT_FOUND)
        elif not (body := json.loads(asked.body)):
            await peer.send(EMPTY)
        elif body["messages"][-1]["role"] == "tool":
            await peer.send(second or events(chat_stream({"content": SENTENCE})))
        else:
            await peer.send(first or events(native_call()))

    return script


async def messages_host(peer: Peer, asked: HostRequest) -> None:
    """Messages, under the path of Moonshot."""
    if asked.path != "/anthropic/v1/messages":
        await peer.send(NOT_FOUND)
    elif not (body := json.loads(asked.body)):
        await peer.send(EMPTY)
    elif isinstance(body["messages"][-1]["content"], list) and body["messages"][-1]["content"][0]["type"] != "text":
        text = {"type": "text", "text": ""}, {"type": "text_delta", "text": SENTENCE}
        await peer.send(events(messages_stream(text, finish="end_turn")))
    else:
        thought = {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "A tool."}
        call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}
        piece = {"type": "input_json_delta", "partial_json": ARGUMENTS}
        await peer.send(events(messages_stream(thought, (call, piece), finish="tool_use")))


def says(answer: bytes) -> Script:
    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(answer)

    return script


# --- checking ---------------------------------------------------------------------------------------------------


def provider_at(url: str, **given: Any) -> ProviderConfig:
    fields: Json = {"name": "host", "api_base_url": f"{url}/v1", "models": (MODEL,), "keys": (Secret(KEY),)}
    fields["key_sources"] = (KeySource("SOME_API_KEY"),)
    return ProviderConfig(**(fields | given))


async def check(*providers: ProviderConfig, **given: Any) -> list[ProviderReport]:
    found = [report async for report in check_providers(Config(providers=providers), **({"seconds": 5.0} | given))]
    assert KEY not in repr(found)
    return found


def checked(
    script: Script, *, seconds: float = 5.0, model: str | None = None, base: str = "/v1", **given: Any
) -> ProviderReport:
    """The report on one host that follows a script."""

    async def ask() -> ProviderReport:
        async with Host(script) as host:
            provider = provider_at(host.url, api_base_url=host.url + base, **given)
            return (await check(provider, seconds=seconds, model=model))[0]

    return run(ask())


def finding(report: ProviderReport, topic: str) -> Finding:
    [found] = [one for one in report.findings if one.topic == topic]
    return found


def advised(report: ProviderReport, topic: str) -> str:
    return advice(finding(report, topic)) or ""


def wrong(report: ProviderReport) -> list[str]:
    assert report.right == (not any(one.state == "wrong" for one in report.findings))
    assert all((advice(one) is not None) == (one.state == "wrong") for one in report.findings), "what to do next"
    return [one.topic for one in report.findings if one.state == "wrong"]
