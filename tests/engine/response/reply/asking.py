"""Plans for every pair of dialects, and what their hosts answer: the same answer, as a stream, as lines, and whole."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from moonshim import prepare_request
from moonshim.engine.plan import Plan
from moonshim.engine.response.reply import Form, ResponseStream, read_reply
from tests.support.playing import Answer, Call, Thought, chat_answer, messages_answer
from tests.support.streams import chunk, sse

Json: TypeAlias = dict[str, Any]

CLIENTS: Final = ("openai_chat", "anthropic", "openai_responses")
UPSTREAMS: Final = ("openai_chat", "anthropic")
NAME: Final = "my-alias"
"""What clients call the model; hosts call it otherwise."""
_TOOL: Final = {"type": "object", "properties": {"n": {"type": "integer"}}}
_HELLO: Final = [{"role": "user", "content": "hi"}]
_BODIES: Final[dict[str, Json]] = {
    "openai_chat": {
        "messages": _HELLO,
        "tools": [{"type": "function", "function": {"name": "ls", "parameters": _TOOL}}],
        "stream_options": {"include_usage": True},
    },
    "anthropic": {"messages": _HELLO, "max_tokens": 99, "tools": [{"name": "ls", "input_schema": _TOOL}]},
    "openai_responses": {"input": "hi", "tools": [{"type": "function", "name": "ls", "parameters": _TOOL}]},
}


def plan_for_pair(client: str, upstream: str = "openai_chat", **more: Any) -> Plan:
    body = {"model": NAME, "stream": True, **_BODIES[client]}
    prepared = prepare_request(body, dialect=client, upstream=upstream, host="moonshot", model="kimi-k2.5", **more)
    return prepared.plan


def answer_of(upstream: str, text: str = "Look.", *, calls: int = 1, thought: str = "Let me see.") -> Answer:
    """The answer of a host, which says this."""
    called = [Call(f"functions.ls:{n}", "ls", f'{{"n": {n}}}') for n in range(calls)]
    if upstream == "anthropic":
        blocks = ({"type": "thinking", "thinking": thought, "signature": "sig"},) if thought else ()
        return messages_answer(Thought(blocks=blocks), text, called)
    fields = {"reasoning_content": thought} if thought else {}
    answer = chat_answer(Thought(fields=fields), text, called)
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    told = sse([{**chunk({}), "choices": [], "usage": usage}])
    return Answer(answer.whole | {"usage": usage}, answer.stream.replace(b"data: [DONE]\n\n", told))


def as_form(answer: Answer, form: Form) -> bytes:
    """The bytes in which a host sends it."""
    if form == "json":
        return json.dumps(answer.whole).encode()
    if form == "sse":
        return answer.stream
    lines = [line[6:] for line in answer.stream.split(b"\n") if line.startswith(b"data: ") and b"[DONE]" not in line]
    return b"\n".join(lines) + b"\n"


def read(
    plan: Plan, data: bytes, input_format: Form, output_format: Form, *, size: int = 10_000, **more: Any
) -> tuple[bytes, ResponseStream]:
    """All that leaves, and the reading afterwards."""
    reading = read_reply(plan, input_format=input_format, output_format=output_format, **more)
    out = b"".join([reading.feed(data[at : at + size]) for at in range(0, len(data), size)])
    return out + reading.flush(), reading


def payloads(data: bytes) -> list[Json]:
    """The payloads of an event stream, each under the name of its event."""
    out: list[Json] = []
    for frame in data.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.split("\n") if not line.startswith(":") and ": " in line)
        if "data" in lines and lines["data"] != "[DONE]":
            value = json.loads(lines["data"])
            assert lines.get("event") in (None, value.get("type")), frame
            out.append(value)
    return out
