"""Generated conversations, and how each dialect tells them: parallel calls, and all that goes wrong with results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st
from msgspec import Struct

from tests.engine.request.nasty.case import Json

__all__ = ["TELLERS", "Turn", "turns"]

NAMES: Final = ("Bash", "fs.read", "my tool")


class Turn(Struct, frozen=True):
    """What the user says, and what the model does about it in one or more rounds of calls."""

    said: str
    prompt: str | None
    """A system prompt behind the user's words."""
    thought: str | None
    answer: str
    calls: tuple[tuple[str, str, str], ...]
    """Identifier, name, arguments."""
    results: tuple[tuple[str, str], ...]
    """Identifier and text: in any order, some missing, some of calls that never were."""


_WORDS: Final = ("", "hi", "look at a.txt", "Fine.")
_IDS: Final = ("a", "call_1", "functions.Bash:0", "x y", "toolu_9")
_ARGUMENTS: Final = ("{}", '{"command":"ls"}', '{"command": "l', "[1]")
_calls = st.lists(
    st.tuples(st.sampled_from(_IDS), st.sampled_from(NAMES), st.sampled_from(_ARGUMENTS)), max_size=3
).map(tuple)
_lost = st.lists(st.tuples(st.sampled_from((*_IDS, "gone")), st.sampled_from(("done", "", "late"))), max_size=2)


@st.composite
def _turn(draw: st.DrawFn) -> Turn:
    calls = draw(_calls)
    answers = [(id, f"result {number}") for number, (id, _, _) in enumerate(calls)]
    if draw(st.booleans()):
        answers = draw(st.permutations(answers + draw(_lost)))[: draw(st.integers(0, 4))]
    words = st.sampled_from(_WORDS)
    return Turn(
        draw(words),
        draw(st.one_of(st.none(), st.none(), st.just("Be brief."))),
        draw(st.one_of(st.none(), words)),
        draw(words),
        calls,
        tuple(answers),
    )


turns: Final = st.lists(_turn(), min_size=1, max_size=4)
_SCHEMA: Final[Json] = {"type": "object", "properties": {"command": {"type": "string"}}}
_START: Final = "Start."


def _chat(conversation: list[Turn]) -> Json:
    out: list[Json] = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": _START}]
    for turn in conversation:
        out.append({"role": "user", "content": turn.said})
        if turn.prompt is not None:
            out.append({"role": "system", "content": turn.prompt})
        spoken: Json = {"role": "assistant", "content": turn.answer}
        if turn.thought is not None:
            spoken["reasoning_content"] = turn.thought
        if turn.calls:
            spoken["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in turn.calls
            ]
        out.append(spoken)
        out += [{"role": "tool", "tool_call_id": id, "content": text} for id, text in turn.results]
    out.append({"role": "user", "content": "Go on."})
    tools = [{"type": "function", "function": {"name": name, "parameters": _SCHEMA}} for name in NAMES]
    return {"model": "m", "messages": out, "tools": tools}


def _messages(conversation: list[Turn]) -> Json:
    out: list[Json] = []
    waiting: list[Json] = [{"type": "text", "text": _START}]
    for turn in conversation:
        out.append({"role": "user", "content": [*waiting, {"type": "text", "text": turn.said}]})
        if turn.prompt is not None:
            out.append({"role": "system", "content": turn.prompt})
        blocks: list[Json] = []
        if turn.thought is not None:
            blocks.append({"type": "thinking", "thinking": turn.thought, "signature": ""})
        blocks.append({"type": "text", "text": turn.answer})
        blocks += [
            {"type": "tool_use", "id": id, "name": name, "input": _value(arguments)}
            for id, name, arguments in turn.calls
        ]
        out.append({"role": "assistant", "content": blocks})
        waiting = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in turn.results]
    out.append({"role": "user", "content": [*waiting, {"type": "text", "text": "Go on."}]})
    tools = [{"name": name, "input_schema": _SCHEMA} for name in NAMES]
    return {"model": "m", "max_tokens": 100, "system": "You are an agent.", "messages": out, "tools": tools}


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _responses(conversation: list[Turn]) -> Json:
    out: list[Json] = [{"role": "developer", "content": "You are an agent."}, {"role": "user", "content": _START}]
    for turn in conversation:
        out.append({"role": "user", "content": [{"type": "input_text", "text": turn.said}]})
        if turn.prompt is not None:
            out.append({"role": "developer", "content": turn.prompt})
        if turn.thought is not None:
            summary = [{"type": "summary_text", "text": turn.thought}]
            out.append({"type": "reasoning", "summary": summary, "encrypted_content": None})
        out.append({"role": "assistant", "content": [{"type": "output_text", "text": turn.answer}]})
        out += [
            {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}
            for id, name, arguments in turn.calls
        ]
        out += [{"type": "function_call_output", "call_id": id, "output": text} for id, text in turn.results]
    out.append({"role": "user", "content": "Go on."})
    tools = [{"type": "function", "name": name, "parameters": _SCHEMA} for name in NAMES]
    return {"model": "m", "input": out, "tools": tools}


TELLERS: Final[dict[str, Callable[[list[Turn]], Json]]] = {
    "openai_chat": _chat,
    "anthropic": _messages,
    "openai_responses": _responses,
}
