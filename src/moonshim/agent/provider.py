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
from moonshim.agent.inputs import AnyMessage, AnyTool, read_choice, read_messages, read_thinking, read_tools, with_ids
from moonshim.agent.shorten import describe_error
from moonshim.agent.stream import AnswerStream, ExchangeResult, PreparedQuestion
from moonshim.config import Timeouts
from moonshim.engine.exchange import Exchange, RequestTarget
from moonshim.engine.formats import ToolFormat
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
    """There is no complete response. `failed` says why, `problem` has the host's words, `message` what there is
    of it."""

    code = "answer_failed"

    def __init__(self, failed: Failed, result: ExchangeResult) -> None:
        super().__init__(failed.message)
        self.failed = failed
        self.problem: Problem | None = result.problem
        self.message: Message = result.message


class Provider:
    """One model at one host. Several tasks may use it at once, and its repr shows no secrets.

    `base_url` is the host's usual address, and determines the host and its dialect, unless `host` and `dialect` are
    given. `tool_format` (None: by the model's name) is how the model is given tools: text formats (hermes, xml, llama)
    make an agent of a model without tool calling. `thinking` is `on`, `off`, an effort, or a `Thinking`. A host that
    fails before it has sent any of its response is retried, up to `attempts` attempts in all; never later.

    >>> provider = Provider("https://api.moonshot.ai/v1", model="kimi-k2.5", api_key="sk-secret", thinking="off")
    >>> provider
    Provider('https://api.moonshot.ai/v1', model='kimi-k2.5')
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
        """Wrong arguments raise `InvalidInput`; no request is sent yet.

        `options` are what to repair (None: everything, for a Kimi); `cells` override fields of the host's profile
        (docs/hosts.md), `transformers` is the chain of docs/transformers.md. `extra_body` is merged deeply into every
        request, and overrides everything else. `upstream` is an existing HTTP client: it is not closed with this
        provider. Before a retry, `sleep` waits for as long as the host asks, or for a part of a second that `random`
        decides; if that exceeds `longest_wait` seconds, the failure is reported instead.
        """
        given = locals()
        self._given = {key: given[key] for key in _ARGUMENTS if key != "upstream"}
        self._connections = _Connections(upstream)
        self._destination = Endpoint(
            base_url=base_url,
            model=model,
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
            raise InvalidInput(f"attempts must be a number, 1 at least, not {attempts!r}", field="attempts")
        if not isinstance(sampling, Sampling):
            raise InvalidInput(f"sampling must be a Sampling, not {type(sampling).__name__}", field="sampling")
        if not isinstance(transformers, Iterable):
            raise InvalidInput("transformers must be a list of transformers", field="transformers")
        if options is not None:
            check_options(options)
        check_extra_body(extra_body)
        self.name: str = name or self._destination.name
        self.thinking: Thinking = read_thinking(thinking)
        self.sampling = sampling
        self._target = RequestTarget(
            key=(base_url, model, self.dialect),
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
        self.last: ExchangeResult = ExchangeResult()
        """The result of the latest response. With several tasks, each stream's own `result` is the right one."""

    # -- properties ----------------------------------------------------------------------

    @property
    def model(self) -> str:
        """The model, as the host calls it."""
        return self._destination.model

    @property
    def base_url(self) -> str:
        """The host's address, as given."""
        return self._destination.base_url

    @property
    def host(self) -> str:
        """The effective row of the host table."""
        return self._destination.profile.host

    @property
    def dialect(self) -> DialectName:
        """The host's dialect."""
        return self._destination.profile.dialect

    @property
    def tool_format(self) -> ToolFormat:
        """The format in which the model is given tools."""
        return self._destination.format

    @property
    def format_is_set(self) -> bool:
        """Whether the tool format was set; otherwise it was detected from the model's name."""
        return self._destination.format_is_set

    @property
    def problem(self) -> Problem | None:
        """Why the latest response failed, if it did."""
        return self.last.problem

    def with_(self, **changes: Any) -> Provider:
        """The same with other arguments, over the same connections.

        >>> Provider("http://localhost:8000/v1", model="kimi-k2.5").with_(model="kimi-k3").model
        'kimi-k3'
        """
        unknown = next((key for key in changes if key not in _ARGUMENTS), None)
        if unknown is not None:
            raise InvalidInput(
                f"a provider has no argument {unknown!r}; there are {', '.join(_ARGUMENTS)}", field=unknown
            )
        changed = Provider(**(self._given | changes))
        if changes.get("upstream") is None:
            changed._connections = self._connections
        changed._learned = self._learned
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
    ) -> AnswerStream:
        """The events of the model's response, as they come; exactly one `Finished` or `Failed` comes last.

        `messages` are canonical values or dicts of the OpenAI API, `tools` too. Reasoning in them is sent in the host's
        form, and ids are rewritten for it. Calls in the response have canonical ids (`hist_tool_*`) that no call of the
        history has. Input that cannot be sent raises `InvalidInput` at once.
        """
        declared = read_tools(tools)
        history = read_messages(messages)
        if not history:
            raise InvalidInput("there is nothing to say: messages is empty", field="messages")
        choice = read_choice(tool_choice, declared)
        try:
            parsed = self._parse(history, declared, choice)
            exchange = Exchange(parsed, self._learned, secrets=self._destination.secrets, reply_id="moonshim")
            call = self._destination.call(exchange.prepare(self._target).body)
            known_ids = frozenset(_ids_in(history))
        except _WRONG_VALUES as error:
            # Python does not check type hints: canonical values may hold anything, and dicts may hold values that are
            # not JSON.
            raise InvalidInput(
                f"messages or tools cannot be sent: {describe_error(error)}", field="messages"
            ) from error

        return AnswerStream(
            PreparedQuestion(
                upstream=self._connections.current,
                exchange=exchange,
                call=call,
                build_call=self._destination.call,
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
    ) -> Message:
        """The whole response, for the history. Raises `AnswerFailed` if there is none."""
        async with self.stream_chat_with_tools(messages, tools, tool_choice=tool_choice) as stream:
            async for event in stream:
                if isinstance(event, Failed):
                    raise AnswerFailed(event, stream.result)
            return stream.result.message

    def _parse(
        self, messages: tuple[Message, ...], tools: tuple[Tool, ...], choice: ToolChoice | None
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
        """Close the connections, including those of providers made with `with_`. Later requests open new ones."""
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
        raise InvalidInput(f"{name} must be a dict with names as keys, not {type(given).__name__}", field=name)
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
