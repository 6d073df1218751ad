"""What a Responses client refers to -> what was said, and answers -> what can be referred to later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from moonshim.dialects.openai_responses import continued, resolve_references
from moonshim.dialects.openai_responses.request import CONTINUES
from moonshim.gateway.record import Record
from moonshim.gateway.responses_kept import (
    LINKS,
    LONGEST_CHAIN,
    ChainBroken,
    ChainTooLong,
    KeptResponses,
    Turn,
    response_of,
)
from moonshim.gateway.responses_refused import (
    refused,
    refused_conversation,
    refused_for_now,
    refused_response,
    shown,
)
from moonshim.store import Store, StoreUnavailable

__all__ = ["ResponsesState", "completed_in"]

Json: TypeAlias = dict[str, Any]
Order: TypeAlias = Literal["asc", "desc"]

_REFERENCE: Final = "item_reference"
_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
"""What the identifiers of items begin with; the others with `item`."""
_ENDED: Final = ("completed", "incomplete")
_MOST_LISTED: Final = 100


class ResponsesState:
    """What was answered, as long as it is kept. No tenant meets what is another's.

    A request that cannot do without the store is refused when the store is down; one whose
    answer cannot be kept is answered, and `record.lost` says `responses`.
    """

    def __init__(self, store: Store, ttl: float) -> None:
        self._kept = KeptResponses(store, ttl)

    # --- a request ---------------------------------------------------------------------------------------------

    async def resolve(self, tenant: str, body: Json, record: Record) -> Json:
        """The body that says everything itself: the items before it, and those that it only names.

        `instructions` of earlier requests are not carried over, as in OpenAI's API.
        References to thoughts that nobody knows stay; they are left out later, and told.
        """
        body = {key: value for key, value in body.items() if key != CONTINUES}
        previous, named = body.get("previous_response_id"), _references(body.get("input"))
        if body.get("conversation") is not None:
            raise refused_conversation(body["conversation"], both=previous is not None)
        if previous is None and not named:
            return body
        if previous is not None and not isinstance(previous, str):
            raise refused("previous_response_id must be a string.", param="previous_response_id")
        try:
            chain = {} if previous is None else await self._chain(tenant, previous)
            turns = await self._with_named(tenant, chain, named)
        except StoreUnavailable:
            record.lost.append("responses")
            if previous is None and all(id.startswith("rs_") for id in named):
                return body
            raise refused_for_now() from None
        whole = _replaced(body, turns, named)
        given = whole.get("input")
        return continued(
            whole,
            _items(chain, turns),
            own=len(given) if isinstance(given, list) else int(isinstance(given, str)),
            references={str(place): id for place, id in _places(body.get("input"))},
            chain=list(chain),
            rests_on=list(turns),
        )

    async def _chain(self, tenant: str, previous: str) -> dict[str, Turn]:
        try:
            return await self._kept.chain(tenant, previous)
        except ChainBroken:
            raise refused(
                f"Previous response with id {shown(previous)} not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            ) from None
        except ChainTooLong:
            raise refused(
                f"This conversation is too long to go on from: more than {LONGEST_CHAIN} responses, or too many bytes."
                " Compact it, or send what matters of it as input.",
                param="previous_response_id",
            ) from None

    async def _with_named(self, tenant: str, chain: dict[str, Turn], named: Iterable[str]) -> dict[str, Turn]:
        """The chain, and the responses that items are named from: by the request, or by those before it."""
        wanted = {response_of(id) for turn in chain.values() for id in _references(turn.input)}
        wanted |= {response_of(id) for id in named}
        more = [id for id in wanted if id is not None and id not in chain]
        return {**chain, **(await self._kept.turns(tenant, more) if more else {})}

    # --- an answer ---------------------------------------------------------------------------------------------

    async def keep(self, tenant: str, body: Json, response: Json, record: Record) -> None:
        """Keep the answer to a body that was resolved, unless its client wants nothing kept."""
        id, output = response.get("id"), response.get("output")
        if body.get("store") is False or not isinstance(id, str) or not isinstance(output, list):
            return
        beside = body.get(CONTINUES) or {}
        given = body.get("input")
        items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
        own = [] if not isinstance(items, list) else items[len(items) - beside.get("own", len(items)) :]
        for place, named in beside.get("references", {}).items():
            own[int(place)] = {"type": _REFERENCE, "id": named}  # what is kept once is enough
        turn = Turn(_with_ids(own, id), output, beside.get("chain", [])[:LINKS])
        about = {key: value for key, value in response.items() if key != "output"}
        try:
            kept = await self._kept.put(tenant, id, turn, about, beside.get("rests_on", ()))
        except (StoreUnavailable, msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            kept = False
        if not kept:
            record.lost.append("responses")

    # --- what a client asks for by name ------------------------------------------------------------------------

    async def get(self, tenant: str, id: str) -> Json:
        """The response object as it was answered."""
        turn, about = await self._found(tenant, id)
        return {**about, "output": turn.output}

    async def delete(self, tenant: str, id: str) -> Json:
        try:
            gone = await self._kept.delete(tenant, id)
        except StoreUnavailable:
            raise refused_for_now() from None
        if not gone:
            raise refused_response(id)
        return {"id": id, "object": "response", "deleted": True}

    async def input_items(
        self, tenant: str, id: str, *, limit: int = 20, order: Order = "desc", after: str | None = None
    ) -> Json:
        """The items that a response was made from, those of the responses before it too, a page at a time."""
        if not 1 <= limit <= _MOST_LISTED:
            raise refused(f"limit must be from 1 to {_MOST_LISTED}.", param="limit")
        turn, _ = await self._found(tenant, id)
        try:
            chain = await self._kept.chain(tenant, turn.before[0]) if turn.before else {}
            turns = await self._with_named(tenant, {id: turn, **chain}, ())
        except StoreUnavailable:
            raise refused_for_now() from None
        except (ChainBroken, ChainTooLong):  # then what is known
            chain, turns = {}, {id: turn}
        items = [*_items(chain, turns), *_named_items(turn.input, turns)]
        if order == "desc":
            items.reverse()
        start = 0
        if after is not None:
            start = next((place + 1 for place, item in enumerate(items) if item.get("id") == after), len(items))
        page = [_listed(item) for item in items[start : start + limit]]
        return {
            "object": "list",
            "data": page,
            "first_id": page[0].get("id") if page else None,
            "last_id": page[-1].get("id") if page else None,
            "has_more": start + limit < len(items),
        }

    async def _found(self, tenant: str, id: str) -> tuple[Turn, Json]:
        try:
            found = await self._kept.get(tenant, id)
        except StoreUnavailable:
            raise refused_for_now() from None
        if found is None:
            raise refused_response(id)
        return found


def completed_in(out: bytes) -> Json | None:
    """The response object in the last bytes of an answer, whole or streamed, when it ended well; None in all others.

    >>> completed_in(b'event: response.completed\\ndata: {"response":{"id":"resp_1"}}\\n\\n')
    {'id': 'resp_1'}
    """
    if out.startswith(b"{"):
        whole = _decoded(out)
        return whole if whole.get("object") == "response" and whole.get("status") in _ENDED else None
    for status in _ENDED:
        # A payload is one line, and in text a line feed is escaped: only the event itself has this line.
        at = out.rfind(b"event: response." + status.encode() + b"\n")
        if at >= 0 and (at == 0 or out[at - 1 : at] == b"\n"):
            line = out.find(b"data: ", at)
            response = _decoded(out[line + 6 : out.find(b"\n", line)]).get("response") if line >= 0 else None
            return response if isinstance(response, dict) else None
    return None


def _decoded(data: bytes) -> Json:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


# --- items ------------------------------------------------------------------------------------------------------


def _places(items: Any) -> list[tuple[int, str]]:
    """Where references stand, and to what."""
    return [
        (place, item["id"])
        for place, item in enumerate(items if isinstance(items, list) else ())
        if isinstance(item, dict)
        and isinstance(item.get("id"), str)
        and (item.get("type") == _REFERENCE or (item.get("type") is None and "role" not in item))
    ]


def _references(items: Any) -> list[str]:
    return [id for _, id in _places(items)]


def _known(turns: Mapping[str, Turn]) -> dict[str, Json]:
    return {
        item["id"]: item
        for turn in turns.values()
        for item in turn.items()
        if isinstance(item.get("id"), str) and item.get("type") != _REFERENCE
    }


def _replaced(body: Json, turns: Mapping[str, Turn], named: list[str]) -> Json:
    """The body with what it names; an item that is said or called, and that nobody knows, is a 404."""
    if not named:
        return body
    known = _known(turns)
    for id in named:
        if id not in known and not id.startswith("rs_"):
            raise refused(
                f"Item with id {shown(id)} not found. Items are not persisted when `store` is set to false. Try again"
                " with `store` set to true, or remove this item from your input.",
                status=404,
                param="input",
            )
    replaced: Json = resolve_references(body, known.get)
    return replaced


def _items(chain: Mapping[str, Turn], turns: Mapping[str, Turn]) -> list[Json]:
    """All that was said in a chain (the newest first), in the order in which it was said."""
    return [
        item
        for turn in reversed(list(chain.values()))
        for item in (*_named_items(turn.input, turns), *_said(turn.output))
    ]


def _named_items(items: list[Any], turns: Mapping[str, Turn]) -> list[Json]:
    if not _places(items):
        return items
    resolved: list[Json] = resolve_references({"input": items}, _known(turns).get)["input"]
    return resolved


def _listed(item: Json) -> Json:
    """As clients read it: text that was sent as a string is listed as a part, whatever it was sent as."""
    text = item.get("content")
    if not isinstance(text, str) or item.get("type", "message") != "message":
        return item
    if item.get("role") == "assistant":
        return item | {"content": [{"type": "output_text", "text": text, "annotations": []}]}
    return item | {"content": [{"type": "input_text", "text": text}]}


def _said(output: list[Any]) -> list[Json]:
    """A call that broke off was never made."""
    return [item for item in output if item.get("status") != "incomplete" or item.get("type") == "message"]


def _with_ids(items: list[Any], response_id: str) -> list[Any]:
    """Items by which they can be referred to: those without an identifier get one that says where they are kept."""
    tail = response_id.removeprefix("resp_")
    return [
        {"type": "message", **item, "id": f"{_PREFIXES.get(item.get('type', 'message'), 'item')}_{tail}_i{place}"}
        if isinstance(item, dict) and item.get("id") is None
        else item
        for place, item in enumerate(items)
    ]
