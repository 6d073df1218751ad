"""An intended response, a host's behaviour and faults -> the bytes of a response, with its stalls and cuts.

Pure: the same arguments give the same bytes. The order is that of a host: the response gets its ids, faults change its
content, it is written in the client's dialect, then faults change the chunks, and last the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.wire.json_codec import encode
from moonshim.simulator.fault import CUT, Fault, Frames, Piece, Status
from moonshim.simulator.host.behaviours import HostBehaviour
from moonshim.simulator.host.ids import ID_PROFILES, IdPlace, fingerprint, signature
from moonshim.simulator.host.imitation import imitate, imitated_call
from moonshim.simulator.request import Json, SimRequest, Wire
from moonshim.simulator.response import Cut, HostResponse, IntendedResponse, NativeCall, TokenTotals
from moonshim.simulator.wire.chat import chat_chunks, chat_frames, chat_whole
from moonshim.simulator.wire.messages import messages_events, messages_frames, messages_whole
from moonshim.simulator.wire.truncate import truncate

__all__ = ["SimResponse", "build_host_response", "can_show", "error_response", "simulate_response", "trace_headers"]

_JSON: Final = "application/json; charset=utf-8"
_EVENTS: Final = "text/event-stream; charset=utf-8"


class SimResponse(Struct, frozen=True, kw_only=True):
    """The response to send: a non-streaming one is one piece. `status` 0: the connection is dropped before any
    of it."""

    status: int = 200
    headers: dict[str, str] = {}
    pieces: list[Piece] = []
    streamed: bool = False
    tokens: int = 0
    """Number of tokens that the model wrote, for sending at its speed."""
    tally: TokenTotals | None = None
    """The tokens that the response reports; None: it is an error."""
    faults: tuple[str, ...] = ()
    """Those of the requested faults that were applied."""
    imitated: str = ""
    """The wrong id in the history that the model imitated in its own calls."""


def simulate_response(
    request: SimRequest,
    intended: IntendedResponse,
    *,
    behaviour: HostBehaviour,
    faults: Sequence[Fault] = (),
    answer_id: str,
    created: int,
    tally: TokenTotals = TokenTotals(),  # noqa: B008  # a frozen value
    cut: Cut = "tokens",
) -> SimResponse:
    """A response of this host, with the faults that fit it; at each stage they act in the given order."""
    answer = build_host_response(
        request, intended, behaviour=behaviour, answer_id=answer_id, created=created, tally=tally, cut=cut
    )
    imitated = None
    if not behaviour.renames(request.wire):
        imitated, answer = imitated_call(answer), imitate(answer)
    chosen = [fault for fault in faults if fault.status is None and can_show(fault, answer)]
    for fault in chosen:
        if fault.speech is not None:
            answer = fault.speech(answer)
    frames = _stream(answer, chosen) if request.stream else [_whole(answer, chosen)]
    headers = {"content-type": _EVENTS, "cache-control": "no-cache"} if request.stream else {"content-type": _JSON}
    headers |= trace_headers(request.wire, behaviour, answer_id)
    for fault in chosen:
        headers |= fault.headers
    return SimResponse(
        headers=headers,
        pieces=_apply_frame_faults(frames, answer, [fault.frames for fault in chosen if fault.frames is not None]),
        streamed=request.stream,
        tokens=answer.tally.completion,
        tally=answer.tally,
        faults=tuple(fault.name for fault in chosen),
        imitated="" if imitated is None else imitated.id,
    )


def build_host_response(
    request: SimRequest,
    intended: IntendedResponse,
    *,
    behaviour: HostBehaviour,
    answer_id: str,
    created: int,
    tally: TokenTotals,
    cut: Cut = "tokens",
) -> HostResponse:
    """The correct response of this host, before any fault."""
    truncated = truncate(intended, request)
    make_id, before = ID_PROFILES[behaviour.id_profile(request.wire, request.family)], len(request.history)
    calls = tuple(
        NativeCall(
            make_id(IdPlace(name=call.name, number=before + at, position=at, answer_id=answer_id)),
            call.name,
            call.arguments,
        )
        for at, call in enumerate(truncated.intended.calls)
    )
    return HostResponse(
        id=answer_id,
        created=created,
        model=request.model,
        reasoning=truncated.intended.reasoning,
        text=truncated.intended.text,
        calls=calls,
        finish=truncated.finish,
        tally=_limit_tokens(tally, request.max_tokens, cut_off=truncated.finish == "length"),
        cut=cut,
        reasoning_field=behaviour.reasoning_field[request.family],
        usage_in=behaviour.usage_in,
        signature=signature(answer_id) if behaviour.signs else "",
        stopped_by=truncated.stopped_by,
        request=request,
        intended=intended,
    )


def can_show(fault: Fault, answer: HostResponse) -> bool:
    """Whether this fault applies to this response."""
    request = answer.request
    has = {
        "": True,
        "calls": bool(answer.calls),
        "reasoning": bool(answer.reasoning),
        "parallel": len(answer.calls) > 1,
    }
    return has[fault.needs] and fault.applies(wire=request.wire, family=request.family, stream=request.stream)


def error_response(status: Status, wire: Wire, *, faults: tuple[str, ...] = ()) -> SimResponse:
    """The response that a status fault sends instead."""
    body: bytes | Json | None = status.body
    if wire == "anthropic" and status.messages_body is not None:
        body = status.messages_body
    if body is None:
        return SimResponse(status=0, pieces=[CUT], faults=faults)
    plain = isinstance(body, bytes)
    headers = {"content-type": "text/html; charset=utf-8" if plain else _JSON} | status.headers
    data = body if isinstance(body, bytes) else encode(body)
    return SimResponse(status=status.status, headers=headers, pieces=[data], faults=faults)


def trace_headers(wire: Wire, behaviour: HostBehaviour, answer_id: str) -> dict[str, str]:
    """Headers with the ids that people send to a host's support, for a response or a refusal."""
    trace = fingerprint("trace", answer_id)[:32]
    own = {behaviour.trace_header: trace}
    return own | {"request-id": f"req_{trace[:24]}"} if wire == "anthropic" else own


def _limit_tokens(tally: TokenTotals, most: int | None, *, cut_off: bool) -> TokenTotals:
    """Tokens are estimated, but never reported above the limit that the client set."""
    if most is None or (tally.completion <= most and not cut_off):
        return tally
    return replace(tally, completion=most, reasoning=min(tally.reasoning, most))


def _stream(answer: HostResponse, faults: Iterable[Fault]) -> list[bytes]:
    chat = answer.request.wire == "openai_chat"
    payloads = chat_chunks(answer) if chat else messages_events(answer)
    for fault in faults:
        if fault.chunks is not None:
            payloads = fault.chunks(payloads, answer)
    return chat_frames(payloads) if chat else messages_frames(payloads)


def _whole(answer: HostResponse, faults: Iterable[Fault]) -> bytes:
    payload = chat_whole(answer) if answer.request.wire == "openai_chat" else messages_whole(answer)
    for fault in faults:
        if fault.whole is not None:
            payload = fault.whole(payload, answer)
    return encode(payload)


def _apply_frame_faults(frames: list[bytes], answer: HostResponse, faults: Sequence[Frames]) -> list[Piece]:
    """Faults that stall or cut act last: the others expect bytes, and all of them."""
    later: list[Frames] = []
    for fault in faults:
        made = fault(list(frames), answer)
        if all(isinstance(piece, bytes) for piece in made):
            frames = [piece for piece in made if isinstance(piece, bytes)]
        else:
            later.append(fault)
    pieces: list[Piece] = list(frames)
    for fault in later:
        pieces = _apply_between_gaps(pieces, answer, fault)
    return pieces


def _apply_between_gaps(pieces: list[Piece], answer: HostResponse, fault: Frames) -> list[Piece]:
    out: list[Piece] = []
    for is_bytes, run in groupby(pieces, key=lambda piece: isinstance(piece, bytes)):
        found: list[Any] = list(run)
        out += fault(found, answer) if is_bytes else found
    return out
