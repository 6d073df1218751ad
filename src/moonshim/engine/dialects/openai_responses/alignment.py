"""Parts parsed from a message before, and its parts now -> pairs, in the order to write them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from moonshim.engine.values.conversation import Media, Part, Reasoning, Text, ToolCall, ToolResult

__all__ = ["align"]

P = TypeVar("P", bound=Part)
Key: TypeAlias = tuple[str | None, ...]


def align(said: Sequence[Part | None], parts: Sequence[P]) -> list[tuple[int | None, P | None]]:
    """Match each original place with one of the current parts.

    If the same kinds of parts are in the same order, each keeps its place, changed or not. Otherwise parts were added
    or removed: a part gets the place that equals it, or none. Places that are not parts (None) stay; places of
    removed parts are dropped. Linear.

    >>> align([Text("a"), None, Text("b")], [Text("b"), Text("c"), Text("d")])
    [(1, None), (2, Text(text='b')), (None, Text(text='c')), (None, Text(text='d'))]
    """
    places = [place for place, part in enumerate(said) if part is not None]
    if [type(said[place]) for place in places] == [type(part) for part in parts]:
        found: list[int | None] = list(places)
    else:
        waiting: dict[Key, deque[int]] = {}
        for place in places:
            part = said[place]
            assert part is not None
            waiting.setdefault(_key(part), deque()).append(place)
        found = [queue.popleft() if (queue := waiting.get(_key(part))) else None for part in parts]
    out, bare = list[tuple[int | None, P | None]](), deque(p for p, part in enumerate(said) if part is None)
    for at, now in zip(found, parts, strict=True):
        while bare and at is not None and bare[0] < at:
            out.append((bare.popleft(), None))
        out.append((at, now))
    return out + [(place, None) for place in bare]


def _key(part: Part) -> Key:
    match part:
        case Text(text=text):
            return ("text", text)
        case Reasoning(text=text, signature=signature):
            return ("reasoning", text, signature)
        case ToolCall(wire_id=wire_id, name=name):
            return ("call", wire_id, name)
        case ToolResult(wire_id=wire_id):
            return ("result", wire_id)
        case Media(kind=kind, url=url, data=data):
            return ("media", kind, url, data)
