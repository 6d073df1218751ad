"""What a model means, the host's nature and the faults of the moment -> the bytes of an answer, and where they break.

Pure: the same arguments make the same bytes. The order is that of a host: the model's answer gets its ids, goes wrong
in what is said, is written in the client's dialect, goes wrong as a stream, and goes wrong on the line.
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
from moonshim.simulator.host.imitation import imitate, imitated_by
from moonshim.simulator.request import Json, SimRequest, Wire
from moonshim.simulator.response import Cut, HostResponse, IntendedResponse, NativeCall, TokenTotals
from moonshim.simulator.wire.chat import chat_chunks, chat_whole
from moonshim.simulator.wire.frames import chat_frames, messages_frames
from moonshim.simulator.wire.messages import messages_events, messages_whole
from moonshim.simulator.wire.truncate import shorten

__all__ = ["SimResponse", "answer_of", "fits", "play", "tell", "trace_headers"]

_JSON: Final = "application/json; charset=utf-8"
_EVENTS: Final = "text/event-stream; charset=utf-8"


class SimResponse(Struct, frozen=True, kw_only=True):
    """What is sent: a whole answer is one piece of bytes. `status` 0: the connection is dropped before any of it."""

    status: int = 200
    headers: dict[str, str] = {}
    pieces: list[Piece] = []
    streamed: bool = False
    tokens: int = 0
    """How many the model has written, for whoever sends them at its pace."""
    faults: tuple[str, ...] = ()
    """Those that were applied, of those that were asked for."""
    imitated: str = ""
    """The wrong identifier of the history that the model wrote its own calls after."""


def play(
    question: SimRequest,
    intended: IntendedResponse,
    *,
    nature: HostBehaviour,
    faults: Sequence[Fault] = (),
    answer_id: str,
    created: int,
    tally: TokenTotals = TokenTotals(),  # noqa: B008  # a frozen value
    cut: Cut = "tokens",
) -> SimResponse:
    """An answer of this host, with the faults that fit it; at each place they act in the order that they come in."""
    answer = answer_of(question, intended, nature=nature, answer_id=answer_id, created=created, tally=tally, cut=cut)
    imitated = None
    if not nature.renames(question.wire):
        imitated, answer = imitated_by(answer), imitate(answer)
    chosen = [fault for fault in faults if fault.status is None and fits(fault, answer)]
    for fault in chosen:
        if fault.speech is not None:
            answer = fault.speech(answer)
    frames = _stream(answer, chosen) if question.stream else [_whole(answer, chosen)]
    headers = {"content-type": _EVENTS, "cache-control": "no-cache"} if question.stream else {"content-type": _JSON}
    headers |= trace_headers(question.wire, nature, answer_id)
    for fault in chosen:
        headers |= fault.headers
    return SimResponse(
        headers=headers,
        pieces=_on_the_line(frames, answer, [fault.frames for fault in chosen if fault.frames is not None]),
        streamed=question.stream,
        tokens=answer.tally.completion,
        faults=tuple(fault.name for fault in chosen),
        imitated="" if imitated is None else imitated.id,
    )


def answer_of(
    question: SimRequest,
    intended: IntendedResponse,
    *,
    nature: HostBehaviour,
    answer_id: str,
    created: int,
    tally: TokenTotals,
    cut: Cut = "tokens",
) -> HostResponse:
    """The answer as it should be at this host, before anything goes wrong."""
    if not question.thinking:
        intended = replace(intended, reasoning="")
    said = shorten(intended, question)
    make_id, before = ID_PROFILES[nature.id_profile(question.wire, question.family)], len(question.history)
    calls = tuple(
        NativeCall(
            make_id(IdPlace(name=call.name, number=before + at, position=at, answer_id=answer_id)),
            call.name,
            call.arguments,
        )
        for at, call in enumerate(said.intended.calls)
    )
    return HostResponse(
        id=answer_id,
        created=created,
        model=question.model,
        reasoning=said.intended.reasoning,
        text=said.intended.text,
        calls=calls,
        finish=said.finish,
        tally=_bounded(tally, question.max_tokens, cut_off=said.finish == "length"),
        cut=cut,
        reasoning_field=nature.reasoning_field[question.family],
        usage_in=nature.usage_in,
        signature=signature(answer_id) if nature.signs else "",
        stopped_by=said.stopped_by,
        question=question,
        intended=intended,
    )


def fits(fault: Fault, answer: HostResponse) -> bool:
    """Whether this fault can show in this answer."""
    question = answer.question
    has = {
        "": True,
        "calls": bool(answer.calls),
        "reasoning": bool(answer.reasoning),
        "parallel": len(answer.calls) > 1,
    }
    return has[fault.needs] and fault.applies(wire=question.wire, family=question.family, stream=question.stream)


def tell(status: Status, wire: Wire, *, faults: tuple[str, ...] = ()) -> SimResponse:
    """What is sent instead of an answer."""
    body: bytes | Json | None = status.body
    if wire == "anthropic" and status.messages_body is not None:
        body = status.messages_body
    if body is None:
        return SimResponse(status=0, pieces=[CUT], faults=faults)
    plain = isinstance(body, bytes)
    headers = {"content-type": "text/html; charset=utf-8" if plain else _JSON} | status.headers
    data = body if isinstance(body, bytes) else encode(body)
    return SimResponse(status=status.status, headers=headers, pieces=[data], faults=faults)


def trace_headers(wire: Wire, nature: HostBehaviour, answer_id: str) -> dict[str, str]:
    """What people send a host's support, for an answer or for a refusal."""
    trace = fingerprint("trace", answer_id)[:32]
    own = {nature.trace_header: trace}
    return own | {"request-id": f"req_{trace[:24]}"} if wire == "anthropic" else own


def _bounded(tally: TokenTotals, most: int | None, *, cut_off: bool) -> TokenTotals:
    """Tokens are estimated, but nobody who set a limit is told of more than that."""
    if most is None or (tally.completion <= most and not cut_off):
        return tally
    return TokenTotals(tally.prompt, tally.cached, most, min(tally.reasoning, most))


def _stream(answer: HostResponse, faults: Iterable[Fault]) -> list[bytes]:
    chat = answer.question.wire == "openai_chat"
    payloads = chat_chunks(answer) if chat else messages_events(answer)
    for fault in faults:
        if fault.chunks is not None:
            payloads = fault.chunks(payloads, answer)
    return chat_frames(payloads) if chat else messages_frames(payloads)


def _whole(answer: HostResponse, faults: Iterable[Fault]) -> bytes:
    payload = chat_whole(answer) if answer.question.wire == "openai_chat" else messages_whole(answer)
    for fault in faults:
        if fault.whole is not None:
            payload = fault.whole(payload, answer)
    return encode(payload)


def _on_the_line(frames: list[bytes], answer: HostResponse, faults: Sequence[Frames]) -> list[Piece]:
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
        pieces = _between_the_gaps(pieces, answer, fault)
    return pieces


def _between_the_gaps(pieces: list[Piece], answer: HostResponse, fault: Frames) -> list[Piece]:
    out: list[Piece] = []
    for is_bytes, run in groupby(pieces, key=lambda piece: isinstance(piece, bytes)):
        found: list[Any] = list(run)
        out += fault(found, answer) if is_bytes else found
    return out
