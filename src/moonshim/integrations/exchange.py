"""One request of a package -> what its host accepts, and the host's answer -> what the package reads. No I/O in here.

    route_of -> ClientState.begin -> ClientExchange.body -> the host -> start_response -> feed* -> end
                                                                     -> host_error

`ClientState` is what the requests of one client share.
"""

from __future__ import annotations

import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from msgspec import Struct

from moonshim.engine.dialects.openai_responses import completed_in
from moonshim.engine.formats import is_kimi_model
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.errors.body import mask_bytes
from moonshim.engine.hosts.errors.classify import mask_problem, read_problem
from moonshim.engine.hosts.learned import LearnedFields
from moonshim.engine.plan import check_options
from moonshim.engine.prepare import ParsedRequest, Prepared, read_request, render_problem
from moonshim.engine.response.reply import Form, ResponseStream, form_of, read_reply
from moonshim.engine.stages import Transformer
from moonshim.engine.values.events import Failed
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.errors import InvalidInput, MoonshimError, Problem, problem_of
from moonshim.integrations.memory import Memory
from moonshim.integrations.response_store import ResponseHistory

__all__ = ["ClientExchange", "ClientState", "ErrorReply", "Header", "Route", "render_error", "route_of"]

Header: TypeAlias = tuple[str, str]

_MOONSHOTS: Final = frozenset({"moonshot", "moonshot-anthropic", "kimi-coding"})
"""Hosts of nothing but Kimi, whatever the model is called."""
_KEYS: Final = re.compile(r"auth|api-?key|token|secret", re.IGNORECASE)
"""The names of headers that hold a key: `authorization`, `x-goog-api-key`, `cf-aig-authorization`, …"""
_KEYS_IN_ADDRESSES: Final = re.compile(r"key|auth|token|secret|sig", re.IGNORECASE)
"""Not all that stands behind a question mark: errors speak of an `api-version`."""
_OF_THE_BODY: Final = frozenset({"content-type", "content-encoding", "content-length", "transfer-encoding"})
_RETRYING: Final = frozenset({"retry-after", "retry-after-ms", "x-should-retry"})
_CONTENT_TYPES: Final[dict[Form, str]] = {
    "sse": "text/event-stream; charset=utf-8",
    "ndjson": "application/x-ndjson",
    "json": "application/json",
}


class Route(Struct, frozen=True):
    """A path at which packages ask models, and where that is asked."""

    end: str
    dialect: str
    """The package's."""
    upstream: str
    """The host's."""
    asked_at: str


_ROUTES: Final = (
    Route("/chat/completions", "openai_chat", "openai_chat", "/chat/completions"),
    Route("/messages", "anthropic", "anthropic", "/messages"),
    # Few hosts of Kimi speak Responses, and all of them Chat.
    Route("/responses", "openai_responses", "openai_chat", "/chat/completions"),
)


def route_of(method: str, path: str) -> Route | None:
    """The route of a request that may have to be made right; None: it is none of ours, whatever its body says.

    >>> route_of("POST", "/v1/messages").dialect, route_of("GET", "/v1/models"), route_of("POST", "/v1/embeddings")
    ('anthropic', None, None)
    """
    return next((route for route in _ROUTES if method == "POST" and path.endswith(route.end)), None)


class ErrorReply(Struct, frozen=True):
    """A whole answer that is an error."""

    status: int
    headers: list[Header]
    body: bytes
    sends_again: bool = False
    """The host refused something that its exchange has put right: it is to be sent once more."""


class ClientState:
    """What all requests of one client share. Any thread may use it."""

    def __init__(
        self,
        *,
        host: str | None = None,
        options: KimiOptions | None = None,
        overrides: Mapping[str, Any] | None = None,
        transformers: Sequence[Transformer] = (),
        memory: Memory | None = None,
    ) -> None:
        if options is not None:
            check_options(options)
        profile_for(model="", host=host, overrides=overrides)  # what is misspelt is told now, not at the first request
        if not isinstance(transformers, Iterable):
            raise InvalidInput("transformers must be a list of transformers", field="transformers")
        if memory is not None and not isinstance(memory, Memory):
            raise InvalidInput(f"memory must be a Memory, not {type(memory).__name__}", field="memory")
        self.host, self.options, self.overrides, self.transformers = host, options, overrides, tuple(transformers)
        self.memory = Memory() if memory is None else memory
        self.responses = ResponseHistory(self.memory)
        self.learned = LearnedFields()

    def begin(
        self, route: Route, url: str, headers: Mapping[str, str], content: bytes, query: str = ""
    ) -> ClientExchange | None:
        """The exchange that a request begins; None: it is not for us, and goes as it came.

        `query` is what stands behind the question mark of the address: a key, for some hosts.
        What cannot be made right raises `MoonshimError`, to be told with `render_error`.
        """
        body = None if "content-encoding" in headers else decode_object(content)
        if body is None or not self._is_ours(body.get("model"), url, route.upstream):
            return None
        secrets = tuple(value for name, value in sorted(headers.items()) if _KEYS.search(name))
        secrets += tuple(value for name, value in parse_qsl(query) if _KEYS_IN_ADDRESSES.search(name))
        # What belongs to one key is never found under another.
        space = blake2b("\n".join((*secrets, query)).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        resolved = self.responses.resolve(space, body) if route.dialect == "openai_responses" else body
        parsed = read_request(resolved, dialect=route.dialect)
        prepare = partial(
            parsed.prepare,
            upstream=route.upstream,
            host=self.host,
            base_url=url,
            options=self.options,
            recalled=self.memory.recall(space, parsed),
            transformers=self.transformers,
            reply_id=uuid.uuid4().hex,
            created=int(time.time()),
            clock=time.time,
        )
        target_key = (url, parsed.request.model)
        prepared = prepare(overrides=self._merge_overrides(self.learned.of(target_key)))
        if prepared.profile.dialect != route.upstream:
            raise InvalidInput(
                f"{prepared.profile.host} is spoken to in Messages: use the anthropic package, or an address without"
                " /anthropic in it",
                field="base_url",
            )
        return ClientExchange(self, body, parsed, prepared, space, secrets, target_key, prepare)

    def _merge_overrides(self, learned: dict[str, Any]) -> Mapping[str, Any] | None:
        """Overrides of the host profile: those configured, and those learned from the host."""
        return learned | dict(self.overrides or {}) if learned else self.overrides

    def correct(self, exchange: ClientExchange, problem: Problem) -> Prepared | None:
        """What to send instead of a request that the host refused for this reason; None: nothing better."""
        sent, target_key, prepare = exchange.prepared, exchange.target_key, exchange.prepare

        def changes(fields: dict[str, Any]) -> bool:
            return prepare(overrides=self._merge_overrides(fields)).body != sent.body

        if not self.learned.learn_from_error(target_key, sent.profile, problem, changes):
            return None
        return prepare(overrides=self._merge_overrides(self.learned.of(target_key)))

    def _is_ours(self, model: object, url: str, upstream: str) -> bool:
        if not isinstance(model, str):
            return False
        if self.options is not None or self.overrides or self.transformers or is_kimi_model(model):
            return True
        profile = profile_for(model=model, host=self.host, base_url=url, upstream=upstream)
        return profile.generation != "other" or profile.host in _MOONSHOTS


def render_error(
    problem: Problem | MoonshimError, dialect: str, headers: Sequence[Header] = (), *, sends_again: bool = False
) -> ErrorReply:
    """An error in the words of a dialect."""
    if isinstance(problem, MoonshimError):
        problem = problem_of(problem)
    if not problem.retryable:
        headers = [header for header in headers if header[0].lower() not in _RETRYING]
        headers += problem.retry_headers.items()
    own = [("content-type", _CONTENT_TYPES["json"])]
    return ErrorReply(problem.status, [*own, *headers], encode(render_problem(problem, dialect=dialect)), sends_again)


class ClientExchange:
    """One request, made right for its host, and the answer to it on its way back."""

    def __init__(
        self,
        state: ClientState,
        body: dict[str, Any],
        parsed: ParsedRequest,
        prepared: Prepared,
        space: str,
        secrets: tuple[str, ...],
        target_key: tuple[str, str],
        prepare: Callable[..., Prepared],
    ) -> None:
        self.prepared = prepared
        self.target_key, self.prepare = target_key, prepare
        """Who is asked, and how the request is made right for other cells."""
        self._corrected = False
        self._state, self._received_body, self._parsed = state, body, parsed
        self._space, self._secrets = space, secrets
        self._output_format: Form = "sse" if parsed.request.stream is True else "json"
        self._response_stream: ResponseStream | None = None
        self._remembered = False
        self.spent = False
        """What the host still says is of no use: only `end` is left."""

    @property
    def body(self) -> bytes:
        """What is sent."""
        return encode(self.prepared.body)

    # --- the host's answer -------------------------------------------------------------------------------------

    def start_response(self, content_type: str | None) -> None:
        """The host has accepted the request; its answer follows."""
        input_format = form_of(content_type)
        self._response_stream = read_reply(
            self.prepared.plan, input_format=input_format, output_format=self._output_format
        )

    def feed(self, data: bytes) -> bytes:
        """More bytes of the host came; those that the package is given."""
        out = self.response_stream.feed(data)
        self.spent = (self.response_stream.ending is not None or not out) and self.response_stream.problem is not None
        return self._pass_on(out)

    def end(self) -> bytes:
        """The host has said all: the rest."""
        return self._pass_on(self.response_stream.flush())

    def fail(self, error: MoonshimError) -> bytes:
        """The connection is gone in the middle: how that is told. An answer that had said how it ends is whole."""
        return self._pass_on(self.response_stream.fail(problem_of(error)))

    @property
    def response_stream(self) -> ResponseStream:
        assert self._response_stream is not None, "the host has answered"
        return self._response_stream

    def _pass_on(self, out: bytes) -> bytes:
        ending = self.response_stream.ending
        if isinstance(ending, Failed):
            return mask_bytes(out, self._secrets)
        if ending is not None and out:
            self._remember(out)
        return out

    def _remember(self, out: bytes) -> None:
        """Before the package learns that the answer is over: its next request may come at once."""
        state = self._state
        if not self._remembered:
            self._remembered = True
            if (entry := self._parsed.cache_entry(self.response_stream.message)) is not None:
                state.memory.remember(self._space, entry)
            state.learned.learn_reasoning_field(
                self.target_key, self.prepared.profile, self.response_stream.reasoning_field
            )
        if self._parsed.dialect == "openai_responses" and (response := completed_in(out)) is not None:
            state.responses.keep(self._space, self._received_body, response)

    # --- what the package is told ------------------------------------------------------------------------------

    def stream_error(self) -> ErrorReply | None:
        """An answer that is an error, though its host said 200: to be asked for while nothing of it is out."""
        problem = self.response_stream.problem
        return None if problem is None else self._error_reply(mask_problem(problem, self._secrets))

    def host_error(self, status: int, headers: Sequence[Header], body: bytes) -> ErrorReply:
        """The host's error, whatever its shape, in the words of the package."""
        problem = read_problem(status, body, dict(headers), self.prepared.profile, secrets=self._secrets)
        return self._error_reply(problem, _forwarded_headers(headers))

    def _error_reply(self, problem: Problem, headers: Sequence[Header] = ()) -> ErrorReply:
        better = None if self._corrected else self._state.correct(self, problem)
        if better is not None:
            self.prepared, self._corrected = better, True
        return render_error(problem, self._parsed.dialect, headers, sends_again=better is not None)

    def headers(self, headers: Sequence[Header]) -> list[Header]:
        """Those of an answer that begins: the host's, except for what is of its own body, and what was put right."""
        rules = Counter(change.rule for change in self.prepared.changes) + Counter(self.response_stream.repair_counts)
        said = ", ".join(f"{rule}={count}" for rule, count in sorted(rules.items())) or "none"
        own = [("content-type", _CONTENT_TYPES[self._output_format]), ("x-moonshim-repairs", said)]
        return [*own, *_forwarded_headers(headers)]


def _forwarded_headers(headers: Sequence[Header]) -> list[Header]:
    return [header for header in headers if header[0].lower() not in _OF_THE_BODY]
