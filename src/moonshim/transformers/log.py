"""The transformer named `Log`: requests and responses -> a bounded summary of each, for a log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeAlias, get_args

from moonshim.engine.stages import Stage
from moonshim.engine.values.conversation import Request, Text, Usage
from moonshim.engine.values.events import BlockDelta, BlockKind, BlockOpened, Event, Failed, Finished, Repaired
from moonshim.errors import InvalidOption

__all__ = ["Log", "Sink", "standard_log"]

Sink: TypeAlias = Callable[[str, str, dict[str, Any]], None]
"""Takes a level, an event (`log_request`, `log_answer`, `transformer_failed`), and its fields."""
LEVELS: Final = ("debug", "info", "warning", "error")
TEXT_LIMIT: Final = 500
"""Maximum characters of conversation text to log, if that is enabled."""
NAMES_LIMIT: Final = 20
KINDS: Final[tuple[BlockKind, ...]] = get_args(BlockKind)


def standard_log(level: str, name: str, fields: dict[str, Any]) -> None:
    """The default sink: the standard library's log."""
    logging.getLogger("moonshim.transformers").log(getattr(logging, level.upper()), "%s %s", name, fields)


class Log:
    """Reports every request and every response to a sink, and changes neither.

    Conversation text is not included unless `text` is set, and then only its first few hundred characters. A response
    with a `Log` is re-encoded: it does not pass byte for byte.
    """

    name = "Log"

    def __init__(self, sink: Sink = standard_log, *, level: str = "info", text: bool = False) -> None:
        if level not in LEVELS:
            raise InvalidOption(f"level must be one of {', '.join(LEVELS)}, got {level!r}", field="level")
        if not isinstance(text, bool):
            raise InvalidOption(f"text must be a boolean, got {text!r}", field="text")
        self._sink, self._level, self._text = sink, level, text

    def prepare(self, request: Request) -> Request:
        fields: dict[str, Any] = {
            "model": request.model,
            "messages": len(request.messages),
            "tools": len(request.tools or ()),
            "stream": request.stream is True,
        }
        if self._text:
            fields["text"] = _last_user_text(request)
        self._sink(self._level, "log_request", fields)
        return request

    def stages(self, plan: Any) -> list[Stage]:
        return [_Listener(self._sink, self._level, plan.model, keeps_text=self._text)]


class _Listener:
    """Collects the content of a response, and reports it at the end."""

    def __init__(self, sink: Sink, level: str, model: str, *, keeps_text: bool) -> None:
        self._sink, self._level, self._model, self._keeps_text = sink, level, model, keeps_text
        self._kinds: dict[int, BlockKind] = {}
        self._characters: Counter[BlockKind] = Counter()
        self._calls: list[str] = []
        self._count = 0
        self._repairs: Counter[str] = Counter()
        self._text = ""

    def feed(self, event: Event) -> list[Event]:
        match event:
            case BlockDelta(index=index, text=text):
                kind = self._kinds[index]
                self._characters[kind] += len(text)
                if self._keeps_text and kind == "text" and len(self._text) < TEXT_LIMIT:
                    self._text += text[: TEXT_LIMIT - len(self._text)]
            case BlockOpened(index=index, kind=kind):
                self._kinds[index] = kind
                if kind == "call":
                    self._count += 1
                    self._calls += [event.name or ""] if len(self._calls) < NAMES_LIMIT else []
            case Repaired(rule=rule):
                self._repairs[rule] += 1
            case Finished() | Failed():
                self._sink(self._level, "log_answer", self._fields(event))
        return [event]

    def flush(self) -> list[Event]:
        return []

    def _fields(self, ending: Finished | Failed) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": self._model,
            "characters": {kind: self._characters[kind] for kind in KINDS if self._characters[kind]},
            "calls": self._count,
            "called": list(self._calls),
            "repairs": dict(self._repairs),
        }
        if isinstance(ending, Failed):
            return fields | {"failed": ending.code}
        fields["finish"] = ending.reason
        if ending.usage is not None:
            fields["tokens"] = _tokens(ending.usage)
        if self._keeps_text:
            fields["text"] = self._text
        return fields


def _last_user_text(request: Request) -> str:
    """The user's last message."""
    messages = (message.parts for message in reversed(request.messages) if message.role == "user")
    return "".join(part.text for part in next(messages, ()) if isinstance(part, Text))[:TEXT_LIMIT]


def _tokens(usage: Usage) -> dict[str, int]:
    counts = {"input": usage.input_tokens, "output": usage.output_tokens, "cached": usage.cached_tokens}
    return {name: count for name, count in counts.items() if count is not None}
