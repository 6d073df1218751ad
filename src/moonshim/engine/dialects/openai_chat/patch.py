"""Writes a Chat response as its host sent it: chunks leave untouched, or patched where something had to change.

Every field of the host's chunk stays, known to us or not. Where one chunk has to
become several, the fields that name the response go with each, the rest goes once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from moonshim.engine.dialects.openai_chat.chunk import IDENTITY, error_chunk, is_empty_chunk, is_empty_delta
from moonshim.engine.dialects.openai_chat.continuation import Continuation, without_ending
from moonshim.engine.dialects.openai_chat.delta import write_piece
from moonshim.engine.dialects.openai_chat.reasoning import REASONING_FIELDS, reasoning_copies, text_of, write_reasoning
from moonshim.engine.dialects.openai_chat.segments import Segment, SegmentBuilder
from moonshim.engine.dialects.openai_chat.usage import with_cache_counts
from moonshim.engine.dialects.protocol import TEXT, PatchContext, Template
from moonshim.engine.frames import ChoicePart, HostFrame, Released
from moonshim.engine.grammar.protocol import Notice
from moonshim.engine.upstream_events import FinishReported, TextDelta, UsageReported
from moonshim.engine.values.conversation import ToolCall
from moonshim.engine.values.events import BlockDelta, BlockOpened, CallPiece, Event, Failed, Finished, Repaired

__all__ = ["ChatPatchWriter"]

Origin = TypeVar("Origin")

_READ: Final = frozenset({"content", "tool_calls", "function_call", "finish_reason", *REASONING_FIELDS})
"""The fields of a delta that are written from what was read."""
_DELTA_REPAIRS: Final = frozenset(
    {"reasoning_conflict", "choice_shape", "content_shape", "usage_moved", "usage_repeated"}
)
"""What is left alone unless `repair_deltas` is on."""


class _Choice:
    """What is remembered of one choice from chunk to chunk."""

    __slots__ = ("builder", "has_role", "made_role", "reasoning", "repeats_role")

    def __init__(self, builder: SegmentBuilder) -> None:
        self.builder = builder
        self.reasoning: Mapping[str, Any] = {}
        """The last delta with reasoning: it shows the fields in which the host sends that."""
        self.has_role = False
        self.made_role = False
        """The host sent none before it sent text: it was added."""
        self.repeats_role = False


class _Written(Struct):
    """One choice of a chunk, and what to send for it."""

    choice: Mapping[str, Any]
    segments: list[Segment]
    reasoning: Mapping[str, Any]
    """A delta with reasoning in the fields that the host uses."""
    entries: list[Any] | None = None
    """Tool entries that go out as they are, when deltas are not to be mended."""
    summary: list[dict[str, Any]] | None = None
    """The whole calls, for the finish chunk (`assembleToolDeltas`)."""


class ChatPatchWriter(Generic[Origin]):
    """Sends each chunk of the host as it came if it says what is to be said, else a patched copy."""

    ends_with_reason: Final = True
    keeps_frames: Final = True
    single: Final = False

    def __init__(self, context: PatchContext) -> None:
        self._context = context
        self._repairs = context.repair_deltas
        self._ensures_role = self._repairs and context.has_client
        # A Chat client gets repeated reasoning where the host has it: nothing to repair.
        self.ignored: frozenset[str] = frozenset({"reasoning_repeated"}) | (
            frozenset() if self._repairs else _DELTA_REPAIRS
        )
        if not context.has_client:
            self.ignored |= {"choices_missing"}
        self._choices: dict[int, _Choice] = {}
        self._first: dict[str, Any] | None = None
        self._last: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None
        self._continuation: Continuation | None = None
        self.passes_text = self.is_idle = True

    # -- streams ---------------------------------------------------------------------

    def write(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """What leaves for this frame."""
        payload = frame.payload
        if frame.failed is not None:
            return [*self._write_added(frame.parts), self._write_failure(frame, frame.failed)]
        if payload is None:
            if frame.origin is not None:
                return [Released(frame.origin)]
            return self._write_added(frame.parts)
        if frame.is_unknown:
            return [Released(frame.origin)]
        changed = frame.origin is None
        usage = payload.get("usage")
        for event in frame.read:
            if type(event) is Notice and event.rule not in self.ignored:
                changed = True
                if event.rule == "choices_missing":
                    payload = {**payload, "choices": []}
                elif event.rule == "usage_repeated":
                    usage = None
            elif type(event) is UsageReported:
                self._usage = event.usage.raw
                usage = event.usage.raw if self._repairs else usage
        if self._context.has_client and self._repairs and usage is not None:
            shown = with_cache_counts(usage)
            changed, usage = changed or shown is not usage, shown
        choices = payload.get("choices")
        if self._context.hides_usage and not choices and usage is not None:
            return []
        self._first, self._last = self._first or payload, payload
        if not isinstance(choices, list):
            return [Released(frame.origin)]
        carries_role, written = False, []
        for part, choice in zip(frame.parts, choices, strict=True):
            one, differs, has_role = self._write_choice(part, choice)
            changed, carries_role = changed or differs, carries_role or has_role
            written.append(one)
        if self._continuation is not None:
            return self._write_continued(frame, payload, written, usage)
        if not changed:
            return [Released(frame.origin)]
        patched = self._patch_chunk(payload, written, usage)
        if frame.origin is not None and not carries_role and len(patched) == 1 and is_empty_chunk(patched[0]):
            patched = []
        return [Released(frame.origin, patched)]

    def write_ending(self, frame: HostFrame[Origin], events: Sequence[Event]) -> list[Released[Origin]]:
        """A choice ends in the chunk of its finish reason: nothing is left to write."""
        return []

    def template(self, index: int) -> Template | None:
        """How the next piece of this block is sent, where the last chunk was."""
        ((place, choice),) = self._choices.items()
        segment = Segment(calls=[CallPiece(choice.builder.numbers[index], None, None, TEXT)])
        last: Mapping[str, Any] = self._last["choices"][0]
        (patched,) = self._patch_chunk(
            self._last, [_Written(last, [segment], choice.reasoning)], self._last.get("usage")
        )
        return Template(patched) if place == 0 else None

    def write_without_ending(self, frames: Sequence[HostFrame[Origin]]) -> list[Released[Origin]]:
        """These frames, less how the response ends and what it cost: what is written from now on continues it."""
        released: list[Released[Origin]] = []
        for frame in frames:
            for one in self.write(frame):
                payloads = one.payloads if one.payloads is not None else [frame.payload] if frame.payload else []
                left = [payload for payload in map(without_ending, payloads) if payload is not None]
                released += [Released(None, left)] if left else []
        self._continuation = Continuation({**self._last, **(self._first or {})}, self._usage)
        self._choices.clear()
        self._ensures_role = self.passes_text = self.is_idle = False
        return released

    def _write_continued(
        self, frame: HostFrame[Origin], payload: dict[str, Any], written: list[_Written], usage: Any
    ) -> list[Released[Origin]]:
        assert self._continuation is not None
        joined = [self._continuation.joined(one) for one in self._patch_chunk(payload, written, usage)]
        return [Released(frame.origin, [one for one in joined if one is not None])]

    def _write_choice(self, part: ChoicePart, choice: dict[str, Any]) -> tuple[_Written, bool, bool]:
        """What leaves for this choice, whether that differs from what came, and whether the role is in it."""
        state = self._choices.get(part.index) or self._choice(part)
        delta, changed = choice.get("delta"), False
        if type(delta) is not dict:
            delta = {}
        if self._repairs and (type(choice.get("index")) is not int or choice.get("delta") is not delta):
            # OpenAI's clients read both without looking.
            changed, choice = True, {**choice, "index": part.index, "delta": delta}
            if "content" not in delta and isinstance(choice.get("text"), str):
                del choice["text"]
        reasoning = content = ""
        pieces: list[CallPiece] = []
        raw: str | None = None
        for event in part.read:
            if type(event) is TextDelta:
                if event.channel == "text":
                    content += event.text
                else:
                    reasoning += event.text
            elif type(event) is CallPiece:
                if self._repairs or not event.is_unlisted:
                    pieces.append(event)
            elif type(event) is FinishReported:
                raw = event.raw
        if reasoning:
            state.reasoning = delta
        carries_role = False
        role = delta.get("role")
        if role and not state.has_role:
            state.has_role = carries_role = True
        elif role and self._ensures_role:
            # SDKs that add deltas up would add the role up as well, and send that back.
            changed, choice = True, {**choice, "delta": _without_role(delta)}
            if not state.made_role and not state.repeats_role:
                state.repeats_role = True
                self._context.report(Repaired("role_repeated", "assistant"), part.index)
        elif not state.has_role and self._ensures_role and (raw or reasoning or content or pieces):
            # SDKs that add deltas up would keep a message without a role, and send it back like that.
            state.has_role = state.made_role = carries_role = changed = True
            choice = {**choice, "delta": {"role": "assistant", **_without_role(delta)}}
            self._context.report(Repaired("role_missing", "assistant"), part.index)
        entries, patched = None, False
        if not self._repairs:
            entries, patched = _patch_entries(delta.get("tool_calls"), pieces, part.ids, self._context.names)
        events = part.events
        if len(events) == 1 and type(events[0]) is BlockDelta and raw is None and not pieces:
            # The most common case: a piece of the text that is open.
            piece = events[0]
            kind = state.builder.kinds.get(piece.index)
            text = content if kind == "text" else reasoning if kind == "reasoning" else ""
            if piece.text == text and not (reasoning and content) and choice.get("usage") is None:
                segment = Segment(reasoning=reasoning, content=content, calls=[])
                return _Written(choice, [segment], state.reasoning), changed, carries_role
        segments = state.builder.build(events)
        summary = self._summary(part) if part.summary is not None else None
        changed = (
            changed
            or patched
            or len(segments) > 1
            or (self._repairs and choice.get("usage") is not None)
            or (summary is not None and choice.get("message") != _summary_message(summary))
            or not _is_same(segments[0] if segments else Segment(), reasoning, content, raw, pieces, entries)
        )
        return _Written(choice, segments, state.reasoning, entries, summary), changed, carries_role

    def _choice(self, part: ChoicePart) -> _Choice:
        state = self._choices.get(part.index)
        if state is None:
            builder = SegmentBuilder(part.numbers, self._context.names, skips_native=not self._repairs)
            state = self._choices[part.index] = _Choice(builder)
        return state

    @staticmethod
    def _summary(part: ChoicePart) -> list[dict[str, Any]] | None:
        if part.summary is None:
            return None
        calls: list[tuple[int, ToolCall]] = part.summary()
        return [
            write_piece(CallPiece(number, call.wire_id, call.name, call.arguments)) for number, call in calls
        ] or None

    def _write_added(self, parts: Sequence[ChoicePart]) -> list[Released[Origin]]:
        """A chunk that the host did not send, modelled on its last one."""
        written = [
            _Written(
                {"index": part.index, "delta": {}, "finish_reason": None},
                self._choice(part).builder.build(part.events),
                self._choice(part).reasoning,
                summary=self._summary(part),
            )
            for part in parts
            if any(isinstance(event, (BlockOpened, BlockDelta, Finished, Failed)) for event in part.events)
        ]
        if not written:
            return []
        chunk = {key: value for key, value in self._last.items() if key not in ("choices", "usage")}
        payloads = self._patch_chunk(chunk, written, None)
        if self._continuation is not None:
            payloads = [one for one in map(self._continuation.joined, payloads) if one is not None]
        return [Released(None, payloads)]

    def _write_failure(self, frame: HostFrame[Origin], failed: Failed) -> Released[Origin]:
        if frame.payload is None:
            return Released(frame.origin, [error_chunk(failed)])
        error = frame.payload.get("error")
        if isinstance(error, dict):
            return Released(frame.origin)
        if error:
            return Released(frame.origin, [error_chunk(failed)])
        # The shapes of older servers: OpenAI's clients raise only what is under `error`.
        return Released(frame.origin, [{"error": frame.payload}])

    def _patch_chunk(self, chunk: Mapping[str, Any], parts: Sequence[_Written], usage: Any) -> list[dict[str, Any]]:
        """The chunks that take the place of this one; an error that a choice ended with comes last."""
        rendered = [self._render_choices(part) for part in parts]
        failures = [error_chunk(ending, part.choice) for part in parts if isinstance(ending := _ending(part), Failed)]
        count = max((len(choices) for choices in rendered), default=0)
        if not count and (usage is not None or not failures):
            count = 1
        chunks: list[dict[str, Any]] = []
        for place in range(count):
            fields = chunk if place == 0 else {key: chunk[key] for key in IDENTITY if key in chunk}
            one: dict[str, Any] = {key: value for key, value in fields.items() if key != "usage"}
            one["choices"] = [choices[place] for choices in rendered if place < len(choices)]
            chunks.append(one)
        if chunks and (usage is not None or "usage" in chunk):
            chunks[-1]["usage"] = usage
        return chunks + failures

    def _render_choices(self, part: _Written) -> list[dict[str, Any]]:
        choice, ending = part.choice, _ending(part)
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        gone = ("delta", "finish_reason", "usage") if self._repairs else ("delta", "finish_reason")
        kept = {key: value for key, value in choice.items() if key not in gone}
        kept.setdefault("index", 0)
        written: list[dict[str, Any]] = []
        for segment in part.segments or [Segment()]:
            if segment.says_nothing and segment.ending is not None and (written or not _has_leftovers(delta, part)):
                continue
            fields = self._render_delta(delta, segment, part, first=not written)
            base = kept if not written else {"index": kept["index"]}
            written.append({**base, "delta": fields, "finish_reason": None})
        if isinstance(ending, Finished):
            if not written or not is_empty_delta(written[-1]["delta"]):
                written.append({**({"index": kept["index"]} if written else kept), "delta": {}})
            written[-1]["finish_reason"] = ending.reason
            if part.summary:
                written[-1]["message"] = _summary_message(part.summary)
        elif ending is not None and written and is_empty_delta(written[-1]["delta"]) and len(written) == 1:
            written.clear()
        return written

    def _render_delta(
        self, delta: Mapping[str, Any], segment: Segment, part: _Written, *, first: bool
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if first:
            left_alone = () if self._repairs else ("function_call", "tool_calls")
            fields = {key: value for key, value in delta.items() if key not in _READ or key in left_alone}
            # Keep values that contain no text (null, empty, or not a string) as the host wrote them.
            fields |= {
                key: delta[key]
                for key in ("content", *REASONING_FIELDS)
                if key in delta and not text_of(key, delta[key]) and not (key == "content" and segment.content)
            }
            if self._repairs and isinstance(fields.get("content"), (list, dict)):
                fields["content"] = None  # SDKs append it to a string
        if first or segment.reasoning:
            fields |= write_reasoning(delta, segment.reasoning, like=part.reasoning, first=first)
        if segment.content:
            is_refusal = first and not delta.get("content") and isinstance(delta.get("refusal"), str)
            fields["refusal" if is_refusal and delta["refusal"] else "content"] = segment.content
        if part.entries is not None and first:
            fields["tool_calls"] = part.entries
        elif segment.calls:
            fields["tool_calls"] = [write_piece(piece) for piece in segment.calls]
        return fields

    # -- whole responses -------------------------------------------------------------

    def write_body(self, frame: HostFrame[Origin]) -> dict[str, Any]:
        """The whole response, the same object where nothing had to change."""
        body = frame.payload
        assert body is not None
        if frame.is_unknown or frame.failed is not None or not isinstance(body.get("choices"), list):
            return body
        usage, changed = None, False
        for event in frame.read:
            changed = changed or (type(event) is Notice and event.rule in ("usage_moved", "usage_repeated"))
            usage = event.usage.raw if type(event) is UsageReported else usage
        changed = changed and self._repairs
        if usage is not None and self._context.has_client and self._repairs:
            shown = with_cache_counts(usage)
            changed, usage = changed or shown is not usage, shown
        choices, failures = [], []
        differs = changed
        parts = {part.index: part for part in frame.parts}
        for place, choice in enumerate(body["choices"]):
            mended, failed = self._write_message(parts[place], choice) if place in parts else (choice, None)
            choices.append(mended)
            differs = differs or mended is not choice
            failures += [error_chunk(failed, mended)] if failed is not None else []
        if not differs:
            return body
        out = {**body, "choices": choices}
        if changed:
            out["usage"] = usage
        return out | (failures[0] if failures else {})

    def _write_message(self, part: ChoicePart, choice: Any) -> tuple[Any, Failed | None]:
        """A choice with its message, the same object where nothing had to change; and how it failed, if it did."""
        message = choice["message"]
        reasoning = content = ""
        pieces: list[CallPiece] = []
        raw: str | None = None
        reported = False
        for event in part.read:
            match event:
                case TextDelta(channel="text", text=text):
                    content += text
                case TextDelta(text=text):
                    reasoning += text
                case CallPiece():
                    if self._repairs or not event.is_unlisted:
                        pieces.append(event)
                case FinishReported():
                    raw = event.raw
                case Notice(rule=rule):
                    reported = reported or (rule in _DELTA_REPAIRS and self._repairs)
                case _:
                    pass
        segments = self._choice(part).builder.build(part.events)
        ending = next((one.ending for one in segments if one.ending is not None), None)
        sent = _merge_segments(segments)
        if not self._repairs:
            names = self._context.names
            sent.calls = [
                _renamed(piece, new_id or piece.id, names.get(piece.name or "", piece.name))
                for piece, new_id in zip(pieces, part.ids, strict=True)
            ] + sent.calls
        reason = ending.reason if isinstance(ending, Finished) else None
        failed = ending if isinstance(ending, Failed) else None
        odd = self._repairs and (choice.get("usage") is not None or any(piece.odd for piece in pieces))
        same = (
            (sent.reasoning, sent.content, reason) == (reasoning, content, raw)
            and [_identity(one) for one in sent.calls] == [_identity(one) for one in pieces]
            and failed is None
        )
        if same and not odd and not reported:
            return choice, None
        patched = {key: value for key, value in choice.items() if key != "usage" or not self._repairs}
        written = _patch_message(message, sent)
        if not self._repairs and "function_call" in message:
            written["function_call"] = message["function_call"]
        return patched | {"message": written, "finish_reason": reason}, failed


def _is_same(
    sent: Segment,
    reasoning: str,
    content: str,
    raw: str | None,
    pieces: Sequence[CallPiece],
    entries: list[Any] | None,
) -> bool:
    """Whether what is to leave is what was read: then the chunk leaves byte for byte."""
    if sent.reasoning != reasoning or sent.content != content:
        return False
    ending = sent.ending
    if isinstance(ending, Failed) or (ending.reason if ending else None) != raw:
        return False
    if entries is not None:
        return not sent.calls
    return len(sent.calls) == len(pieces) and all(map(_is_same_piece, pieces, sent.calls))


def _is_same_piece(received: CallPiece, sent: CallPiece) -> bool:
    return (
        not received.odd
        and received.index == sent.index
        and received.id == sent.id
        and received.name == sent.name
        and received.arguments == sent.arguments
    )


def _patch_entries(
    entries: Any, pieces: Sequence[CallPiece], ids: Sequence[str | None], names: Mapping[str, str]
) -> tuple[list[Any] | None, bool]:
    """The host's own entries, with only these identifiers and the client's names; whether any of them changed."""
    if not isinstance(entries, list) or not entries:
        return None, False
    patched, changed = [], False
    read = iter(zip(pieces, ids, strict=True))
    for entry in entries:
        if not isinstance(entry, dict):
            patched.append(entry)
            continue
        piece, new_id = next(read)
        new_name = names.get(piece.name or "")
        changes: dict[str, Any] = {} if new_id is None else {"id": new_id}
        if new_name is not None:
            changes["function"] = {**entry["function"], "name": new_name}
        patched.append({**entry, **changes} if changes else entry)
        changed = changed or bool(changes)
    return patched, changed


def _ending(part: _Written) -> Finished | Failed | None:
    return part.segments[-1].ending if part.segments else None


def _summary_message(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """The whole calls, where no client that adds up deltas looks for them."""
    return {"role": "assistant", "tool_calls": calls}


def _has_leftovers(delta: Mapping[str, Any], part: _Written) -> bool:
    return bool(part.entries) or any(key not in _READ for key in delta)


def _without_role(delta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in delta.items() if key != "role"}


def _identity(piece: CallPiece) -> tuple[str | None, str | None, str]:
    return piece.id, piece.name, piece.arguments


def _renamed(piece: CallPiece, id: str | None, name: str | None) -> CallPiece:
    return CallPiece(None, id, name, piece.arguments, piece.extras, piece.odd)


def _merge_segments(segments: list[Segment]) -> Segment:
    """All segments of a whole response as one."""
    merged = Segment(calls=[])
    calls: dict[int | None, CallPiece] = {}
    for segment in segments:
        merged.reasoning += segment.reasoning
        merged.content += segment.content
        for piece in segment.calls:
            known = calls.get(piece.index)
            arguments = piece.arguments if known is None else known.arguments + piece.arguments
            first = known or piece
            calls[piece.index] = CallPiece(None, first.id, first.name, arguments, first.extras, first.odd)
    merged.calls = list(calls.values())
    return merged


def _patch_message(message: dict[str, Any], sent: Segment) -> dict[str, Any]:
    gone = {"tool_calls", "function_call", *(field for field, _ in reasoning_copies(message))}
    patched = {key: value for key, value in message.items() if key not in gone}
    patched |= write_reasoning(message, sent.reasoning, first=True)
    if sent.content and not message.get("content") and message.get("refusal"):
        patched["refusal"] = sent.content
    elif isinstance(message.get("content"), str) or sent.content:
        patched["content"] = sent.content
    elif message.get("content"):
        patched["content"] = None  # a list of parts without text
    if sent.calls:
        patched["tool_calls"] = [write_piece(piece) for piece in sent.calls]
    elif "tool_calls" in message and not message["tool_calls"]:
        patched["tool_calls"] = message["tool_calls"]
    return patched
