"""Client request -> the body that the host accepts, the changes made, and the plan for the reply."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial, wraps
from importlib import import_module
from itertools import chain
from typing import Any, ClassVar, Final, ParamSpec, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from moonshim.compat import FormerName
from moonshim.engine.dialects.anthropic.extras import body_fields
from moonshim.engine.dialects.protocol import Dialect, ResponseContext
from moonshim.engine.dialects.registry import UPSTREAM_DIALECTS, dialect_named
from moonshim.engine.formats import is_kimi_model
from moonshim.engine.grammar.kimi.quotations import texts_of_others, texts_of_servers
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.profile import HostProfile, IdPolicy
from moonshim.engine.plan import PASS_THROUGH, Plan, PlanSpec, allows_calls, check_options
from moonshim.engine.reasoning_cache import CacheEntry, ConversationIndex, LostTurn, cache_entry, is_empty_reasoning
from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.repair.arguments import SafeArguments
from moonshim.engine.request.adapt import adapt_foreign_history, adapt_request
from moonshim.engine.request.extra_body import check_extra_body, merge_extra_body
from moonshim.engine.request.limited_fields import keep_within_limits
from moonshim.engine.request.messages.chat_fields import mark_prefill
from moonshim.engine.request.messages.documents import Documents, documents_in, show_documents
from moonshim.engine.request.messages.history_ids import policy_of
from moonshim.engine.request.messages.legacy_functions import convert_function_fields
from moonshim.engine.request.messages.reasoning import read_think_text, restore_reasoning
from moonshim.engine.request.messages.special_tokens import defuse_tokens
from moonshim.engine.request.structured_output import wants_raw_json
from moonshim.engine.request.thinking import add_headroom, is_switched_off, thinks_anyway, will_think
from moonshim.engine.signing import Signer
from moonshim.engine.stages import Transformer, TransformerFailed, name_of
from moonshim.engine.tokens import estimate_tokens, sample_tokens
from moonshim.engine.values.conversation import (
    Change,
    Media,
    Message,
    Reasoning,
    Request,
    Thinking,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from moonshim.engine.values.expected import ExpectedAnswer
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.web_search import SearchAccess, SearchTool
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.errors import InvalidInput, MoonshimError, Problem, Refused, problem_of

__all__ = [
    "MESSAGE_DIALECTS",
    "ParsedRequest",
    "Prepared",
    "count_tokens",
    "prepare_request",
    "read_request",
    "render_problem",
    "translate_messages",
]

_UNKNOWN_TARGET: Final = ("generic", "other")
"""Unknown host and model: what their own client sends is passed on unchanged."""
_UNCONFIGURED: Final = KimiOptions()
_NO_DEFAULTS: Final = KimiOptions(tool_choice_default="")
"""For models other than Kimi: only explicit options apply to them."""
ResolveId: TypeAlias = Callable[[str, str], str]
P = ParamSpec("P")
T = TypeVar("T")


def _refuse_deep_nesting(work: Callable[P, T]) -> Callable[P, T]:
    """Report a body with excessive nesting as `InvalidInput`, wherever Python's recursion limit is hit."""

    @wraps(work)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(*args, **kwargs)
        except RecursionError:
            raise InvalidInput("the input is nested too deeply") from None

    return wrapper


class Prepared(Struct, frozen=True):
    """The result of `prepare_request`: a request in a form that the host accepts."""

    body: dict[str, Any]
    """The body to send."""
    changes: list[Change]
    """The differences from what the client sent, each with its rule, reason and path."""
    plan: Plan
    """Pass it to `Mender(plan=…)`, `mend_chunks` or `mend_response` to process the response."""
    profile: HostProfile
    """The host profile that was applied."""
    search: SearchTool | None = None
    """The web search that is answered in rounds, if any."""
    expected: ExpectedAnswer | None = None
    """The call that the client demands, and the host does not guarantee: see `Exchange.pending`."""

    needs: ClassVar[FormerName] = FormerName("profile")


class ParsedRequest:
    """A parsed client request, immutable, that can be prepared for several targets."""

    __slots__ = (
        "_body",
        "_disables_thinking",
        "_estimate",
        "_sample",
        "_signer",
        "_turns",
        "changes",
        "dialect",
        "extracted",
        "request",
    )

    def __init__(self, body: Any, dialect: str, request: Request, changes: list[Change], signer: Signer) -> None:
        self.dialect: str = dialect
        self.request: Request = request
        """The client's request under the client's own names."""
        self.changes: list[Change] = changes
        """What parsing dropped."""
        self.extracted: Documents = {}
        """What was extracted from `documents`, by their data. Set it before anything is estimated or prepared."""
        self._body = body
        self._disables_thinking = is_switched_off(request)
        self._signer = signer
        self._turns: ConversationIndex | None = None
        self._estimate: int | None = None
        self._sample: int | None = None

    def followed_by(
        self, messages: Sequence[Message], *, keeps_choice: bool = True, stops_thinking: bool = False
    ) -> ParsedRequest:
        """The request with more messages: the next round of the same exchange."""
        request = self.request
        places = (*request.locations, *("messages" for _ in messages)) if request.locations else ()
        request = replace(request, messages=(*request.messages, *messages), locations=places)
        if not keeps_choice and request.tool_choice is not None and request.tool_choice.mode in ("required", "tool"):
            request = replace(request, tool_choice=ToolChoice("auto"))
        if stops_thinking:
            request = replace(request, thinking=Thinking(enabled=False))
        followed = ParsedRequest(self._body, self.dialect, request, self.changes, self._signer)
        followed.extracted = self.extracted
        followed._disables_thinking = self._disables_thinking  # the client, not Moonshim
        return followed

    @property
    def safeguards(self) -> Any:
        """The checks that a Messages client wants the server to run on the calls of the response; falsy if none."""
        return body_fields(self.request).get("safeguards")

    def max_output(self, profile: HostProfile) -> int | None:
        """The most tokens that this host is asked for, for one choice; None: as many as the host likes."""
        return self._with_headroom(self.request, profile)[0].sampling.max_tokens

    def _with_headroom(self, request: Request, profile: HostProfile) -> tuple[Request, list[Change]]:
        return add_headroom(request, profile) if self._thinks_anyway(request, profile) else (request, [])

    def _thinks_anyway(self, request: Request, profile: HostProfile) -> bool:
        return self._disables_thinking and thinks_anyway(request, profile)

    def documents(self) -> list[Media]:
        """The documents whose text the model needs if its host does not accept files, each once: PDFs."""
        return list({media.data or "": media for media in documents_in(self.request.messages)}.values())

    @_refuse_deep_nesting
    def lost_turns(self) -> list[LostTurn]:
        """Assistant turns without their reasoning, which can be restored with `recalled`."""
        return self.turns().lost if any(map(_has_lost, self.request.messages)) else []

    @_refuse_deep_nesting
    def turns(self) -> ConversationIndex:
        """The conversation so far, for `cache_entry`; computed once."""
        if self._turns is None:
            self._turns = ConversationIndex(self.request.messages)
        return self._turns

    @_refuse_deep_nesting
    def estimate_tokens(self) -> int:
        """The tokens of the prompt, estimated rather too high than too low; computed once."""
        if self._estimate is None:
            self._estimate = estimate_tokens(self._readable())
        return self._estimate

    @_refuse_deep_nesting
    def sample_tokens(self) -> int:
        """A cheaper estimate, from a sample of a long prompt; computed once."""
        if self._sample is None:
            self._sample = sample_tokens(self._readable())
        return self._sample

    def _readable(self) -> Request:
        """The request with the text of its documents."""
        if not self.extracted:
            return self.request
        return replace(self.request, messages=show_documents(self.request.messages, self.extracted))

    def cache_entry(self, answer: Message) -> CacheEntry | None:
        """Where to store the reasoning of the response to this request; None if it has none."""
        if not any(isinstance(part, Reasoning) for part in answer.parts):
            return None  # without reading the conversation
        return cache_entry(self.turns(), answer)

    def _starts_with_estimate(self, client: Dialect, host: Dialect) -> bool:
        """Whether the client's stream starts with a count that this host reports at the end."""
        return client.counts_input_first and not host.counts_input_first and bool(self.request.stream)

    @_refuse_deep_nesting
    def prepare(
        self,
        *,
        upstream: str = "openai_chat",
        host: str | None = None,
        base_url: str | None = None,
        model: str | None = None,
        options: KimiOptions | None = None,
        overrides: Mapping[str, Any] | None = None,
        recalled: Mapping[int, Reasoning] | None = None,
        transformers: Sequence[Transformer] = (),
        extra_body: Mapping[str, Any] | None = None,
        reply_id: str | None = None,
        created: int = 0,
        clock: Callable[[], float] | None = None,
        search_access: SearchAccess | None = None,
        accepts_empty: bool = False,
        is_limited: bool = False,
    ) -> Prepared:
        """Adapt the request to this host and model; see `prepare_request`.

        `search_access`: who runs the web search that the request declares; None: nobody plays the rounds for it.
        `accepts_empty`: whether a response of nothing but reasoning ends as its host ended it, instead of in an error.
        `is_limited`: whether the client may use some models only, or has a budget: see `keep_within_limits`.
        """
        client = dialect_named(self.dialect)
        dialect_named(upstream, field="upstream", among=UPSTREAM_DIALECTS)
        if options is not None:
            check_options(options)
        if extra_body:
            check_extra_body(extra_body)
        original, changes = self.request, self.changes
        request = original if model is None else replace(original, model=model)
        find = partial(profile_for, host=host, base_url=base_url, upstream=upstream, overrides=overrides)
        profile = find(model=request.model)
        if recalled and (options is not None or overrides or not _passes_through(client, profile)):
            # Before the transformers run, as if the client had sent it.
            request, restored = restore_reasoning(request, profile, recalled)
            changes = [*changes, *restored]
        if transformers:
            request = _apply_transformers(request, transformers)
            profile = find(model=request.model)
        if options is not None and "history_ids" not in (overrides or ()):
            profile = replace(profile, history_ids=policy_of(options, profile, request.model))
        hides_reasoning, visible_limit = self._thinks_anyway(request, profile), request.sampling.max_tokens
        request, raised = self._with_headroom(request, profile)
        changes = [*changes, *raised]
        host_dialect = dialect_named(profile.dialect)
        if host_dialect is not client:
            request, unsupported = client.drop_unsupported(request)
            changes = [*changes, *unsupported]
        request, modernized = _modernize(request, profile)
        changes = [*changes, *modernized]
        own: set[str] = set()
        if options is None and not overrides and _passes_through(client, profile):
            adapted = adapt_foreign_history(request, profile)
        else:
            adapted = adapt_request(
                request,
                profile,
                options or (_NO_DEFAULTS if profile.generation == "other" else _UNCONFIGURED),
                mend_arguments=_mend_arguments,
                search_access=search_access,
                documents=self.extracted,
                messages_field=client.messages_field,
            )
            own.add("tools")
        sent, defused = defuse_tokens(adapted.request) if profile.defuse else (adapted.request, [])
        out, dropped = host_dialect.render_request(sent)
        if is_limited:
            out, limited = keep_within_limits(out, own | sent.body_overrides.keys())
            dropped = [*dropped, *limited]
        if extra_body:
            out, merged = merge_extra_body(out, extra_body)
            dropped = [*dropped, *merged]
        reply = ResponseContext(
            model=original.model,
            id=reply_id if reply_id is not None else _digest(self._body),
            is_named=reply_id is not None,
            created=created,
            clock=clock,
            request=original,
            tools=adapted.tools,
            signer=self._signer,
            input_estimate=self.sample_tokens() if self._starts_with_estimate(client, host_dialect) else None,
        )
        choice = sent.tool_choice
        spec = PlanSpec(
            model=sent.model,
            options=options if options is not None else _options_for(sent, profile),
            tools=sent.tools,
            may_call=allows_calls(sent.tools or (), choice.mode if choice is not None else None),
            history=sent.messages,
            quoted=chain(texts_of_others(sent.messages), texts_of_servers(original.messages)),
            grammar=profile.grammar,
            host_reads_calls=options is None and profile.reads_markers,
            thinks=None if _may_hide_reasoning(request, profile, out) else False,
            names={name: tool.name for name, tool in adapted.tools.items() if tool.name != name},
            dialects=(client, host_dialect),
            reply=reply,
            hides_usage=original.include_usage is not True,
            transformers=transformers,
            cache_ttl=_cache_ttl(profile, out),
            accepts_empty=accepts_empty,
            hides_reasoning=hides_reasoning,
            visible_limit=visible_limit,
            defused=bool(defused),
            unwraps_json=wants_raw_json(request, profile),
        )
        everything = [*changes, *adapted.changes, *defused, *dropped]
        return Prepared(out, everything, Plan(spec), profile, adapted.search, adapted.expected)


@_refuse_deep_nesting
def read_request(
    body: Any, *, dialect: str = "openai_chat", secret: bytes | None = None, default_model: str | None = None
) -> ParsedRequest:
    """Parse a client's request, so that it can be prepared for one or more hosts. `body` is not modified.

    `dialect` is the client's dialect, and `secret` opens signed tokens in the request. `default_model` is used if the
    body has no model. Returns a `ParsedRequest`; call its `prepare` method for each host. Raises `InvalidInput` with
    the field if the request is invalid.
    """
    client = dialect_named(dialect)
    signer = _signer(secret) if isinstance(secret, bytes) else Signer(secret)
    request, changes = client.parse_request(_with_model(body, default_model), signer)
    return ParsedRequest(body, client.name, request, changes, signer)


@lru_cache(16)
def _signer(secret: bytes) -> Signer:
    """Cached: its keys are hashes of the secret."""
    return Signer(secret)


def prepare_request(
    body: Any,
    *,
    dialect: str = "openai_chat",
    upstream: str = "openai_chat",
    host: str | None = None,
    base_url: str | None = None,
    model: str | None = None,
    options: KimiOptions | None = None,
    overrides: Mapping[str, Any] | None = None,
    secret: bytes | None = None,
    recalled: Mapping[int, Reasoning] | None = None,
    transformers: Sequence[Transformer] = (),
    extra_body: Mapping[str, Any] | None = None,
    reply_id: str | None = None,
    created: int = 0,
    clock: Callable[[], float] | None = None,
) -> Prepared:
    """Adapt a client's request to its host and model. `body` is not modified.

    - `dialect`: the client's dialect.
    - `upstream`: the host's dialect.
    - `host`: the name of the host. Without it, the host is detected from `base_url`.
    - `model`: the host's name for the model, if the client uses another one.
    - `options`: what to repair. The default depends on the model.
    - `overrides`: fields of the host profile, by name.
    - `secret`: signs the tokens that Moonshim creates (signatures, encrypted content).
    - `recalled`: reasoning that the client did not send back, by message index (docs/reference/requests.md).
    - `transformers`: change the request before anything else, and then the response (docs/guides/transformers.md).
    - `extra_body`: merged deeply into the body to send; its values take precedence.
    - `reply_id`, `created`: identify the response if the host does not.
    - `clock`: returns the time (`time.time`) when a response for a Responses client is complete.

    Returns the body to send, the changes, and the plan for the response. Raises `InvalidInput` with the field if the
    request is invalid or cannot be adapted.

    >>> body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.2}
    >>> prepared = prepare_request(body, host="moonshot")
    >>> "temperature" in prepared.body, prepared.changes[0].place
    (False, 'temperature')
    """
    dialect_named(upstream, field="upstream", among=UPSTREAM_DIALECTS)
    return read_request(body, dialect=dialect, secret=secret, default_model=model).prepare(
        upstream=upstream,
        host=host,
        base_url=base_url,
        model=model,
        options=options,
        overrides=overrides,
        recalled=recalled,
        transformers=transformers,
        extra_body=extra_body,
        reply_id=reply_id,
        created=created,
        clock=clock,
    )


def _has_lost(message: Message) -> bool:
    if message.role != "assistant":
        return False
    return all(is_empty_reasoning(part) for part in message.parts if isinstance(part, Reasoning))


def _apply_transformers(request: Request, transformers: Sequence[Transformer]) -> Request:
    """Apply the transformers, in the order of the chain."""
    for transformer in transformers:
        name = name_of(transformer)
        try:
            adapted = transformer.prepare(request)
        except Refused:
            raise  # Raised on purpose, for the client.
        except Exception as error:
            raise TransformerFailed.from_error(name, error) from error
        if not isinstance(adapted, Request):
            raise TransformerFailed(name, f"it returned {type(adapted).__name__}, not a Request")
        if adapted.locations == request.locations and len(adapted.messages) != len(request.messages):
            where = {id(message): place for message, place in zip(request.messages, request.locations, strict=False)}
            adapted = replace(
                adapted, locations=tuple(where.get(id(message), "messages") for message in adapted.messages)
            )
        request = adapted
    return request


def _passes_through(client: Dialect, profile: HostProfile) -> bool:
    """Whether the request is passed on unchanged: the host is unknown, and the client may know it."""
    return profile.dialect == client.name and (profile.host, profile.generation) == _UNKNOWN_TARGET


def _modernize(request: Request, profile: HostProfile) -> tuple[Request, list[Change]]:
    """Convert old forms that Kimi hosts no longer accept, before all other steps."""
    if profile.generation == "other":
        return request, []
    steps = [convert_function_fields]
    steps += [read_think_text] if profile.reasoning_in is not None else []
    steps += [mark_prefill] if profile.dialect == "openai_chat" else []
    changes: list[Change] = []
    for step in steps:
        request, adapted = step(request)
        changes += adapted
    return request, changes


def _cache_ttl(profile: HostProfile, body: Mapping[str, Any]) -> str | None:
    """How long the host caches what it writes for this body, if that is the same for all of it."""
    if profile.cache_ttl != "prompt_cache_options":
        return None
    options = body.get("prompt_cache_options")
    return "1h" if isinstance(options, dict) and options.get("ttl") == "1h" else "5m"


def _may_hide_reasoning(request: Request, profile: HostProfile, body: Mapping[str, Any]) -> bool:
    """Whether the response may cost reasoning that is not in it."""
    switched_off = profile.thinking_default == "on" and not will_think(request, profile)
    if profile.generation == "k2" or switched_off:
        return False
    return not profile.shows_reasoning or body.get("include_reasoning") is False


def _options_for(request: Request, profile: HostProfile) -> KimiOptions:
    """How much of a response is repaired by default."""
    if is_kimi_model(request.model):
        return _mending_options(profile.id_policy)
    return PASS_THROUGH if profile.grammar is None else _mending_options("keep")


@cache
def _mending_options(id_policy: IdPolicy) -> KimiOptions:
    """Cached: creating options checks every one of them."""
    return KimiOptions.mending(id_policy=id_policy)


def _digest(body: Any) -> str:
    """Derive the response id from the request: the engine uses no random numbers."""
    try:
        return hashlib.sha256(encode(body)).hexdigest()[:24]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"the request body is not valid JSON: {error}") from None


def _mend_arguments(text: str) -> str | None:
    """The arguments of an earlier call as the JSON object they were meant to be, or None."""
    arguments = SafeArguments(ArgumentsRecord())
    mended = arguments.feed(text) + arguments.close(cut=False)
    return mended if decode_object(mended.encode("utf-8", "replace")) is not None else None


def render_problem(problem: Problem | MoonshimError, *, dialect: str) -> dict[str, Any]:
    """Render a `Problem`, or an error raised by Moonshim, as an error body in the client's dialect.

    Raises `InvalidInput` for an unknown dialect.

    >>> render_problem(InvalidInput("a message must be an object", field="messages[3]"), dialect="anthropic")["error"]
    {'type': 'invalid_request_error', 'message': 'messages[3]: a message must be an object'}
    """
    return dialect_named(dialect).render_problem(problem_of(problem) if isinstance(problem, MoonshimError) else problem)


@_refuse_deep_nesting
def count_tokens(body: Any, *, dialect: str = "anthropic") -> int:
    """Estimate the number of tokens in a request, for clients that need it before sending.

    The estimate is meant to be too high rather than too low; only the host knows the exact number. See
    docs/concepts/tokens.md. Raises `InvalidInput` with the field if the request is invalid.

    >>> count_tokens({"model": "k3", "messages": [{"role": "user", "content": "Hello, world"}]}) > 2
    True
    """
    request, _ = dialect_named(dialect).parse_request(_with_model(body, "any"), Signer())
    return estimate_tokens(request)


def _with_model(body: Any, model: str | None) -> Any:
    """Set the model in a body that has none."""
    return {**body, "model": model} if isinstance(body, dict) and body.get("model") is None and model else body


MESSAGE_DIALECTS: Final = ("openai_chat", "anthropic", "openai_responses", "vercel_ai")


@_refuse_deep_nesting
def translate_messages(
    messages: Iterable[Any],
    *,
    from_: str,
    to: str,
    resolve_tool_call_id: ResolveId | None = None,
    resolve_tool_response_id: ResolveId | None = None,
) -> list[Any]:
    """Translate messages from the dialect `from_` to the dialect `to`, including ids, reasoning and media.

    For `to="vercel_ai"`, a resolver is called with each id as it appears in `messages` and the tool name, in order,
    and returns the id to write. Without a resolver for results, a result gets the id of its call.

    Raises `InvalidInput` with the field for an invalid message, and `CannotExpress` for media that the target dialect
    does not support.

    >>> translate_messages([{"role": "user", "content": "hi"}], from_="openai_chat", to="anthropic")
    [{'role': 'user', 'content': 'hi'}]
    """
    for field, name in (("from_", from_), ("to", to)):
        if name not in MESSAGE_DIALECTS:
            raise InvalidInput(f"{field} must be one of {', '.join(MESSAGE_DIALECTS)}, not {name!r}", field=field)
    resolvers = {
        "resolve_tool_call_id": resolve_tool_call_id,
        "resolve_tool_response_id": resolve_tool_response_id,
    }
    custom = {field: resolve for field, resolve in resolvers.items() if resolve is not None}
    if custom and to != "vercel_ai":
        raise InvalidInput(f"id resolvers require to='vercel_ai', not {to!r}", field=next(iter(custom)))
    parsed: list[Message] = _messages_of(from_).parse_messages(messages)
    if custom:
        received = dict(_received_ids(parsed))
        custom = {field: _resolver(resolve, received) for field, resolve in custom.items()}
    translated: list[Any] = _messages_of(to).render_messages(parsed, **custom)
    return translated


def _resolver(resolve: ResolveId, received: Mapping[str, str]) -> ResolveId:
    return lambda canonical, name: resolve(received[canonical], name)


def _received_ids(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    """The canonical id of every call and result, and the id that the caller knows."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, (ToolCall, ToolResult)):
                canonical = part.id if isinstance(part, ToolCall) else part.call_id
                yield canonical, canonical if part.wire_id is None else part.wire_id


def _messages_of(name: str) -> Any:
    return import_module("moonshim.engine.dialects.vercel_ai.messages") if name == "vercel_ai" else dialect_named(name)
