"""Requests of the gateway -> responses of a Kimi that accepts only what Kimi accepts, in both dialects of hosts.

Every request is checked by the rules of `moonshim.simulator.rules` before it is answered. What they refuse is answered
with a 400, as the hosts do, and recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import Struct

from moonshim.config import ProviderConfig, Secret
from moonshim.simulator.rules.request_rules import check_chat, check_messages
from tests.support.gateway.hosts import Host, HostRequest, Peer, chunked_head, chunks, whole
from tests.support.playing import Answer, Call, Thought, chat_answer, messages_answer
from tests.support.streams import chunk

__all__ = [
    "ROWS",
    "PlannedResponse",
    "Row",
    "StrictKimi",
    "Turn",
    "as_answer",
    "send_answer",
    "signature_of",
    "turns_of",
]

Json: TypeAlias = dict[str, Any]


class Row(Struct, frozen=True):
    """A model at a host: the row of the host table that it is configured by, and the rules it is checked by."""

    host: str
    model: str
    generation: str
    dialect: str = "openai_chat"
    reasoning: str = "reasoning_content"
    """The field for its reasoning."""
    ids: str = "functions.{name}:{number}"
    """How it names its calls, which it counts over the whole conversation."""


ROWS: Final[dict[str, Row]] = {
    "vllm": Row("vllm", "kimi-k2.5", "k2.5", reasoning="reasoning"),
    "moonshot": Row("moonshot", "kimi-k2.5", "k2.5", ids="{name}:{number}"),
    "moonshot-anthropic": Row("moonshot-anthropic", "kimi-k2.5", "k2.5", "anthropic", ids="tool_{name}9{number}"),
    "kimi-coding": Row("kimi-coding", "k3", "k3", ids="{name}_{number}"),
}


class Turn(Struct, frozen=True):
    """One assistant turn of a history, as sent to the host, and the results after it."""

    reasoning: str | None
    text: str
    calls: list[Call]
    results: list[tuple[str, str]]
    """Ids and texts."""
    signature: str | None = None


class PlannedResponse(Struct, frozen=True):
    """A host's response to one request."""

    thought: str = ""
    text: str = ""
    calls: list[tuple[str, str]] = []
    """Names and arguments."""
    leaked: bool = False


Script: TypeAlias = Callable[[Json, Row, list[Turn]], PlannedResponse | Answer]


class StrictKimi(Host):
    """All rows at one address, each under its own path. Problems with a request are answered and recorded."""

    def __init__(self, plays: Script, rows: dict[str, Row] | None = None) -> None:
        super().__init__(self._answer)
        self.plays = plays
        self.rows = rows or ROWS
        self.refused: list[str] = []
        """Its objections to requests, over all of them."""
        self.bodies: list[Json] = []
        self.down: set[str] = set()
        """The rows that answer everything with 503."""
        self.piece = 0
        """How many bytes of a stream are sent at once; 0: all of them."""
        self.pauses_after = b""
        """Where it waits, in a stream, until the test sets `resumed`."""

    def providers(self, **given: Any) -> tuple[ProviderConfig, ...]:
        """The providers for a gateway."""
        return tuple(
            ProviderConfig(
                name=name,
                api_base_url=f"{self.url}/{name}" if row.dialect == "anthropic" else f"{self.url}/{name}/v1",
                keys=(Secret(f"sk-{name}"),),
                models=(row.model,),
                host=row.host,
                dialect="anthropic" if row.dialect == "anthropic" else "openai_chat",
                **given,
            )
            for name, row in self.rows.items()
        )

    async def _answer(self, peer: Peer, asked: HostRequest) -> None:
        name = asked.path.split("/")[1]
        if asked.method == "GET":  # the gateway looks for a list of models, in the background, at any time
            self.requests.remove(asked)
            await peer.send(whole(b"{}", status="404 Not Found"))
            return
        row, body = self.rows[name], json.loads(asked.body)
        if name in self.down:
            await peer.send(whole(b'{"error": {"message": "down"}}', status="503 Service Unavailable"))
            return
        self.bodies.append(body)
        check = check_messages if row.dialect == "anthropic" else check_chat
        if wrong := check(body, generation=row.generation, host=row.host):
            self.refused += wrong
            error: Json = {"error": {"message": wrong[0], "type": "invalid_request_error"}}
            error |= {"type": "error"} if row.dialect == "anthropic" else {}
            await peer.send(whole(json.dumps(error).encode(), status="400 Bad Request"))
            return
        turns = turns_of(body)
        said = self.plays(body, row, turns)
        answer = as_answer(said, row, turns, number=len(self.requests)) if isinstance(said, PlannedResponse) else said
        stream = body.get("stream") is True
        if stream and self.pauses_after:
            first, mark, rest = answer.stream.partition(self.pauses_after)
            assert mark
            self.resumed.clear()
            await peer.send(chunked_head(), chunks(first + mark, end=False))
            await self.resumed.wait()
            await peer.send(chunks(rest))
            return
        await send_answer(peer, answer, stream=stream, piece=self.piece)


async def send_answer(peer: Peer, answer: Answer, *, stream: bool, piece: int = 0) -> None:
    """Send a response as requested; as a stream anyway if it is nothing else."""
    stream = stream or not answer.whole
    if stream and piece:
        data = answer.stream
        await peer.send(
            chunked_head(), *(chunks(data[at : at + piece], end=False) for at in range(0, len(data), piece))
        )
        await peer.send(chunks())
    elif stream:
        await peer.send(whole(answer.stream, headers=["content-type: text/event-stream", "x-request-id: up-1"]))
    else:
        body = json.dumps(answer.whole).encode()
        await peer.send(whole(body, headers=["content-type: application/json", "x-request-id: up-1"]))


def as_answer(said: PlannedResponse, row: Row, turns: list[Turn], *, number: int = 7) -> Answer:
    """A response in the dialect of this host, with usage. `number` tells Messages apart.

    Responses in Chat all have one id here: some hosts have few.
    """
    first = sum(len(turn.calls) for turn in turns)
    calls = [
        Call(row.ids.format(name=name, number=first + place), name, arguments)
        for place, (name, arguments) in enumerate(said.calls)
    ]
    if row.dialect == "anthropic":
        block = {"type": "thinking", "thinking": said.thought, "signature": signature_of(said.thought)}
        made = messages_answer(Thought(blocks=(block,) if said.thought else ()), said.text, calls)
        return Answer({**made.whole, "id": f"msg_{number}"}, made.stream.replace(b'"msg_1"', b'"msg_%d"' % number))
    thought = Thought(fields={row.reasoning: said.thought} if said.thought else {})
    answer = chat_answer(thought, said.text, calls, leaked=said.leaked)
    usage = {"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34, "cached_tokens": 20}
    last = json.dumps(chunk({}) | {"choices": [], "usage": usage})
    stream = answer.stream.replace(b"data: [DONE]", b"data: %b\n\ndata: [DONE]" % last.encode())
    return Answer({**answer.whole, "usage": usage}, stream)


def signature_of(thought: str) -> str:
    """An opaque base64url signature, like Kimi's."""
    return f"sig_{sum(map(ord, thought))}"


# --- what a host reads ------------------------------------------------------------------------------------------


def turns_of(body: Json) -> list[Turn]:
    """The assistant turns of a request, in either dialect."""
    turns: list[Turn] = []
    for message in body["messages"]:
        if message["role"] == "assistant":
            turns.append(_turn(message))
        elif turns:
            turns[-1].results.extend(_results(message))
    return turns


def _turn(message: Json) -> Turn:
    content = message.get("content")
    if isinstance(content, list) and "tool_calls" not in message:
        thoughts = [block for block in content if block["type"] == "thinking"]
        calls = [
            Call(block["id"], block["name"], json.dumps(block["input"]))
            for block in content
            if block["type"] == "tool_use"
        ]
        reasoning = "".join(block["thinking"] for block in thoughts) if thoughts else None
        signature = thoughts[0].get("signature") if thoughts else None
        return Turn(reasoning, text_of(content), calls, [], signature)
    given = [message[name] for name in ("reasoning_content", "reasoning") if message.get(name) is not None]
    entries = message.get("tool_calls") or ()
    calls = [Call(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in entries]
    return Turn(given[0] if given else None, text_of(content), calls, [])


def _results(message: Json) -> list[tuple[str, str]]:
    if message["role"] == "tool":
        return [(message["tool_call_id"], text_of(message["content"]))]
    content = message["content"]
    blocks = [block for block in content if block["type"] == "tool_result"] if isinstance(content, list) else []
    return [(block["tool_use_id"], text_of(block.get("content"))) for block in blocks]


def text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""
