"""Messages and tools -> the events of a model's response, from any host, in any supported dialect and tool format."""

from __future__ import annotations

import asyncio
import random as dice
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import signature
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

from moonshim.agent.endpoint import DialectName, Endpoint
from moonshim.agent.inputs import (
    AnyMessage,
    AnyTool,
    read_choice,
    read_format,
    read_messages,
    read_thinking,
    read_tools,
    with_ids,
)
from moonshim.agent.shorten import describe_error
from moonshim.agent.stream import AnswerStream, ExchangeResult, PreparedQuestion
from moonshim.config import Timeouts
from moonshim.documents import DocumentReader
from moonshim.engine.exchange import Exchange, RequestTarget
from moonshim.engine.formats import ToolFormat, without_window
from moonshim.engine.formats.prompting import as_text
from moonshim.engine.hosts.learned import LearnedFields
from moonshim.engine.plan import check_options
from moonshim.engine.prepare import ParsedRequest
from moonshim.engine.request.extra_body import check_extra_body
from moonshim.engine.signing import Signer
from moonshim.engine.stages import Transformer
from moonshim.engine.values.conversation import (
    Message,
    Request,
    ResponseFormat,
    Sampling,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from moonshim.engine.values.copies import deep_copy
from moonshim.engine.values.events import Failed
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidInput, Problem, UpstreamError
from moonshim.http_client import UpstreamClient

__all__ = ["AnswerFailed", "Provider"]

_CHAT: Final = "openai_chat"
_NO_TOOLS: Final[dict[str, Any]] = {"tools": None, "tool_choice": None, "parallel_tool_calls": None}
_WRONG_VALUES: Final = (
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    AssertionError,
)
LONGEST_WAIT: Final = 20.0
"""Seconds. A host that asks for a longer delay is not waited for; its error is reported."""


class AnswerFailed(UpstreamError):
    """The request failed, or the response is incomplete."""

    code = "answer_failed"

    def __init__(self, failed: Failed, result: ExchangeResult) -> None:
        super().__init__(failed.message)
        self.failed = failed
        """The last event of the response: the error code and message, and whether a retry can help."""
        self.problem: Problem | None = result.problem
        """The error as the host reported it, if it did."""
        self.message: Message = result.message
        """The part of the response that arrived."""


class Provider:
    """Calls one model at one host. Several tasks can use it at once. Its repr shows no secrets.

    Requests are adapted to the host, and responses are mended. A request that fails before any part of a response has
    arrived is retried; a response that breaks off later is not.

    >>> provider = Provider("https://api.moonshot.ai/v1", model="kimi-k3", api_key="sk-secret", thinking="low")
    >>> provider
    Provider('https://api.moonshot.ai/v1', model='kimi-k3')
    >>> provider.name, provider.dialect, provider.tool_format, provider.format_is_set
    ('moonshot', 'openai_chat', 'kimi', False)
    >>> provider.with_(model="qwen3-coder", tool_format="xml").format_is_set
    True
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        api_key: str | None = None,
        dialect: DialectName | None = None,
        host: str | None = None,
        tool_format: str | None = None,
        thinking: Thinking | str | bool | None = None,
        sampling: Sampling = Sampling(),  # noqa: B008 - a frozen value
        options: KimiOptions | None = None,
        headers: Mapping[str, str] = {},
        timeouts: Timeouts = Timeouts(),  # noqa: B008
        attempts: int = 3,
        name: str = "",
        upstream: UpstreamClient | None = None,
        cells: Mapping[str, Any] = {},
        transformers: Sequence[Transformer] = (),
        extra_body: Mapping[str, Any] = {},
        proxy: str | None = None,
        ca_bundle: str | None = None,
        longest_wait: float = LONGEST_WAIT,
        random: Callable[[], float] = dice.random,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Check the arguments. No request is sent yet.

        Args:
            base_url: The base URL of the host's API, such as `https://api.moonshot.ai/v1`. It determines the host and
                the dialect, unless `host` and `dialect` are set.
            model: The name of the model. `[1m]` behind it does not count.
            api_key: The API key; None for a host without one.
            dialect: The API to use: `openai_chat` or `anthropic`.
            host: The name of the host profile (docs/reference/hosts.md).
            tool_format: How tools are described to the model; by default detected from the model name. Text formats
                (`hermes`, `xml`, `llama`) work with models that have no native tool calling.
            thinking: `on`, `off`, an effort such as `low` or `high`, or a `Thinking` object; None for the model's
                default.
            sampling: Temperature, token limit and other sampling parameters.
            options: Which repairs to apply; None for all of them, if the model is a Kimi model.
            headers: Extra request headers.
            timeouts: How long to wait for the connection and for the response.
            attempts: The maximum number of attempts for one request.
            name: The display name of the provider; by default the name of the host, or its origin.
            upstream: An existing HTTP client to use. It is not closed with this provider.
            cells: Overrides for fields of the host profile.
            transformers: The transformer chain (docs/guides/transformers.md).
            extra_body: An object that is deep-merged into every request body and overrides everything else.
            proxy: The URL of an HTTP proxy.
            ca_bundle: The path of a file with CA certificates.
            longest_wait: The maximum delay before a retry, in seconds. If the host asks for a longer one, the failure
                is reported instead.
            random: Returns the random part of a retry delay; for tests.
            sleep: Waits before a retry, for as long as the host asks or for a fraction of a second; for tests.

        Raises:
            InvalidInput: An argument has the wrong type or value; `field` names it.
        """
        given = locals()
        self._given = {key: given[key] for key in _ARGUMENTS if key != "upstream"}
        self._connections = _Connections(upstream)
        self._destination = Endpoint(
            base_url=base_url,
            model=without_window(model) if isinstance(model, str) else model,
            api_key=api_key,
            dialect=dialect,
            host=host,
            tool_format=tool_format,
            headers=_mapping("headers", headers),
            timeouts=timeouts,
            cells=_mapping("cells", cells),
            proxy=proxy,
            ca_bundle=ca_bundle,
        )
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise InvalidInput(f"attempts must be an integer of at least 1, not {attempts!r}", field="attempts")
        if not isinstance(sampling, Sampling):
            raise InvalidInput(f"sampling must be a Sampling object, not {type(sampling).__name__}", field="sampling")
        if not isinstance(transformers, Iterable):
            raise InvalidInput("transformers must be a list of transformers", field="transformers")
        if options is not None:
            check_options(options)
        check_extra_body(extra_body)
        self.name: str = name or self._destination.name
        self.thinking: Thinking = read_thinking(thinking)
        self.sampling = sampling
        self._target = RequestTarget(
            key=(base_url, self.model, self.dialect),
            upstream=self.dialect,
            host=self.host,
            options=options,
            overrides=self._destination.overrides,
            transformers=tuple(transformers),
            extra_body=deep_copy(dict(extra_body)),
        )
        self._attempts, self._longest_wait, self._random = attempts, longest_wait, random
        self._sleep = sleep
        self._learned = LearnedFields()
        self._documents = DocumentReader()
        self.last: ExchangeResult = ExchangeResult()
        """The result of the latest request. With concurrent requests, use the `result` of each stream instead."""

    # -- properties ----------------------------------------------------------------------

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._destination.model

    @property
    def base_url(self) -> str:
        """The base URL of the host, as passed in."""
        return self._destination.base_url

    @property
    def host(self) -> str:
        """The name of the host profile in use."""
        return self._destination.profile.host

    @property
    def dialect(self) -> DialectName:
        """The API that the host is called with: `openai_chat` or `anthropic`."""
        return self._destination.profile.dialect

    @property
    def tool_format(self) -> ToolFormat:
        """The format in which tools are described to the model."""
        return self._destination.format

    @property
    def format_is_set(self) -> bool:
        """Whether the tool format was set explicitly. Otherwise it is detected from the model name."""
        return self._destination.format_is_set

    @property
    def problem(self) -> Problem | None:
        """Why the latest request failed, if it did."""
        return self.last.problem

    def with_(self, **changes: Any) -> Provider:
        """Return a copy with some arguments changed. It shares the connections of this provider.

        Raises:
            InvalidInput: An argument is unknown or has an invalid value.

        >>> Provider("http://localhost:8000/v1", model="kimi-k2.6").with_(model="kimi-k3").model
        'kimi-k3'
        """
        unknown = next((key for key in changes if key not in _ARGUMENTS), None)
        if unknown is not None:
            raise InvalidInput(f"unknown argument {unknown!r}; Provider takes {', '.join(_ARGUMENTS)}", field=unknown)
        changed = Provider(**(self._given | changes))
        if changes.get("upstream") is None:
            changed._connections = self._connections
        changed._learned = self._learned
        changed._documents = self._documents
        return changed

    def __repr__(self) -> str:
        return f"Provider({self._destination.display_url!r}, model={self.model!r})"

    # -- requests ------------------------------------------------------------------------

    def stream_chat_with_tools(
        self,
        messages: Iterable[AnyMessage],
        tools: Iterable[AnyTool] = (),
        *,
        tool_choice: ToolChoice | str | Mapping[str, Any] | None = None,
        response_format: ResponseFormat | Mapping[str, Any] | None = None,
    ) -> AnswerStream:
        """Send a request and stream the events of the response. The last event is a `Finished` or a `Failed`.

        Reasoning in the history is sent in the form that the host expects, and call ids are rewritten for it. Calls in
        the response have canonical ids (`hist_tool_*`) that do not occur in the history. Failures of the host do not
        raise: they are reported as a `Failed` event.

        Args:
            messages: The conversation: `Message` objects, dicts in the format of the OpenAI API, or a mix of both.
            tools: `Tool` objects, functions decorated with `@tool`, or dicts in the format of the OpenAI API.
            tool_choice: `auto`, `none`, `required`, the name of a tool, a `ToolChoice`, or a value of the OpenAI API.
            response_format: The JSON that the answer must be: a `ResponseFormat`, or a value of the OpenAI API.

        Raises:
            InvalidInput: A message or tool is invalid or cannot be encoded. Raised at once, before a request is sent.
        """
        declared = read_tools(tools)
        history = read_messages(messages)
        if not history:
            raise InvalidInput("messages is empty; pass at least one message", field="messages")
        choice, wanted = read_choice(tool_choice, declared), read_format(response_format)
        try:
            parsed = self._parse(history, declared, choice, wanted)
            exchange = Exchange(
                parsed, self._learned, secrets=self._destination.secrets, reply_id="moonshim", plays_rounds=True
            )
            call = self._destination.call(exchange.prepare(self._target).body, exchange.headers)
            known_ids = frozenset(_ids_in(history))
        except _WRONG_VALUES as error:
            # Python does not check type hints: canonical values may hold anything, and dicts may hold values that are
            # not JSON.
            raise InvalidInput(
                f"messages or tools cannot be encoded: {describe_error(error)}", field="messages"
            ) from error

        return AnswerStream(
            PreparedQuestion(
                upstream=self._connections.current,
                exchange=exchange,
                call=call,
                build_call=self._destination.call,
                read_documents=self._documents.read_all,
                known_ids=known_ids,
                attempts=self._attempts,
                longest_wait=self._longest_wait,
                random=self._random,
                sleep=self._sleep,
                done=self._note,
            )
        )

    async def complete(
        self,
        messages: Iterable[AnyMessage],
        tools: Iterable[AnyTool] = (),
        *,
        tool_choice: ToolChoice | str | Mapping[str, Any] | None = None,
        response_format: ResponseFormat | Mapping[str, Any] | None = None,
    ) -> Message:
        """Send a request, wait for the whole response, and return it as a message for the history.

        The arguments are those of `stream_chat_with_tools`.

        Raises:
            AnswerFailed: The request failed, or the response is incomplete.
            InvalidInput: A message or tool is invalid or cannot be encoded.
        """
        async with self.stream_chat_with_tools(
            messages, tools, tool_choice=tool_choice, response_format=response_format
        ) as stream:
            async for event in stream:
                if isinstance(event, Failed):
                    raise AnswerFailed(event, stream.result)
            return stream.result.message

    def _parse(
        self,
        messages: tuple[Message, ...],
        tools: tuple[Tool, ...],
        choice: ToolChoice | None,
        response_format: ResponseFormat | None,
    ) -> ParsedRequest:
        destination = self._destination
        put: dict[str, Any] = {} if tools else {"tools": None}  # hosts refuse an empty list
        if destination.is_text:
            messages = as_text(messages, tools, destination.format, choice=choice)
            # The plan needs the tools to parse calls to them; the host does not.
            put = _NO_TOOLS
        request = Request(
            model=self.model,
            messages=with_ids(messages, destination.format),
            tools=tools,
            tool_choice=choice if tools else None,
            sampling=self.sampling,
            thinking=self.thinking,
            response_format=response_format,
            stream=True,
            include_usage=True,
            locations=tuple(f"messages[{place}]" for place in range(len(messages))),
            body_overrides=put,
        )
        return ParsedRequest(None, _CHAT, request, [], Signer())

    def _note(self, result: ExchangeResult) -> None:
        self.last = result

    # -- connections ---------------------------------------------------------------------

    async def close(self) -> None:
        """Close the connections, including those of copies made with `with_`. Later requests open new ones."""
        await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


_ARGUMENTS: Final = tuple(signature(Provider).parameters)


def _mapping(name: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidInput(f"{name} must be a dict with string keys, not {type(given).__name__}", field=name)
    return dict(given)


def _ids_in(messages: tuple[Message, ...]) -> Iterable[str]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield part.id
            elif isinstance(part, ToolResult):
                yield part.call_id


class _Connections:
    """Connections, one set per event loop: a provider may be used by several calls of `asyncio.run`."""

    def __init__(self, given: UpstreamClient | None = None) -> None:
        self._given = given
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, UpstreamClient] = WeakKeyDictionary()

    def current(self) -> UpstreamClient:
        """Those of the running loop, created on first use."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = UpstreamClient()
        return self._clients[loop]

    async def close(self) -> None:
        """Close those of the running loop, unless the caller supplied them. Others end with their loops."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
