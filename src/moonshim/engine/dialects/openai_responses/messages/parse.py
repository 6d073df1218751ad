"""Input items -> canonical messages.

Consecutive items of one assistant turn (reasoning, messages, calls) form one message; each result and every other
message is one. `ResponsesMessageExtras` holds the items of a message as received. Items that belong to no message (a
search that the host ran, an unresolved reference) are stored with the message before them, so that other dialects
never see a message without parts. Only if such items are all that the model did between two other messages, they form
an assistant message without parts, because that was a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.dialects.openai_responses.extras import DIALECT, Json, ResponsesMessageExtras
from moonshim.engine.dialects.openai_responses.messages.compaction import COMPACTIONS, parse_compaction
from moonshim.engine.dialects.openai_responses.messages.content import parse_content
from moonshim.engine.dialects.openai_responses.messages.items import (
    CALLS,
    OUTPUTS,
    parse_call,
    parse_reasoning,
    parse_result,
    type_of,
)
from moonshim.engine.dialects.openai_responses.messages.searches import open_results
from moonshim.engine.dialects.openai_responses.tools import ToolNamespaces
from moonshim.engine.ids.pairing import canonical_ids, pair
from moonshim.engine.signing import ALTERED, InvalidSignature, Signer, UnknownSigningKey, is_signed
from moonshim.engine.values.conversation import Change, Message, Part, Reasoning, Role, ToolCall, ToolResult
from moonshim.engine.wire.json_fields import STRING, JsonType, check_fields, read_required, wrong_type
from moonshim.errors import InvalidInput

__all__ = ["ROLES", "ROLE_OF", "ItemReader", "parse_messages", "with_canonical_ids"]

ROLE_OF: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_ITEM: Final[dict[str, JsonType]] = dict.fromkeys(("id", "call_id", "status", "name", "namespace"), STRING)
"""Fields that have one type in all items."""
ROLES: Final[dict[Role, str]] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "user"}


def parse_messages(items: Iterable[Any], *, after: Sequence[Message] = ()) -> list[Message]:
    """Canonical messages, by value. Raises `InvalidInput` for an invalid item.

    `after` is the conversation that the items continue. Content that we signed stays opaque: only `parse_request` has
    the key.

    >>> parse_messages([{"role": "user", "content": "hi"}])[0].parts
    (Text(text='hi'),)
    """
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if isinstance(items, (bytes, dict)) or not isinstance(items, Iterable):
        raise wrong_type("input", "a string or a list of items", items)
    reader = ItemReader(ToolNamespaces(), None)
    for item in items:
        reader.add(item)
    return with_canonical_ids(reader.messages(), after)


class ItemReader:
    """Reads the items of one request, one after the other."""

    def __init__(self, names: ToolNamespaces, signer: Signer | None) -> None:
        self.changes: list[Change] = []
        self.locations: list[str] = []
        self._names = names
        self._signer = signer
        self._number = 0
        self._done: list[tuple[Role, list[Part], list[Json], list[int]]] = []
        """Role, parts, items, and the positions of the items."""
        self._loose: int | None = None
        """The first item of the model that is stored with the last message, which is not the model's."""
        self._waiting: list[Json] = []
        """Items before the first message."""

    def add(self, item: Any) -> None:
        where = f"input[{self._number}]"
        self._number += 1
        kind = type_of(item, where)
        check_fields(item, _ITEM, f"{where}.")
        if kind == "item_reference":
            read_required(item, "id", STRING, f"{where}.")
        if kind in COMPACTIONS and self._signer is not None:
            item = parse_compaction(item, self._signer, where, self.changes)
            kind = type_of(item, where)
        if kind == "message":
            role = _role(item, where)
            content = parse_content(item.get("content"), f"{where}.content")
            self._append(role, content, item, where)
        elif kind in CALLS:
            self._append("assistant", [parse_call(item, self._names, where)], item, where)
        elif kind in OUTPUTS:
            self._append("tool", [parse_result(item, where)], item, where)
        elif kind == "web_search_call":
            self._append("assistant", [], item, where)
        elif kind == "reasoning" and (results := open_results(item, self._signer)) is not None:
            self._append("assistant", [], results, where)
        elif kind == "reasoning":
            part, item = self._parse_reasoning(item, where)
            self._append("assistant", [part], item, where)
        elif self._done:
            if self._loose is None and self._done[-1][0] != "assistant" and _is_model_action(kind):
                self._loose = len(self._done[-1][2])
            self._done[-1][2].append(item)
            self._done[-1][3].append(self._number - 1)
        else:
            self._waiting.append(item)

    def messages(self) -> list[Message]:
        """The messages. Items that belong to no message at all form an assistant message without parts."""
        if self._waiting:
            self._append("assistant", [], None, "input[0]")
        return [
            Message(role, tuple(parts), {DIALECT: ResponsesMessageExtras(tuple(items), tuple(at))})
            for role, parts, items, at in self._done
        ]

    def _append(self, role: Role, parts: Sequence[Part], item: Json | None, where: str) -> None:
        items = [] if item is None else [item]
        at = [self._number - 1] * len(items)
        if role == "assistant" and self._done and self._done[-1][0] == "assistant":
            self._done[-1][1].extend(parts)
            self._done[-1][2].extend(items)
            self._done[-1][3].extend(at)
            return
        if self._loose is not None and role in ("user", "system"):
            self._split_off(self._loose)
        self._loose = None
        # Pending items came before everything else.
        self._done.append((role, list(parts), [*self._waiting, *items], [*range(len(self._waiting)), *at]))
        self._waiting = []
        self.locations.append(where)

    def _split_off(self, start: int) -> None:
        """Split off what the model did into a message of its own, after the message that holds it."""
        _, _, items, at = self._done[-1]
        self._done.append(("assistant", [], items[start:], at[start:]))
        self.locations.append(f"input[{at[start]}]")
        del items[start:], at[start:]

    def _parse_reasoning(self, item: Json, where: str) -> tuple[Reasoning, Json]:
        """The reasoning, and the item without our own token, which hosts must not see."""
        part = parse_reasoning(item, where)
        if self._signer is None or not is_signed(part.signature):
            return part, item
        part, token = replace(part, signature=None), item["encrypted_content"]
        bare = {key: value for key, value in item.items() if key != "encrypted_content"}
        try:
            payload = self._signer.open(token, field=f"{where}.encrypted_content")
        except UnknownSigningKey as unknown:
            detail = f"encrypted_content dropped: it was signed with a different key ({unknown})"
            self.changes.append(Change("seal_unknown", detail, f"{where}.encrypted_content"))
            return part, bare
        except UnicodeEncodeError:
            raise InvalidSignature(ALTERED, field=f"{where}.encrypted_content") from None
        text = part.text if payload.text is None else payload.text
        return Reasoning(text, payload.signature, payload.details, payload.field), bare


def _is_model_action(kind: str) -> bool:
    """Whether an item outside of any message is something that the model or its host did."""
    return kind == "item_reference" or kind.endswith("_call")


def _role(item: Json, where: str) -> Role:
    role = ROLE_OF.get(read_required(item, "role", STRING, f"{where}."))
    if role is None:
        raise InvalidInput(f"{where}.role must be one of {', '.join(ROLE_OF)}", field=f"{where}.role")
    return role


def with_canonical_ids(messages: list[Message], after: Sequence[Message] = ()) -> list[Message]:
    """Assign a unique canonical id to every call, and to every result that of its call."""
    pairing, before = pair([*after, *messages]), len(after)
    ids = canonical_ids(pairing, before)
    parts: dict[int, list[Part]] = {}
    for seen, slot in zip(pairing.seen, pairing.slot_of, strict=True):
        if seen.position < before:
            continue
        position = seen.position - before
        new_parts = parts.setdefault(position, list(messages[position].parts))
        old = new_parts[seen.place]
        if isinstance(old, ToolCall):
            new_parts[seen.place] = replace(old, id=ids[slot])
        elif isinstance(old, ToolResult):
            new_parts[seen.place] = replace(old, call_id=ids[slot], name=old.name or pairing.slots[slot].name or None)
    return [
        replace(message, parts=tuple(parts[position])) if position in parts else message
        for position, message in enumerate(messages)
    ]
