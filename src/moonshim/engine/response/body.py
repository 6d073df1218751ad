"""Mends a whole (non-streaming) Chat response, by the very rules that mend a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.decode import read_usage
from moonshim.engine.dialects.openai_chat.delta import (
    DeltaText,
    read_pieces,
    read_speech,
    reasoning_fields,
    write_piece,
    write_reasoning,
)
from moonshim.engine.dialects.openai_chat.patch import error_chunk, host_error
from moonshim.engine.dialects.openai_chat.segments import Segment
from moonshim.engine.dialects.openai_chat.usage import UsageKeeper
from moonshim.engine.grammar.protocol import Channel
from moonshim.engine.plan import Plan, Tools, plan_for
from moonshim.engine.repair.frame_output import FrameOutput
from moonshim.engine.repair.repair_log import RepairLog
from moonshim.engine.response.choice import Choice
from moonshim.engine.response.chunk_mender import with_client_model
from moonshim.engine.response.frame_matcher import keep_fields
from moonshim.engine.response.pipeline import EventCollector, ResponsePipeline
from moonshim.engine.values.conversation import Message, Usage
from moonshim.engine.values.events import CallPiece, Failed, Finished, Repaired
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidInput

__all__ = ["Mended", "mend_response"]


class Mended(Struct, frozen=True):
    """A mended response, and what was put right in it."""

    body: dict[str, Any]
    repairs: list[Repaired]
    message: Message = Message("assistant")
    """The answer of the first choice."""
    ending: Finished | Failed | None = None
    repair_counts: dict[str, int] = {}
    """How often each rule acted; `repairs` keeps the first few hundred."""
    usage: Usage | None = None
    """What the answer cost, in numbers that mean the same for every host."""
    reasoning_field: str | None = None
    """The field in which a Chat host tells its reasoning: where it wants it back. None: none, or in copies."""


def mend_response(
    body: dict[str, Any],
    *,
    plan: Plan | None = None,
    model: str | None = None,
    tools: Tools | None = None,
    tool_choice: Any = None,
    history: Iterable[Mapping[str, Any] | Message] | None = None,
    options: KimiOptions | None = None,
) -> Mended:
    """A response as its host gave it -> as the client expects it. The body that was passed stays as it is.

    Where a stream would end in an error event, the body gets an `error` beside what
    was said, and the choice has no finish reason. With the `plan` of `prepare_request`, the
    body is read in the host's dialect and written in the client's, under the name of the model that
    the client asked for; without one both are Chat.
    """
    if not isinstance(body, dict):
        raise InvalidInput(f"body must be a dict, not {type(body).__name__}", field="body")
    plan = plan_for(plan=plan, model=model, tools=tools, tool_choice=tool_choice, history=history, options=options)
    if plan.translates:
        return _translate(body, plan)
    log = RepairLog()
    choices = body.get("choices")
    if body.get("error"):
        return Mended(body, log.repairs, ending=host_error(body["error"]), repair_counts=dict(log.counts))
    if not isinstance(choices, list):
        log.add(Repaired("not_a_chunk", ", ".join(map(str, body))[:200]), 0)
        return Mended(body, log.repairs, repair_counts=dict(log.counts))
    body = with_client_model(body, plan)
    usage, usage_changed = UsageKeeper(enabled=plan.options.repair_deltas, for_client=plan.client is not None).read(
        body, log
    )
    mended = [_WholeChoice(choice, place, plan, log) for place, choice in enumerate(choices)]
    first = mended[0] if mended else None
    out = body
    if usage_changed or any(one.changed for one in mended):
        out = {**body, "choices": [one.choice for one in mended]}
        if usage_changed:
            out["usage"] = usage
        failures = [error_chunk(one.ending, one.choice) for one in mended if isinstance(one.ending, Failed)]
        out |= failures[0] if failures else {}
    message, ending = (first.message, first.ending) if first else (Message("assistant"), None)
    field = first.reasoning_field if first else None
    return Mended(out, log.repairs, message, ending, dict(log.counts), read_usage(body), field)


def _translate(body: dict[str, Any], plan: Plan) -> Mended:
    collector = EventCollector()
    pipeline: ResponsePipeline[None] = ResponsePipeline(plan, encoder=collector)
    pipeline.feed_body(body)
    pipeline.end()
    assert plan.client is not None
    written = plan.client.encode_response(collector.events, plan.reply)
    if plan.client is plan.upstream and not isinstance(pipeline.ending(), Failed):
        written = keep_fields(body, written)
    log = pipeline.log
    return Mended(
        written,
        log.repairs,
        pipeline.message(),
        pipeline.ending(),
        dict(log.counts),
        pipeline.normalized_usage,
        pipeline.reasoning_field,
    )


class _WholeChoice:
    """One choice of a whole response, read as a stream of one frame."""

    def __init__(self, choice: Any, place: int, plan: Plan, log: RepairLog) -> None:
        self.choice = choice
        self.changed = False
        self.message = Message("assistant")
        self.ending: Finished | Failed | None = None
        self.reasoning_field: str | None = None
        if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
            log.add(Repaired("not_a_chunk", "a choice without a message"), place)
            return
        state = Choice(place, plan, log, collect=True)
        self._mend(choice, choice["message"], state, mends_deltas=plan.options.repair_deltas)
        self.message, self.ending, self.reasoning_field = state.message, state.repairer.ending, state.reader.field

    def _mend(self, choice: dict[str, Any], message: dict[str, Any], state: Choice, *, mends_deltas: bool) -> None:
        output = FrameOutput(state.observe)
        delta_text, pieces = read_speech(message), read_pieces(message.get("tool_calls"))
        conflicts = delta_text.conflicts if mends_deltas else ()
        for field, text in conflicts:
            output.put(Repaired("reasoning_conflict", f"{field}: {text}"))
        state.read_reasoning(message, delta_text.reasoning)
        new_ids = _feed_message(state, delta_text, pieces, output)
        raw = choice.get("finish_reason")
        raw = raw if isinstance(raw, str) and raw else None
        state.repairer.finish(raw, output)
        ending = state.repairer.ending
        sent = _merge_segments(state.builder.build(output.events))
        if not mends_deltas:
            watched = [
                replace(
                    piece, index=None, id=new_ids.get(at, piece.id), name=state.names.get(piece.name or "", piece.name)
                )
                for at, piece in enumerate(pieces)
            ]
            sent.calls = watched + sent.calls
        reason = ending.reason if isinstance(ending, Finished) else None
        self.changed = (
            (sent.reasoning, sent.content, reason) != (delta_text.reasoning, delta_text.content, raw)
            or [_identity(one) for one in sent.calls] != [_identity(one) for one in pieces]
            or isinstance(ending, Failed)
            or (mends_deltas and (bool(conflicts) or "usage" in choice or any(map(_oddity, pieces))))
        )
        if self.changed:
            self.choice = {key: value for key, value in choice.items() if key != "usage" or not mends_deltas}
            self.choice |= {"message": _patch_message(message, sent), "finish_reason": reason}


def _feed_message(state: Choice, delta_text: DeltaText, pieces: list[CallPiece], output: FrameOutput) -> dict[int, str]:
    """Tell the answer what the message says; the identifiers to write where calls are only watched."""
    repairer, halves, new_ids = state.repairer, state.carry, dict[int, str]()
    channels: tuple[tuple[Channel, str], ...] = (("reasoning", delta_text.reasoning), ("text", delta_text.content))
    for channel, text in channels:
        text = halves.join(channel, text, output) + "".join(rest for _, rest in halves.flush(output))
        if text:
            repairer.feed_text(channel, text, output)
        state.sign(output)
    for number, piece in enumerate(pieces):
        arguments = halves.join(number, piece.arguments, output)
        native = replace(piece, index=number, arguments=arguments, odd=_oddity(piece))
        if repairer.watch is None:
            repairer.feed_call(native, output)
        elif new_id := repairer.watch.feed(native, output):
            new_ids[number] = new_id
    return new_ids


def _oddity(piece: CallPiece) -> str:
    """What is odd about an entry of a whole message, in which an index is not needed."""
    return "" if "index" in piece.odd else piece.odd


def _identity(piece: CallPiece) -> tuple[str | None, str | None, str]:
    return piece.id, piece.name, piece.arguments


def _merge_segments(segments: list[Segment]) -> Segment:
    merged = Segment(calls=[])
    calls: dict[int | None, CallPiece] = {}
    for segment in segments:
        merged.reasoning += segment.reasoning
        merged.content += segment.content
        for piece in segment.calls:
            known = calls.get(piece.index)
            calls[piece.index] = (
                replace(piece, index=None)
                if known is None
                else replace(known, arguments=known.arguments + piece.arguments)
            )
    merged.calls = list(calls.values())
    return merged


def _patch_message(message: dict[str, Any], sent: Segment) -> dict[str, Any]:
    gone = {"tool_calls", *reasoning_fields(message)}
    patched = {key: value for key, value in message.items() if key not in gone}
    patched |= write_reasoning(message, sent.reasoning, ("reasoning_content",), first=True)
    if isinstance(message.get("content"), str) or sent.content:
        patched["content"] = sent.content
    if sent.calls:
        patched["tool_calls"] = [write_piece(piece) for piece in sent.calls]
    elif "tool_calls" in message and not message["tool_calls"]:
        patched["tool_calls"] = message["tool_calls"]
    return patched
