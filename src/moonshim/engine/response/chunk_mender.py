"""Mends a stream of Chat chunks: parsed chunks in, parsed chunks out, untouched where nothing was wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.continuation import Continuation
from moonshim.engine.dialects.openai_chat.decode import read_usage
from moonshim.engine.dialects.openai_chat.delta import (
    REASONING_FIELDS,
    DeltaText,
    has_index,
    read_index,
    read_pieces,
    read_speech,
    reasoning_fields,
    write_piece,
)
from moonshim.engine.dialects.openai_chat.patch import (
    ChoicePart,
    error_chunk,
    host_error,
    patch_chunk,
    patch_entries,
    says_nothing,
    summary_message,
)
from moonshim.engine.dialects.openai_chat.segments import Segment
from moonshim.engine.dialects.openai_chat.usage import UsageKeeper
from moonshim.engine.grammar.protocol import Channel
from moonshim.engine.plan import Plan
from moonshim.engine.repair.finish import STREAM_ENDED
from moonshim.engine.repair.frame_output import FrameOutput
from moonshim.engine.repair.repair_log import RepairLog
from moonshim.engine.repair.repairer import ParsedText
from moonshim.engine.response.choice import Choice
from moonshim.engine.values.conversation import Message, Usage
from moonshim.engine.values.events import BlockDelta, BlockOpened, CallPiece, Failed, Finished, Repaired

__all__ = ["ChunkMender", "Released", "with_client_model"]

Origin = TypeVar("Origin")

HELD_LIMIT: Final = 27
"""Characters that frames may keep waiting: the longest marker less one."""
HELD_FRAMES: Final = 64


class Released(Struct, Generic[Origin]):
    """A frame that leaves: as it came (`chunks` is None), or as these chunks."""

    origin: Origin | None
    chunks: list[dict[str, Any]] | None = None


class _Part:
    """One choice of a frame: what came, and the output that tells what goes."""

    __slots__ = (
        "choice",
        "delta_text",
        "entries",
        "output",
        "patched_entries",
        "pieces",
        "raw_finish",
        "state",
        "summary",
    )

    def __init__(self, choice: Mapping[str, Any], state: Choice) -> None:
        self.choice = choice
        self.state = state
        self.output = FrameOutput(state.observe)
        self.delta_text = DeltaText()
        self.pieces: list[CallPiece] = []
        self.entries: list[Any] | None = None
        self.patched_entries = False
        self.raw_finish: str | None = None
        self.summary: list[dict[str, Any]] | None = None


class _Frame(Generic[Origin]):
    __slots__ = ("carries_role", "changed", "chunk", "origin", "parts", "size", "usage")

    def __init__(self, origin: Origin | None, chunk: Mapping[str, Any] | None) -> None:
        self.origin = origin
        self.chunk = chunk
        self.parts: list[_Part] = []
        self.changed = origin is None
        self.usage: Any = None
        self.size = 0
        self.carries_role = False
        """Whether a choice's role comes with this frame: it must leave, whatever else it says."""

    @property
    def waiting(self) -> bool:
        return any(part.output.waiting for part in self.parts)


class ChunkMender(Generic[Origin]):
    """Takes chunks with their origin (the bytes they came in, say) and gives back what may leave, in order.

    With `after`, this is another answer of the host in the same answer to the client: what was said and counted before
    stays in front.
    """

    def __init__(self, plan: Plan, *, collect: bool = True, after: ChunkMender[Origin] | None = None) -> None:
        self._plan = plan
        self._collect = collect
        self._queue: deque[_Frame[Origin]] = deque()
        self._choices: dict[int, Choice] = {}
        self._ensures_role = plan.options.repair_deltas and plan.client is not None and after is None
        """Whether a role that the host does not tell is told: to a client, not where a recording is mended."""
        self._usage = UsageKeeper(enabled=plan.options.repair_deltas, for_client=plan.client is not None)
        self._first_chunk: Mapping[str, Any] | None = None
        self._last_chunk: Mapping[str, Any] | None = None
        self._failed = False
        self._no_answer: Failed | None = None
        self._held_size = 0
        self._earlier_message = after.message() if after is not None else Message("assistant")
        self.log: RepairLog = after.log if after is not None else RepairLog()

    # -- what people ask for ---------------------------------------------------------

    @property
    def usage(self) -> dict[str, Any] | None:
        return self._usage.usage

    @property
    def normalized_usage(self) -> Usage | None:
        """The usage in numbers that mean the same for every host."""
        return None if self.usage is None else read_usage({"usage": self.usage})

    def message(self, index: int = 0) -> Message:
        choice = self._choices.get(index)
        message = choice.message if choice is not None else Message("assistant")
        return (
            message
            if index or not self._earlier_message.parts
            else Message("assistant", self._earlier_message.parts + message.parts)
        )

    def ending(self, index: int = 0) -> Finished | Failed | None:
        choice = self._choices.get(index)
        return choice.repairer.ending if choice is not None else self._no_answer

    @property
    def reasoning_field(self) -> str | None:
        """The field in which the first choice tells its reasoning."""
        choice = self._choices.get(0)
        return choice.reader.field if choice is not None else None

    @property
    def saw_chunks(self) -> bool:
        return self._last_chunk is not None

    @property
    def only_reasoning(self) -> bool:
        """Whether the answer, the only one, has ended well and said nothing but reasoning."""
        return len(self._choices) == 1 and all(one.only_reasoning for one in self._choices.values())

    @property
    def complete(self) -> bool:
        """Whether the host has said of every answer how it ends."""
        return self._failed or (bool(self._choices) and all(one.repairer.ending for one in self._choices.values()))

    def continuation(self) -> Continuation:
        """What makes the chunks of another answer read like more of this one."""
        return Continuation({**(self._last_chunk or {}), **(self._first_chunk or {})}, self.usage)

    def idle_choice(self) -> Choice | None:
        """The only choice so far, when no frame waits and nothing is held back."""
        if self._queue or len(self._choices) != 1:
            return None
        (choice,) = self._choices.values()
        return choice if choice.repairer.is_idle and choice.carry.is_empty and not choice.reader.has_details else None

    def has_own_role(self, chunk: Mapping[str, Any]) -> bool:
        """Whether the role that this chunk tells must not be told again by others like it."""
        (choice,) = chunk["choices"]
        return self._ensures_role and bool(choice["delta"].get("role"))

    def choice(self, index: int) -> Choice:
        found = self._choices.get(index)
        if found is None:
            found = self._choices[index] = Choice(index, self._plan, self.log, collect=self._collect)
        return found

    # -- what comes ------------------------------------------------------------------

    def feed(
        self, chunk: Mapping[str, Any], origin: Origin, parsed: ParsedText | str | None = None
    ) -> list[Released[Origin]]:
        """A chunk came. What is not a chunk passes unchanged, and is told.

        `parsed` is what a glance has already made of its only text.
        """
        choices = chunk.get("choices")
        frame = _Frame(origin, chunk)
        if chunk.get("error"):
            return self._handle_error(chunk["error"], origin)
        without_choices = choices is None and isinstance(chunk.get("usage"), dict) and self._plan.client is not None
        if without_choices:
            # OpenAI's clients go through the list of every chunk, and stumble where there is none.
            choices, frame = [], _Frame(origin, {**chunk, "choices": []})
            self.log.add(Repaired("choices_missing", "a chunk of usage"), 0)
        if not isinstance(choices, list):
            if "usage" not in chunk:
                self.log.add(Repaired("not_a_chunk", ", ".join(map(str, chunk))[:200]), 0)
            return self._enqueue(_Frame(origin, None))
        for choice in choices:
            if not isinstance(choice, dict) or ("message" in choice and "delta" not in choice):
                self.log.add(Repaired("not_a_chunk", "a choice that is no delta"), 0)
                return self._enqueue(_Frame(origin, None))
        self._first_chunk, self._last_chunk = self._first_chunk or chunk, chunk
        frame.usage, frame.changed = self._usage.read(chunk, self.log)
        frame.changed |= without_choices
        if self._plan.hides_usage and not choices and frame.usage is not None:
            return []
        frame.parts += [self._read(choice, place, frame, parsed) for place, choice in enumerate(choices)]
        return self._enqueue(frame)

    def adopt(self, chunk: Mapping[str, Any], origin: Origin, channel: Channel | None, share: int) -> None:
        """Queue a chunk of the fast path whose end is held back; without a channel it has arguments."""
        (choice,) = chunk["choices"]
        state = self.choice(choice.get("index") or 0)
        frame, part = _Frame(origin, chunk), _Part(choice, state)
        if channel is None:
            part.pieces = read_pieces(choice["delta"]["tool_calls"])
            text = part.pieces[0].arguments
        else:
            part.delta_text = read_speech(choice["delta"])
            text = part.delta_text.content if channel == "text" else part.delta_text.reasoning
        state.repairer.adopt(channel, text[: len(text) - share], share, part.output)
        frame.usage, frame.size = chunk.get("usage"), len(text)
        frame.parts.append(part)
        self._queue.append(frame)
        self._held_size += frame.size

    def _handle_error(self, error: Any, origin: Origin) -> list[Released[Origin]]:
        """The host told an error in the middle of its answer: it passes, behind what was held back."""
        if not isinstance(error, dict):
            # OpenAI's clients show only the message of an object.
            failed = host_error(error)
            self.log.add(Repaired("error_shape", failed.message), 0)
            return [*self._abandon(failed), Released(origin, [error_chunk(failed)])]
        return self._abandon(host_error(error), error.get("choice")) + self._enqueue(_Frame(origin, None))

    def fail(self, failed: Failed) -> list[Released[Origin]]:
        """The host is gone: what was held back goes out, and the error as the last chunk."""
        self.log.add(Repaired("failed", failed.code), 0)
        return [*self._abandon(failed), Released(None, [error_chunk(failed)])]

    def _abandon(self, failed: Failed, which: Any = None) -> list[Released[Origin]]:
        self._failed = self._failed or which is None
        self._no_answer = failed
        states = self._choices.values() if which is None else [self._choices[which]] if which in self._choices else []
        frame = self._new_frame(states)
        for part in frame.parts:
            part.state.repairer.abandon(failed, part.output)
        if any(map(_has_output, frame.parts)):
            self._queue.append(frame)
        # An error of one choice is no reason for the frames of the others not to wait.
        return self.release_held() if which is None else []

    def pass_through(self, origin: Origin) -> list[Released[Origin]]:
        """Something that is no chunk came: it keeps its place in the order, and ends the waiting.

        Hosts send comments while they have nothing to say: then nobody should wait for the next word.
        """
        return self.release_held() + self._enqueue(_Frame(origin, None))

    def done(self, origin: Origin | None) -> list[Released[Origin]]:
        """The host said that the stream is over: answers without a finish get one."""
        if not self._failed:
            frame = self._new_frame()
            for part in frame.parts:
                part.state.sign(part.output)
                part.state.repairer.finish(None, part.output)
                part.summary = self._summary(part)
            if frame.parts:
                self._queue.append(frame)
        return self._drain(origin)

    def end(self) -> list[Released[Origin]]:
        """The input ended, and nobody said that the stream was over."""
        if self.complete:
            return self._drain(None)
        if not self._choices:
            if self._no_answer is not None:
                return self._drain(None)
            self.log.add(Repaired("failed", STREAM_ENDED.code), 0)
            self._no_answer = STREAM_ENDED
            return [*self._drain(None), Released(None, [error_chunk(STREAM_ENDED)])]
        frame = self._new_frame()
        for part in frame.parts:
            part.state.sign(part.output)
            part.state.repairer.break_off(part.output)
        self._queue.append(frame)
        return self._drain(None)

    @property
    def finished(self) -> bool:
        """Whether every answer has ended well."""
        endings = [one.repairer.ending for one in self._choices.values()]
        return bool(endings) and all(isinstance(ending, Finished) for ending in endings)

    # -- one choice of a chunk -------------------------------------------------------

    def _read(
        self, choice: Mapping[str, Any], place: int, frame: _Frame[Origin], parsed: ParsedText | str | None
    ) -> _Part:
        index = read_index(choice.get("index"))
        state = self.choice(place if index is None else index)
        delta = choice.get("delta")
        odd = "" if has_index(choice) else f"index: {choice.get('index')} "
        if not isinstance(delta, dict):
            odd, delta = f"{odd}delta: {delta}", {}
        if odd and self._plan.options.repair_deltas:
            # OpenAI's clients read both without looking.
            frame.changed, choice = True, {**choice, "index": state.index, "delta": delta}
        part = _Part(choice, state)
        if odd and frame.changed and odd not in state.odd:
            state.odd.add(odd)
            part.output.put(Repaired("choice_shape", odd))
        raw = choice.get("finish_reason")
        if not raw and delta.get("finish_reason"):
            raw = delta["finish_reason"]
            frame.changed = True
            part.output.put(Repaired("finish_reason", "moved from the delta to the choice"))
        part.raw_finish = raw if isinstance(raw, str) and raw else None
        if delta.get("role") and not state.has_role:
            state.has_role = frame.carries_role = True
        elif delta.get("role") and self._ensures_role:
            # Packages that add deltas up would add the role up as well, and send that back.
            frame.changed, part.choice = True, {**choice, "delta": _without_role(delta)}
            if not state.made_role and not state.repeats_role:
                state.repeats_role = True
                part.output.put(Repaired("role_repeated", "assistant"))
        elif not state.has_role and self._ensures_role and (part.raw_finish or _has_content(delta)):
            # Packages that add deltas up would keep a message that nobody said, and send it back like that.
            state.has_role = state.made_role = frame.carries_role = frame.changed = True
            part.choice = {**choice, "delta": {"role": "assistant", **_without_role(delta)}}
            part.output.put(Repaired("role_missing", "assistant"))
        part.delta_text = read_speech(delta)
        self._read_text(part, delta, frame, parsed if isinstance(parsed, ParsedText) else None)
        if delta.get("tool_calls"):
            self._read_calls(part, delta["tool_calls"], frame, parsed if isinstance(parsed, str) else None)
        if part.raw_finish is not None:
            if state.repairer.ending is not None:
                frame.changed = True
            for channel, rest in state.carry.flush(part.output):
                self._feed_text(part, channel, rest)
            state.repairer.finish(part.raw_finish, part.output)
            part.summary = self._summary(part)
        return part

    def _read_text(
        self, part: _Part, delta: Mapping[str, Any], frame: _Frame[Origin], parsed: ParsedText | None
    ) -> None:
        delta_text = part.delta_text
        if delta_text.reasoning:
            part.state.reasoning = reasoning_fields(delta)
            if delta_text.conflicts and self._plan.options.repair_deltas:
                frame.changed = True
                for field, text in delta_text.conflicts:
                    part.output.put(Repaired("reasoning_conflict", f"{field}: {text}"))
            self._feed_text(part, "reasoning", delta_text.reasoning, parsed)
        part.state.read_reasoning(delta, delta_text.reasoning)
        if delta_text.content or delta.get("tool_calls") or part.raw_finish is not None:
            part.state.sign(part.output)
        if delta_text.content:
            self._feed_text(part, "text", delta_text.content, parsed)
        frame.size += len(delta_text.reasoning) + len(delta_text.content)

    def _feed_text(self, part: _Part, channel: Any, text: str, parsed: ParsedText | None = None) -> None:
        text = part.state.carry.join(channel, text, part.output)
        if text:
            part.state.repairer.feed_text(channel, text, part.output, parsed)

    def _read_calls(self, part: _Part, entries: Any, frame: _Frame[Origin], mended: str | None) -> None:
        part.pieces = read_pieces(entries)
        if not isinstance(entries, list) or len(part.pieces) != len(entries):
            part.output.put(Repaired("tool_delta", "an entry that is no object"))
        watch = part.state.repairer.watch
        if watch is not None:
            ids = [watch.feed(piece, part.output) for piece in part.pieces]
            part.entries, part.patched_entries = patch_entries(entries, part.pieces, ids, part.state.names)
            return
        for piece in part.pieces:
            arguments = part.state.carry.join(("arguments", piece.index), piece.arguments, part.output)
            part.state.repairer.feed_call(replace(piece, arguments=arguments), part.output, mended)
            frame.size += len(arguments)

    def _summary(self, part: _Part) -> list[dict[str, Any]] | None:
        assembler = part.state.assembler
        if not self._plan.options.assemble_tool_deltas or assembler is None:
            return None
        numbers = part.state.repairer.numbers
        # A call from markers and one that is only watched may have the same number.
        calls = sorted(((numbers[block], call) for block, call in assembler.tool_calls()), key=lambda one: one[0])
        return [
            write_piece(CallPiece(number, call.wire_id, call.name, call.arguments)) for number, call in calls
        ] or None

    # -- what leaves -----------------------------------------------------------------

    def _enqueue(self, frame: _Frame[Origin]) -> list[Released[Origin]]:
        brings_call = False
        if frame.waiting:
            events = [event for part in frame.parts for event in part.output.events]
            # What came before it, and goes out with it, waits with it.
            frame.size = max(frame.size, sum(part.output.size for part in frame.parts))
            # A call from markers: it cannot leave as it came, so there is nothing to wait for.
            brings_call = any(isinstance(event, BlockOpened) and event.is_from_markers for event in events)
        self._queue.append(frame)
        self._held_size += frame.size
        released = self._release_ready()
        named = sum(choice.repairer.named_held_size for choice in self._awaited_choices())
        if brings_call or self._held_size - named > HELD_LIMIT or len(self._queue) > HELD_FRAMES:
            released += self.release_held()
        return released

    def release_held(self) -> list[Released[Origin]]:
        """Frames wait no longer: they leave with what is decided, the rest goes out with a later one."""
        for choice in self._awaited_choices():
            choice.repairer.release_all()
        return self._release_ready()

    def _awaited_choices(self) -> set[Choice]:
        """The choices whose text frames wait for."""
        return {part.state for frame in self._queue for part in frame.parts if part.output.waiting}

    def _release_ready(self) -> list[Released[Origin]]:
        queue, released = self._queue, []
        while queue and not queue[0].waiting:
            frame = queue.popleft()
            self._held_size -= frame.size
            released.append(self._render(frame))
        return released

    def _drain(self, origin: Origin | None) -> list[Released[Origin]]:
        late = self._new_frame(ended=True)
        for part in late.parts:
            part.state.repairer.drain_late(part.output)
        late.parts = list(filter(_has_output, late.parts))
        if late.parts:
            self._queue.append(late)
        released = self.release_held()
        if origin is not None:
            released.append(Released(origin))
        return released

    def _render(self, frame: _Frame[Origin]) -> Released[Origin]:
        if frame.chunk is None:
            return Released(frame.origin)
        parts = [(part, part.state.builder.build(part.output.events)) for part in frame.parts]
        if not frame.changed and all(_is_unchanged(part, segments) for part, segments in parts):
            return Released(frame.origin)
        moves_usage = self._plan.options.repair_deltas
        written = [
            ChoicePart(part.choice, segments, part.entries, part.summary, part.state.reasoning, moves_usage)
            for part, segments in parts
        ]
        patched = patch_chunk(frame.chunk, written, frame.usage)
        if frame.origin is not None and not frame.carries_role and len(patched) == 1 and says_nothing(patched[0]):
            patched = []
        return Released(frame.origin, patched)

    def _new_frame(self, states: Iterable[Choice] | None = None, *, ended: bool = False) -> _Frame[Origin]:
        """A chunk of our own, in the image of the last one, for those of the answers that have (not) ended."""
        last = self._last_chunk or {}
        chunk = {key: value for key, value in last.items() if key not in ("choices", "usage")}
        frame: _Frame[Origin] = _Frame(None, chunk)
        states = self._choices.values() if states is None else states
        for state in [one for one in states if (one.repairer.ending is not None) == ended]:
            part = _Part({"index": state.index, "delta": {}, "finish_reason": None}, state)
            for channel, rest in state.carry.flush(part.output):
                self._feed_text(part, channel, rest)
            frame.parts.append(part)
        return frame


def with_client_model(body: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """A chunk or a whole response under the name of the model that the client asked for."""
    if plan.client is None or body.get("model", plan.reply.model) == plan.reply.model:
        return body
    return body | {"model": plan.reply.model}


def _has_content(delta: Mapping[str, Any]) -> bool:
    return any(delta.get(field) for field in ("content", "tool_calls", *REASONING_FIELDS))


def _without_role(delta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in delta.items() if key != "role"}


def _has_output(part: _Part) -> bool:
    return any(isinstance(event, (BlockOpened, BlockDelta)) for event in part.output.events)


def _is_unchanged(part: _Part, segments: Sequence[Segment]) -> bool:
    """Whether what goes out is what came: then the frame leaves byte for byte."""
    if part.patched_entries or len(segments) > 1:
        return False
    if part.summary is not None and part.choice.get("message") != summary_message(part.summary):
        return False
    sent = segments[0] if segments else Segment()
    if sent.reasoning != part.delta_text.reasoning or sent.content != part.delta_text.content:
        return False
    ending = sent.ending
    if isinstance(ending, Failed) or (ending.reason if ending else None) != part.raw_finish:
        return False
    if part.entries is not None:
        return not sent.calls
    return len(sent.calls) == len(part.pieces) and all(map(_same_piece, part.pieces, sent.calls))


def _same_piece(received: CallPiece, sent: CallPiece) -> bool:
    return (
        not received.odd
        and received.index == sent.index
        and received.id == sent.id
        and received.name == sent.name
        and received.arguments == sent.arguments
    )
