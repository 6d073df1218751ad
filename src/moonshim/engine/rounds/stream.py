"""The responses of several rounds -> one response for the client.

Each round is read by a response stream of its own, which gives events. They pass through the rule of the exchange,
are numbered over all rounds, and are written by one encoder in the client's dialect. The ending of a round that is not
the last one is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from moonshim.engine.dialects.protocol import ClientEncoder, Dialect, Encoder, ResponseContext
from moonshim.engine.hosts.errors.classify import problem_of_failure
from moonshim.engine.response.reply import Form, ResponseStream
from moonshim.engine.response.stream import fill_error
from moonshim.engine.response.writers import EventCollector
from moonshim.engine.rounds.rule import NextRound, Outcome, RoundRule, Wanted
from moonshim.engine.values.conversation import Message, Usage, add_usage
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    Failed,
    Finished,
    Repaired,
    failure_from,
)
from moonshim.engine.values.searches import ClientEvent
from moonshim.engine.wire.json_codec import encode
from moonshim.engine.wire.sse import event_line, render_sse
from moonshim.errors import Problem

__all__ = ["RoundsStream"]

OpenRound: TypeAlias = Callable[[Encoder], ResponseStream]
"""Makes the stream that reads a round; the encoder gets its events."""


class RoundsStream:
    """One response for the client, made of one or more rounds; a `ResponseStream` over all of them.

    `pending` says what has to be done before `resume`. Then either the response has ended, or the messages that
    `resume` returned have to be sent, and `start_round` gets their response.
    """

    took_fast_path = False

    def __init__(
        self,
        client: Dialect,
        reply: ResponseContext,
        output_format: Form,
        rule: RoundRule,
        first: OpenRound,
        encoder: ClientEncoder | None = None,
    ) -> None:
        """`encoder` gets the events, where somebody wants those instead of bytes."""
        self._client, self._reply, self._rule = client, reply, rule
        self._encoder = encoder
        if encoder is None and output_format != "json":
            self._encoder = client.encoder(reply)
        self._events: list[ClientEvent] = []
        """All events, where the response is written at once."""
        self.pending: tuple[Wanted, ...] | None = None
        self.ending: Finished | Failed | None = None
        self._held: Finished | None = None
        """The ending of a round that something is pending after."""
        self._rounds = self._first_block = self._blocks = 0
        self._earlier_messages: tuple[Message, ...] = ()
        self._earlier_usage: Usage | None = None
        self._earlier_counts: Counter[str] = Counter()
        self._earlier_repairs: list[Repaired] = []
        self._taken_repairs = 0
        """The repairs of the current round that are among the earlier ones already."""
        self._problem: Problem | None = None
        self._start_round(first)

    def start_round(self, open_round: OpenRound) -> None:
        """The response to the next request follows."""
        self._earlier_messages = (*self._earlier_messages, self._round.message)
        self._earlier_usage = add_usage(self._earlier_usage, self._round.usage)
        self._earlier_counts.update(self._round.repair_counts)
        self._take_repairs()
        self._start_round(open_round)

    def _start_round(self, open_round: OpenRound) -> None:
        self._collector = EventCollector()
        self._round = open_round(self._collector)
        self._flushed = False
        self._taken_repairs = 0
        self._rounds += 1
        self._first_block = self._blocks

    # -- what comes ------------------------------------------------------------------

    def feed(self, data: bytes) -> bytes:
        self._round.feed(data)  # its bytes are only comments of the host: the gateway sends its own
        return self._take()

    def flush(self) -> bytes:
        if not self._flushed:
            self._flushed = True
            self._round.flush()
        return self._take() + self._body()

    def fail(self, problem: Problem) -> bytes:
        if self.ending is not None:
            return b""
        out = b""
        if self.pending is None and not self._flushed:
            self._flushed = True
            self._round.fail(problem)
            out = self._take(problem)
            if self.is_round_over:
                # It failed; or it was complete, and only its connection broke.
                return out
        self.pending, self._problem = None, problem
        return out + self._fail(failure_from(problem), problem)

    def resume(self, outcomes: Sequence[Outcome]) -> tuple[NextRound, bytes]:
        """What was pending is done: the bytes for the client, and what to send next, if anything."""
        self.pending, held = None, self._held
        assert held is not None, "nothing is pending"
        following = self._rule.resume(outcomes)
        out = self._write_own(following.events)
        if not following.messages:
            return following, out + self._finish(held)
        return following, out

    def start_retry(self, input_format: Form) -> None:
        self._round.start_retry(input_format)
        self._flushed = False

    def release_ending(self) -> bytes:
        self._round.release_ending()
        return self._take()

    def _take(self, problem: Problem | None = None) -> bytes:
        events, out = self._collector.events, b""
        if not events:
            return out
        self._collector.events = []
        for event in events:
            if isinstance(event, (BlockOpened, BlockDelta, BlockSigned, BlockClosed)):
                self._blocks += isinstance(event, BlockOpened)
                if self._first_block:
                    event = replace(event, index=self._first_block + event.index)
            if isinstance(event, Finished):
                out += self._end_round(event)
            elif isinstance(event, Failed):
                out += self._fail(event, problem)
            else:
                out += self._write(self._rule.feed(event))
        return out

    def _end_round(self, finished: Finished) -> bytes:
        end = self._rule.end(finished, self._round.message, self._rounds)
        out = self._write_own(end.events)
        if end.failed is not None:
            self._problem = problem_of_failure(end.failed)
            return out + self._fail(end.failed, self._problem)
        if end.wanted is None:
            return out + self._finish(end.finished or finished)
        self.pending, self._held = end.wanted, end.finished or finished
        return out

    # -- what leaves -----------------------------------------------------------------

    def _finish(self, finished: Finished) -> bytes:
        self.ending = replace(finished, usage=self.usage)
        done = self._client.done
        return self._write([self.ending]) + (render_sse(done) if done is not None and self._encoder else b"")

    def _fail(self, failed: Failed, problem: Problem | None) -> bytes:
        if self.has_fallback and self._held is not None:
            end = self._rule.abandon(self._round.message)
            return self._write_own(end.events) + self._finish(end.finished or self._held)
        error_body = None if problem is None else self._client.render_problem(problem)
        self.ending = failed if error_body is None else replace(failed, message=error_body["error"]["message"])
        if self._encoder is None:
            return b""
        payloads = self._encoder.feed(self.ending)
        if problem is not None and error_body is not None and payloads:
            fill_error(problem, error_body, payloads[-1])
        return b"".join(map(self._render, payloads))

    def _write_own(self, events: Sequence[ClientEvent]) -> bytes:
        """Write what the rule says beside the events of a round; its repairs are in no other log."""
        repairs = [event for event in events if isinstance(event, Repaired)]
        if repairs:
            self._take_repairs()
            self._earlier_repairs += repairs
        self._earlier_counts.update(repair.rule for repair in repairs)
        return self._write([event for event in events if not isinstance(event, Repaired)])

    def _take_repairs(self) -> None:
        repairs = self._round.repairs
        self._earlier_repairs += repairs[self._taken_repairs :]
        self._taken_repairs = len(repairs)

    def _write(self, events: Sequence[ClientEvent]) -> bytes:
        if self._encoder is None:
            self._events += events
            return b""
        return b"".join(self._render(payload) for event in events for payload in self._encoder.feed(event))

    def _render(self, payload: dict[str, object]) -> bytes:
        head = event_line(payload.get("type")) if self._client.has_event_names else b""
        return render_sse(encode(payload), head)

    def _body(self) -> bytes:
        """The whole response, if it is written at once and has ended well."""
        if self._encoder is not None or not isinstance(self.ending, Finished):
            return b""
        return encode(self._client.encode_response(self._events, self._reply))

    # -- the response so far ---------------------------------------------------------

    @property
    def is_round_over(self) -> bool:
        """Whether the host has ended its response to the current request."""
        return self.pending is not None or self.ending is not None

    @property
    def has_fallback(self) -> bool:
        """Whether the response can end well without the next round."""
        return self._rule.has_fallback

    @property
    def round_message(self) -> Message:
        """What the model wrote in the current round."""
        return self._round.message

    @property
    def message(self) -> Message:
        """What the client has of all rounds: without the calls that were answered here."""
        parts = [part for one in (*self._earlier_messages, self._round.message) for part in self._rule.visible(one)]
        return Message("assistant", tuple(parts))

    @property
    def wants_retry(self) -> bool:
        return self.pending is None and self._round.wants_retry

    @property
    def retry_reason(self) -> str | None:
        return self._round.retry_reason

    @property
    def awaits_usage(self) -> bool:
        return self._round.awaits_usage

    @property
    def complete(self) -> bool:
        return self._round.complete

    @property
    def usage(self) -> Usage | None:
        """The input of the last request, which contains what was said before it, and the output of all."""
        usage, earlier = self._round.usage, self._earlier_usage
        if usage is None or earlier is None:
            return usage or earlier
        before = Usage(output_tokens=earlier.output_tokens, reasoning_tokens=earlier.reasoning_tokens, raw=earlier.raw)
        total = add_usage(before, usage) or usage
        return replace(total, raw=usage.raw | total.raw)

    @property
    def repair_counts(self) -> dict[str, int]:
        return dict(self._earlier_counts + Counter(self._round.repair_counts))

    @property
    def repairs(self) -> list[Repaired]:
        """In their order: a list that only grows."""
        return self._earlier_repairs + self._round.repairs[self._taken_repairs :]

    @property
    def reasoning_field(self) -> str | None:
        return self._round.reasoning_field

    @property
    def problem(self) -> Problem | None:
        return None if isinstance(self.ending, Finished) else self._problem or self._round.problem
