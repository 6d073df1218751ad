"""Conversations, how clients of each dialect tell them without what the model thought, and a memory that hears them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from moonshim.engine.prepare import ParsedRequest, read_request
from moonshim.engine.reasoning_cache import cache_entry, lookup
from moonshim.engine.values.conversation import Message, Part, Reasoning, Text, ToolCall

__all__ = ["DIALECTS", "PLAIN", "Json", "Memory", "Step", "Style", "asked_of", "told"]

Json: TypeAlias = dict[str, Any]
DIALECTS: Final = ("openai_chat", "anthropic", "openai_responses")


class Step(Struct, frozen=True):
    """What the user says, if anything, what the model answers, and what its calls gave."""

    user: str = ""
    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Name and arguments."""
    results: tuple[str, ...] = ()
    thought: str = ""


class Style(Struct, frozen=True):
    """How a client writes what it has."""

    system: str = "You are an agent."
    ids: str = "call_{}"
    parts: bool = False
    """Text is a list of parts, here of two."""
    respaced: bool = False
    """Arguments were parsed and written anew, with other spacing and another order of keys."""
    reversed: bool = False
    """Results of parallel calls come in the order in which they were ready."""
    padded: bool = False
    """White space around texts is not what it was."""


PLAIN: Final = Style()


class _Teller:
    """What the three dialects have in common."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._count = 0

    def text(self, said: str) -> str:
        return f"\n {said}  " if self._style.padded and said else said

    def content(self, said: str, kind: str) -> Any:
        said = self.text(said)
        if not self._style.parts:
            return said
        middle = len(said) // 2
        return [{"type": kind, "text": half} for half in (said[:middle], said[middle:])]

    def arguments(self, given: str) -> str:
        if not self._style.respaced:
            return given
        try:
            value = json.loads(given)
        except ValueError:
            return given
        return json.dumps(dict(reversed(value.items())), indent=1)

    def calls(self, step: Step) -> list[tuple[str, str, str]]:
        """Identifier, name, arguments."""
        out = []
        for name, given in step.calls:
            out.append((self._style.ids.format(self._count), name, self.arguments(given)))
            self._count += 1
        return out

    def results(self, step: Step, calls: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
        out = [(id, self.text(text)) for (id, _, _), text in zip(calls, step.results, strict=True)]
        return out[::-1] if self._style.reversed else out


def _chat(steps: Sequence[Step], question: str, style: Style) -> Json:
    teller = _Teller(style)
    out: list[Json] = [{"role": "system", "content": style.system}]
    for step in steps:
        out += [{"role": "user", "content": teller.content(step.user, "text")}] if step.user else []
        calls = teller.calls(step)
        said: Json = {"role": "assistant", "content": teller.content(step.text, "text") if step.text else None}
        if calls:
            said["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": given}}
                for id, name, given in calls
            ]
        out.append(said)
        out += [{"role": "tool", "tool_call_id": id, "content": text} for id, text in teller.results(step, calls)]
    out += [{"role": "user", "content": teller.content(question, "text")}] if question else []
    return {"model": "kimi-k2.6", "messages": out}


def _messages(steps: Sequence[Step], question: str, style: Style) -> Json:
    teller = _Teller(style)
    out: list[Json] = []
    waiting: list[Json] = []

    def ask(said: str) -> None:
        if not waiting and said:
            out.append({"role": "user", "content": teller.content(said, "text")})
        elif waiting:
            words = [{"type": "text", "text": teller.text(said)}] if said else []
            out.append({"role": "user", "content": [*waiting, *words]})

    for step in steps:
        ask(step.user)
        calls = teller.calls(step)
        blocks: list[Json] = [{"type": "text", "text": teller.text(step.text)}] if step.text else []
        blocks += [
            {"type": "tool_use", "id": id, "name": name, "input": json.loads(given)} for id, name, given in calls
        ]
        out.append({"role": "assistant", "content": blocks})
        waiting = [
            {"type": "tool_result", "tool_use_id": id, "content": text} for id, text in teller.results(step, calls)
        ]
    ask(question)
    return {"model": "kimi-k2.6", "max_tokens": 100, "system": style.system, "messages": out}


def _responses(steps: Sequence[Step], question: str, style: Style) -> Json:
    teller = _Teller(style)
    out: list[Json] = [{"role": "developer", "content": style.system}]
    for step in steps:
        out += [{"role": "user", "content": teller.content(step.user, "input_text")}] if step.user else []
        calls = teller.calls(step)
        out += [{"role": "assistant", "content": teller.content(step.text, "output_text")}] if step.text else []
        out += [{"type": "function_call", "call_id": id, "name": name, "arguments": given} for id, name, given in calls]
        out += [
            {"type": "function_call_output", "call_id": id, "output": text} for id, text in teller.results(step, calls)
        ]
    out += [{"role": "user", "content": teller.content(question, "input_text")}] if question else []
    return {"model": "kimi-k2.6", "input": out}


_TELLERS: Final[dict[str, Callable[[Sequence[Step], str, Style], Json]]] = {
    "openai_chat": _chat,
    "anthropic": _messages,
    "openai_responses": _responses,
}


def told(dialect: str, steps: Sequence[Step], question: str = "", style: Style = PLAIN) -> Json:
    """The request of a client behind these steps. What the model thought is lost."""
    return _TELLERS[dialect](steps, question, style)


def asked_of(dialect: str, steps: Sequence[Step], question: str = "", style: Style = PLAIN) -> ParsedRequest:
    return read_request(told(dialect, steps, question, style), dialect=dialect)


def _answer(step: Step) -> Message:
    """What the model answered, with identifiers of its own."""
    parts: list[Part] = [Reasoning(step.thought)] if step.thought else []
    parts += [Text(step.text)] if step.text else []
    parts += [
        ToolCall(f"hist_tool_{n}", name, given, f"functions.{name}:{n}") for n, (name, given) in enumerate(step.calls)
    ]
    return Message("assistant", tuple(parts))


class Memory:
    """Keeps what is filed, by tenant; and finds it again."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], dict[str, bytes]] = {}

    def hear(
        self, dialect: str, steps: Sequence[Step], *, tenant: str = "", style: Style = PLAIN, since: int = 0
    ) -> None:
        """A conversation was held from its beginning, or from some step on."""
        for n, step in enumerate(steps[since:], since):
            self.file(asked_of(dialect, steps[:n], step.user, style), _answer(step), tenant)

    def file(self, asked: ParsedRequest, answer: Message, tenant: str = "") -> None:
        entry = cache_entry(asked.turns(), answer)
        if entry is not None:
            assert entry == cache_entry(asked.request, answer)
            self.kept.setdefault((tenant, entry.key), {})[entry.field] = entry.value

    def recall(self, asked: ParsedRequest, tenant: str = "") -> dict[int, Reasoning]:
        found = {turn.index: lookup(turn, self.kept.get((tenant, turn.key), {})) for turn in asked.lost_turns()}
        return {index: reasoning for index, reasoning in found.items() if reasoning is not None}

    def thoughts(
        self, dialect: str, steps: Sequence[Step], *, tenant: str = "", style: Style = PLAIN
    ) -> list[str | None]:
        """What is found for each answer of a conversation that came back."""
        asked = asked_of(dialect, steps, "Go on.", style)
        found = self.recall(asked, tenant)
        answers = [n for n, message in enumerate(asked.request.messages) if message.role == "assistant"]
        assert len(answers) == len(steps)
        return [found[n].text if n in found else None for n in answers]
