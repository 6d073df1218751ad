"""A plug-in that replaces names by pseudonyms in requests, and restores them in responses.

    "transformer": {"use": [["./examples/pseudonyms.py:Pseudonyms", {"names": {"Acme Corp": "Company A"}}]]}

docs/guides/transformers.md explains it part by part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from moonshim.types import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Media,
    Message,
    Part,
    Reasoning,
    Request,
    Stage,
    Text,
    ToolCall,
    ToolResult,
)


class Pseudonyms:
    """Shared by all requests, so it holds no state of a single one."""

    def __init__(self, names: Mapping[str, str]) -> None:
        others = list(names.values())
        if any(one.startswith(other) for n, one in enumerate(others) for other in others[:n] + others[n + 1 :]):
            raise ValueError("no pseudonym may be a prefix of another")
        self._hide = _replacing(names)
        self._back = {other: name for name, other in names.items()}

    def prepare(self, request: Request) -> Request:
        return replace(request, messages=tuple(map(self._hidden, request.messages)))

    def stages(self, plan: Any) -> list[Stage]:
        return [Restorer(self._back)]

    def _hidden(self, message: Message) -> Message:
        parts = tuple(map(self._hidden_part, message.parts))
        # Return the same object if nothing changed: it is then sent unchanged, byte for byte.
        return message if parts == message.parts else replace(message, parts=parts)

    def _hidden_part(self, part: Part) -> Part:
        match part:
            case Text(text=text) | Reasoning(text=text):
                return replace(part, text=self._hide(text))
            case ToolCall(arguments=arguments):
                return replace(part, arguments=self._hide(arguments))
            case ToolResult(parts=parts):
                shown = [one if isinstance(one, Media) else replace(one, text=self._hide(one.text)) for one in parts]
                return replace(part, parts=tuple(shown))
            case _:
                return part


class Restorer:
    """Restores the names in one response. Holds back only text that could still become a pseudonym."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        # The arguments of a call are JSON, where quotes must be escaped.
        escaped = {name: json.dumps(own)[1:-1] for name, own in names.items()}
        self._say, self._call = _replacing(names), _replacing(escaped)
        self._calls: set[int] = set()
        self._held: dict[int, str] = {}

    def feed(self, event: Event) -> list[Event]:
        match event:
            case BlockOpened(index=index, kind="call"):
                self._calls.add(index)
            case BlockDelta(index=index, text=text):
                text = self._held.pop(index, "") + text
                cut = len(text) - self._undecided(text)
                if text[cut:]:
                    self._held[index] = text[cut:]
                return self._restored(index, text[:cut])
            case BlockClosed(index=index):
                return [*self._restored(index, self._held.pop(index, "")), event]
        return [event]

    def flush(self) -> list[Event]:
        return []

    def _restored(self, index: int, text: str) -> list[Event]:
        own = (self._call if index in self._calls else self._say)(text)
        return [BlockDelta(index, own)] if own else []

    def _undecided(self, text: str) -> int:
        """Number of characters at the end of the text that could be the start of a pseudonym."""
        end = max((text.rfind(name) + len(name) for name in self._names if name in text), default=0)
        sizes = (
            size for name in self._names for size in range(len(name) - 1, 0, -1) if text[end:].endswith(name[:size])
        )
        return max(sizes, default=0)


def _replacing(words: Mapping[str, str]) -> Callable[[str], str]:
    """A function that replaces each word by its counterpart, the longest first."""
    listed = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pattern = re.compile(listed or r"(?!)")
    return lambda text: pattern.sub(lambda found: words[found[0]], text)
