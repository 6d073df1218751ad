"""Recorded responses of servers -> how many failed ones the gateway cures by asking again, seen with the official SDK.

python -m conformance.servers.retries FILE [--every 1]

FILE has one JSON object per line, or is such a file compressed with gzip: the file of failures that `make test-servers`
writes, or any with its fields `parser`, `host`, `k3`, `tools`, `calls`, `deltas`, `finish` and `tokens`. A host on a
socket plays each response, and to the same request once more the calls that the model meant. The gateway is in front of
it, without configuration but for the limit of how often it asks again.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import openai
from msgspec import Struct

from moonshim.gateway.outbound.attempts import AskAgainLimit
from tests.support.gateway.hosts import HostRequest, Peer, chunked_head, chunks, whole
from tests.support.gateway.leaks import scene
from tests.support.streams import chunk, sse

_MODELS: Final = {False: "kimi-k2.6", True: "kimi-k3"}
_HEADERS: Final = ("content-type: text/event-stream", "connection: close")
_STEP: Final = 200
"""Responses between two lines of progress."""


class Recorded(Struct, frozen=True):
    """What a server sent for one response, and what its model meant."""

    parser: str
    host: str
    k3: bool
    tools: list[str]
    calls: list[tuple[str, dict[str, Any]]]
    deltas: list[dict[str, Any] | list[str]]
    finish: str | None
    tokens: int | None

    @property
    def definitions(self) -> list[dict[str, Any]]:
        keys = sorted({key for _, arguments in self.calls for key in arguments})
        schema = {"type": "object", "properties": {key: {} for key in keys}}
        return [{"type": "function", "function": {"name": name, "parameters": schema}} for name in self.tools]

    @property
    def usage(self) -> dict[str, Any] | None:
        if self.tokens is None:
            return None
        return {"prompt_tokens": 9, "completion_tokens": self.tokens, "total_tokens": 9 + self.tokens}

    def sent(self, *, stream: bool) -> bytes:
        """The bytes of the server."""
        failed = next((delta for delta in self.deltas if isinstance(delta, list)), None)
        if not stream and failed is not None:
            return whole(json.dumps({"error": {"message": failed[1]}}).encode(), status="500 Internal Server Error")
        deltas = [delta for delta in self.deltas if isinstance(delta, dict)]
        if not stream:
            return _body(deltas, self.finish, self.usage)
        values: list[dict[str, Any]] = [chunk(delta) for delta in deltas]
        if failed is not None:
            return chunked_head(headers=_HEADERS) + chunks(sse([*values, {"error": {"message": failed[1]}}]))
        values.append(chunk({}, self.finish))
        if self.usage is not None:
            values.append({**chunk({}), "choices": [], "usage": self.usage})
        return chunked_head(headers=_HEADERS) + chunks(sse(values))

    def meant(self, *, stream: bool) -> bytes:
        """The bytes of a server that delivers what the model meant."""
        calls = [
            {
                "index": number,
                "id": f"functions.{name}:{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for number, (name, arguments) in enumerate(self.calls)
        ]
        delta: dict[str, Any] = {"tool_calls": calls}
        if not stream:
            return _body([delta], "tool_calls", None)
        return chunked_head(headers=_HEADERS) + chunks(sse([chunk(delta), chunk({}, "tool_calls")]))


def _body(deltas: list[dict[str, Any]], finish: str | None, usage: dict[str, Any] | None) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        for field, text in delta.items():
            if isinstance(text, str) and field != "role":
                message[field] = (message.get(field) or "") + text
        for entry in delta.get("tool_calls") or []:
            call = calls.setdefault(
                entry["index"], {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
            )
            call["id"] = call["id"] or entry.get("id")
            for field, text in (entry.get("function") or {}).items():
                call["function"][field] += text or ""
    if calls:
        message["tool_calls"] = list(calls.values())
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body: dict[str, Any] = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return whole(json.dumps(body | ({"usage": usage} if usage else {})).encode(), headers=("connection: close",))


async def _ask(sdk: openai.AsyncOpenAI, model: str, recorded: Recorded, *, stream: bool) -> str:
    """How the response ends for the client: `error`, or whether the calls are those that the model meant."""
    request: Any = {
        "model": model,
        "messages": [{"role": "user", "content": "go"}],
        "tools": recorded.definitions,
    }
    calls: dict[int, list[str]] = {}
    finish: str | None = None
    try:
        if stream:
            async for part in await sdk.chat.completions.create(**request, stream=True):
                for choice in part.choices:
                    finish = choice.finish_reason or finish
                    for entry in choice.delta.tool_calls or []:
                        call = calls.setdefault(entry.index, ["", ""])
                        call[0] += (entry.function and entry.function.name) or ""
                        call[1] += (entry.function and entry.function.arguments) or ""
        else:
            choice = (await sdk.chat.completions.create(**request)).choices[0]
            finish = choice.finish_reason
            for number, found in enumerate(choice.message.tool_calls or []):
                calls[number] = [found.function.name, found.function.arguments]
    except openai.OpenAIError:
        return "error"
    if finish in ("length", "content_filter"):
        return "cut off"
    try:
        got = [(name, json.loads(arguments or "{}")) for name, arguments in calls.values()]
    except ValueError:
        return "other"
    return "right" if got == [(name, arguments) for name, arguments in recorded.calls] else "other"


async def measure(responses: Sequence[Recorded]) -> dict[str, Counter[str]]:
    """By the form of the response: how often what happened."""
    counts: dict[str, Counter[str]] = {"streamed": Counter(), "whole": Counter()}
    current: list[bytes] = []

    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(current.pop(0) if asked.method == "POST" else whole(b"{}", status="404 Not Found"))
        peer.writer.close()

    for host in sorted({one.host for one in responses}):
        async with scene(script, host=host, models=tuple(_MODELS.values())) as stage:
            stage.gateway.state.ask_again_limit = AskAgainLimit(least=1_000_000)
            url = f"http://127.0.0.1:{stage.port}/v1"
            sdk = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
            mine = [one for one in responses if one.host == host]
            for number, recorded in enumerate(mine):
                for form, count in counts.items():
                    stream = form == "streamed"
                    current[:] = [recorded.sent(stream=stream), recorded.meant(stream=stream)]
                    ending = await _ask(sdk, _MODELS[recorded.k3], recorded, stream=stream)
                    asked_again = not current
                    count[f"asked again: {ending}" if asked_again else f"not asked again: {ending}"] += 1
                if number % _STEP == 0:
                    print(f"{host}: {number} of {len(mine)}", flush=True)
            await sdk.close()
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m conformance.servers.retries", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--every", type=int, default=1, help="only each n-th response of the file")
    given = parser.parse_args(arguments)
    data = given.file.read_bytes()
    lines = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    responses = msgspec.json.Decoder(Recorded).decode_lines(lines)[:: given.every]
    for form, count in asyncio.run(measure(responses)).items():
        asked = sum(number for what, number in count.items() if what.startswith("asked again"))
        cured = count["asked again: right"]
        print(f"\n{form}: asked again {asked} times, cured {cured}{f' ({cured / asked:.1%})' if asked else ''}")
        for what, number in count.most_common():
            print(f"  {number:5} {what}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
