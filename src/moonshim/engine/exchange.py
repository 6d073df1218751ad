"""One request and the response to it, without I/O: what the gateway, the agent and the integrations do the same way.

    prepare(target) -> the host -> start_response -> feed* -> end | fail
       ^                  |  ^                                 |
       +---- correct <----+  +-------- continue_with <---------+  as long as something is `pending`
                          +-> error_from

A shell owns sockets, timeouts, pauses between attempts, stores, logs and metrics. The errors that it passes on or logs
come from here, where the keys are masked that the host was sent and may repeat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.dialects.openai_responses import find_completed
from moonshim.engine.dialects.protocol import ClientEncoder, Encoder
from moonshim.engine.hosts.errors.body import mask_bytes
from moonshim.engine.hosts.errors.classify import mask_problem, read_problem
from moonshim.engine.hosts.learned import LearnedFields
from moonshim.engine.plan import Plan
from moonshim.engine.prepare import ParsedRequest, Prepared
from moonshim.engine.reasoning_cache import CacheEntry
from moonshim.engine.request.headers import FITTED_HEADERS, fit_headers
from moonshim.engine.request.messages.documents import Documents
from moonshim.engine.request.parameters import cache_key_of
from moonshim.engine.response.reply import (
    MAX_ANSWER_BYTES,
    Form,
    ResponseStream,
    detect_form,
    form_of,
    read_reply,
)
from moonshim.engine.response.writers import EventCollector
from moonshim.engine.rounds.answer import AnswerRule, PlainRule
from moonshim.engine.rounds.judging import JudgeRule
from moonshim.engine.rounds.rule import (
    JudgeOutcome,
    JudgeWanted,
    Outcome,
    RoundRule,
    SearchOutcome,
    SearchWanted,
    Wanted,
)
from moonshim.engine.rounds.search import SearchRule
from moonshim.engine.rounds.stream import RoundsStream
from moonshim.engine.stages import Transformer
from moonshim.engine.values.conversation import Media, Message, Reasoning, Usage
from moonshim.engine.values.events import Failed, Finished
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.values.verdicts import CallToJudge
from moonshim.engine.web_search import SearchAccess
from moonshim.errors import MoonshimError, Problem, problem_of

__all__ = [
    "CONTENT_TYPES",
    "FITTED_HEADERS",
    "MAX_ANSWER_BYTES",
    "EventCollector",
    "Exchange",
    "Form",
    "JudgeOutcome",
    "JudgeWanted",
    "Outcome",
    "RequestTarget",
    "ResponseStream",
    "SearchOutcome",
    "SearchWanted",
    "Wanted",
    "describe_counts",
    "detect_form",
    "read_reply",
]

CONTENT_TYPES: Final[dict[Form, str]] = {
    "sse": "text/event-stream; charset=utf-8",
    "ndjson": "application/x-ndjson",
    "json": "application/json",
}


class RequestTarget(Struct, frozen=True, kw_only=True):
    """One model at one host, and how requests are prepared for it; see `prepare_request` for the fields."""

    key: Hashable
    """Identifies the target: what its responses show about the host is remembered under this key."""
    upstream: str = "openai_chat"
    host: str | None = None
    base_url: str | None = None
    model: str | None = None
    options: KimiOptions | None = None
    overrides: Mapping[str, Any] | None = None
    transformers: Sequence[Transformer] = ()
    extra_body: Mapping[str, Any] | None = None
    retry_empty_answer: bool = True
    """Whether a response that failed because of what the model wrote is worth a second request: see
    `Exchange.wants_retry`. If not, a response of nothing but reasoning ends as its host ended it."""


class Exchange:
    """Prepares one request for one target after the other, and repairs the response of the one that accepts it.

    Guarantees for the shell: a refusal is corrected at most once for each target; no error, as a `Problem` or in the
    bytes of a failed response, contains a secret; what has to be stored is there once, and before the bytes that tell
    the client that the response is over.
    """

    __slots__ = (
        "_answers",
        "_client_headers",
        "_clock",
        "_completed",
        "_continued",
        "_corrected",
        "_created",
        "_is_entry_due",
        "_is_limited",
        "_is_remembered",
        "_judge",
        "_judges_calls",
        "_keeps_response",
        "_learned",
        "_plays_rounds",
        "_prepared",
        "_recalled",
        "_reply_id",
        "_response_is_over",
        "_retried",
        "_rounds",
        "_search_access",
        "_searches",
        "_stream",
        "_target",
        "_unsupported_checks",
        "ending",
        "has_ended",
        "headers",
        "input_format",
        "is_useless",
        "output_format",
        "parsed",
        "secrets",
        "sent_end",
    )

    def __init__(
        self,
        parsed: ParsedRequest,
        learned: LearnedFields | None = None,
        *,
        recalled: Mapping[int, Reasoning] | None = None,
        client_headers: Mapping[str, str] | None = None,
        secrets: tuple[str, ...] = (),
        reply_id: str | None = None,
        created: int = 0,
        clock: Callable[[], float] | None = None,
        keeps_response: bool = False,
        plays_rounds: bool = False,
        search_access: SearchAccess | None = None,
        judges_calls: bool = False,
        unsupported_checks: tuple[str, ...] = (),
        is_limited: bool = False,
    ) -> None:
        """`recalled`: reasoning that the client has lost. `client_headers`: under lower-case names. `keeps_response`:
        the client may continue from the response by its id, so that `take_completed` has it. `plays_rounds`: whether
        the shell calls `continue_with`; otherwise a wrong answer is only reported. `search_access`: whether the shell
         can run a web search; None: calls of a search are left to the client. `judges_calls`: the client asked for
         verdicts about the calls of the response, and the shell finds them (`take_calls`); `unsupported_checks`: what
         else it asked for. `is_limited`: whether the client may use some models only, or has a budget: fields of its
         body that go beyond are dropped or refused."""
        self.parsed: ParsedRequest = parsed
        self.secrets: tuple[str, ...] = secrets
        """What the host is sent and may repeat: keys, mostly. Set it before the request is sent."""
        self._learned = learned if learned is not None else LearnedFields()
        self._recalled, self._reply_id, self._created, self._clock = recalled, reply_id, created, clock
        self._keeps_response, self._plays_rounds, self._search_access = keeps_response, plays_rounds, search_access
        self._judges_calls, self._unsupported_checks = judges_calls, unsupported_checks
        self._client_headers, self._is_limited = client_headers or {}, is_limited
        self.headers: dict[str, str] = {}
        """The client's headers as the current target accepts them, with those that it needs. A shell decides which of
        the client's others a host may see."""
        self._corrected: set[Hashable] = set()
        self._target: RequestTarget | None = None
        self._prepared: Prepared | None = None
        self.forget_response()

    def forget_response(self) -> None:
        """The same request is sent again: what is known about a response to it is about the next one."""
        self._stream: ResponseStream | None = None
        self._rounds: RoundsStream | None = None
        """The stream, if the exchange may have more than one round."""
        self._searches: SearchRule | None = None
        self._judge: JudgeRule | None = None
        self._answers: AnswerRule | None = None
        """Checks the response of each round, where the client demands something that the host does not guarantee."""
        self._continued: ParsedRequest | None = None
        """The request of the current round, if it is not the first."""
        self._retried = self._response_is_over = False
        self._is_remembered = self._is_entry_due = False
        self._completed: dict[str, Any] | None = None
        self.input_format: Form = "json"
        self.output_format: Form = "json"
        self.ending: Finished | Failed | None = None
        """How the response ended, once it has."""
        self.has_ended: bool = False
        """The host has said how its response to the current request ends; only usage may still come."""
        self.is_useless: bool = False
        """The response has failed: what the host still sends is not worth reading."""
        self.sent_end: bool = False
        """The bytes after which clients of a stream hang up have been returned."""

    # --- the request -------------------------------------------------------------------------------------------

    @property
    def target(self) -> RequestTarget:
        assert self._target is not None, "prepare comes first"
        return self._target

    @property
    def is_prepared(self) -> bool:
        """Whether the request could be prepared for a target."""
        return self._prepared is not None

    @property
    def prepared(self) -> Prepared:
        """What the current target is sent."""
        assert self._prepared is not None, "prepare comes first"
        return self._prepared

    def prepare(self, target: RequestTarget) -> Prepared:
        """The request for this target, with what is known about its host. An earlier response is forgotten."""
        self.forget_response()
        prepared = self._prepare(target, self._learned.overrides_for(target.key))
        self.headers, changes = fit_headers(self._client_headers, prepared.profile)
        if (session := prepared.profile.session_header) is not None and session not in self.headers:
            request = self.parsed.request
            self.headers[session] = request.cache_key or cache_key_of(request)
        self._target = target
        self._prepared = replace(prepared, changes=[*prepared.changes, *changes]) if changes else prepared
        return self._prepared

    def _prepare(self, target: RequestTarget, learned: Mapping[str, Any]) -> Prepared:
        return (self._continued or self.parsed).prepare(
            upstream=target.upstream,
            host=target.host,
            base_url=target.base_url,
            model=target.model,
            options=target.options,
            overrides={**learned, **(target.overrides or {})} or None,
            recalled=self._recalled,
            transformers=target.transformers,
            extra_body=target.extra_body,
            reply_id=self._reply_id,
            created=self._created,
            clock=self._clock,
            search_access=self._search_access,
            accepts_empty=not target.retry_empty_answer,
            is_limited=self._is_limited,
        )

    def documents(self) -> list[Media]:
        """The documents that the current target does not accept, for `use_documents`."""
        return [] if "file" in self.prepared.profile.media else self.parsed.documents()

    def use_documents(self, extracted: Documents) -> Prepared:
        """The request for the current target, with what was extracted from its documents."""
        self.parsed.extracted = extracted
        return self.prepare(self.target)

    def correct(self, problem: Problem) -> bool:
        """Whether the host refused something that the next `prepare` for it corrects: at most once per target."""
        target, sent = self.target, self.prepared
        if target.key in self._corrected or not self._learned.learn_from_error(
            target.key,
            sent.profile,
            problem,
            lambda fields: self._prepare(target, self._learned.overrides_for(target.key) | fields).body != sent.body,
        ):
            return False
        self._corrected.add(target.key)
        return True

    @property
    def change_counts(self) -> dict[str, int]:
        """How often each rule changed the request."""
        changes = self.prepared.changes
        return dict(Counter(change.rule for change in changes)) if changes else {}

    # --- what went wrong ---------------------------------------------------------------------------------------

    def error_from(self, status: int, headers: Mapping[str, str], body: bytes) -> Problem:
        """What a response with an error status says."""
        return read_problem(status, body, headers, self.prepared.profile, secrets=self.secrets)

    def mask(self, problem: Problem) -> Problem:
        """The problem without the secrets that the host was sent."""
        return mask_problem(problem, self.secrets)

    @property
    def problem(self) -> Problem | None:
        """Why the response failed, though its status was 200. As long as nothing was passed on, it may be corrected."""
        problem = self.stream.problem
        return None if problem is None else self.mask(problem)

    def render_stream_error(self, problem: Problem) -> bytes:
        """The error for a client whose stream has begun, with nothing of a response in it."""
        return read_reply(self.prepared.plan, input_format="sse", output_format="sse").fail(problem)

    # --- the response ------------------------------------------------------------------------------------------

    @property
    def stream(self) -> ResponseStream:
        """The response so far."""
        assert self._stream is not None, "start_response comes first"
        return self._stream

    @property
    def has_response(self) -> bool:
        """Whether `start_response` was called for the current attempt."""
        return self._stream is not None

    @property
    def usage(self) -> Usage | None:
        """Tokens as the host counted them, of all its responses to this request; None: not known."""
        return None if self._stream is None else self._stream.usage

    @property
    def message(self) -> Message:
        """The response so far; empty before it starts."""
        return Message("assistant") if self._stream is None else self._stream.message

    @property
    def repair_counts(self) -> dict[str, int]:
        """How often each rule acted on the response."""
        return {} if self._stream is None else self._stream.repair_counts

    @property
    def reasoning_field(self) -> str | None:
        """The field in which a Chat host tells its reasoning."""
        return None if self._stream is None else self._stream.reasoning_field

    def start_response(
        self,
        content_type: str | None,
        *,
        accepts_ndjson: bool = False,
        output_format: Form | None = None,
        encoder: Encoder | None = None,
        limit: int = MAX_ANSWER_BYTES,
        collect: bool = True,
    ) -> None:
        """The host accepted the request; the bytes of its response follow.

        `accepts_ndjson`: the client reads lines of JSON, which no SDK does. `encoder` gets the events, where somebody
        wants those instead of bytes. Without `collect`, the message is put together only if its reasoning is stored.
        """
        plan = self.prepared.plan
        self._response_is_over = False
        self.input_format = form_of(content_type)
        if output_format is None and self.parsed.request.stream is True:
            is_same = accepts_ndjson and self.input_format == "ndjson" and not plan.translates
            output_format = "ndjson" if is_same else "sse"
        if (
            self._rounds is not None
            or self._judges_calls
            or self.prepared.search is not None
            or self.prepared.expected is not None
        ):
            return self._start_round(output_format or "json", limit, encoder)
        self.output_format = output_format or "json"
        self._stream = read_reply(
            plan,
            input_format=self.input_format,
            output_format=self.output_format,
            may_retry=self.target.retry_empty_answer,
            limit=limit,
            encoder=encoder,
            collect=collect or self.prepared.profile.reasoning_in is not None,
        )
        return None

    def _start_round(self, output_format: Form, limit: int, encoder: Encoder | None) -> None:
        """The response of one round: its events go through the rule of the exchange to the client's encoder."""
        plan, search, expected = self.prepared.plan, self.prepared.search, self.prepared.expected
        assert plan.client is not None, "the plan is that of a prepared request"
        if self._answers is not None:
            self._answers.expect(expected)
        open_round = partial(
            _read_round, plan, self.input_format, may_retry=self.target.retry_empty_answer, limit=limit
        )
        if self._rounds is not None:
            self._rounds.start_round(open_round)
            self.has_ended = False
            return
        self.output_format = "json" if output_format == "json" else "sse"
        self._searches = None if search is None else SearchRule(search, plan.reply.id)
        played_by: RoundRule = self._searches or PlainRule()
        if expected is not None:
            self._answers = AnswerRule(played_by, expected, may_ask=self._plays_rounds, names=plan.names)
            played_by = self._answers
        if self._judges_calls:
            played_by = self._judge = JudgeRule(played_by, self._unsupported_checks)
        self._stream = self._rounds = RoundsStream(
            plan.client,
            plan.reply,
            self.output_format,
            played_by,
            open_round,
            # A shell that takes events runs no searches, so there are no events of any.
            cast("ClientEncoder | None", encoder),
        )

    def feed(self, data: bytes) -> bytes:
        """More bytes came from the host; the bytes for the client."""
        stream = self._stream
        assert stream is not None, "start_response comes first"
        out = stream.feed(self._mask_errors(data))
        if stream.took_fast_path:
            return out
        out = self._mask_errors(out)
        plan = self.prepared.plan
        if plan.client is plan.upstream:
            out = self._mask_unknown(out)
        return out if out and stream.ending is None and not stream.complete else self._pass_on(out)

    def _mask_errors(self, data: bytes) -> bytes:
        """Bytes without what the host was sent, where they may be an error: the text of a model is left alone."""
        if b'"error"' in data or b'"detail"' in data or data.startswith(b":") or b"\n:" in data:
            return mask_bytes(data, self.secrets)
        return data

    def _mask_unknown(self, out: bytes) -> bytes:
        """The same for frames that have no place for a model's text: those of unknown shape are passed on."""
        frames = out.split(b"\n\n")
        masked = [frame if not frame or _has_content(frame) else mask_bytes(frame, self.secrets) for frame in frames]
        return out if masked == frames else b"\n\n".join(masked)

    def end(self) -> bytes:
        """The host has sent everything; the rest for the client."""
        self._response_is_over = True
        return self._pass_on(self.stream.flush(), over=True)

    def fail(self, problem: Problem) -> bytes:
        """The connection broke, or the shell gives up. A response that had said how it ends is complete anyway."""
        self._response_is_over = True
        return self._pass_on(self.stream.fail(self.mask(problem)))

    def _pass_on(self, out: bytes, *, over: bool = False) -> bytes:
        """What the client gets of these bytes, which may be the last ones."""
        ending = self.ending = self.stream.ending
        is_over = ending is not None if self._rounds is None else self._rounds.is_round_over
        self.has_ended = is_over or self.stream.complete
        # The usage of a response that is asked for again counts.
        self.is_useless = self.stream.problem is not None and not (self.has_ended and self.wants_retry)
        if isinstance(ending, Failed):
            out = mask_bytes(out, self.secrets)
        elif ending is not None and (out or over):
            if not self._is_remembered:
                self._is_remembered = self._is_entry_due = True
                self.learn_reasoning_field()
            if self._keeps_response:
                self._completed = find_completed(out) or self._completed
        if ending is not None and out and (client := self.prepared.plan.client) is not None:
            self.sent_end = self.sent_end or any(marker in out for marker in client.terminal_markers)
        return out

    @property
    def is_draining(self) -> bool:
        """Whether the host has said how its response ends: what may still come are usage and the end of the stream.

        Of several choices, the last one may not have begun.
        """
        return self._wants_one_choice and self.stream.complete

    @property
    def _wants_one_choice(self) -> bool:
        return self.prepared.body.get("n") in (None, 1)

    # --- another round -----------------------------------------------------------------------------------------

    @property
    def pending(self) -> tuple[Wanted, ...] | None:
        """What the shell has to do before `continue_with`, which may be nothing; None: the response is complete."""
        return None if self._rounds is None else self._rounds.pending

    def take_calls(self) -> list[CallToJudge]:
        """The calls that the client gets and that are complete since the last time, for a judge."""
        return [] if self._judge is None else self._judge.take_calls()

    @property
    def awaits_verdicts(self) -> bool:
        """Whether the response is complete but for the verdicts about its calls."""
        return bool(self.pending) and all(isinstance(one, JudgeWanted) for one in self.pending or ())

    @property
    def host_searches(self) -> int:
        """Web searches that the host has run, in all rounds so far."""
        return 0 if self._searches is None else self._searches.host_searches

    @property
    def has_fallback(self) -> bool:
        """Whether the response ends well even if the request of the next round fails: `fail` then ends it."""
        return self._rounds is not None and self._rounds.has_fallback

    def continue_with(self, outcomes: Sequence[Outcome]) -> bytes:
        """What was pending is done; the bytes for the client.

        Unless the response has an `ending` then, `prepared` is the request of the next round: the shell sends it, and
        calls `start_response` for its response. If that fails, `fail` ends the response. A request that cannot be
        prepared raises `MoonshimError`, or ends the response if there is a fallback.
        """
        assert self._rounds is not None, "nothing is pending"
        following, out = self._rounds.resume(outcomes)
        if following.messages:
            request = self._continued or self.parsed
            self._continued = request.followed_by(
                following.messages, keeps_choice=following.keeps_choice, stops_thinking=following.stops_thinking
            )
            try:
                self._prepared = self._prepare(self.target, self._learned.overrides_for(self.target.key))
            except MoonshimError as error:
                if not self.has_fallback:
                    raise
                return out + self.fail(problem_of(error))
            return out
        return self._pass_on(out)

    # --- what is remembered ------------------------------------------------------------------------------------

    def learn_reasoning_field(self) -> None:
        """Note in which field the host tells its reasoning: from now on that is where it gets reasoning back."""
        self._learned.learn_reasoning_field(self.target.key, self.prepared.profile, self.reasoning_field)

    def take_entry(self) -> CacheEntry | None:
        """The reasoning to store, once: before the bytes that were returned last are passed on."""
        due, self._is_entry_due = self._is_entry_due, False
        if not due:
            return None
        try:
            return self.parsed.cache_entry(self.stream.message)
        except (MoonshimError, RecursionError):
            return None  # the reasoning is lost, the response is not

    def take_completed(self) -> dict[str, Any] | None:
        """The response object of a Responses client to store, once: before the bytes that were returned last."""
        completed, self._completed = self._completed, None
        return completed

    # --- a second request for the same answer ------------------------------------------------------------------

    @property
    def wants_retry(self) -> bool:
        """Whether to send the same request once more: the response is over, and the model's answer is to blame.

        It is nothing but reasoning, or a call in it is missing or cannot be read; the second time that is rarely so.
        What has left of it for the client is nothing but reasoning. Its ending is held back, and `start_retry` lets the
        response to the second request follow in the same stream: the client sees one response, and the usage of both.
        Where there is no second request, or it fails, `end` gives what there is. Several choices are left as they are:
        one that is wrong cannot be requested again on its own.
        """
        if self._retried or self._response_is_over or not self.target.retry_empty_answer:
            return False
        return self._wants_one_choice and self.stream.wants_retry

    @property
    def retry_reason(self) -> str | None:
        """The code of the failure for which the response is worth asking for again."""
        return self.stream.retry_reason

    def start_retry(self, content_type: str | None) -> None:
        """The host accepted the second request; the bytes of its response follow."""
        self.input_format = form_of(content_type)
        self.stream.start_retry(self.input_format)
        self._retried, self.ending = True, None
        self.has_ended = self.is_useless = False
        self._is_remembered = self._is_entry_due = False  # what was stored is not the whole message

    # --- usage that comes late -------------------------------------------------------------------------------

    @property
    def awaits_usage(self) -> bool:
        """Whether the ending is held back for the usage that follows it: see `release_ending`."""
        return self._stream is not None and self._stream.awaits_usage

    def release_ending(self) -> bytes:
        """Usage is waited for no longer; the bytes for the client."""
        return self._pass_on(self.stream.release_ending())


def _read_round(plan: Plan, input_format: Form, encoder: Encoder, *, may_retry: bool, limit: int) -> ResponseStream:
    return read_reply(
        plan, input_format=input_format, output_format="sse", may_retry=may_retry, limit=limit, encoder=encoder
    )


def _has_content(frame: bytes) -> bool:
    return b'"choices"' in frame or b'"delta"' in frame or b'"content_block"' in frame


def describe_counts(*counts: Mapping[str, int]) -> str:
    """How often each rule acted, for a header.

    >>> describe_counts({"temperature": 1}, {"leaked_markers": 2}), describe_counts({})
    ('leaked_markers=2, temperature=1', 'none')
    """
    if not any(counts):
        return "none"
    total = sum((Counter(one) for one in counts), Counter[str]())
    return ", ".join(f"{rule}={count}" for rule, count in sorted(total.items()))
