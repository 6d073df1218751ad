"""A prompt -> one answer for scripts: as text, as one JSON object, or as one JSON line per step."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from moonshim.agent.events import MessageSaved, RoundStarted, RunEnded, SaveFailed, Step, ToolEnded, ToolStarted
from moonshim.chat.render.sanitize import clean
from moonshim.chat.render.screen import text_of_result
from moonshim.chat.session import Session
from moonshim.chat.usage import UsageTotals
from moonshim.engine.values.conversation import Message, Reasoning, Text
from moonshim.engine.values.events import Repaired
from moonshim.engine.wire.json_codec import encode
from moonshim.http_server.log_lines import json_for_terminal

__all__ = ["EXIT_CODES", "Output", "answer_once", "as_json"]

Output: TypeAlias = Literal["text", "json", "stream-json"]

EXIT_CODES: Final = {"answered": 0, "failed": 1, "rounds": 3, "repeating": 3, "refused": 1, "cancelled": 130}
"""Exit codes, by the reason that the run ended."""
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_STREAM_NAMES: Final[dict[type[Step], str]] = {
    RoundStarted: "round_began",
    ToolStarted: "tool_began",
    MessageSaved: "message_kept",
    SaveFailed: "not_kept",
}
"""Scripts read these names from `--output-format stream-json`, so they stay even when a class is renamed."""


async def answer_once(
    session: Session, prompt: str, output: Output, *, write: Callable[[str], None], tell: Callable[[str], None]
) -> int:
    """Run one turn, write the requested output, and return the exit code; `tell` is for messages to people."""
    steps: list[Step] = []
    ended = RunEnded("cancelled")
    if output == "stream-json":
        write(_line({"type": "chat", **_role_name(session)}))
    async for step in session.steps(prompt):
        if output == "stream-json":
            write(_line(as_json(step)))
        steps.append(step)
        if isinstance(step, RunEnded):
            ended = step
        elif isinstance(step, SaveFailed):
            tell(clean(step.detail))
    if output == "json":
        write(_line(_document(session, steps, ended)))
    elif output == "text" and ended.message is not None and (text := text_of(ended.message)):
        write(clean(text).rstrip("\n") + "\n")
    if output == "text" and ended.detail:
        tell(clean(ended.detail))
    for name in session.permission.refused:
        tell(f"{name} was not run: -p cannot ask for confirmation; allow it with --allow {name} or --yolo")
    return EXIT_CODES[ended.reason]


def as_json(step: Step) -> dict[str, Any]:
    """A step with its name.

    >>> as_json(RoundStarted(1, "kimi-k3"))
    {'type': 'round_began', 'number': 1, 'model': 'kimi-k3'}
    """
    name = _WORD.sub("_", type(step).__name__).lower()
    return {"type": _STREAM_NAMES.get(type(step), name), **msgspec.to_builtins(step)}


def _line(value: dict[str, Any]) -> str:
    return json_for_terminal(encode(value).decode()) + "\n"


def _role_name(session: Session) -> dict[str, Any]:
    provider = session.provider
    return {
        "conversation": session.history.path.stem,
        "provider": provider.name,
        "model": provider.model,
        "format": provider.tool_format,
    }


def _document(session: Session, steps: list[Step], ended: RunEnded) -> dict[str, Any]:
    message = ended.message or Message("assistant")
    made: dict[str, Any] = {
        "text": text_of(message),
        "reasoning": "".join(part.text for part in message.parts if isinstance(part, Reasoning)),
        "calls": [_call(step) for step in steps if isinstance(step, ToolEnded)],
        "usage": _usage(session.ledger) if session.ledger.is_counted else None,
        "cost": session.ledger.amounts or None,
        "ending": ended.reason,
        "detail": ended.detail,
        "rounds": sum(isinstance(step, RoundStarted) for step in steps),
        "repairs": [{"rule": one.rule, "detail": one.detail} for one in steps if isinstance(one, Repaired)],
    }
    return made | _role_name(session)


def _usage(ledger: UsageTotals) -> dict[str, int]:
    return {
        "input_tokens": ledger.input,
        "output_tokens": ledger.output,
        "cached_tokens": ledger.cached,
        "reasoning_tokens": ledger.reasoning,
    }


def _call(ended: ToolEnded) -> dict[str, Any]:
    return {
        "name": ended.call.name,
        "arguments": ended.call.arguments,
        "result": text_of_result(ended.result),
        "is_error": ended.result.is_error,
        "seconds": round(ended.seconds, 3),
    }


def text_of(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))
