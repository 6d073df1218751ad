"""A prepared request -> the events of its answer: asked again while nothing has been said, read, mended, closed.

Read `_Exchange.run` first: attempts, one after the other, until one of them starts a response; that one is streamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from moonshim.compat import FormerName
from moonshim.engine.assemble import Assembler
from moonshim.engine.hosts.errors.body import mask_secrets
from moonshim.engine.hosts.errors.classify import ERROR_BYTES, mask_problem, read_problem
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

    def __init__(self, question: PreparedQuestion) -> None:
        # What runs must not know this object: else nobody but the garbage collector would find out that it was left.
        self._exchange = _Exchange(question)
        self._events = self._exchange.run()

    def __repr__(self) -> str:
        return f"AnswerStream({self._exchange.question.call!r})"

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

    exchanged: ClassVar[FormerName] = FormerName("result")


class _Exchange:
    """One question and its answer."""

    def __init__(self, question: PreparedQuestion) -> None:
        self.question = question
        self._assembler = Assembler()
        self._ids = CanonicalIds()
        for known in question.known_ids:
            self._ids.keep(known)
        self._problem: Problem | None = None
        self._response_stream: ResponseStream | None = None
        self._ending: Finished | Failed | None = None
        self._attempts = 0
        self._corrected = False

    @property
    def result(self) -> ExchangeResult:
        """What it came to so far."""
        response_stream = self._response_stream
        return ExchangeResult(
            changes=tuple(self.question.prepared.changes),
            repair_counts=response_stream.repair_counts if response_stream is not None else {},
            usage=response_stream.usage if response_stream is not None else None,
            problem=self._problem,
            message=_for_history(self._assembler.message),
            ending=self._ending,
            attempts=self._attempts,
            reasoning_field=response_stream.reasoning_field if response_stream is not None else None,
        )

    # -- attempts --------------------------------------------------------------------

    async def run(self) -> AsyncGenerator[Event, None]:
        """Ask until something is answered, and yield the events."""
        question = self.question
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
                await question.sleep(pause)
            assert self._problem is not None
            yield self._record(failed_by(self._problem))
        finally:
            if self._ending is None:
                question.done(self.result)

    def _correct(self) -> bool:
        """Whether the host refused something that has been put right: asked again at once, and only once."""
        assert self._problem is not None
        better = None if self._corrected else self.question.correct(self._problem)
        if better is None:
            return False
        self._corrected = True
        prepared, call = better
        self.question = replace(self.question, prepared=prepared, call=call, attempts=self.question.attempts + 1)
        return True

    def _pause(self) -> float | None:
        """Seconds until the host is asked again; None: it is not."""
        question, problem = self.question, self._problem
        assert problem is not None
        if self._attempts >= question.attempts or classify(problem) != "again":
            return None
        return pause_before(problem, tries=self._attempts, longest=question.longest_wait, random=question.random)

    async def _attempt(self) -> AsyncGenerator[Event, None]:
        """The events of the answer, to its ending; or none, and `_problem` says why."""
        question = self.question
        self._problem = self._response_stream = None
        try:
            answer = await question.upstream().open(question.call)
        except UpstreamError as error:
            self._problem = mask_problem(problem_of(error), question.secrets)
            return
        try:
            if not 200 <= answer.status <= 299:
                self._problem = await self._read_error(answer)
                return
            held: list[Event] | None = []
            async with aclosing(self._read_events(answer)) as events:
                async for event in events:
                    if held is not None:
                        if isinstance(event, Failed):
                            return  # the first thing that it says is an error: it may be asked again
                        held.append(event)
                        if isinstance(event, (Started, Repaired)):
                            continue
                        for one in held:
                            yield self._record(one)
                        held = None
                    else:
                        yield self._record(event)
        finally:
            answer.close()

    async def _read_error(self, answer: UpstreamResponse) -> Problem:
        try:
            body = await answer.read_all(ERROR_BYTES, cut=True)
        except UpstreamError:
            body = b""
        question = self.question
        return read_problem(answer.status, body, answer.headers, question.prepared.profile, secrets=question.secrets)

    # -- one answer ------------------------------------------------------------------

    async def _read_events(self, answer: UpstreamResponse) -> AsyncGenerator[Event, None]:
        collector, sent_repairs = EventCollector(), 0
        input_format = form_of(answer.headers.get("content-type"))
        plan = self.question.prepared.plan
        self._response_stream = response_stream = read_reply(
            plan, input_format=input_format, output_format="sse", encoder=collector
        )
        over = False
        while not over:
            try:
                data = await self._read_more(answer, response_stream)
            except UpstreamError as error:
                over = True
                response_stream.fail(problem_of(error))
            else:
                over = not data
                if data:
                    response_stream.feed(data)
                else:
                    response_stream.flush()
            repairs = response_stream.repairs
            new, sent_repairs = repairs[sent_repairs:], len(repairs)
            events, collector.events = [*new, *collector.events], []
            for event in events:
                if isinstance(event, (Finished, Failed)):
                    await self._drain(answer, over=over)
                    yield self._final_event(event, response_stream)
                    return
                yield self._with_declared_name(event)

    async def _read_more(self, answer: UpstreamResponse, response_stream: ResponseStream) -> bytes:
        if not response_stream.complete:
            return await answer.read()
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                return await answer.read()
        except TimeoutError:
            return b""

    async def _drain(self, answer: UpstreamResponse, *, over: bool) -> None:
        """All is said: what is left is the end of the answer, behind which its connection can be used again."""
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                while not over and await answer.read():
                    pass
        except (UpstreamError, TimeoutError):
            pass

    def _with_declared_name(self, event: Event) -> Event:
        """A call under the name that its tool was declared by, and an identifier that the history does not have."""
        if not isinstance(event, BlockOpened) or event.kind != "call":
            return event
        name = event.name or ""
        names = self.question.prepared.plan.names
        return replace(event, name=names.get(name, name), call_id=self._ids.new(event.call_id or ""))

    def _final_event(self, event: Finished | Failed, response_stream: ResponseStream) -> Finished | Failed:
        if isinstance(event, Finished):
            return event
        secrets = self.question.secrets
        problem = response_stream.problem
        assert problem is not None
        self._problem = problem = mask_problem(problem, secrets)
        return Failed(mask_secrets(event.code, secrets), problem.message, event.retryable)

    def _record(self, event: Event) -> Event:
        self._assembler.feed(event)
        if isinstance(event, (Finished, Failed)):
            self._ending = event
            self.question.done(self.result)  # before the last event: its reader may look at the result
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
