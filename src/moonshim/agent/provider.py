"""Messages and tools -> the events of a model's answer, from any host, in any dialect and tool format of ours."""

from __future__ import annotations

import asyncio
import random as dice
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import signature
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

from moonshim.agent.endpoint import DialectName, Endpoint
from moonshim.agent.inputs import AnyMessage, AnyTool, read_choice, read_messages, read_thinking, read_tools, with_ids
from moonshim.agent.shorten import describe_error
from moonshim.agent.stream import AnswerStream, ExchangeResult, PreparedQuestion
from moonshim.config import Timeouts
from moonshim.engine.formats import ToolFormat
from moonshim.engine.formats.prompting import as_text
from moonshim.engine.hosts.learned import LearnedFields
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.plan import check_options
from moonshim.engine.prepare import ParsedRequest, Prepared
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
from moonshim.http_client import UpstreamClient, UpstreamRequest

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
"""Seconds. A host that wants a longer pause is not waited for: that is told as the failure it is."""


class AnswerFailed(UpstreamError):
    """There is no whole answer. `failed` says why, `problem` has the host's words, `message` what there is of it."""

    code = "answer_failed"

    def __init__(self, failed: Failed, result: ExchangeResult) -> None:
        super().__init__(failed.message)
        self.failed = failed
        self.problem: Problem | None = result.problem
        self.message: Message = result.message


class Provider:
    """One model at one host. It may be used by several tasks at once, and prints without secrets.

    `base_url` is the host's usual address, and says which host it is and what is spoken there, unless `host` and
    `dialect` do. `tool_format` (None: by the model's name) is how the model is told of tools: those that are text
    (hermes, xml, llama) make an agent of a model that knows no tool calling. `thinking` is `on`, `off`, an effort, or
    a `Thinking`. A host that fails before it has said anything is asked up to `attempts` times, never later.

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
        """Wrong arguments raise `InvalidInput`; nothing is asked yet.

        `options` are what to mend (None: everything, for a Kimi); `cells` are fields of the host's profile that are
        otherwise here (docs/hosts.md), `transformers` the chain of docs/transformers.md. `extra_body` is merged deeply
        into every request, and wins over what would be sent. `upstream` is whoever asks
        hosts already: it is not closed with this. Before a host is asked again, `sleep` waits for as long as it
        says, or for a part of a second that `random` decides; what would take over `longest_wait` seconds is told as
        the failure that it is.
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
        self._extra_body = deep_copy(dict(extra_body))
        self.name: str = name or self._destination.name
        self.thinking: Thinking = read_thinking(thinking)
        self.sampling = sampling
        self._options, self._transformers = options, tuple(transformers)
        self._attempts, self._longest_wait, self._random = attempts, longest_wait, random
        self._sleep = sleep
        self._learned = LearnedFields()
        self.last: ExchangeResult = ExchangeResult()
        """What the newest answer came to. Where several tasks ask at once, `result` of each stream has its own."""

    # -- what it is ------------------------------------------------------------------

    @property
    def model(self) -> str:
        """The model, as the host calls it."""
        return self._destination.model

    @property
    def base_url(self) -> str:
        """The host's address, as it was given."""
        return self._destination.base_url

    @property
    def host(self) -> str:
        """The row of the host table that holds."""
        return self._destination.profile.host

    @property
    def dialect(self) -> DialectName:
        """What the host is spoken to in."""
        return self._destination.profile.dialect

    @property
    def tool_format(self) -> ToolFormat:
        """How the model is told of tools."""
        return self._destination.format

    @property
    def format_is_set(self) -> bool:
        """Whether somebody chose the tool format; otherwise it was found by the model's name."""
        return self._destination.format_is_set

    @property
    def problem(self) -> Problem | None:
        """Why the newest answer failed, if it did."""
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
        return f"Provider({self._destination.shown!r}, model={self.model!r})"

    # -- asking ----------------------------------------------------------------------

    def stream_chat_with_tools(
        self,
        messages: Iterable[AnyMessage],
        tools: Iterable[AnyTool] = (),
        *,
        tool_choice: ToolChoice | str | Mapping[str, Any] | None = None,
    ) -> AnswerStream:
        """The events of the model's answer, as they come; `Finished` or `Failed` comes last, once.

        `messages` are canonical values or the dicts of the OpenAI API, `tools` too. Reasoning in them is sent as the
        host wants it, identifiers are made anew for it. Calls in the answer have canonical identifiers
        (`hist_tool_*`) that no call of the history has. What cannot be sent raises `InvalidInput` at once.
        """
        declared = read_tools(tools)
        history = read_messages(messages)
        if not history:
            raise InvalidInput("there is nothing to say: messages is empty", field="messages")
        choice = read_choice(tool_choice, declared)
        try:
            prepared = self._prepare(history, declared, choice)
            call, known_ids = self._destination.call(prepared.body), frozenset(_ids_in(history))
        except _WRONG_VALUES as error:
            # Python checks no hints: canonical values may hold anything, and dicts what is no JSON.
            raise InvalidInput(
                f"messages or tools cannot be sent: {describe_error(error)}", field="messages"
            ) from error

        def correct(problem: Problem) -> tuple[Prepared, UpstreamRequest] | None:
            def changes(cells: dict[str, Any]) -> bool:
                return self._prepare(history, declared, choice, cells).body != prepared.body

            if not self._learned.learn_from_error(self._place, prepared.profile, problem, changes):
                return None
            better = self._prepare(history, declared, choice)
            return better, self._destination.call(better.body)

        return AnswerStream(
            PreparedQuestion(
                upstream=self._connections.current,
                prepared=prepared,
                call=call,
                secrets=self._destination.secrets,
                known_ids=known_ids,
                attempts=self._attempts,
                longest_wait=self._longest_wait,
                random=self._random,
                sleep=self._sleep,
                correct=correct,
                done=partial(self._note, prepared.profile),
            )
        )

    async def complete(
        self,
        messages: Iterable[AnyMessage],
        tools: Iterable[AnyTool] = (),
        *,
        tool_choice: ToolChoice | str | Mapping[str, Any] | None = None,
    ) -> Message:
        """The whole answer, for the history. `AnswerFailed` is raised where there is none."""
        async with self.stream_chat_with_tools(messages, tools, tool_choice=tool_choice) as stream:
            async for event in stream:
                if isinstance(event, Failed):
                    raise AnswerFailed(event, stream.result)
            return stream.result.message

    @property
    def _place(self) -> tuple[str, str, str]:
        """What is learned of a host holds for one address and model."""
        return self.base_url, self.model, self.dialect

    def _prepare(
        self,
        messages: tuple[Message, ...],
        tools: tuple[Tool, ...],
        choice: ToolChoice | None,
        learned: dict[str, Any] | None = None,
    ) -> Prepared:
        destination = self._destination
        learned = self._learned.of(self._place) if learned is None else learned
        put: dict[str, Any] = {} if tools else {"tools": None}  # hosts refuse an empty list
        if destination.is_text:
            messages = as_text(messages, tools, destination.format, choice=choice)
            # The plan has to know the tools, to read their calls; the host does not.
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
        return ParsedRequest(None, _CHAT, request, [], Signer()).prepare(
            upstream=destination.profile.dialect,
            host=destination.profile.host,
            options=self._options,
            overrides=learned | destination.overrides,
            transformers=self._transformers,
            extra_body=self._extra_body,
            reply_id="moonshim",
        )

    def _note(self, profile: HostProfile, result: ExchangeResult) -> None:
        self.last = result
        self._learned.learn_reasoning_field(self._place, profile, result.reasoning_field)

    # -- its connections -------------------------------------------------------------

    async def close(self) -> None:
        """Drop the connections, also those of providers that `with_` made. Whoever asks again has new ones."""
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
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, UpstreamClient] = WeakKeyDictionary()

    def current(self) -> UpstreamClient:
        """Those of the loop that runs, made when they are first wanted."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = UpstreamClient()
        return self._made[loop]

    async def close(self) -> None:
        """Drop those of the loop that runs, unless somebody else made them. Others end with their loops."""
        made = self._made.pop(asyncio.get_running_loop(), None)
        if made is not None:
            await made.close()
