"""Official clients in conversation with a simulator until its model calls no more, and bare HTTP requests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable
from typing import Any

import anthropic
import openai
from msgspec import Struct

from tests.simulator.asking import CHAT_TOOLS, MESSAGES_TOOLS

__all__ = ["Answered", "anthropic_client", "chat_loop", "messages_loop", "openai_client", "request"]


class Answered(Struct, frozen=True):
    """What came back, byte for byte."""

    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)


def request(url: str, method: str, path: str, body: Any = None, **headers: str) -> Answered:
    """One request on a connection of its own. A body is JSON, bytes as they are, or pieces without a length."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
    plain = body is None or isinstance(body, bytes) or (not isinstance(body, dict) and isinstance(body, Iterable))
    try:
        connection.request(method, path, body if plain else json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        return Answered(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def openai_client(url: str, **given: Any) -> openai.OpenAI:
    options: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": "any", "max_retries": 0}
    return openai.OpenAI(**(options | given))


def anthropic_client(url: str, **given: Any) -> anthropic.Anthropic:
    options: dict[str, Any] = {"base_url": url, "api_key": "any", "max_retries": 0}
    return anthropic.Anthropic(**(options | given))


def _run(name: str, arguments: str) -> str:
    return f"{name}({json.loads(arguments)['city']})"


def chat_loop(client: openai.OpenAI, model: str, *, stream: bool, **given: Any) -> str:
    """The last words of the model. Thoughts are sent back in the field that they came in."""
    messages: list[Any] = [{"role": "user", "content": "What is the weather everywhere?"}]
    for _ in range(20):
        asked: dict[str, Any] = {"model": model, "messages": messages, "tools": CHAT_TOOLS} | given
        message = _streamed(client, asked) if stream else _whole(client, asked)
        messages.append(message)
        if not message.get("tool_calls"):
            return str(message["content"])
        for call in message["tool_calls"]:
            result = _run(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    raise AssertionError("the model never came to an end")


def _whole(client: openai.OpenAI, asked: dict[str, Any]) -> dict[str, Any]:
    message = client.chat.completions.create(**asked).choices[0].message.model_dump(exclude_none=True)
    for call in message.get("tool_calls", ()):
        call.pop("index", None)
    return {key: value for key, value in message.items() if value != ""} | {"content": message.get("content", "")}


def _streamed(client: openai.OpenAI, asked: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: list[dict[str, Any]] = []
    for chunk in client.chat.completions.create(**asked, stream=True):
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        message["content"] += delta.content or ""
        for field in ("reasoning_content", "reasoning"):
            if piece := getattr(delta, field, None):
                message[field] = message.get(field, "") + piece
        for entry in getattr(delta, "reasoning_details", None) or ():
            _join_details(message.setdefault("reasoning_details", []), entry)
        for entry in delta.tool_calls or ():
            if entry.id:
                calls.append({"id": entry.id, "type": "function", "function": {"name": "", "arguments": ""}})
            assert entry.function is not None
            calls[entry.index]["function"]["name"] += entry.function.name or ""
            calls[entry.index]["function"]["arguments"] += entry.function.arguments or ""
    return message | ({"tool_calls": calls} if calls else {})


def _join_details(details: list[dict[str, Any]], entry: dict[str, Any]) -> None:
    """Entries of one index are one; the index itself is never sent back."""
    given = {key: value for key, value in entry.items() if key != "index"}
    if entry["index"] == len(details):
        details.append(given)
        return
    for key in given.keys() & {"text", "summary"}:
        details[entry["index"]][key] += given[key]


def messages_loop(client: anthropic.Anthropic, model: str, *, stream: bool, **given: Any) -> str:
    """The last words of the model."""
    messages: list[Any] = [{"role": "user", "content": "What is the weather everywhere?"}]
    for _ in range(20):
        asked: dict[str, Any] = {"model": model, "max_tokens": 1000, "messages": messages, "tools": MESSAGES_TOOLS}
        if stream:
            with client.messages.stream(**(asked | given)) as streaming:
                answer: anthropic.types.Message = streaming.get_final_message()
        else:
            answer = client.messages.create(**(asked | given))
        content = [_block(block.model_dump(exclude_none=True)) for block in answer.content]
        messages.append({"role": "assistant", "content": content})
        uses = [block for block in content if block["type"] == "tool_use"]
        if not uses:
            return "".join(block["text"] for block in content if block["type"] == "text")
        results = [
            {
                "type": "tool_result",
                "tool_use_id": use["id"],
                "content": _run(use["name"], json.dumps(use["input"])),
            }
            for use in uses
        ]
        messages.append({"role": "user", "content": results})
    raise AssertionError("the model never came to an end")


def _block(block: dict[str, Any]) -> dict[str, Any]:
    kept = {"type", "text", "thinking", "signature", "id", "name", "input"}
    return {key: value for key, value in block.items() if key in kept and not (key == "signature" and not value)}
