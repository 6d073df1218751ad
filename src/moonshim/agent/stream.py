"""A prepared request -> the events of its response, with retries as long as nothing of a response has come.

Read `_Attempts.run` first: one attempt after the other, until one of them starts a response; that one is streamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from moonshim.compat import FormerName
from moonshim.engine.assemble import Assembler
from moonshim.engine.exchange import EventCollector, Exchange
from moonshim.engine.hosts.errors.body import mask_secrets
from moonshim.engine.hosts.errors.classify import ERROR_BYTES
from moonshim.engine.ids import CanonicalIds
from moonshim.engine.values.conversation import Change, Media, Message, Part, ToolCall, Usage
from moonshim.engine.values.documents import ExtractedDocument
from moonshim.engine.values.events import BlockOpened, Event, Failed, Finished, Repaired, Started, failure_from
from moonshim.errors import Problem, UpstreamError, problem_of
from moonshim.http_client import GOODBYE_SECONDS, LAST_WORDS_SECONDS, UpstreamClient, UpstreamRequest, UpstreamResponse
from moonshim.http_client.retry import classify, pause_before

__all__ = ["AnswerStream", "ExchangeResult", "PreparedQuestion", "assemble_message"]


class ExchangeResult(Struct, frozen=True, kw_only=True):
    """The result of one request."""

    changes: tuple[Change, ...] = ()
    """The changes made to the request for its host, each with the rule and the reason."""
    repair_counts: dict[str, int] = {}
    """How often each repair rule was applied to the response."""
    usage: Usage | None = None
    """The token usage, as far as the host reported it."""
    problem: Problem | None = None
    """Why the request failed or the response is incomplete."""
    message: Message = Message("assistant")
    """The model's message for the history, with its reasoning and with canonical ids."""
    ending: Finished | Failed | None = None
    """The last event; None if the response was not read to its end."""
    attempts: int = 0
    """The number of attempts."""
    reasoning_field: str | None = None
    """The field in which a Chat Completions host sent its reasoning."""


class PreparedQuestion(Struct, frozen=True, kw_only=True):
    """Everything that one request needs. Its repr shows neither keys nor conversations."""

    upstream: Callable[[], UpstreamClient]
    exchange: Exchange
    """The request, prepared for its host."""
    call: UpstreamRequest
    """What is sent."""
    build_call: Callable[[dict[str, Any], Mapping[str, str]], UpstreamRequest]
    """What is sent for another body, where the host refused the first one."""
    read_documents: Callable[[list[Media]], dict[str, ExtractedDocument]]
    """Extracts documents; blocks for as long as that takes."""
    known_ids: frozenset[str]
    """The canonical ids of the history."""
    attempts: int
    longest_wait: float
    random: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]]
    done: Callable[[ExchangeResult], None]
    """Called once, when the response is over or its reader stops."""

    def __repr__(self) -> str:
        return f"PreparedQuestion({self.call!r})"


class AnswerStream:
    """An async iterator over the events of one response. The last event is a `Finished` or a `Failed`.

    Failures of the host do not raise: they are reported as a `Failed` event. The request is sent when the first event
    is awaited. To stop early, use `async with` or call `aclose`, which closes the connection. Leaving an `async for`
    loop or cancelling its task closes it too.
    """

    def __init__(self, question: PreparedQuestion) -> None:
        # The generator must not reference this object: only the garbage collector would notice that it was dropped.
        self._exchange: _Attempts = _Attempts(question)
        self._events: AsyncGenerator[Event, None] = self._exchange.run()

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
        """Stop reading and close the connection."""
        await self._events.aclose()

    @property
    def result(self) -> ExchangeResult:
        """The result so far. It is complete after the last event."""
        return self._exchange.result

    exchanged: ClassVar[FormerName] = FormerName("result")


class _Attempts:
    """One request, sent until a response starts, and the events of that response."""

    def __init__(self, question: PreparedQuestion) -> None:
        self.question = question
        self._assembler = Assembler()
        self._ids = CanonicalIds()
        for known in question.known_ids:
            self._ids.reserve(known)
        self._problem: Problem | None = None
        self._ending: Finished | Failed | None = None
        self._attempts = 0

    @property
    def result(self) -> ExchangeResult:
        """The outcome so far."""
        exchange = self.question.exchange
        return ExchangeResult(
            changes=tuple(exchange.prepared.changes),
            repair_counts=exchange.repair_counts,
            usage=exchange.usage,
            problem=self._problem,
            message=_for_history(self._assembler.message),
            ending=self._ending,
            attempts=self._attempts,
            reasoning_field=exchange.reasoning_field,
        )

    # -- attempts --------------------------------------------------------------------

    async def run(self) -> AsyncGenerator[Event, None]:
        """Send the request until a response starts, and yield its events."""
        await self._read_documents()
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
            yield self._record(failure_from(self._problem))
        finally:
            if self._ending is None:
                self._finish()

    async def _read_documents(self) -> None:
        """Extract the documents that the host does not accept."""
        question, exchange = self.question, self.question.exchange
        if documents := exchange.documents():
            extracted = await asyncio.to_thread(question.read_documents, documents)
            call = question.build_call(exchange.use_documents(extracted).body, exchange.headers)
            self.question = replace(question, call=call)

    def _correct(self) -> bool:
        """Whether the host refused something that has been corrected: the request is sent again at once, only once."""
        question, exchange = self.question, self.question.exchange
        assert self._problem is not None
        if not exchange.correct(self._problem):
            return False
        call = question.build_call(exchange.prepare(exchange.target).body, exchange.headers)
        self.question = replace(question, call=call, attempts=question.attempts + 1)
        return True

    def _pause(self) -> float | None:
        """Seconds until the next attempt; None: there is none."""
        question, problem = self.question, self._problem
        assert problem is not None
        if self._attempts >= question.attempts or classify(problem) != "again":
            return None
        return pause_before(problem, tries=self._attempts, longest=question.longest_wait, random=question.random)

    async def _attempt(self) -> AsyncGenerator[Event, None]:
        """The events of the response up to its end; or none, and `_problem` says why."""
        question = self.question
        self._problem = None
        question.exchange.forget_response()
        try:
            answer = await question.upstream().open(question.call)
        except UpstreamError as error:
            self._problem = question.exchange.mask(problem_of(error))
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
                            return  # it starts with an error: another attempt is possible
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
        return self.question.exchange.error_from(answer.status, answer.headers, body)

    # -- one response ----------------------------------------------------------------

    async def _read_events(self, answer: UpstreamResponse) -> AsyncGenerator[Event, None]:
        exchange, collector, sent_repairs, over = self.question.exchange, EventCollector(), 0, False
        exchange.start_response(answer.headers.get("content-type"), encoder=collector)
        try:
            while not over or exchange.pending is not None:
                if not over:
                    data = await self._read_next(answer)
                    if data == b"" and exchange.wants_retry and (second := await self._ask_again()) is not None:
                        answer.close()
                        answer = second
                        continue
                    over = not data
                    if data is not None:
                        self._feed(data)
                elif (following := await self._start_round(answer)) is not None:
                    answer, over = following, False
                repairs = exchange.stream.repairs
                new, sent_repairs = repairs[sent_repairs:], len(repairs)
                events, collector.events = [*new, *collector.events], []
                for event in events:
                    if isinstance(event, (Finished, Failed)):
                        await self._drain(answer, over=over)
                        yield self._final_event(event)
                        return
                    yield self._with_declared_name(event)
        finally:
            answer.close()

    async def _read_next(self, answer: UpstreamResponse) -> bytes | None:
        """What the host sends next; nothing at the end. None: the connection broke, and the response has failed."""
        exchange = self.question.exchange
        try:
            return await self._read_more(answer)
        except UpstreamError as error:
            if exchange.has_ended and exchange.wants_retry:
                return b""  # all of the answer came
            exchange.fail(problem_of(error))
            return None

    def _feed(self, data: bytes) -> None:
        exchange = self.question.exchange
        if data:
            exchange.feed(data)
        else:
            exchange.end()

    async def _ask_again(self) -> UpstreamResponse | None:
        """The model's answer is to blame for a failure: the response to the same request, sent once more, at once.

        None: there is none, and the failure ends the response.
        """
        question, exchange = self.question, self.question.exchange
        self._attempts += 1
        try:
            second = await question.upstream().open(question.build_call(exchange.prepared.body, exchange.headers))
        except UpstreamError:
            return None
        if not 200 <= second.status <= 299:
            second.close()
            return None
        exchange.start_retry(second.headers.get("content-type"))
        return second

    async def _start_round(self, answer: UpstreamResponse) -> UpstreamResponse | None:
        """The response is not what was demanded: tell the model what is wrong, and return the response to that.

        None: there is none, and the answer that came first ends the response.
        """
        question, exchange = self.question, self.question.exchange
        exchange.continue_with(())
        if exchange.ending is not None:
            return None
        answer.close()
        self._attempts += 1
        try:
            following = await question.upstream().open(question.build_call(exchange.prepared.body, exchange.headers))
        except UpstreamError as error:
            exchange.fail(problem_of(error))
            return None
        if 200 <= following.status <= 299:
            exchange.start_response(following.headers.get("content-type"))
            return following
        try:
            exchange.fail(await self._read_error(following))
        finally:
            following.close()
        return None

    async def _read_more(self, answer: UpstreamResponse) -> bytes:
        if not self.question.exchange.is_draining:
            return await answer.read()
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                return await answer.read()
        except TimeoutError:
            return b""

    async def _drain(self, answer: UpstreamResponse, *, over: bool) -> None:
        """Read to the end of the response body, after which the connection can be reused."""
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                while not over and await answer.read():
                    pass
        except (UpstreamError, TimeoutError):
            pass

    def _with_declared_name(self, event: Event) -> Event:
        """A call gets the name under which its tool was declared, and an id that the history does not have."""
        if not isinstance(event, BlockOpened) or event.kind != "call":
            return event
        name = event.name or ""
        names = self.question.exchange.prepared.plan.names
        return replace(event, name=names.get(name, name), call_id=self._ids.new(event.call_id or ""))

    def _final_event(self, event: Finished | Failed) -> Finished | Failed:
        if isinstance(event, Finished):
            return event
        exchange = self.question.exchange
        self._problem = problem = exchange.problem
        assert problem is not None
        return Failed(mask_secrets(event.code, exchange.secrets), problem.message, event.retryable)

    def _record(self, event: Event) -> Event:
        self._assembler.feed(event)
        if isinstance(event, (Finished, Failed)):
            self._ending = event
            self._finish()  # before the last event: its reader may look at the result
        return event

    def _finish(self) -> None:
        self.question.exchange.learn_reasoning_field()
        self.question.done(self.result)


def assemble_message(events: list[Event]) -> Message:
    """Combine the events of a provider's response into a message for the history."""
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    return _for_history(assembler.message)


def _for_history(message: Message) -> Message:
    """The ids in a provider's events are canonical: no host has ever seen them."""
    parts: tuple[Part, ...] = tuple(
        replace(part, wire_id=None) if isinstance(part, ToolCall) else part for part in message.parts
    )
    return replace(message, parts=parts)
