"""Calls on their way to a client that asked for verdicts -> the end of the response waits until they are judged."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from moonshim.engine.rounds.rule import JudgeOutcome, JudgeWanted, NextRound, Outcome, RoundEnd, RoundRule
from moonshim.engine.values.conversation import Message, Part
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Finished
from moonshim.engine.values.searches import ClientEvent
from moonshim.engine.values.verdicts import CallsJudged, CallToJudge

__all__ = ["JudgeRule"]


class _OpenCall:
    def __init__(self, name: str) -> None:
        self.name = name
        self.pieces: list[str] = []


class JudgeRule:
    """Passes everything on as the `inner` rule gives it, and collects the calls that the client gets.

    A call can be judged as soon as it is complete (`take_calls`), while the rest of the response streams. Only the end
    waits for the verdicts.
    """

    def __init__(self, inner: RoundRule, unsupported: tuple[str, ...] = ()) -> None:
        """`unsupported`: other checks that the client asked for."""
        self._inner, self._unsupported = inner, unsupported
        self._open: dict[int, _OpenCall] = {}
        self._closed: list[CallToJudge] = []
        self._has_calls = self._inner_waits = False
        self._waits_for_verdicts = False
        """The response is complete, and nothing but verdicts is missing."""

    def take_calls(self) -> list[CallToJudge]:
        """The calls that are complete since the last time."""
        calls, self._closed = self._closed, []
        return calls

    def feed(self, event: Event) -> Sequence[ClientEvent]:
        return self._noted(self._inner.feed(event))

    def _noted(self, events: Sequence[ClientEvent]) -> Sequence[ClientEvent]:
        for event in events:
            match event:
                case BlockOpened(index=index, kind="call", name=name):
                    self._open[index], self._has_calls = _OpenCall(name or ""), True
                case BlockDelta(index=index, text=text) if index in self._open:
                    self._open[index].pieces.append(text)
                case BlockClosed(index=index, complete=complete) if index in self._open:
                    self._close(index, complete=complete)
        return events

    def _close(self, index: int, *, complete: bool) -> None:
        call = self._open.pop(index)
        self._closed.append(CallToJudge(index, call.name, "".join(call.pieces), complete))

    def end(self, finished: Finished, message: Message, rounds: int) -> RoundEnd:
        end = self._inner.end(finished, message, rounds)
        self._noted(end.events)
        self._inner_waits = end.wanted is not None
        if self._has_calls:
            for index in list(self._open):  # cut off
                self._close(index, complete=False)
            self._waits_for_verdicts = not self._inner_waits
            return replace(end, wanted=(*(end.wanted or ()), JudgeWanted()))
        return end if self._inner_waits else replace(end, events=[*end.events, CallsJudged({}, self._unsupported)])

    def resume(self, outcomes: Sequence[Outcome]) -> NextRound:
        verdicts = next((one.verdicts for one in outcomes if isinstance(one, JudgeOutcome)), {})
        others = [one for one in outcomes if not isinstance(one, JudgeOutcome)]
        self._waits_for_verdicts = False
        following = self._inner.resume(others) if self._inner_waits else NextRound()
        self._noted(following.events)
        if following.messages:
            return following
        return replace(following, events=[*following.events, CallsJudged(verdicts, self._unsupported)])

    @property
    def has_fallback(self) -> bool:
        return self._waits_for_verdicts or self._inner.has_fallback

    def abandon(self, message: Message) -> RoundEnd:
        end = RoundEnd() if self._waits_for_verdicts else self._inner.abandon(message)
        return replace(end, events=[*self._noted(end.events), CallsJudged({}, self._unsupported)])

    def visible(self, message: Message) -> Sequence[Part]:
        return self._inner.visible(message)
