"""A configuration -> for each provider whether key, address, model and dialect are correct, by one tool round with it.

Read `_Check._round` first: a prompt that needs a tool, the call, its result, the answer. Everything else is for hosts
where that does not work: `_unreachable` and `_diagnose` find out why, with requests that cost nothing.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from moonshim.config import Config, ProviderConfig, Secret, Target, Timeouts, endpoint_of, without_secrets
from moonshim.config.endpoints import base_of, is_loopback, models_url, usages_url
from moonshim.doctor.clues import (
    Spoken,
    candidate_endpoints,
    model_names,
    page_title,
    secrets_of,
    setting_line,
    similar_names,
    speaks,
)
from moonshim.doctor.findings import TOPICS, Finding, ProviderReport, State, Topic
from moonshim.doctor.subscription import LoginReport, Quota, describe_login, login_of, read_quota, reports_quota
from moonshim.engine.exchange import Exchange, ResponseStream
from moonshim.engine.formats import without_window
from moonshim.engine.hosts.detect import describe_guess, host_of
from moonshim.engine.hosts.errors.body import mask_secrets
from moonshim.engine.prepare import read_request
from moonshim.engine.values.conversation import Reasoning, Text, ToolCall
from moonshim.engine.values.events import Finished
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.errors import MoonshimError, Problem, UpstreamBroke, UpstreamError, UpstreamStalled, UpstreamUnreachable
from moonshim.gateway.observe.log_lines import WORDS
from moonshim.gateway.outbound.request_headers import headers_of_test, host_headers
from moonshim.gateway.outbound.routing import request_target
from moonshim.http_client import UpstreamClient, UpstreamRequest, UpstreamResponse
from moonshim.transformers import load_chain

__all__ = ["AT_ONCE", "MOST_TOKENS", "SECONDS", "check_providers"]

Json: TypeAlias = dict[str, Any]

SECONDS: Final = 60.0
"""How long a host may take to start a response, and then to finish it."""
QUOTA_SECONDS: Final = 8.0
"""How long the report on a quota may take, which is not worth more: as long as kimi-code waits for it."""
AT_ONCE: Final = 4
"""How many providers are checked at a time."""
MOST_TOKENS: Final = 2048
"""Enough tokens for a thinking model to arrive at its call."""
_GUESS: Final = "kimi-k3"
_READ_BYTES: Final = 8 * 1024 * 1024
"""Of an error, or of a list of models: OpenRouter's has most of a megabyte."""
_SNIFFED_BYTES: Final = 64 * 1024
_MAX_DETAIL_LENGTH: Final = 300

_JSON: Final = "application/json"
_TOOL: Final = "get_weather"
_DECLARED: Final = {"name": _TOOL, "description": "Get the current weather in a city."}
_SCHEMA: Final[Json] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_QUESTION: Final = f"What is the weather in Paris now? Call {_TOOL}, then answer in one short sentence."
_RESULT: Final = '{"city": "Paris", "sky": "light rain", "celsius": 18}'
_TOOLS: Final[dict[str, Json]] = {
    "openai_chat": {
        "tools": [{"type": "function", "function": _DECLARED | {"parameters": _SCHEMA}}],
        "tool_choice": "auto",
        "stream_options": {"include_usage": True},
    },
    "anthropic": {"tools": [_DECLARED | {"input_schema": _SCHEMA}], "tool_choice": {"type": "auto"}},
}

_NAMES: Final = {
    "openai_chat": "Chat Completions",
    "anthropic": "Messages",
    "openai_responses": "Responses",
    "page": "a web page",
}
_MARKER: Final = re.compile(rb"<\|tool_call|<\|open\|>")
_TLS_WANTED: Final = re.compile(r"(?i)\bHTTPS (?:port|server)\b")
_NO_MODEL: Final = r"\bmodel (?:id |name )?(?:is |was |does )?not\b|(?:no such|unknown|invalid) model|^model_not_found"
_NO_SUCH_PATH: Final = frozenset({404, 405, 410, 501})
_IS_THERE: Final = frozenset({400, 401, 403, 422})
"""How an endpoint responds to an empty request."""
# Kinds of a `Problem` that already say what is wrong; they are causes of a `Finding` too.
_ABOUT_KEY: Final = frozenset({"authentication", "permission", "quota"})
_ABOUT_HOST: Final = frozenset({"rate_limit", "overloaded", "timeout", "server"})


async def check_providers(
    config: Config,
    *,
    model: str | None = None,
    seconds: float = SECONDS,
    user_agent: str | None = None,
    at_once: int = AT_ONCE,
) -> AsyncIterator[ProviderReport]:
    """Check every provider, several at a time; the reports are in the order of the configuration.

    `model` is used instead of the first one of each provider, and `user_agent` instead of one that the host accepts.
    """
    upstream, places = UpstreamClient(), asyncio.Semaphore(at_once)

    async def check(provider: ProviderConfig) -> ProviderReport:
        async with places:
            host = provider.host or host_of(provider.api_base_url)
            agent = headers_of_test(host) if user_agent is None else {"user-agent": user_agent}
            examined = _Check(upstream, provider, seconds, agent)
            return await examined.run(_pick_model(config, provider, model))

    tasks = [asyncio.create_task(check(provider)) for provider in config.providers]
    try:
        for task in tasks:
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await upstream.close()


class _Reply(Struct, frozen=True):
    """A complete response."""

    body: Json
    """As a client would have received it."""
    reading: ResponseStream
    beginning: bytes
    """Of the host's own bytes."""
    sent: bytes

    @property
    def thought(self) -> str:
        parts = self.reading.message.parts
        return next((part.text for part in parts if isinstance(part, Reasoning) and part.text), "")


class _Probe(Struct, frozen=True):
    """What came back instead of a response."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class _NoAnswer(Exception):
    """The host responded, but not with an answer. The message is the host's, with the status."""

    def __init__(self, problem: Problem, seen: _Probe) -> None:
        super().__init__(problem.message if seen.status < 300 else f"{seen.status}, {problem.message}")
        self.problem, self.seen = problem, seen


class _Check:
    """The check of one provider. One object for each."""

    def __init__(
        self, upstream: UpstreamClient, provider: ProviderConfig, seconds: float, headers: dict[str, str]
    ) -> None:
        self._upstream, self._provider, self._seconds, self._headers = upstream, provider, seconds, headers
        self._dialect: Spoken = provider.dialect
        self._endpoint = endpoint_of(provider)
        self._display_url = without_secrets(self._endpoint)
        self._secrets = secrets_of(provider)
        self._model, self._why = _GUESS, "a guess: no model is configured, and the host lists none"
        self._findings: dict[tuple[Topic, str], Finding] = {}
        self._replies: list[_Reply] = []
        self._changes: Counter[str] = Counter()
        self._call: Literal["native", "markers", "none"] | None = None
        self._call_id: str | None = None
        self._first_token: float | None = None
        self._login: LoginReport | None = None

    async def run(self, picked: tuple[str, str] | None) -> ProviderReport:
        began = time.perf_counter()
        try:
            if self._check_login():
                await self._round(picked)
            elif picked is not None:
                self._model, self._why = picked
        except MoonshimError as error:  # a plug-in that cannot be loaded or raises, an override that does not fit
            self._wrong("chain", "cannot_prepare", str(error))
        findings = tuple(sorted(self._findings.values(), key=lambda one: TOPICS.index(one.topic)))
        unusable = any(one.state == "wrong" and one.topic in ("address", "login") for one in findings)
        quota = () if unusable else await self._read_quota()
        usages = [reply.reading.usage for reply in self._replies if reply.reading.usage is not None]
        return ProviderReport(
            provider=self._provider.name,
            right=all(finding.state != "wrong" for finding in findings),
            model=self._model,
            address=self._display_url,
            dialect=self._dialect,
            findings=findings,
            call=self._call,
            call_id=self._call_id,
            repairs=dict(self._repairs),
            changes=dict(self._changes),
            first_token_seconds=self._first_token,
            seconds=round(time.perf_counter() - began, 3),
            input_tokens=sum(usage.input_tokens or 0 for usage in usages) or None,
            output_tokens=sum(usage.output_tokens or 0 for usage in usages) or None,
            login=self._login,
            quota=quota,
        )

    # -- findings ------------------------------------------------------------------------

    def _note(self, topic: Topic, state: State, detail: str, cause: str | None = None, hint: str | None = None) -> None:
        """The last finding on a topic counts, but a wrong key among several is never overwritten."""
        place = detail if cause == "one_of_the_keys" else ""
        text = mask_secrets(" ".join(self._without_secrets(detail).split()))[:_MAX_DETAIL_LENGTH]
        self._findings[topic, place] = Finding(topic, state, text, cause, hint and self._without_secrets(hint))

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _wrong(self, topic: Topic, cause: str, detail: str, hint: str | None = None) -> None:
        self._note(topic, "wrong", detail, cause, hint)

    @property
    def _repairs(self) -> Counter[str]:
        return sum((Counter(reply.reading.repair_counts) for reply in self._replies), Counter())

    # -- the subscription ----------------------------------------------------------------

    def _check_login(self) -> bool:
        """Whether there is a key to send: an expired login is not sent."""
        state = login_of(self._provider)
        if state is None:
            return True
        self._login, detail = describe_login(state)
        cause = {"missing": "no_login", "expired": "login_expired"}.get(self._login.state)
        self._note("login", "wrong" if cause else "right", detail, cause)
        return self._provider.keys[0].problem is None

    async def _read_quota(self) -> tuple[Quota, ...]:
        if not reports_quota(self._provider):
            return ()
        seen = await self._probe(self._call_to("GET", usages_url(self._endpoint)), QUOTA_SECONDS)
        if seen is None or seen.status != 200:
            return ()
        return read_quota(self._without_secrets(seen.body.decode("utf-8", "replace")).encode())

    # -- the round -------------------------------------------------------------------

    async def _round(self, picked: tuple[str, str] | None) -> None:
        if picked is None and (listed := await self._list_models()):
            kimi = next((name for name in listed if "kimi" in name.lower()), listed[0])
            picked = kimi, "from the host's list of models; none is configured"
        self._model, self._why = picked or (self._model, self._why)
        messages: list[Json] = [{"role": "user", "content": _QUESTION}]
        try:
            first = await self._ask(messages)
        except UpstreamError as error:
            await self._unreachable(error)
            return
        except _NoAnswer as failure:
            await self._diagnose(failure)
            return
        self._note("address", "right", self._display_url)
        self._note("key", "right", self._describe_key("accepted", "none configured, and none needed"))
        configured = "generation" in self._provider.overrides_for(self._model)
        guess = None if configured else describe_guess(self._model)
        self._note("model", "right", f"{self._model} ({self._why})" + (f"; {guess}" if guess else ""))
        self._note("dialect", "right", _NAMES[self._dialect])
        await self._other_keys()
        if self._judge_call(first):
            try:
                second = await self._ask([*messages, *_with_result(self._dialect, first.body)])
            except (UpstreamError, _NoAnswer) as error:
                self._wrong("answer", "result_refused", f"the tool result was rejected: {error}")
                return
            self._judge_answer(first, second)

    def _judge_call(self, reply: _Reply) -> bool:
        calls = [part for part in reply.reading.message.parts if isinstance(part, ToolCall)]
        if not calls:
            self._call = "none"
            self._wrong("call", *_why_no_call(reply))
            return False
        words = {WORDS.get(rule) for rule in self._repairs}
        self._call = "markers" if "markers" in words else "native"
        self._call_id = calls[0].wire_id
        arguments = decode_object(calls[0].arguments.encode("utf-8", "replace"))
        if calls[0].name != _TOOL or arguments is None or not isinstance(arguments.get("city"), str):
            self._wrong("call", "called_otherwise", f"the model called {calls[0].name}({calls[0].arguments[:80]})")
            return False
        how = "parsed from markers in the text" if "markers" in words else "as a native tool call"
        self._note("call", "right", f"{_TOOL} {how}; id{' rewritten to' if 'ids' in words else ''} {self._call_id}")
        return True

    def _judge_answer(self, first: _Reply, second: _Reply) -> None:
        parts, thought = second.reading.message.parts, first.thought
        if any(isinstance(part, ToolCall) or (isinstance(part, Text) and part.text.strip()) for part in parts):
            self._note("answer", "right", "the model accepted the tool result and continued")
        else:
            self._wrong("answer", "empty_answer", "the model returned nothing after the tool result")
        returned = encode(thought)[1:-1] in second.sent
        then = "and sent back" if returned else "not sent back, since this host does not expect it"
        detail = f"{len(thought):,} characters received, {then}" if thought else "none received"
        self._note("reasoning", "right" if thought else "unknown", detail)

    async def _other_keys(self) -> None:
        """Keys beyond the first: an empty request shows whether they are accepted."""
        for number, key in enumerate(self._provider.keys[1:], 2):
            if key.problem is not None:
                continue
            seen = await self._probe(self._call_to("POST", self._endpoint, b"{}", key))
            if seen is not None and seen.status in (401, 403):
                count = len(self._provider.keys)
                self._wrong("key", "one_of_the_keys", f"key {number} of {count} was rejected ({seen.status})")

    # -- requests ------------------------------------------------------------------------

    async def _ask(self, messages: list[Json]) -> _Reply:
        exchange = self._prepare(messages)
        self._changes.update(exchange.change_counts)
        body = exchange.prepared.body
        sent, began = encode(body), time.perf_counter()
        accept = "text/event-stream" if body.get("stream") is True else _JSON
        call = self._call_to("POST", self._endpoint, sent, accept=accept, needed=exchange.headers)
        answer = await self._upstream.open(call)
        seen = _Probe(answer.status, b"", answer.headers)
        try:
            if not 200 <= answer.status <= 299:
                with suppress(UpstreamError):
                    seen = replace(seen, body=await answer.read_all(_READ_BYTES, cut=True))
                raise _NoAnswer(exchange.error_from(seen.status, seen.headers, seen.body), seen)
            exchange.start_response(answer.headers.get("content-type"), output_format="json")
            async with asyncio.timeout(self._seconds):
                beginning = await self._read(answer, exchange, began)
        except TimeoutError:
            raise UpstreamStalled(f"the response was not complete after {self._seconds:g} seconds") from None
        finally:
            answer.close()
        out, actual = decode_object(exchange.end()), speaks(beginning, self._dialect)
        if exchange.problem is not None or out is None or actual != self._dialect:
            message = f"received {_NAMES[actual]} instead of {_NAMES[self._dialect]}"
            problem = exchange.problem or Problem(status=502, kind="server", message=message)
            raise _NoAnswer(problem, replace(seen, body=beginning))
        self._replies.append(_Reply(out, exchange.stream, beginning, sent))
        return self._replies[-1]

    async def _read(self, answer: UpstreamResponse, exchange: Exchange, began: float) -> bytes:
        """Read a whole response; return how it started."""
        beginning, more = b"", True
        while more:
            data = await answer.read()
            more = data != b""
            beginning += data[: _SNIFFED_BYTES - len(beginning)]
            exchange.feed(data)
            if self._first_token is None and (exchange.stream.message.parts or not more):  # or it was not streamed
                self._first_token = round(time.perf_counter() - began, 3)
        return beginning

    def _prepare(self, messages: list[Json]) -> Exchange:
        provider = self._provider
        chain = load_chain(provider.uses_for(self._model), log=lambda level, name, fields: None)
        body = {"model": self._model, "messages": messages, "stream": True, "max_tokens": MOST_TOKENS}
        target = request_target(Target(provider, self._model), chain)
        exchange = Exchange(read_request(body | _TOOLS[self._dialect], dialect=self._dialect))
        exchange.prepare(replace(target, upstream=self._dialect, retry_empty_answer=False))
        return exchange

    def _call_to(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        key: Secret | None = None,
        accept: str = _JSON,
        needed: Mapping[str, str] | None = None,
    ) -> UpstreamRequest:
        """`needed`: the headers that the host needs for this body."""
        provider, seconds = self._provider, self._seconds
        key = key or next(iter(provider.keys), None)
        headers = host_headers(provider, key, {**self._headers, **(needed or {})}, accept=accept)
        connect = min(provider.timeouts.connect, seconds)
        timeouts = Timeouts(connect=connect, first_byte=seconds, between_bytes=seconds)
        return UpstreamRequest(url, headers, body, timeouts, provider.proxy, provider.ca_bundle, method)

    async def _probe(self, call: UpstreamRequest, seconds: float = inf) -> _Probe | None:
        """What responds there; None: nothing."""
        with suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(min(seconds, self._seconds)):
                answer = await self._upstream.open(call)
                return _Probe(answer.status, await answer.read_all(_READ_BYTES, cut=True), answer.headers)
        return None

    async def _list_models(self) -> list[str] | None:
        """The names of the host's models, if it lists them."""
        seen = await self._probe(self._call_to("GET", models_url(self._endpoint)))
        return None if seen is None or seen.status != 200 else model_names(seen.body)

    # -- diagnosis -----------------------------------------------------------------------

    async def _unreachable(self, error: UpstreamError) -> None:
        if not isinstance(error, UpstreamUnreachable):
            self._note("address", "right", f"{self._display_url} accepts connections")
            self._wrong("answer", "connection_closed" if isinstance(error, UpstreamBroke) else "silent", str(error))
            return
        url = urlsplit(self._endpoint)
        if url.port is not None:
            other = url._replace(scheme="http" if url.scheme == "https" else "https").geturl()
            seen = await self._probe(replace(self._call_to("GET", other), headers={}))  # never send a key unencrypted
            if seen is not None and seen.status != 400:  # 400: a TLS server's response to plain HTTP
                self._wrong("address", "other_scheme", str(error), setting_line(other))
                return
        near = is_loopback(self._provider.api_base_url)
        self._wrong("address", "nobody_here" if near else "unreachable", str(error))

    async def _diagnose(self, failure: _NoAnswer) -> None:
        """The host responds, but not as it should."""
        problem, seen = failure.problem, failure.seen
        url, actual = urlsplit(self._endpoint), speaks(seen.body, self._dialect)
        self._note("address", "right", f"{self._display_url} responds")
        if url.scheme == "http" and seen.status == 400 and _TLS_WANTED.search(problem.message):
            self._wrong("address", "other_scheme", str(failure), setting_line(url._replace(scheme="https").geturl()))
        elif 300 <= seen.status <= 399:
            to = without_secrets(base_of(seen.headers.get("location", "nowhere")))
            self._wrong("address", "redirect", f"{seen.status}, redirects to {to}")
        elif seen.status in _NO_SUCH_PATH or (seen.status < 300 and actual != self._dialect):
            await self._missing(failure, actual)
        elif actual == "page":
            self._blame_page(failure)
        elif problem.blame == "answer":
            self._wrong("answer", "unusable_answer", str(failure))
        elif problem.kind in _ABOUT_KEY | _ABOUT_HOST:
            self._blame(failure)
        elif actual != self._dialect:
            await self._missing(failure, actual)
        elif (field := self._refused_body_field(problem)) is not None:
            self._wrong("answer", "body_refused", str(failure), f"body.{field}")
        elif (
            self._names_model(problem)
            and (listed := await self._list_models()) is not None
            and self._model not in listed
        ):
            self._blame_model(failure, listed)  # some hosts do not use 404 for that
        else:
            cause = "context_exceeded" if problem.kind == "context_overflow" else "request_refused"
            self._wrong("answer", cause, str(failure))

    def _blame_page(self, failure: _NoAnswer) -> None:
        title = page_title(failure.seen.body)
        about = f" (title: {title})" if title else ""
        status = "" if failure.seen.status < 300 else f"{failure.seen.status}, "
        self._wrong("answer", "page_before_it", f"{status}the host returned a web page{about}, not an API response")

    def _blame(self, failure: _NoAnswer) -> None:
        """The host itself says what is wrong."""
        problem, cause = failure.problem, str(failure.problem.kind)
        if problem.code == "access_terminated_error" and self._provider.keys:
            self._note("key", "unknown", self._describe_key("not refused", "none configured"))
            self._wrong("answer", "agent_not_known", f"the host does not accept this User-Agent: {failure}")
            return
        if cause in _ABOUT_KEY:
            if not self._provider.keys:
                cause = "no_client_key" if self._provider.passes_client_key else "no_key"
            self._wrong("key", cause, f"{self._describe_key('rejected', 'none configured')}: {failure}")
            return
        if cause == "rate_limit":
            self._note("key", "right", self._describe_key("accepted", "none configured"))
        self._wrong("answer", cause, str(failure), None if problem.retry_after is None else f"{problem.retry_after:g}")

    def _refused_body_field(self, problem: Problem) -> str | None:
        words = re.findall(r"\w+", f"{problem.param} {problem.message}")
        return next(filter(words.__contains__, self._provider.body_for(self._model)), None)

    def _names_model(self, problem: Problem) -> bool:
        return bool(re.search(f"(?i){re.escape(self._model)}|{_NO_MODEL}", f"{problem.code} {problem.message}"))

    async def _missing(self, failure: _NoAnswer, speaks: str) -> None:
        """The model or the path does not exist, or the endpoint has another dialect."""
        problem, listed = failure.problem, await self._list_models()
        if speaks == self._dialect and (
            self._names_model(problem) or (listed is not None and self._model not in listed)
        ):
            self._blame_model(failure, listed)
            return
        found = await self._find_api(elsewhere=speaks not in (self._dialect, "page"))
        if found is not None and found[0] == self._endpoint and speaks == "page":
            self._blame_page(failure)  # the API is here, but something else responded to the request
        elif found is not None and found[0] == self._endpoint:
            self._blame_model(failure, listed)
        elif found is not None and found[1] == self._dialect:
            self._wrong("address", "other_path", f"no API at {self._display_url}: {failure}", setting_line(*found))
        elif found is not None or (speaks != self._dialect and speaks in _TOOLS):
            detail = f"the API is {_NAMES[found[1] if found else speaks]}, not {_NAMES[self._dialect]}: {failure}"
            self._wrong("dialect", "other_dialect", detail, setting_line(*found) if found else f'dialect = "{speaks}"')
        elif speaks == self._dialect and listed is not None:
            self._blame_model(failure, listed)
        else:
            self._wrong("address", "no_api", f"no {_NAMES[self._dialect]} API at {self._display_url}: {failure}")

    def _blame_model(self, failure: _NoAnswer, listed: list[str] | None) -> None:
        detail = f"{self._model} ({self._why}): {failure}"
        if not listed:
            self._wrong("model", "no_such_model", detail)
        elif self._model in listed:
            self._wrong("model", "model_not_served", detail)
        else:
            self._wrong("model", "other_models", detail, ", ".join(similar_names(self._model, listed)))

    async def _find_api(self, *, elsewhere: bool) -> tuple[str, Spoken] | None:
        """Where an API is, and which, as far as empty requests show it; `elsewhere`: not at the configured address."""
        for endpoint, dialect in candidate_endpoints(self._provider).items():
            if elsewhere and endpoint == self._endpoint:
                continue
            seen = await self._probe(self._call_to("POST", endpoint, b"{}"))
            if seen is not None and seen.status in _IS_THERE and seen.body.lstrip().startswith(b"{"):
                return endpoint, dialect
        return None

    def _describe_key(self, state: str, none: str) -> str:
        """Where the key comes from, never the key."""
        sources = self._provider.key_sources
        if self._provider.keys:
            place = next((source.place for source in sources if source.found), "the configuration")
            return f"{state} (from {place})"
        missing = ", ".join(source.place for source in sources if not source.found)
        return f"{none} ({missing} is not set)" if missing else none


# --- the requests of a check ----------------------------------------------------------------------------------------


def _pick_model(config: Config, provider: ProviderConfig, given: str | None) -> tuple[str, str] | None:
    """The model to use, and why."""
    prefixes = tuple(f"{provider.name.lower()}{mark}" for mark in "/,")
    if given is not None:
        given = without_window(given)
        return (given[len(prefixes[0]) :] if given.lower().startswith(prefixes) else given), "as requested"
    if provider.models:
        return provider.models[0], "the first configured model"
    named = {f"alias {name}": targets for name, targets in config.aliases.items()}
    named |= {f"route {name}": targets for name, targets in config.routes.targets.items()}
    for name, targets in named.items():
        for target in targets:
            if target.lower().startswith(prefixes):
                return target[len(prefixes[0]) :], f"the target of {name}"
    return None


def _with_result(dialect: Spoken, answer: Json) -> list[Json]:
    """The model's turn as a client sends it back, and the results of its calls."""
    if dialect == "anthropic":
        ids = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": one, "content": _RESULT} for one in ids]
        return [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": results}]
    message = answer["choices"][0]["message"]
    ids = [call["id"] for call in message["tool_calls"]]
    return [message, *({"role": "tool", "tool_call_id": one, "content": _RESULT} for one in ids)]


def _why_no_call(reply: _Reply) -> tuple[str, str]:
    """The cause, and its description."""
    ending = reply.reading.ending
    if _MARKER.search(reply.beginning):
        return "markers_not_read", "the tool call arrived as markers in the text, which this chain does not parse"
    if isinstance(ending, Finished) and ending.reason == "length":
        return "cut_off", f"the model used all {MOST_TOKENS} tokens for reasoning, before the tool call"
    return "not_called", "the model answered without calling the tool"
