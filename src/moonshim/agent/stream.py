"""A prepared request -> the events of its answer: asked again while nothing has been said, read, mended, closed.

Read `_Exchange.told` first: attempts, one after the other, of which the first that says something is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from warnings import warn

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.assemble import Assembler
from moonshim.engine.hosts.errors.body import masked
from moonshim.engine.hosts.errors.classify import ERROR_BYTES, read_problem, without
from moonshim.engine.ids import CanonicalIds
from moonshim.engine.prepare import Prepared
from moonshim.engine.response.pipeline import EventCollector
from moonshim.engine.response.reply import ResponseStream, form_of, read_reply
from moonshim.engine.values.conversation import Change, Message, Part, ToolCall, Usage
from moonshim.engine.values.events import BlockOpened, Event, Failed, Finished, Repaired, Started, failed_by
from moonshim.errors import Problem, UpstreamError, problem_of
from moonshim.http_client import GOODBYE_SECONDS, LAST_WORDS_SECONDS, UpstreamClient, UpstreamRequest, UpstreamResponse
from moonshim.http_client.retry import classify, pause_before

__all__ = ["AnswerStream", "ExchangeResult", "PreparedQuestion", "assemble_message"]


class ExchangeResult(Struct, frozen=True, kw_only=True):
    """What one question and its answer came to."""

    changes: tuple[Change, ...] = ()
    """What of the question was not sent as it was, by which rule, and why."""
    repair_counts: dict[str, int] = {}
    """How often each rule put something right in the answer."""
    usage: Usage | None = None
    """Tokens, as far as the host counted."""
    problem: Problem | None = None
    """Why there is no answer, or only a part of one."""
    message: Message = Message("assistant")
    """What was said, for the history: with its reasoning, and under canonical identifiers."""
    ending: Finished | Failed | None = None
    """None: nobody read the answer to its end."""
    attempts: int = 0
    """How often the host was asked."""
    reasoning_field: str | None = None
    """The field in which a Chat host told its reasoning."""


class PreparedQuestion(Struct, frozen=True, kw_only=True):
    """All that one question needs. It prints as its call does, which shows neither keys nor conversations."""

    upstream: Callable[[], UpstreamClient]
    prepared: Prepared
    call: UpstreamRequest
    secrets: tuple[str, ...]
    """What the host is sent, and may repeat in an error."""
    known_ids: frozenset[str]
    """The canonical identifiers of the history."""
    attempts: int
    longest_wait: float
    random: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]]
    correct: Callable[[Problem], tuple[Prepared, UpstreamRequest] | None]
    """What to send instead of a request that the host refused for this reason; None: nothing better."""
    done: Callable[[ExchangeResult], None]
    """Told once, when the answer is over or nobody wants more of it."""

    def __repr__(self) -> str:
        return f"Asking({self.call!r})"


class AnswerStream:
    """The events of one answer. `Finished` or `Failed` comes last, once; nothing that a host does raises.

    Nobody is asked before the first event is wanted. Whoever wants no more closes it (`aclose`, or `async with`);
    leaving an `async for`, and cancelling the task in it, do so too. Then its connection is closed.
    """

    def __init__(self, asking: PreparedQuestion) -> None:
        # What runs must not know this object: else nobody but the garbage collector would find out that it was left.
        self._exchange = _Exchange(asking)
        self._events = self._exchange.told()

    def __repr__(self) -> str:
        return f"AnswerStream({self._exchange.asking.call!r})"

    def __aiter__(self) -> AnswerStream:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def __aenter__(self) -> AnswerStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Be done with it, at once."""
        await self._events.aclose()

    @property
    def result(self) -> ExchangeResult:
        """What it came to so far."""
        return self._exchange.result

    @property
    def exchanged(self) -> ExchangeResult:
        """The former name of `result`."""
        warn("AnswerStream.exchanged is called result now", DeprecationWarning, stacklevel=2)
        return self.result


class _Exchange:
    """One question and its answer."""

    def __init__(self, asking: PreparedQuestion) -> None:
        self.asking = asking
        self._assembler = Assembler()
        self._ids = CanonicalIds()
        for known in asking.known_ids:
            self._ids.keep(known)
        self._problem: Problem | None = None
        self._reading: ResponseStream | None = None
        self._ending: Finished | Failed | None = None
        self._attempts = 0
        self._corrected = False

    @property
    def result(self) -> ExchangeResult:
        """What it came to so far."""
        reading = self._reading
        return ExchangeResult(
            changes=tuple(self.asking.prepared.changes),
            repair_counts=reading.repair_counts if reading is not None else {},
            usage=reading.usage if reading is not None else None,
            problem=self._problem,
            message=_for_history(self._assembler.message),
            ending=self._ending,
            attempts=self._attempts,
            reasoning_field=reading.reasoning_field if reading is not None else None,
        )

    # -- attempts --------------------------------------------------------------------

    async def told(self) -> AsyncGenerator[Event, None]:
        """The events."""
        asking = self.asking
        try:
            while True:
                self._attempts += 1
                async with aclosing(self._attempt()) as events:
                    async for event in events:
                        yield event
                if self._ending is not None:
                    return
                if self._correct():
                    continue
                pause = self._pause()
                if pause is None:
                    break
                await asking.sleep(pause)
            assert self._problem is not None
            yield self._kept(failed_by(self._problem))
        finally:
            if self._ending is None:
                asking.done(self.result)

    def _correct(self) -> bool:
        """Whether the host refused something that has been put right: asked again at once, and only once."""
        assert self._problem is not None
        better = None if self._corrected else self.asking.correct(self._problem)
        if better is None:
            return False
        self._corrected = True
        prepared, call = better
        self.asking = replace(self.asking, prepared=prepared, call=call, attempts=self.asking.attempts + 1)
        return True

    def _pause(self) -> float | None:
        """Seconds until the host is asked again; None: it is not."""
        asking, problem = self.asking, self._problem
        assert problem is not None
        if self._attempts >= asking.attempts or classify(problem) != "again":
            return None
        return pause_before(problem, tries=self._attempts, longest=asking.longest_wait, random=asking.random)

    async def _attempt(self) -> AsyncGenerator[Event, None]:
        """The events of the answer, to its ending; or none, and `_problem` says why."""
        asking = self.asking
        self._problem = self._reading = None
        try:
            answer = await asking.upstream().open(asking.call)
        except UpstreamError as error:
            self._problem = without(problem_of(error), asking.secrets)
            return
        try:
            if not 200 <= answer.status <= 299:
                self._problem = await self._refused(answer)
                return
            held: list[Event] | None = []
            async with aclosing(self._read(answer)) as events:
                async for event in events:
                    if held is not None:
                        if isinstance(event, Failed):
                            return  # the first thing that it says is an error: it may be asked again
                        held.append(event)
                        if isinstance(event, (Started, Repaired)):
                            continue
                        for one in held:
                            yield self._kept(one)
                        held = None
                    else:
                        yield self._kept(event)
        finally:
            answer.close()

    async def _refused(self, answer: UpstreamResponse) -> Problem:
        try:
            body = await answer.read_all(ERROR_BYTES, cut=True)
        except UpstreamError:
            body = b""
        asking = self.asking
        return read_problem(answer.status, body, answer.headers, asking.prepared.profile, secrets=asking.secrets)

    # -- one answer ------------------------------------------------------------------

    async def _read(self, answer: UpstreamResponse) -> AsyncGenerator[Event, None]:
        collector, told = EventCollector(), 0
        input_format = form_of(answer.headers.get("content-type"))
        plan = self.asking.prepared.plan
        self._reading = reading = read_reply(plan, input_format=input_format, output_format="sse", encoder=collector)
        over = False
        while not over:
            try:
                data = await self._more(answer, reading)
            except UpstreamError as error:
                over = True
                reading.fail(problem_of(error))
            else:
                over = not data
                if data:
                    reading.feed(data)
                else:
                    reading.flush()
            repairs = reading.repairs
            new, told = repairs[told:], len(repairs)
            events, collector.events = [*new, *collector.events], []
            for event in events:
                if isinstance(event, (Finished, Failed)):
                    await self._say_goodbye(answer, over=over)
                    yield self._ended(event, reading)
                    return
                yield self._named(event)

    async def _more(self, answer: UpstreamResponse, reading: ResponseStream) -> bytes:
        if not reading.complete:
            return await answer.read()
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                return await answer.read()
        except TimeoutError:
            return b""

    async def _say_goodbye(self, answer: UpstreamResponse, *, over: bool) -> None:
        """All is said: what is left is the end of the answer, behind which its connection can be used again."""
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                while not over and await answer.read():
                    pass
        except (UpstreamError, TimeoutError):
            pass

    def _named(self, event: Event) -> Event:
        """A call under the name that its tool was declared by, and an identifier that the history does not have."""
        if not isinstance(event, BlockOpened) or event.kind != "call":
            return event
        name = event.name or ""
        names = self.asking.prepared.plan.names
        return replace(event, name=names.get(name, name), call_id=self._ids.new(event.call_id or ""))

    def _ended(self, event: Finished | Failed, reading: ResponseStream) -> Finished | Failed:
        if isinstance(event, Finished):
            return event
        secrets = self.asking.secrets
        problem = reading.problem
        assert problem is not None
        self._problem = problem = without(problem, secrets)
        return Failed(masked(event.code, secrets), problem.message, event.retryable)

    def _kept(self, event: Event) -> Event:
        self._assembler.feed(event)
        if isinstance(event, (Finished, Failed)):
            self._ending = event
            self.asking.done(self.result)  # before it is told: whoever hears of the end may look
        return event


def assemble_message(events: list[Event]) -> Message:
    """The message that these events of a provider tell, as a history keeps it."""
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    return _for_history(assembler.message)


def _for_history(message: Message) -> Message:
    """The identifiers of a provider's events are canonical already: no wire has ever seen them."""
    parts: tuple[Part, ...] = tuple(
        replace(part, wire_id=None) if isinstance(part, ToolCall) else part for part in message.parts
    )
    return replace(message, parts=parts)
