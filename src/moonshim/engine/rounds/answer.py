"""A response that is not what the client demands -> one more round that explains to the model what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from moonshim.engine.repair.answer_check import AnswerCheck
from moonshim.engine.request.structured_output import describe_mistake
from moonshim.engine.rounds.rule import MAX_ROUNDS, NextRound, Outcome, RoundEnd, RoundRule
from moonshim.engine.values.conversation import Message, Part, Reasoning, Text, ToolCall
from moonshim.engine.values.events import BlockOpened, Event, Finished, Repaired
from moonshim.engine.values.expected import ExpectedAnswer
from moonshim.engine.values.searches import ClientEvent

__all__ = ["AnswerRule", "PlainRule"]


class PlainRule:
    """Needs no further round, and changes nothing."""

    def feed(self, event: Event) -> Sequence[ClientEvent]:
        return (event,)

    def end(self, finished: Finished, message: Message, rounds: int) -> RoundEnd:
        return RoundEnd()

    def resume(self, outcomes: Sequence[Outcome]) -> NextRound:
        return NextRound()

    @property
    def has_fallback(self) -> bool:
        return False

    def abandon(self, message: Message) -> RoundEnd:
        return RoundEnd()

    def visible(self, message: Message) -> Sequence[Part]:
        return message.parts


class AnswerRule:
    """Checks the response of each round, and asks for another one at most once.

    What passes the check goes on to the `inner` rule. A response that is still wrong the second time is passed on as
    the model wrote it. So is the first one if the second cannot be had, unless a part of that was passed on. One that
    must not reach the client (a call of a tool that may not be called) ends in an error instead.
    """

    def __init__(self, inner: RoundRule, expected: ExpectedAnswer, *, may_ask: bool, names: Mapping[str, str]) -> None:
        """`expected`: what the response of the first round has to be. `may_ask`: whether the shell plays further
        rounds. `names`: the client's names of the tools that have a different name at the host."""
        self._inner, self._may_ask, self._names = inner, may_ask, names
        self._wrong: AnswerCheck | None = None
        """The response that the model is asked to correct, until it has."""
        self._can_release = False
        """Whether the client can still get that response."""
        self.expect(expected)
        self._wrong_message = Message("assistant")
        self._texts: list[tuple[Message, str | None]] = []
        """The text that the client has of each message, where it is not the model's own."""

    def expect(self, expected: ExpectedAnswer | None) -> None:
        """A round starts, whose response has to be this; None: it is not checked."""
        if expected is None and self._wrong is not None:
            # A correction is asked for in a way that the host may guarantee. Whether it was one is still reported.
            expected = self._expected
        self._expected: ExpectedAnswer | None = expected
        self._check: AnswerCheck | None = None if expected is None else AnswerCheck(expected)

    def feed(self, event: Event) -> Sequence[ClientEvent]:
        events = [event] if self._check is None else self._check.feed(event)
        if self._can_release and any(isinstance(one, BlockOpened) and one.kind != "reasoning" for one in events):
            self._can_release = False
        return self._pass(events)

    def _pass(self, events: Sequence[Event]) -> list[ClientEvent]:
        return [one for event in events for one in self._inner.feed(event)]

    def end(self, finished: Finished, message: Message, rounds: int) -> RoundEnd:
        check, events = self._check, list[Event]()
        if check is not None:
            events = check.end(finished)
            if check.wrong:
                if self._may_ask and not check.is_cut_off and rounds < MAX_ROUNDS:
                    self._wrong, self._wrong_message = check, message
                    self._may_ask, self._can_release = False, check.refusal(self._names) is None
                    self._texts.append((message, check.passed_text or None))
                    return RoundEnd(wanted=())
                if (failed := check.refusal(self._names)) is not None:
                    self._wrong, self._can_release = None, False
                    return RoundEnd(failed=failed)
                events = check.release()
        if self._wrong is not None and (check is None or not check.wrong):
            events.append(Repaired("answer_corrected", "; ".join(self._wrong.wrong)))
        self._wrong, self._can_release = None, False
        end = self._inner.end(finished, message, rounds)
        return replace(end, events=[*self._pass(events), *end.events])

    def resume(self, outcomes: Sequence[Outcome]) -> NextRound:
        wrong, expected = self._wrong, self._expected
        if wrong is None or expected is None or not wrong.wrong:
            return self._inner.resume(outcomes)
        # Calls that nobody answers cannot be sent back; what was wrong with them is said in words.
        said = tuple(part for part in self._wrong_message.parts if not isinstance(part, ToolCall))
        mistake = Message("user", (Text(describe_mistake(expected, wrong.wrong)),))
        answered = any(isinstance(part, Text) and part.text.strip() for part in said)
        messages = (Message("assistant", said), mistake) if answered else (mistake,)
        return NextRound(messages=messages, stops_thinking=expected.tool is not None)

    @property
    def has_fallback(self) -> bool:
        return self._can_release or self._inner.has_fallback

    def abandon(self, message: Message) -> RoundEnd:
        wrong = self._wrong
        if wrong is None or not self._can_release:
            return self._inner.abandon(message)
        self._wrong, self._can_release = None, False
        self._texts.remove((self._wrong_message, None))
        if message != self._wrong_message:
            self._texts.append((message, None))
        return RoundEnd(self._pass(wrong.release()))

    def visible(self, message: Message) -> Sequence[Part]:
        parts = self._inner.visible(message)
        for known, text in self._texts:
            if known == message:
                kept = [part for part in parts if isinstance(part, Reasoning)]
                return kept if text is None else [*kept, Text(text)]
        return parts
