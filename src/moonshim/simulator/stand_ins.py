"""Parts that are still to come, in their simplest form."""

from __future__ import annotations

import json
from typing import Any

from moonshim.simulator.answer import Meant, MeantCall, Tally
from moonshim.simulator.question import Call, Json, Offered, Question, Result, Turn, Wire
from moonshim.tokens import estimate_text


def read_question(body: Json, *, wire: Wire, model: str, generation: str) -> Question:
    turns = [turn for message in body["messages"] for turn in _turns(message)]
    names = {call.id: call.name for turn in turns for call in turn.calls}
    turns = [
        Turn(
            role=turn.role,
            text=turn.text,
            reasoning=turn.reasoning,
            calls=turn.calls,
            results=tuple(Result(one.call_id, names.get(one.call_id, ""), one.text) for one in turn.results),
        )
        for turn in turns
    ]
    tools = [one.get("function", one) for one in body.get("tools") or ()]
    thinking = body.get("thinking") or {}
    choice = body.get("tool_choice") or "auto"
    return Question(
        wire=wire,
        model=model,
        generation=generation,
        turns=tuple(turns),
        tools=tuple(Offered(one["name"], schema=one.get("parameters") or one.get("input_schema")) for one in tools),
        tool_choice=choice if isinstance(choice, str) else choice.get("type", "auto"),
        thinking=generation not in ("k2", "other") and thinking.get("type") != "disabled",
        stream=body.get("stream") is True,
        wants_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        body=body,
    )


def _turns(message: Json) -> list[Turn]:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    if message["role"] == "tool":
        return [Turn(role="tool", results=(Result(message["tool_call_id"], "", text),))]
    if results := [block for block in blocks if block["type"] == "tool_result"]:
        return [
            Turn(role="tool", results=tuple(Result(one["tool_use_id"], "", _plain(one["content"])) for one in results))
        ]
    calls = [
        Call(one["id"], one["function"]["name"], one["function"]["arguments"])
        for one in message.get("tool_calls") or ()
    ]
    calls += [Call(one["id"], one["name"], json.dumps(one["input"])) for one in blocks if one["type"] == "tool_use"]
    return [Turn(role=message["role"], text=text, calls=tuple(calls), reasoning=message.get("reasoning_content"))]


def _plain(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


class FirstTool:
    """Calls the first tool, then says what it returned."""

    def reply(self, question: Question) -> Meant:
        results = [result.text for turn in question.since for result in turn.results]
        if question.tools and not results and question.tool_choice != "none":
            tool = question.tools[0]
            properties = tool.schema.get("properties") or {}
            arguments = json.dumps(dict.fromkeys(properties, "Paris"))
            return Meant(reasoning="I should look.", calls=(MeantCall(tool.name, arguments),))
        said = " ".join(results) if results else f"You said: {question.words}"
        return Meant(reasoning="I know.", text=said)


class Counter:
    """About how many tokens."""

    def tally(self, question: Question, meant: Meant) -> Tally:
        texts = [meant.text, *(call.name + call.arguments for call in meant.calls)]
        reasoning = estimate_text(meant.reasoning)
        return Tally(
            prompt=estimate_text(json.dumps(question.body.get("messages"))),
            completion=reasoning + sum(map(estimate_text, texts)),
            reasoning=reasoning,
        )
