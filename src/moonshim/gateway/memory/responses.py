"""References in a Responses request -> the items they refer to, and responses -> stored items for later references."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from moonshim.engine.dialects.openai_responses import completed_items, continue_conversation, resolve_references
from moonshim.engine.dialects.openai_responses.fields import check_other_fields
from moonshim.engine.dialects.openai_responses.request import CONTINUES
from moonshim.engine.wire.json_codec import encode
from moonshim.errors import Problem, Refused
from moonshim.gateway.memory.response_records import (
    LARGEST_INPUT,
    LINKS,
    LONGEST_CHAIN,
    UNBOUNDED,
    BodyWork,
    ChainBroken,
    ChainTooLong,
    StoredResponses,
    StoredTurn,
    response_of,
)
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import Store, StoreUnavailable

__all__ = ["ResponsesState"]

Json: TypeAlias = dict[str, Any]
Order: TypeAlias = Literal["asc", "desc"]

_REFERENCE: Final = "item_reference"
_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
"""Id prefixes by item type; all other types use `item`."""
_MOST_LISTED: Final = 100


class ResponsesState:
    """Stores responses for as long as they may be referenced. Tenants never see each other's.

    No request grows beyond `limit` bytes through the history it continues and the items it references, however often it
    names one: the size is computed before the body is built.

    A request that needs the store is refused while the store is down. A response that cannot be stored is still sent,
    and `record.store_failures` lists `responses`.
    """

    def __init__(self, store: Store, ttl: float, limit: int = LARGEST_INPUT) -> None:
        self._stored = StoredResponses(store, ttl, limit)
        self._limit = limit

    # --- a request ---------------------------------------------------------------------------------------------

    async def resolve(self, tenant: str, body: Json, record: RequestRecord, work: BodyWork = UNBOUNDED) -> Json:
        """The body with its history and all referenced items in place.

        As in OpenAI's API, `instructions` of earlier requests are not carried over. References to unknown reasoning
        items stay; they are dropped and reported later.
        """
        check_other_fields(body)
        body = {key: value for key, value in body.items() if key != CONTINUES}
        previous, named = body.get("previous_response_id"), await work.run_work(_references, body.get("input"))
        if body.get("conversation") is not None:
            raise _unsupported_conversation(body["conversation"], both=previous is not None)
        if previous is None and not named:
            return body
        try:
            chain = {} if previous is None else await self._chain(tenant, previous, work)
            turns = await self._with_referenced(tenant, chain, named, work)
        except StoreUnavailable:
            record.store_failures.append("responses")
            if previous is None and all(id.startswith("rs_") for id in named):
                return body
            raise _store_unavailable() from None
        except ChainTooLong:
            raise _history_too_large(self._limit) from None
        return await work.run_work(_resolve_body, body, chain, turns, self._limit)

    async def _chain(self, tenant: str, previous: str, work: BodyWork) -> dict[str, StoredTurn]:
        try:
            return await self._stored.chain(tenant, previous, work)
        except ChainBroken:
            raise _refusal(
                f"Previous response with id {_quote(previous)} not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            ) from None
        except ChainTooLong:
            raise _refusal(
                f"The conversation is too long to continue: more than {LONGEST_CHAIN} responses, or too many bytes."
                " Compact it, or send the relevant part as input.",
                param="previous_response_id",
            ) from None

    async def _with_referenced(
        self, tenant: str, chain: dict[str, StoredTurn], named: Iterable[str], work: BodyWork
    ) -> dict[str, StoredTurn]:
        """The chain, and the responses outside it that the request, or an earlier one, takes items from."""
        more = await work.run_work(_outside_chain, chain, named)
        return {**chain, **(await self._stored.turns(tenant, more, work) if more else {})}

    # --- a response ---------------------------------------------------------------------------------------------

    async def keep(
        self, tenant: str, body: Json, response: Json, record: RequestRecord, work: BodyWork = UNBOUNDED
    ) -> None:
        """Store the response to a resolved body, unless the client asked not to."""
        id, output = response.get("id"), response.get("output")
        if body.get("store") is False or not isinstance(id, str) or not isinstance(output, list):
            return
        rests_on = (body.get(CONTINUES) or {}).get("rests_on", ())
        about = {key: value for key, value in response.items() if key != "output"}
        try:
            turn = await work.run_work(_turn, body, id, output)
            stored = await self._stored.put(tenant, id, turn, about, rests_on, work)
        except (Refused, StoreUnavailable, msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            stored = False
        if not stored:
            record.store_failures.append("responses")

    # --- requests by response id --------------------------------------------------------------------------------

    async def get(self, tenant: str, id: str, work: BodyWork = UNBOUNDED) -> Json:
        """The response object as it was sent."""
        turn, about = await self._find(tenant, id, work)
        return {**about, "output": turn.output}

    async def delete(self, tenant: str, id: str) -> Json:
        try:
            gone = await self._stored.delete(tenant, id)
        except StoreUnavailable:
            raise _store_unavailable() from None
        if not gone:
            raise _unknown_response(id)
        return {"id": id, "object": "response", "deleted": True}

    async def input_items(
        self,
        tenant: str,
        id: str,
        *,
        limit: int = 20,
        order: Order = "desc",
        after: str | None = None,
        work: BodyWork = UNBOUNDED,
    ) -> Json:
        """The items that a response was made from, including those of previous responses, one page at a time.

        An item that was referenced several times is listed once.
        """
        if not 1 <= limit <= _MOST_LISTED:
            raise _refusal(f"limit must be between 1 and {_MOST_LISTED}.", param="limit")
        turn, _ = await self._find(tenant, id, work)
        try:
            chain = await self._stored.chain(tenant, turn.before[0], work) if turn.before else {}
            turns = await self._with_referenced(tenant, {id: turn, **chain}, (), work)
        except StoreUnavailable:
            raise _store_unavailable() from None
        except (ChainBroken, ChainTooLong):  # list what is still available
            chain, turns = {}, {id: turn}
        items = await work.run_work(_list_items, turn, chain, turns)
        if order == "desc":
            items.reverse()
        start = 0
        if after is not None:
            start = next((place + 1 for place, item in enumerate(items) if item.get("id") == after), len(items))
        page = [_as_listed(item) for item in items[start : start + limit]]
        return {
            "object": "list",
            "data": page,
            "first_id": page[0].get("id") if page else None,
            "last_id": page[-1].get("id") if page else None,
            "has_more": start + limit < len(items),
        }

    async def _find(self, tenant: str, id: str, work: BodyWork) -> tuple[StoredTurn, Json]:
        try:
            found = await self._stored.get(tenant, id, work)
        except StoreUnavailable:
            raise _store_unavailable() from None
        if found is None:
            raise _unknown_response(id)
        return found


def _outside_chain(chain: Mapping[str, StoredTurn], named: Iterable[str]) -> list[str]:
    """Ids of responses outside a chain that items are referenced from."""
    wanted = {response_of(id) for turn in chain.values() for id in _references(turn.input)}
    wanted |= {response_of(id) for id in named}
    return [id for id in wanted if id is not None and id not in chain]


def _turn(body: Json, id: str, output: list[Json]) -> StoredTurn:
    """What a response adds to the conversation that its request continues."""
    beside = body.get(CONTINUES) or {}
    given = body.get("input")
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
    own = [] if not isinstance(items, list) else items[len(items) - beside.get("own", len(items)) :]
    for place, named in beside.get("references", {}).items():
        own[int(place)] = {"type": _REFERENCE, "id": named}  # stored with an earlier response already
    return StoredTurn(_with_ids(own, id), output, beside.get("chain", [])[:LINKS])


def _resolve_body(body: Json, chain: dict[str, StoredTurn], turns: dict[str, StoredTurn], limit: int) -> Json:
    """The body with all references resolved."""
    known = _items_by_id(turns)
    _check_references(_references(body.get("input")), known)
    before, given = _chain_items(chain), body.get("input")
    if not _fits(itertools.chain(before, given if isinstance(given, list) else (given,)), known, limit):
        raise _history_too_large(limit)
    whole = resolve_references(body, known.get)
    given = whole.get("input")
    return continue_conversation(
        whole,
        _resolve_items(before, known),
        own=len(given) if isinstance(given, list) else int(isinstance(given, str)),
        references={str(place): id for place, id in _places(body.get("input"))},
        chain=list(chain),
        rests_on=list(turns),
    )


# --- items ------------------------------------------------------------------------------------------------------


def _referenced_id(item: Any) -> str | None:
    """The id of the item that a reference points to; None if this is not a reference."""
    if not isinstance(item, dict) or not isinstance(id := item.get("id"), str):
        return None
    return id if item.get("type") == _REFERENCE or (item.get("type") is None and "role" not in item) else None


def _places(items: Any) -> list[tuple[int, str]]:
    """Positions of references, and the ids that they point to."""
    named = enumerate(map(_referenced_id, items if isinstance(items, list) else ()))
    return [(place, id) for place, id in named if id is not None]


def _references(items: Any) -> list[str]:
    return [id for _, id in _places(items)]


def _items_by_id(turns: Mapping[str, StoredTurn]) -> dict[str, Json]:
    return {
        item["id"]: item
        for turn in turns.values()
        for item in turn.items()
        if isinstance(item.get("id"), str) and item.get("type") != _REFERENCE
    }


def _check_references(named: Iterable[str], known: Mapping[str, Json]) -> None:
    """A reference to an unknown message or call is a 404."""
    for id in named:
        if id not in known and not id.startswith("rs_"):
            raise _refusal(
                f"Item with id {_quote(id)} not found. Items are not persisted when `store` is set to false. Try again"
                " with `store` set to true, or remove this item from your input.",
                status=404,
                param="input",
            )


def _chain_items(chain: Mapping[str, StoredTurn]) -> list[Json]:
    """All items of a chain (newest response first) in chronological order, as stored."""
    return [item for turn in reversed(list(chain.values())) for item in (*turn.input, *completed_items(turn.output))]


def _resolve_items(items: list[Json], known: Mapping[str, Json]) -> list[Json]:
    resolved: list[Json] = resolve_references({"input": items}, known.get)["input"]
    return resolved


def _fits(items: Iterable[Any], known: Mapping[str, Json], limit: int) -> bool:
    """Whether items fit into this many bytes once their references are resolved; each item is measured once."""
    sizes, size = dict[str, int](), 0
    for item in items:
        id = _referenced_id(item)
        if id is None or id not in known:
            size += _size(item)
        else:
            if id not in sizes:
                sizes[id] = _size(known[id])
            size += sizes[id]
        if size > limit:
            return False
    return True


def _size(item: Any) -> int:
    try:
        return len(encode(item))
    except RecursionError:
        raise _refusal("input is nested too deeply.", param="input") from None


def _list_items(turn: StoredTurn, chain: Mapping[str, StoredTurn], turns: Mapping[str, StoredTurn]) -> list[Json]:
    return _each_once(_resolve_items([*_chain_items(chain), *turn.input], _items_by_id(turns)))


def _each_once(items: Sequence[Json]) -> list[Json]:
    """Pages continue after an id, so an id may appear only once in a list."""
    listed, seen = list[Json](), set[str]()
    for item in items:
        id = item.get("id")
        if isinstance(id, str):
            if id in seen:
                continue
            seen.add(id)
        listed.append(item)
    return listed


def _as_listed(item: Json) -> Json:
    """The item as clients expect it: text sent as a string is listed as a part."""
    text = item.get("content")
    if not isinstance(text, str) or item.get("type", "message") != "message":
        return item
    if item.get("role") == "assistant":
        return item | {"content": [{"type": "output_text", "text": text, "annotations": []}]}
    return item | {"content": [{"type": "input_text", "text": text}]}


def _with_ids(items: list[Any], response_id: str) -> list[Any]:
    """Give an id to items without one, so that they can be referenced; it says where they are stored."""
    tail = response_id.removeprefix("resp_")
    return [
        {"type": "message", **item, "id": f"{_PREFIXES.get(item.get('type', 'message'), 'item')}_{tail}_i{place}"}
        if isinstance(item, dict) and item.get("id") is None
        else item
        for place, item in enumerate(items)
    ]


# -- refusals, in the words of OpenAI's API: clients match them -------------------------------------------------


def _quote(id: str) -> str:
    return f"'{id if len(id) <= 100 else id[:100] + '…'}'"


def _refusal(message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> Refused:
    return Refused(Problem(status=status, kind="invalid_request", message=message, param=param, code=code))


def _unknown_response(id: str) -> Refused:
    return _refusal(f"Response with id {_quote(id)} not found.", status=404)


def _unsupported_conversation(conversation: Any, *, both: bool) -> Refused:
    if both:
        return _refusal(
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.", param="conversation"
        )
    id = conversation.get("id") if isinstance(conversation, dict) else conversation
    return _refusal(f"Conversation with id {_quote(str(id))} not found.", status=404, param="conversation")


def _history_too_large(limit: int) -> Refused:
    return _refusal(
        "The input is too large: including the previous responses and items that it references, it has more than"
        f" {limit:,} bytes. Reference less, compact the conversation, or send the relevant part as input.",
        param="input",
    )


def _store_unavailable() -> Refused:
    return Refused(
        Problem(
            status=503,
            kind="overloaded",
            message="Stored responses are temporarily unavailable. Retry in a moment.",
            code="store_unavailable",
            retry_after=1.0,
        )
    )
