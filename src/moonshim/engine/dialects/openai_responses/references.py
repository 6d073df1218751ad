"""References to stored responses and items: resolved where possible, otherwise removed and reported.

A body may refer to items instead of repeating them. `resolve_references` inserts them, given a lookup function;
`drop_unsupported` reports what other dialects cannot represent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.dialects.openai_responses.extras import Json, body_fields, compaction_place, extras_of
from moonshim.engine.dialects.openai_responses.fields import FIELDS
from moonshim.engine.dialects.openai_responses.messages.compaction import SUMMARY_WANTED, shorten
from moonshim.engine.dialects.openai_responses.messages.content import parse_entries
from moonshim.engine.dialects.openai_responses.messages.items import CALLS, OUTPUTS, type_of
from moonshim.engine.dialects.openai_responses.request import CONTINUES
from moonshim.engine.values.conversation import Change, Message, Reasoning, Request, Text, ToolChoice
from moonshim.engine.wire.json_codec import decode_object
from moonshim.errors import InvalidInput

__all__ = [
    "CONTINUES",
    "completed_items",
    "continue_conversation",
    "drop_unsupported",
    "find_completed",
    "resolve_references",
]

_READ: Final = frozenset({"message", "reasoning", "additional_tools", *CALLS, *OUTPUTS})
_KNOWN_FIELDS: Final = frozenset({"model", "instructions", "tools", "tool_choice", "text", "reasoning"}).union(
    *(field.keys for field in FIELDS.values())
)
_STORED: Final = ("previous_response_id", "conversation", "prompt")
"""They stand for earlier content, which only its store can supply."""
_REASONING_PREFIX: Final = "rs_"
"""Reasoning may be missing; messages and calls may not."""
_RESPONSE_FIELDS: Final = frozenset({"include", "store", "stream_options", CONTINUES})
"""They concern the response, which is written in this dialect whatever the host's is."""


def resolve_references(body: Any, lookup: Callable[[str], Mapping[str, Any] | None]) -> Any:
    """Replace every `item_reference` in the body of a Responses request with the item it refers to.

    `lookup` is called with the id of an item and returns the item, or None if it is unknown; then the reference stays.
    Returns a new body, or the same one if nothing was replaced. `body` is not modified.

    >>> body = {"input": [{"type": "item_reference", "id": "rs_1"}]}
    >>> resolve_references(body, {"rs_1": {"type": "reasoning", "id": "rs_1", "summary": []}}.get)["input"]
    [{'type': 'reasoning', 'id': 'rs_1', 'summary': []}]
    """
    items = body.get("input") if isinstance(body, dict) else None
    if not isinstance(items, list):
        return body
    out = []
    for item in items:
        found = lookup(item["id"]) if _is_reference(item) else None
        out.append(item if found is None else dict(found))
    return body if all(map(_is_identical, out, items)) else {**body, "input": out}


def continue_conversation(body: Json, items: Sequence[Json], **extra: Any) -> Json:
    """The body with the whole conversation, given the items of what it continues (`previous_response_id`).

    What a compaction among these items replaced is left out.

    The response still names the response it continues; `extra` is stored with that, for the store of the new
    response.

    >>> old = {"type": "message", "role": "user", "content": "hi"}
    >>> continue_conversation({"model": "k3", "previous_response_id": "resp_1", "input": "and now?"}, [old])["input"]
    [{'type': 'message', 'role': 'user', 'content': 'hi'},
     {'type': 'message', 'role': 'user', 'content': 'and now?'}]
    """
    new_input = body.get("input")
    if isinstance(new_input, str):
        new_input = [{"type": "message", "role": "user", "content": new_input}]
    full = {key: value for key, value in body.items() if key != "previous_response_id"}
    full["input"] = [*shorten(items), *(new_input if isinstance(new_input, list) else ())]
    return {**full, CONTINUES: {"previous_response_id": body.get("previous_response_id"), **extra}}


def _is_reference(item: Any) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    return item.get("type") == "item_reference" or (item.get("type") is None and "role" not in item)


def _is_identical(one: object, other: object) -> bool:
    return one is other


def drop_unsupported(request: Request) -> tuple[Request, list[Change]]:
    """The request for a host of another dialect, and what was removed.

    A trigger for a compaction at the end of the input becomes a question for a summary, which every host understands.

    Raises `InvalidInput` for a missing reference, unless it is to reasoning.

    >>> from moonshim.engine.dialects.openai_responses.request import parse_request
    >>> from moonshim.engine.signing import Signer
    >>> request, _ = parse_request({"model": "m", "input": "hi", "truncation": "auto"}, Signer())
    >>> [change.place for change in drop_unsupported(request)[1]]
    ['truncation']
    """
    changes, messages = list[Change](), list[Message]()
    compacted, summary_wanted = compaction_place(request), ""
    for number, message in enumerate(request.messages):
        extras = extras_of(message)
        items = extras.items
        for item, at in zip(items, extras.at, strict=False):
            place = f"input[{at}]"
            if _is_reference(item) and not item["id"].startswith(_REASONING_PREFIX):
                raise InvalidInput(
                    f"unknown item {item['id']!r}: send the item itself instead of a reference", field=place
                )
            if number == compacted and item is items[-1]:
                summary_wanted = place
                continue
            changes += [Change(rule, detail, place) for rule, detail in _unsupported_content(item)]
            if _has_token(item):
                changes.append(
                    Change("cannot_say", "encrypted_content dropped: only the host that created it can read it", place)
                )
        messages.append(_without_tokens(message, {item.get("encrypted_content") for item in items if _has_token(item)}))
    fields = body_fields(request)
    for key in _STORED:
        if fields.get(key) is not None:
            raise InvalidInput(
                f"{key} refers to content that is not stored here: send that content in input",
                field=key,
            )
    for key, value in fields.items():
        if value is not None and key not in _KNOWN_FIELDS and key not in _RESPONSE_FIELDS:
            changes.append(Change("cannot_say", f"{key} dropped: only Responses hosts support it", key))
    if isinstance(text := fields.get("text"), dict) and text.get("verbosity") is not None:
        changes.append(
            Change("cannot_say", "text.verbosity dropped: only OpenAI's own models support it", "text.verbosity")
        )
    request = replace(request, messages=tuple(messages))
    if compacted is not None:
        request = _ask_for_summary(request, compacted + 1, summary_wanted)
        changes.append(Change("compaction", "the model is asked for a summary of the conversation", summary_wanted))
    return request, changes


def _ask_for_summary(request: Request, at: int, where: str) -> Request:
    """The conversation with the question behind it; everything that the host's prompt cache depends on is the same."""
    question = Message("user", (Text(SUMMARY_WANTED),))
    return replace(
        request,
        messages=(*request.messages[:at], question, *request.messages[at:]),
        locations=(*request.locations[:at], where, *request.locations[at:]) if request.locations else (),
        tool_choice=ToolChoice("none") if request.tools else None,
        response_format=None,
    )


def _has_token(item: Json) -> bool:
    return isinstance(item.get("encrypted_content"), str)


def _without_tokens(message: Message, foreign: set[Any]) -> Message:
    """Drop content encrypted by a Responses host, which no other host can read."""
    if not foreign:
        return message
    parts = [
        replace(part, signature=None) if isinstance(part, Reasoning) and part.signature in foreign else part
        for part in message.parts
    ]
    return message if parts == list(message.parts) else replace(message, parts=tuple(parts))


def _unsupported_content(item: Json) -> Iterator[tuple[str, str]]:
    kind = type_of(item, "")
    if kind == "item_reference":
        yield "unresolved_reference", f"reference to the unknown item {item.get('id')!r} dropped"
    elif kind not in _READ:
        yield "cannot_say", f"item of type {kind} dropped: only Responses hosts support it"
    else:
        content = item.get(OUTPUTS[kind].payload if kind in OUTPUTS else "content")
        if kind == "message" or (kind in OUTPUTS and OUTPUTS[kind].is_content):
            for entry, part in zip(content or (), parse_entries(content, ""), strict=False):
                if part is None:
                    yield "cannot_say", f"content of type {entry['type']} dropped: only Responses hosts support it"


# --- responses to continue --------------------------------------------------------------------------------------------


_ENDED: Final = ("completed", "incomplete")


def find_completed(out: bytes) -> Json | None:
    """The response object in the last bytes of a response, streamed or not, if it completed; otherwise None.

    >>> find_completed(b'event: response.completed\\ndata: {"response":{"id":"resp_1"}}\\n\\n')
    {'id': 'resp_1'}
    """
    if out.startswith(b"{"):
        full = decode_object(out) or {}
        return full if full.get("object") == "response" and full.get("status") in _ENDED else None
    for status in _ENDED:
        # A payload is one line, and line feeds in text are escaped: only the event itself has this line.
        at = out.rfind(b"event: response." + status.encode() + b"\n")
        if at >= 0 and (at == 0 or out[at - 1 : at] == b"\n"):
            line = out.find(b"data: ", at)
            full = (decode_object(out[line + 6 : out.find(b"\n", line)]) if line >= 0 else None) or {}
            response = full.get("response")
            return response if isinstance(response, dict) else None
    return None


def completed_items(output: list[Any]) -> list[Json]:
    """The items of a response that precede the input of the next request. An incomplete call was never made."""
    return [item for item in output if item.get("status") != "incomplete" or item.get("type") == "message"]
