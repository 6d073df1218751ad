"""A request of an SDK -> what its host accepts, and the host's response -> what the SDK reads, without I/O.

    route_of -> ClientState.begin -> ClientExchange.body -> the host -> start_response -> feed* -> end
                                              ^                      -> host_error            |
                                              +------------- start_round <--------------------+  as long as `pending`

`ClientState` is what the requests of one client share. The work is done in `engine.exchange`.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from msgspec import Struct

from moonshim.documents import DocumentReader
from moonshim.engine.exchange import CONTENT_TYPES, FITTED_HEADERS, Exchange, RequestTarget, describe_counts
from moonshim.engine.formats import is_kimi_model, without_window
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.learned import LearnedFields
from moonshim.engine.plan import check_options
from moonshim.engine.prepare import read_request, render_problem
from moonshim.engine.stages import Transformer
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.errors import InvalidInput, MoonshimError, Problem, problem_of
from moonshim.integrations.memory import Memory
from moonshim.integrations.response_store import ResponseHistory

__all__ = ["ClientExchange", "ClientState", "ErrorReply", "Header", "Route", "render_error", "route_of"]

Header: TypeAlias = tuple[str, str]

_MOONSHOTS: Final = frozenset({"moonshot", "moonshot-anthropic", "kimi-coding"})
"""Hosts that serve Kimi models only, whatever the model is called."""
_KEYS: Final = re.compile(r"auth|api-?key|token|secret", re.IGNORECASE)
"""Names of headers that hold a key: `authorization`, `x-goog-api-key`, `cf-aig-authorization`, …"""
_KEYS_IN_ADDRESSES: Final = re.compile(r"key|auth|token|secret|sig", re.IGNORECASE)
"""Names of query parameters that hold a key. Others are not secret: errors quote an `api-version`."""
_OF_THE_BODY: Final = frozenset({"content-type", "content-encoding", "content-length", "transfer-encoding"})
_RETRYING: Final = frozenset({"retry-after", "retry-after-ms", "x-should-retry"})


class Route(Struct, frozen=True):
    """A path to which SDKs post requests for a model, and where such a request is sent."""

    end: str
    dialect: str
    """The SDK's."""
    upstream: str
    """The host's."""
    asked_at: str


_ROUTES: Final = (
    Route("/chat/completions", "openai_chat", "openai_chat", "/chat/completions"),
    Route("/messages", "anthropic", "anthropic", "/messages"),
    # Few hosts of Kimi models support Responses, but all of them support Chat.
    Route("/responses", "openai_responses", "openai_chat", "/chat/completions"),
)


def route_of(method: str, path: str) -> Route | None:
    """The route of a request that may have to be prepared; None: the request passes unchanged, whatever its body.

    >>> route_of("POST", "/v1/messages").dialect, route_of("GET", "/v1/models"), route_of("POST", "/v1/embeddings")
    ('anthropic', None, None)
    """
    return next((route for route in _ROUTES if method == "POST" and path.endswith(route.end)), None)


class ErrorReply(Struct, frozen=True):
    """A response that is an error."""

    status: int
    headers: list[Header]
    body: bytes
    sends_again: bool = False
    """The host refused something that has been corrected: the request is to be sent once more."""


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
        profile_for(model="", host=host, overrides=overrides)  # report mistakes now, not at the first request
        if not isinstance(transformers, Iterable):
            raise InvalidInput("transformers must be a list", field="transformers")
        if memory is not None and not isinstance(memory, Memory):
            raise InvalidInput(f"memory must be a Memory, not {type(memory).__name__}", field="memory")
        self.host, self.options, self.overrides, self.transformers = host, options, overrides, tuple(transformers)
        self.memory = Memory() if memory is None else memory
        self.responses = ResponseHistory(self.memory)
        self.learned = LearnedFields()
        self.documents = DocumentReader()

    def begin(
        self, route: Route, url: str, headers: Mapping[str, str], content: bytes, query: str = ""
    ) -> ClientExchange | None:
        """Start the exchange of a request; None: the request is not for a Kimi model, and passes unchanged.

        `query` is the query string of the URL, which holds the key for some hosts. A request that cannot be prepared
        raises `MoonshimError`, for `render_error`.
        """
        body = None if "content-encoding" in headers else decode_object(content)
        if body is None or not self._is_ours(body.get("model"), url, route.upstream):
            return None
        secrets = tuple(value for name, value in sorted(headers.items()) if _KEYS.search(name))
        secrets += tuple(value for name, value in parse_qsl(query) if _KEYS_IN_ADDRESSES.search(name))
        # Entries stored for one key are never found with another.
        space = blake2b("\n".join((*secrets, query)).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        resolved = self.responses.resolve(space, body) if route.dialect == "openai_responses" else body
        parsed = read_request(resolved, dialect=route.dialect)
        exchange = Exchange(
            parsed,
            self.learned,
            recalled=self.memory.recall(space, parsed),
            client_headers=dict(headers),
            secrets=secrets,
            reply_id=uuid.uuid4().hex,
            created=int(time.time()),
            clock=time.time,
            keeps_response=route.dialect == "openai_responses",
            plays_rounds=True,
        )
        model = without_window(parsed.request.model)
        target = RequestTarget(
            key=(url, model),
            model=model,
            upstream=route.upstream,
            host=self.host,
            base_url=url,
            options=self.options,
            overrides=self.overrides,
            transformers=self.transformers,
        )
        profile = exchange.prepare(target).profile
        if profile.dialect != route.upstream:
            raise InvalidInput(
                f"{profile.host} uses the Messages API at this base URL; use the anthropic SDK, or a base URL without"
                " /anthropic",
                field="base_url",
            )
        return ClientExchange(self, exchange, body, space)

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
    """An error in the format of a dialect."""
    if isinstance(problem, MoonshimError):
        problem = problem_of(problem)
    if not problem.retryable:
        headers = [header for header in headers if header[0].lower() not in _RETRYING]
        headers += problem.retry_headers.items()
    own = [("content-type", CONTENT_TYPES["json"])]
    return ErrorReply(problem.status, [*own, *headers], encode(render_problem(problem, dialect=dialect)), sends_again)


class ClientExchange:
    """One request of an SDK and its response: an `Exchange` that remembers in the state of its client."""

    def __init__(self, state: ClientState, exchange: Exchange, body: dict[str, Any], space: str) -> None:
        self._state, self._exchange, self._received_body, self._space = state, exchange, body, space

    def read_documents(self) -> None:
        """Extract the documents that the host does not accept: blocks for as long as that takes."""
        if documents := self._exchange.documents():
            self._exchange.use_documents(self._state.documents.read_all(documents))

    @property
    def has_documents(self) -> bool:
        """Whether there is something for `read_documents` to do."""
        return bool(self._exchange.documents())

    @property
    def body(self) -> bytes:
        """What to send to the host."""
        return encode(self._exchange.prepared.body)

    def request_headers(self, headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The SDK's headers as the host accepts them, in their order."""
        fitted = {name: self._exchange.headers.get(name) for name in FITTED_HEADERS}
        same = [(name, value) for name, value in headers if name.decode("latin-1").lower() not in fitted]
        return same + [(name.encode(), value.encode()) for name, value in fitted.items() if value is not None]

    def start_response(self, content_type: str | None) -> None:
        """The host accepted the request; its response follows."""
        self._exchange.start_response(content_type)

    @property
    def is_useless(self) -> bool:
        """The rest of the response is not worth reading: only `end` is left."""
        return self._exchange.is_useless

    def feed(self, data: bytes) -> bytes:
        """More bytes came from the host; the bytes for the SDK."""
        return self._remember(self._exchange.feed(data))

    def end(self) -> bytes:
        """The host has sent everything; the rest."""
        return self._remember(self._exchange.end())

    def fail(self, error: MoonshimError) -> bytes:
        """The connection broke in the middle: the bytes that say so, or the rest of a response that ends well."""
        return self._end_failed(problem_of(error))

    def _end_failed(self, problem: Problem) -> bytes:
        return self._remember(self._exchange.fail(problem) + self._exchange.end())

    # --- a second request for the same answer ------------------------------------------------------------------

    @property
    def wants_retry(self) -> bool:
        """All of the response came, and the model's answer is to blame: the request is to be sent once more."""
        return self._exchange.wants_retry

    @property
    def has_ended(self) -> bool:
        """The host has said how its response ends."""
        return self._exchange.has_ended

    def start_retry(self, content_type: str | None) -> None:
        """The host accepted the second request; its response follows."""
        self._exchange.start_retry(content_type)

    # --- another round -----------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """The answer is not what the program demands: the model is to be asked once more."""
        return self._exchange.pending is not None

    @property
    def ends_well(self) -> bool:
        """Whether `fail` completes the response: all of it came, or there is an answer to fall back on."""
        exchange = self._exchange
        return exchange.has_fallback or (exchange.has_response and exchange.is_draining)

    def start_round(self) -> bytes:
        """The bytes for the SDK. Unless the response `is_over` then, `body` is what to send next."""
        out = self._exchange.continue_with(())
        return self._remember(out + self._exchange.end() if self.is_over else out)

    def refuse_round(self, status: int, headers: Sequence[Header], body: bytes) -> bytes:
        """The host refused the request of this round: the rest of the response, without it."""
        return self._end_failed(self._exchange.error_from(status, dict(headers), body))

    @property
    def is_over(self) -> bool:
        """The response has ended, well or not."""
        return self._exchange.ending is not None

    def _remember(self, out: bytes) -> bytes:
        """Store what there is to store before the SDK gets these bytes: its next request may come at once."""
        state, exchange = self._state, self._exchange
        if exchange.ending is not None:
            if (entry := exchange.take_entry()) is not None:
                state.memory.remember(self._space, entry)
            if (response := exchange.take_completed()) is not None:
                state.responses.keep(self._space, self._received_body, response)
        return out

    # --- errors and headers ------------------------------------------------------------------------------------

    def stream_error(self) -> ErrorReply | None:
        """The error of a response whose status was 200; to be asked for while nothing of it was passed on."""
        problem = self._exchange.problem
        return None if problem is None or self._exchange.wants_retry else self._error_reply(problem)

    def host_error(self, status: int, headers: Sequence[Header], body: bytes) -> ErrorReply:
        """The host's error, whatever its format, in the SDK's dialect."""
        return self._error_reply(self._exchange.error_from(status, dict(headers), body), _forwarded_headers(headers))

    def _error_reply(self, problem: Problem, headers: Sequence[Header] = ()) -> ErrorReply:
        exchange = self._exchange
        sends_again = exchange.correct(problem)
        if sends_again:
            exchange.prepare(exchange.target)
        return render_error(problem, exchange.parsed.dialect, headers, sends_again=sends_again)

    def headers(self, headers: Sequence[Header]) -> list[Header]:
        """Headers of a response that starts: the host's, except for those about its body, and the repairs so far."""
        exchange = self._exchange
        repairs = describe_counts(exchange.change_counts, exchange.repair_counts)
        own = [("content-type", CONTENT_TYPES[exchange.output_format]), ("x-moonshim-repairs", repairs)]
        return [*own, *_forwarded_headers(headers)]


def _forwarded_headers(headers: Sequence[Header]) -> list[Header]:
    return [header for header in headers if header[0].lower() not in _OF_THE_BODY]
