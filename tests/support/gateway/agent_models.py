"""The requests and requirements of real agents -> small models of them that run a tool loop over a real socket.

Each was recorded: the bodies are those under tests/snapshots/requests, and what a model asserts is what breaks the real
program when it is missing.
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp
from msgspec import Struct

from tests.engine.dialects.anthropic.reading import MessagesReader, ResponsesReader, frames_of
from tests.support.streams import parse_payloads, read_chunks, read_sse

__all__ = [
    "RECORDED",
    "ClaudeCode",
    "Codex",
    "KimiCode",
    "KimiCodeMessages",
    "KimiCodeResponses",
    "Opencode",
    "QwenCode",
    "Reply",
    "Wire",
    "dialect_of",
    "load_recorded",
]

Json: TypeAlias = dict[str, Any]
Results: TypeAlias = list[tuple[str, str]]

_RECORDED: Final = Path(__file__).resolve().parents[2] / "snapshots" / "requests"


def load_recorded(client: str) -> Json:
    """The body that this client was seen to send."""
    body: Json = json.loads((_RECORDED / f"{client}.json").read_text())["body"]
    return body


def dialect_of(client: str) -> str:
    return str(json.loads((_RECORDED / f"{client}.json").read_text())["dialect"])


RECORDED: Final = sorted(path.stem for path in _RECORDED.glob("*.json"))


class Reply(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        value: Json = json.loads(self.body)
        return value


class Wire:
    """Sends bodies unchanged."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url
        self.answering: Callable[[], None] = lambda: None
        """Called when the headers of a response have arrived."""

    async def post(self, path: str, body: Json, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.post(self._url + path, json=body, headers=named) as response:
            self.answering()
            data = await response.read()
            return Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, data)


class Agent(ABC):
    """A tool loop: `turn` calls the model and returns the calls (id, name, arguments), `give` takes their results."""

    def __init__(self, wire: Wire, model: str) -> None:
        self.wire, self.model = wire, model
        self.history: list[Json] = []
        self.text = ""

    @abstractmethod
    async def turn(self) -> list[tuple[str, str, str]]: ...

    @abstractmethod
    def give(self, results: Results) -> None: ...


# --- Claude Code ------------------------------------------------------------------------------------------------


class ClaudeCode(Agent):
    """Messages. It joins responses with the same id, retries completely when a stream breaks, and adds a line to every
    request that is never the same."""

    client = "claude-code"

    def __init__(self, wire: Wire, model: str, prompt: str) -> None:
        super().__init__(wire, model)
        self._recorded = load_recorded(self.client)
        self._bills = itertools.count()
        self._names: dict[str, Json] = {}
        self.sent_whole = 0
        self.history = [
            {"role": "user", "content": [{"type": "text", "text": prompt}]},
            {"role": "system", "content": "The following deferred tools are now available via ToolSearch:\nWebFetch"},
        ]

    def body(self, *, stream: bool) -> Json:
        billing = f"x-anthropic-billing-header: cc_version=2.1.325.{next(self._bills)}; cch=5a1b0;"
        system = [{"type": "text", "text": billing}, *self._recorded["system"][1:]]
        messages = json.loads(json.dumps(self.history))
        last = messages[-1]["content"]
        if isinstance(last, list):
            last[-1]["cache_control"] = {"type": "ephemeral"}  # which moves with every request
        return self._recorded | {"model": self.model, "system": system, "messages": messages, "stream": stream}

    async def _post(self, *, stream: bool) -> Reply:
        return await self.wire.post(
            "/v1/messages?beta=true",
            self.body(stream=stream),
            x_api_key="none",
            anthropic_version="2023-06-01",
            anthropic_beta="claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
            user_agent="claude-cli/2.1.325 (external, sdk-cli)",
            accept_encoding="gzip, deflate, br, zstd",
        )

    async def turn(self) -> list[tuple[str, str, str]]:
        reply = await self._post(stream=True)
        assert reply.status == 200, reply.body
        if b"event: error" in reply.body:
            self.sent_whole += 1
            reply = await self._post(stream=False)
            assert reply.status == 200, reply.body
            message = reply.json
        else:
            message = self._read(reply.body)
        assert message["model"] == self.model, "it compares the name with the one that it asked for"
        assert isinstance(message["usage"]["input_tokens"], int)
        self._keep(message)
        self.text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
        uses = [block for block in message["content"] if block["type"] == "tool_use"]
        assert message["stop_reason"] == ("tool_use" if uses else "end_turn")
        return [(block["id"], block["name"], json.dumps(block["input"])) for block in uses]

    def _read(self, data: bytes) -> Json:
        reader = MessagesReader(data)  # event lines, one block at a time, each stopped, one message_delta
        frames = [payload for _, payload in frames_of(data)]
        for place, payload in enumerate(frames):
            if payload["type"] == "content_block_delta" and payload["delta"]["type"] == "signature_delta":
                assert frames[place + 1]["type"] == "content_block_stop", "the signature is the last word of a thought"
        message: Json = frames[0]["message"] | {"stop_reason": reader.stop_reason, "content": []}
        for block in reader.content:
            given = dict(block)
            if given["type"] == "tool_use":
                given["input"] = json.loads(given.pop("partial_json") or "{}")
            message["content"].append(given)
        return message

    def _keep(self, message: Json) -> None:
        kept = self._names.get(message["id"])
        if kept is None:
            kept = self._names[message["id"]] = {"role": "assistant", "content": []}
            self.history.append(kept)
        kept["content"] += message["content"]

    def give(self, results: Results) -> None:
        blocks = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in results]
        self.history.append({"role": "user", "content": blocks})

    async def count(self) -> int:
        body = self.body(stream=False)
        for name in ("stream", "max_tokens", "metadata"):
            body.pop(name)
        reply = await self.wire.post("/v1/messages/count_tokens?beta=true", body, x_api_key="none")
        assert reply.status == 200, reply.body
        tokens: int = reply.json["input_tokens"]
        return tokens


# --- Codex ------------------------------------------------------------------------------------------------------


class Codex(Agent):
    """Responses. It acts on `response.output_item.done` alone, and trusts a response once it is completed."""

    client = "codex"

    def __init__(self, wire: Wire, model: str, prompt: str) -> None:
        super().__init__(wire, model)
        self._recorded = load_recorded(self.client)
        asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}
        self.history = [*(one for one in self._recorded["input"][:2] if one.get("role") == "developer"), asked]
        self._custom: set[str] = set()

    def body(self) -> Json:
        return self._recorded | {"model": self.model, "input": self.history}

    async def post(self) -> Reply:
        return await self.wire.post(
            "/v1/responses",
            self.body(),
            authorization="Bearer none",
            user_agent="codex_exec/0.166.0",
            accept="text/event-stream",
        )

    async def turn(self) -> list[tuple[str, str, str]]:
        reply = await self.post()
        assert reply.status == 200, reply.body
        reader = ResponsesReader(reply.body)
        assert reader.ending == "response.completed"
        assert reader.response["id"].startswith("resp_")
        assert reader.response["usage"]["total_tokens"]
        done = [one["item"] for _, one in frames_of(reply.body) if one["type"] == "response.output_item.done"]
        assert done == reader.response["output"]
        self.text = reader.text
        calls: list[tuple[str, str, str]] = []
        for item in done:
            assert item["id"].startswith(_ITEM_NAMES[item["type"]]), item
            if item["type"] == "reasoning":
                assert item["encrypted_content"], "it was asked for"
            # It stores no item ids, since it stores nothing with its host.
            self.history.append({key: value for key, value in item.items() if key not in ("id", "status")})
            if item["type"] == "function_call":
                calls.append((item["call_id"], item.get("namespace", "") + item["name"], item["arguments"]))
            elif item["type"] == "custom_tool_call":
                self._custom.add(item["call_id"])
                calls.append((item["call_id"], item["name"], item["input"]))
        return calls

    def give(self, results: Results) -> None:
        for id, text in results:
            kind = "custom_tool_call_output" if id in self._custom else "function_call_output"
            self.history.append({"type": kind, "call_id": id, "output": text})


_ITEM_NAMES: Final = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_", "custom_tool_call": "ctc_"}


# --- Chat: kimi-code, opencode, qwen-code -----------------------------------------------------------------------


class ChatAgent(Agent):
    """Joins deltas by their index, and loops forever unless there is a finish reason."""

    client = ""

    def __init__(self, wire: Wire, model: str, prompt: str) -> None:
        super().__init__(wire, model)
        self._recorded = load_recorded(self.client)
        self.history = [self._recorded["messages"][0], {"role": "user", "content": self.content(prompt)}]

    def content(self, text: str) -> Any:
        return text

    def history_message(self, message: Json) -> Json:
        """The assistant's message as it goes into the history."""
        return message

    async def post(self, **more: Any) -> Reply:
        body = self._recorded | {"model": self.model, "messages": self.history} | more
        return await self.wire.post("/v1/chat/completions", body, authorization="Bearer none")

    async def turn(self) -> list[tuple[str, str, str]]:
        reply = await self.post()
        assert reply.status == 200, reply.body
        chunks = [one for one in parse_payloads(read_sse(reply.body)) if isinstance(one, dict)]
        assert all(one["model"] == self.model and one["object"] == "chat.completion.chunk" for one in chunks)
        listener = read_chunks(parse_payloads(read_sse(reply.body)))  # indexes, headers, one finish, [DONE]
        heard = listener[0]
        assert listener.done
        assert heard.finish == ("tool_calls" if heard.calls else "stop")
        assert len(listener.usages) == 1
        entries = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in heard.calls
        ]
        message: Json = {"role": "assistant", "content": heard.content or None, "reasoning_content": heard.reasoning}
        self.history.append(self.history_message(message | ({"tool_calls": entries} if entries else {})))
        self.text = heard.content
        return [(call.id, call.name, call.arguments) for call in heard.calls]

    def give(self, results: Results) -> None:
        self.history += [{"role": "tool", "tool_call_id": id, "content": self.content(text)} for id, text in results]


class KimiCode(ChatAgent):
    """Rewrites ids to letters, digits, `_` and `-`; omits `content` beside calls."""

    client = "kimi-code-chat"

    def history_message(self, message: Json) -> Json:
        for call in message.get("tool_calls", ()):
            call["id"] = _sanitize_id(call["id"])
        return {key: value for key, value in message.items() if key != "content" or "tool_calls" not in message}

    def give(self, results: Results) -> None:
        super().give([(_sanitize_id(id), text) for id, text in results])


class Opencode(ChatAgent):
    """Asks a small model for a title first."""

    client = "opencode"

    def history_message(self, message: Json) -> Json:
        return message | {"content": message["content"] or ""}

    async def title(self, model: str) -> str:
        reply = await self.wire.post(
            "/v1/chat/completions",
            {
                "model": model,
                "max_tokens": 32000,
                "temperature": 0.5,
                "messages": [
                    {"role": "system", "content": "You are a title generator."},
                    {"role": "user", "content": "Generate a title for this conversation:\n"},
                    self.history[1],
                ],
                "stream": True,
                "stream_options": {"include_usage": True},
            },
            authorization="Bearer none",
        )
        listener = read_chunks(parse_payloads(read_sse(reply.body)))
        assert listener[0].finish == "stop"
        return listener[0].content


class QwenCode(ChatAgent):
    """Sends user and tool content as lists of text parts, and drops reasoning."""

    client = "qwen-code"

    def content(self, text: str) -> Any:
        return [{"type": "text", "text": text}]

    def history_message(self, message: Json) -> Json:
        return {key: value for key, value in message.items() if key != "reasoning_content"}


class KimiCodeMessages(ClaudeCode):
    """kimi-code, set to Messages."""

    client = "kimi-code-messages"

    def __init__(self, wire: Wire, model: str, prompt: str) -> None:
        super().__init__(wire, model, prompt)
        del self.history[1]

    def _keep(self, message: Json) -> None:
        for block in message["content"]:
            if block["type"] == "tool_use":
                block["id"] = _sanitize_id(block["id"])
        super()._keep(message)

    def give(self, results: Results) -> None:
        super().give([(_sanitize_id(id), text) for id, text in results])


class KimiCodeResponses(Codex):
    """kimi-code, set to Responses."""

    client = "kimi-code-responses"

    def body(self) -> Json:
        rewritten = [
            one | {"call_id": _sanitize_id(one["call_id"])} if "call_id" in one else one for one in self.history
        ]
        return super().body() | {"input": rewritten}


def _sanitize_id(id: str) -> str:
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "_-") else "_" for sign in id)[:64]
