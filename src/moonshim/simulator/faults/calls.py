"""Native calls that are split, ordered and labelled the way hosts do it: Chat's deltas, and the order of the
content.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, zip_longest
from typing import Any, Final

from msgspec.structs import replace

from moonshim.simulator.fault import Chunks, Fault, Whole
from moonshim.simulator.faults.parts import (
    Spot,
    carrier,
    choice_of,
    contents_of,
    delta_of,
    each_entry,
    entries_of,
    finish_of,
    object_of,
    of_block,
    read_blocks,
    spots_of,
    with_delta,
)
from moonshim.simulator.host.markers import CALL_END
from moonshim.simulator.request import Json
from moonshim.simulator.response import HostResponse, NativeCall
from moonshim.simulator.wire.chunking import pieces

__all__ = ["FAULTS"]

_MOST_CUMULATED: Final = 16_000_000
"""Maximum characters of a call over all its entries, when each repeats everything so far."""


def _change_entries(change: Callable[[Spot], list[Json]]) -> Chunks:
    """A fault of the stream, from a function that changes one entry."""
    return lambda chunks, answer: each_entry(chunks, change)


def _change_message(change: Callable[[Json], Json]) -> Whole:
    """A fault of the whole response, from a function that changes one call."""

    def change_calls(payload: Json, answer: HostResponse) -> Json:
        message = delta_of(payload)
        if not entries_of(payload):
            return payload
        return with_delta(payload, {**message, "tool_calls": [change(entry) for entry in entries_of(payload)]})

    return change_calls


def _function_entry(spot: Spot, **fields: Any) -> Json:
    """An entry of the same call with only these fields of its function."""
    index = {"index": spot.entry["index"]} if "index" in spot.entry else {}
    return {**index, "function": fields}


def _with_function(entry: Json, **fields: Any) -> Json:
    return {**entry, "function": {**(entry.get("function") or {}), **fields}}


def _without(entry: Json, *keys: str) -> Json:
    return {key: value for key, value in entry.items() if key not in keys}


# -- one entry -------------------------------------------------------------------------------------------------


def _send_string_index(spot: Spot) -> list[Json]:
    return [{**spot.entry, "index": str(spot.entry["index"])}] if "index" in spot.entry else [spot.entry]


def _send_name_last(spot: Spot) -> list[Json]:
    entry = spot.entry
    if "name" in (entry.get("function") or {}):
        entry = {**entry, "function": _without(entry["function"], "name")}
    return [entry, _function_entry(spot, name=spot.name)] if spot.last else [entry]


def _split_name(spot: Spot) -> list[Json]:
    name = (spot.entry.get("function") or {}).get("name")
    if not name or len(name) < 2:
        return [spot.entry]
    half = (len(name) + 1) // 2
    return [_with_function(spot.entry, name=name[:half]), _function_entry(spot, name=name[half:])]


def _send_id_last(spot: Spot) -> list[Json]:
    entry = _without(spot.entry, "id")
    if not spot.last:
        return [entry]
    return [entry, {**_function_entry(spot, arguments=""), "id": spot.id}] if spot.first else [{**entry, "id": spot.id}]


def _send_whole_call(spot: Spot) -> list[Json]:
    return [_with_function(spot.entry, arguments=spot.arguments)] if spot.first else []


def _send_objects(chunks: list[Json], answer: HostResponse) -> list[Json]:
    known: dict[int, Json | None] = {}

    def change(spot: Spot) -> list[Json]:
        if spot.call not in known:
            known[spot.call] = object_of(spot.arguments)
        value = known[spot.call]
        if value is None:
            return [spot.entry]
        return [_with_function(spot.entry, arguments=value)] if spot.first else []

    return each_entry(chunks, change)


def _send_cumulative(spot: Spot) -> list[Json]:
    arguments = (spot.entry.get("function") or {}).get("arguments")
    if not isinstance(arguments, str):
        return [spot.entry]
    now, whole = spot.sent + len(arguments), len(spot.arguments)
    # Repeating everything grows with the square of the length: for long arguments, the pieces are larger.
    stride = whole * whole // (2 * _MOST_CUMULATED) + 1
    if not (spot.first or spot.last) and now // stride == spot.sent // stride:
        return []
    return [_with_function(spot.entry, arguments=spot.arguments[:now])]


def _repeat_arguments(spot: Spot) -> list[Json]:
    return [spot.entry, _function_entry(spot, arguments=spot.arguments)] if spot.last else [spot.entry]


def _nullify_function(spot: Spot) -> list[Json]:
    function = spot.entry.get("function")
    return (
        [{**spot.entry, "function": None}, _function_entry(spot, **function)]
        if spot.first and function
        else [spot.entry]
    )


def _change_later_entries(**fields: Any) -> Chunks:
    """Identity fields of every delta of a call but its first."""

    def change(spot: Spot) -> list[Json]:
        if spot.first:
            return [spot.entry]
        identity = {"id": spot.id, "type": "function", "name": spot.name}
        changed_fields = {key: identity[key] if value is ... else value for key, value in fields.items()}
        name = {"name": changed_fields.pop("name")} if "name" in changed_fields else {}
        return [_with_function({**spot.entry, **changed_fields}, **name)]

    return _change_entries(change)


def _send_object_in_message(entry: Json) -> Json:
    value = object_of(str((entry.get("function") or {}).get("arguments", "")))
    return entry if value is None else _with_function(entry, arguments=value)


# -- several chunks --------------------------------------------------------------------------------------------


def _interleave(chunks: list[Json], answer: HostResponse) -> list[Json]:
    """A piece of each call in turn."""
    spots = [spot for found in spots_of(chunks) for spot in found]
    calls = [[spot.entry for spot in spots if spot.call == number] for number in sorted({spot.call for spot in spots})]
    turns = (entry for turn in zip_longest(*calls) for entry in turn if entry is not None)
    out: list[Json] = []
    for chunk in chunks:
        mine = list(islice(turns, len(entries_of(chunk))))
        out.append(with_delta(chunk, {**delta_of(chunk), "tool_calls": mine}) if mine else chunk)
    return out


def _send_calls_at_once(chunks: list[Json], answer: HostResponse) -> list[Json]:
    """Every call, complete, in one list."""
    if len({spot.call for spots in spots_of(chunks) for spot in spots}) < 2:
        return chunks
    chunks = each_entry(chunks, _send_whole_call)
    with_calls = [at for at, chunk in enumerate(chunks) if entries_of(chunk)]
    entries = [entry for at in with_calls for entry in entries_of(chunks[at])]
    first = with_delta(chunks[with_calls[0]], {**delta_of(chunks[with_calls[0]]), "tool_calls": entries})
    remaining = [chunk for at, chunk in enumerate(chunks) if at not in with_calls or finish_of(chunk) is not None]
    emptied = [with_delta(chunk, _without(delta_of(chunk), "tool_calls")) for chunk in remaining]
    at = with_calls[0]
    return [*emptied[:at], first, *emptied[at:]]


def _repeat_in_finish(chunks: list[Json], answer: HostResponse) -> list[Json]:
    calls = {spot.call: spot for found in spots_of(chunks) for spot in found}
    entries = [
        {**_function_entry(spot, name=spot.name, arguments=spot.arguments), "id": spot.id, "type": "function"}
        for spot in calls.values()
    ]
    return [
        with_delta(chunk, {**delta_of(chunk), "tool_calls": entries}) if entries and finish_of(chunk) else chunk
        for chunk in chunks
    ]


def _continue_in_text(chunks: list[Json], answer: HostResponse) -> list[Json]:
    """The parser gave up behind the header of the last call, and what the model writes then is text."""
    spots = [spot for found in spots_of(chunks) for spot in found]
    if not spots:
        return chunks
    last = spots[-1].call
    changed = each_entry(chunks, lambda spot: [spot.entry] if spot.call != last or spot.first else [])
    ends = next((at for at, chunk in enumerate(changed) if finish_of(chunk) is not None), len(changed))
    text = pieces(f" {spots[-1].arguments}{CALL_END}", answer.cut)
    return [*changed[:ends], *(carrier(chunks, {"content": piece}) for piece in text), *changed[ends:]]


def _continue_in_content(payload: Json, answer: HostResponse) -> Json:
    message, calls = delta_of(payload), entries_of(payload)
    if not calls:
        return payload
    text = f"{message.get('content') or ''} {calls[-1]['function']['arguments']}{CALL_END}"
    calls = [*calls[:-1], _with_function(calls[-1], arguments="")]
    return with_delta(payload, {**message, "content": text, "tool_calls": calls})


def _finish_with_last(chunks: list[Json], answer: HostResponse) -> list[Json]:
    ends = next((at for at, chunk in enumerate(chunks) if contents_of(chunk) == {"finish"}), None)
    last = max((at for at, chunk in enumerate(chunks) if entries_of(chunk)), default=None)
    if ends is None or last is None or last > ends:
        return chunks
    joined = with_delta(chunks[ends], {**delta_of(chunks[ends]), **delta_of(chunks[last])})
    return [*chunks[:last], *chunks[last + 1 : ends], joined, *chunks[ends + 1 :]]


def _add_to_every_delta(**fields: Any) -> Chunks:
    """Default fields for every delta that does not set them itself."""
    return lambda chunks, answer: [with_delta(chunk, _fill(delta_of(chunk), fields)) for chunk in chunks]


def _fill(delta: Json, fields: Json) -> Json:
    return {**delta, **{key: value for key, value in fields.items() if not delta.get(key)}}


def _nullify_content(payload: Json, answer: HostResponse) -> Json:
    return with_delta(payload, _fill(delta_of(payload), {"content": None}))


def _omit_content_key(payload: Json, answer: HostResponse) -> Json:
    message = delta_of(payload)
    return payload if message.get("content") else with_delta(payload, _without(message, "content"))


def _put_calls_first(chunks: list[Json], answer: HostResponse) -> list[Json]:
    if answer.request.wire == "anthropic":
        parts = read_blocks(chunks)
        order = sorted(parts.blocks, key=lambda block: of_block(block) == "text")
        return type(parts)(parts.head, order, parts.tail).events()
    plain = [chunk for chunk in chunks if contents_of(chunk) == {"text"}]
    calls = [at for at, chunk in enumerate(chunks) if entries_of(chunk)]
    if not plain or not calls:
        return chunks
    last = calls[-1]
    others = [chunk for chunk in chunks[:last] if contents_of(chunk) != {"text"}]
    tail = [chunk for chunk in chunks[last + 1 :] if contents_of(chunk) != {"text"}]
    if finish_of(chunks[last]) is None:
        return [*others, chunks[last], *plain, *tail]
    # The finish came with the last call: it has to wait for the text.
    entries = carrier(chunks, delta_of(chunks[last]))
    return [*others, entries, *plain, with_delta(chunks[last], {}), *tail]


def _omit_finish_key(chunks: list[Json], answer: HostResponse) -> list[Json]:
    out: list[Json] = []
    for chunk in chunks:
        choice = choice_of(chunk)
        if choice is not None and finish_of(chunk) is None:
            chunk = {**chunk, "choices": [_without(choice, "finish_reason")]}
        out.append(chunk)
    return out


def _nullify_arguments(spot: Spot) -> list[Json]:
    if spot.first and (spot.entry.get("function") or {}).get("arguments") == "":
        return [_with_function(spot.entry, arguments=None)]
    return [spot.entry]


# -- which calls there are ---------------------------------------------------------------------------------------


def _repeat_last_call(answer: HostResponse) -> HostResponse:
    """The last call of the history once more, under an id of this response."""
    if not answer.calls or not answer.request.history:
        return answer
    last = answer.request.history[-1]
    return replace(answer, calls=(NativeCall(answer.calls[0].id, last.name, last.arguments),))


def _merge_calls(answer: HostResponse) -> HostResponse:
    """Everything under the name of the first."""
    if not answer.calls:
        return answer
    arguments = "".join(call.arguments for call in answer.calls)
    return replace(answer, calls=(replace(answer.calls[0], arguments=arguments),))


def _call_unrequested_tool(answer: HostResponse) -> HostResponse:
    request = answer.request
    if request.tool_choice != "none" or not request.tools or answer.calls:
        return answer
    call = NativeCall(f"{request.tools[0].name}:{len(request.history)}", request.tools[0].name, "{}")
    return replace(answer, calls=(call,), finish="tool_calls")


def _row(name: str, about: str, seen: str, chunks: Chunks, *, needs: Any = "calls", **more: Any) -> Fault:
    more = {"wires": ("openai_chat",), "ways": ("stream",), **more}
    return Fault(name=name, group="calls", about=about, seen=seen, chunks=chunks, needs=needs, **more)


_BOTH_WAYS: Final = ("stream", "whole")

FAULTS: Final[tuple[Fault, ...]] = (
    # Identity of a call.
    _row(
        "arguments-before-name",
        "The name of a call arrives after its arguments",
        "vercel/ai#5885; kimi-code waits for the name",
        _change_entries(_send_name_last),
    ),
    _row("split-name", "The tool name is split across two deltas", "kimi-code#3220", _change_entries(_split_name)),
    _row(
        "late-id",
        "The id of a call arrives with its last delta",
        "Moonshot's guide allows an id in any delta",
        _change_entries(_send_id_last),
    ),
    _row(
        "missing-index",
        "Calls have no `index`",
        "CLIProxyAPI#5058, openai-python#2806",
        _change_entries(lambda spot: [_without(spot.entry, "index")]),
    ),
    _row("string-index", '`index` is a string: `"0"`', "kimi-code accepts it", _change_entries(_send_string_index)),
    _row(
        "shared-index",
        "Parallel calls all have `index` 0",
        "dynamo#4723, smolagents#1569",
        _change_entries(lambda spot: [{**spot.entry, "index": 0}]),
        needs="parallel",
    ),
    _row("repeated-id", "Every delta of a call repeats the id", "langchain4j#4544", _change_later_entries(id=...)),
    _row(
        "repeated-header",
        "Every delta of a call repeats id, type and name",
        "vllm#44098, cc-switch#4651",
        _change_later_entries(id=..., type=..., name=...),
    ),
    _row(
        "null-header",
        "Id, type and name are null in the later deltas of a call",
        "lmdeploy#3412",
        _change_later_entries(id=None, type=None, name=None),
    ),
    _row(
        "empty-header",
        "Id and name are empty in the later deltas of a call, so that naive clients overwrite them",
        "forgecode#1141, codex#7579, opencode#40969",
        _change_later_entries(id="", name=""),
    ),
    _row(
        "null-function",
        "A call starts with `function: null`",
        "open-interpreter#254",
        _change_entries(_nullify_function),
    ),
    _row(
        "missing-type",
        "Calls have no `type`",
        "vercel/ai#12770",
        _change_entries(lambda spot: [_without(spot.entry, "type")]),
        whole=_change_message(lambda entry: _without(entry, "type")),
        ways=_BOTH_WAYS,
    ),
    # How its arguments are sent.
    _row(
        "null-arguments",
        "A call starts with `arguments: null`",
        "open-webui#27195",
        _change_entries(_nullify_arguments),
    ),
    _row(
        "object-arguments",
        "The arguments are an object instead of a string",
        "llama.cpp#20198",
        _send_objects,
        whole=_change_message(_send_object_in_message),
        ways=_BOTH_WAYS,
    ),
    _row(
        "cumulative-arguments",
        "Each delta repeats all arguments so far",
        "hermes-agent#35592, vercel/ai#12052",
        _change_entries(_send_cumulative),
    ),
    _row(
        "arguments-again",
        "The arguments arrive twice: streamed, then again complete",
        "hermes-agent#35718",
        _change_entries(_repeat_arguments),
    ),
    _row(
        "arguments-again-in-finish",
        "The final chunk contains every call again, complete",
        "vllm#44098",
        _repeat_in_finish,
    ),
    _row(
        "arguments-in-text",
        "The arguments of the last call, with its end marker, follow it as text",
        "vLLM's Rust parser",
        _continue_in_text,
        families=("k2",),
    ),
    Fault(
        name="arguments-in-content",
        group="calls",
        about="The last call has no arguments, and `content` ends with them and the end marker",
        seen="vLLM's Rust parser",
        wires=("openai_chat",),
        families=("k2",),
        ways=("whole",),
        needs="calls",
        fatal=True,
        whole=_continue_in_content,
    ),
    Fault(
        name="merged-calls",
        group="calls",
        about="Parallel calls arrive as one, with the name of the first and the arguments of all",
        seen="vLLM's Rust parser, where the model repeats an index",
        needs="parallel",
        fatal=True,
        speech=_merge_calls,
    ),
    _row("whole-call", "A call arrives in a single delta", "cc-switch#4651", _change_entries(_send_whole_call)),
    _row(
        "calls-at-once",
        "All parallel calls arrive complete in one delta",
        "CLIProxyAPI#5058",
        _send_calls_at_once,
        needs="parallel",
    ),
    _row(
        "interleaved-calls",
        "The deltas of parallel calls are interleaved",
        "headroom#2890",
        _interleave,
        needs="parallel",
    ),
    _row(
        "finish-with-last-call",
        "The last delta of a call and the finish reason share a chunk",
        "docker-agent#1544, vllm#44098",
        _finish_with_last,
    ),
    # What surrounds it.
    _row(
        "calls-before-text",
        "Tool calls arrive before the text that should precede them",
        "claude-code-mux#22",
        _put_calls_first,
        wires=("openai_chat", "anthropic"),
    ),
    _row(
        "null-tool-calls",
        "`tool_calls` is null in every chunk without a call",
        "tool-eval-bench#12",
        _add_to_every_delta(tool_calls=None),
        needs="",
    ),
    _row(
        "empty-tool-calls",
        "`tool_calls` is an empty list in every chunk without a call",
        "foundry-local#144",
        _add_to_every_delta(tool_calls=[]),
        needs="",
    ),
    _row(
        "role-in-each-chunk",
        "Every chunk contains the role",
        "foundry-local#144",
        _add_to_every_delta(role="assistant"),
        needs="",
    ),
    _row(
        "null-content",
        "`content` is null wherever there is no text",
        "khoj#1370",
        _add_to_every_delta(content=None),
        whole=_nullify_content,
        ways=_BOTH_WAYS,
        needs="",
    ),
    _row(
        "empty-content",
        "`content` is an empty string in every chunk without text",
        "kimi-code#3928",
        _add_to_every_delta(content=""),
        needs="",
    ),
    Fault(
        name="missing-content",
        group="calls",
        about="A message without text has no `content` field",
        seen="kimi-code sends and accepts it",
        wires=("openai_chat",),
        ways=("whole",),
        needs="calls",
        whole=_omit_content_key,
    ),
    _row(
        "missing-finish-key",
        "Only the last chunk has a `finish_reason` field; in the others it is missing instead of null",
        "bifrost#7397",
        _omit_finish_key,
        needs="",
    ),
    # Which calls there are.
    Fault(
        name="same-call-again",
        group="calls",
        about="The model repeats the last call of the conversation instead of making the next one",
        seen="Kimi-K2.5#24, kimi-code#3214",
        needs="calls",
        lost=True,
        speech=_repeat_last_call,
    ),
    Fault(
        name="call-unasked",
        group="calls",
        about="The model calls a tool although `tool_choice` is `none`",
        seen="vllm#43155",
        lost=True,
        speech=_call_unrequested_tool,
    ),
)
