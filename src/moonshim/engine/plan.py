"""What repairing a response needs to know about its request: tools, history, model, options -> a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict

from msgspec import Struct

from moonshim.engine.dialects.protocol import Dialect, ResponseContext
from moonshim.engine.formats import is_kimi_model, kimi_generation
from moonshim.engine.grammar.kimi.any_generation import KimiGrammar
from moonshim.engine.grammar.kimi.guard import MarkerGuard
from moonshim.engine.grammar.kimi.quotations import Quotations, quotations_in, texts_of_others
from moonshim.engine.grammar.protocol import Channel, Grammar
from moonshim.engine.grammar.shared.text_so_far import TextSoFar
from moonshim.engine.ids import IdRepairer
from moonshim.engine.repair.repairer import Expectation, ResponseRepairer
from moonshim.engine.repair.tool_names import DeclaredTools
from moonshim.engine.stages import Stage, StageChain, Transformer, TransformerFailed, name_of
from moonshim.engine.values.conversation import Message, Tool
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.values.tool_calls import declared_tools
from moonshim.errors import InvalidInput

__all__ = ["PASS_THROUGH", "Plan", "PlanArguments", "PlanSpec", "Tools", "allows_calls", "check_options", "plan_for"]

Tools = Iterable[Mapping[str, Any] | Tool]

# What any other model gets: framing and finish, hands off everything else.
PASS_THROUGH = KimiOptions(repair_on_mismatch=False, id_policy="keep")


class PlanSpec(Struct, frozen=True, kw_only=True):
    """What repairing a response needs to know about its request: the one argument of `Plan`."""

    model: str
    """The host's name for the model."""
    options: KimiOptions
    tools: Sequence[Tool] | None = None
    """The declared tools; None: not known."""
    may_call: bool = True
    """False where the request declares no tools, or has a `tool_choice` of "none": then call markers are only text."""
    history: Sequence[Any] = ()
    """The messages as the host gets them: canonical values or Chat dicts."""
    grammar: str | None = None
    """The grammar of tool calls in text; None: that of the model's Kimi generation."""
    quoted: Iterable[str] | None = None
    """Texts that a call in markers may be quoted from; None: those of the history that the model did not write."""
    host_reads_calls: bool = False
    """Whether the host reads markers itself: then a call in the text that it sends is none of the model's."""
    thinks: bool | None = None
    """False: the response shows all that the model thinks, or it does not think; None: it may hide some."""
    names: Mapping[str, str] = {}
    """The client's names of the tools that have a different name at the host."""
    dialects: tuple[Dialect, Dialect] | None = None
    """The client's and the host's dialect; None if both use Chat."""
    reply: ResponseContext | None = None
    hides_usage: bool = False
    """Whether the usage chunk is hidden from the client, because only Moonshim requested it."""
    transformers: Sequence[Transformer] = ()
    cache_ttl: str | None = None
    """For how long the host caches what it writes for this request, if that is the same for all of it."""
    accepts_empty: bool = False
    """Whether a response of nothing but reasoning ends as its host ended it, instead of in an error."""
    hides_reasoning: bool = False
    """Whether the client turned thinking off and the model thinks all the same: the client gets no reasoning."""
    visible_limit: int | None = None
    """The tokens that such a client asked for, of which reasoning is no part."""
    defused: bool = False
    """Whether special tokens of the request were sent with a joiner, which is removed from the response."""
    unwraps_json: bool = False
    """Whether a code fence around the whole text is removed if it holds JSON, because the client asked for JSON."""


class Plan:
    """What the repair of a response needs to know about its request. `prepare_request` creates it.

    A plan holds no state of a response: one plan can be used for several responses.
    """

    __slots__ = (
        "_declared",
        "_expectation",
        "_grammar_name",
        "_history",
        "_host_reads_calls",
        "_may_call",
        "_quotations",
        "_transformers",
        "cache_ttl",
        "client",
        "defused",
        "hides_reasoning",
        "hides_usage",
        "model",
        "names",
        "options",
        "reply",
        "unwraps_json",
        "upstream",
        "visible_limit",
    )

    def __init__(self, spec: PlanSpec) -> None:
        self.model: str = spec.model
        self.names: Mapping[str, str] = spec.names
        """The client's names of the tools that have a different name at the host."""
        self.client: Dialect | None
        self.upstream: Dialect | None
        self.client, self.upstream = spec.dialects if spec.dialects is not None else (None, None)
        """The dialects of the two sides; None if both use Chat."""
        self.reply: ResponseContext = spec.reply if spec.reply is not None else ResponseContext(model=spec.model)
        self.hides_usage: bool = spec.hides_usage
        """Whether the usage chunk is hidden from the client, because only Moonshim requested it."""
        self.cache_ttl: str | None = spec.cache_ttl
        """For how long the host caches what it writes for this request, if that is the same for all of it."""
        self.hides_reasoning: bool = spec.hides_reasoning
        """Whether the client gets no reasoning, because it turned thinking off and the model thinks all the same."""
        self.visible_limit: int | None = spec.visible_limit
        """The tokens that such a client asked for, of which reasoning is no part."""
        self.defused: bool = spec.defused
        """Whether special tokens of the request were sent with a joiner, which is removed from the response."""
        self.unwraps_json: bool = spec.unwraps_json
        """Whether a code fence around the whole text is removed if it holds JSON."""
        self.options: KimiOptions = spec.options
        self._grammar_name, self._history, self._may_call = spec.grammar, spec.history, spec.may_call
        self._host_reads_calls = spec.host_reads_calls
        self._quotations: Quotations | None = None
        if spec.may_call and spec.options.manual_tool_parsing:
            texts = texts_of_others(spec.history) if spec.quoted is None else spec.quoted
            self._quotations = quotations_in(texts, spec.options.tool_tokens)
        self._declared = DeclaredTools(None if spec.tools is None else list(spec.tools))
        expects_calls = spec.may_call and bool(self._declared.names) and spec.options.fails_lost_calls
        self._expectation = Expectation(
            fails_lost_calls=expects_calls,
            fails_empty=expects_calls and not spec.accepts_empty,
            k3=kimi_generation(spec.model) == "k3",
            thinks=spec.thinks,
        )
        # Transformers that leave responses alone cost nothing, and one that fails does so before the request is sent.
        self._transformers = tuple(one for one in reversed(spec.transformers) if self._stages_of(one))

    @property
    def translates(self) -> bool:
        """Whether the response has to be encoded: for another dialect, for custom tool calls, or after transformers."""
        if self.client is None or self.upstream is None:
            return False
        custom = any(tool.kind == "custom" for tool in self.reply.tools.values())
        stages = self.hides_reasoning or bool(self._transformers)
        return custom or stages or not (self.client.name == self.upstream.name == "openai_chat")

    def stages(self) -> StageChain:
        """New stages for one choice, in the order of processing: the last transformer of the chain first."""
        return StageChain(
            (name_of(transformer), stage)
            for transformer in self._transformers
            for stage in self._stages_of(transformer)
        )

    def _stages_of(self, transformer: Transformer) -> list[Stage]:
        name = name_of(transformer)
        try:
            made = transformer.stages(self)
        except Exception as error:
            raise TransformerFailed.from_error(name, error) from error
        if not isinstance(made, list):
            raise TransformerFailed(name, f"its stages must be a list, not {type(made).__name__}")
        return made

    def new_repairer(self) -> ResponseRepairer:
        """A new repairer for one choice."""
        options = self.options
        ids = IdRepairer(
            self._history,
            policy=options.id_rule,
            prefix=options.id_prefix,
            scope=options.counter_scope,
            client_messages=self.reply.request.messages,
        )
        grammars: dict[Channel, Grammar] = {}
        if options.manual_tool_parsing:
            grammars = {"reasoning": self._grammar("reasoning"), "text": self._grammar("text")}
        after_arguments = self._text_behind_arguments if grammars and self._may_call else None
        return ResponseRepairer(
            self._declared,
            options,
            ids,
            grammars,
            after_arguments,
            host_reads_calls=self._host_reads_calls,
            expectation=self._expectation,
        )

    @property
    def fails_lost_calls(self) -> bool:
        """Whether a response that lacks a call of the model ends in an error."""
        return self._expectation.fails_lost_calls

    def _grammar(self, channel: Channel) -> Grammar:
        name = self._grammar_name
        if name is not None and not name.startswith("kimi"):
            from moonshim.engine.grammar.registry import grammar_for

            tools, tokens = self._declared.tools, self.options.tool_tokens
            return grammar_for(name, channel, tools=tools, calls=self._may_call, tokens=tokens)
        return MarkerGuard(
            partial(self._kimi_grammar, channel),
            declared=self._declared.names,
            quotations=self._quotations,
            limit=self.options.buffer_limit,
        )

    def _kimi_grammar(self, channel: Channel, said: TextSoFar | None = None) -> KimiGrammar:
        return KimiGrammar(
            channel,
            names=self._declared.names,
            tokens=self.options.tool_tokens,
            calls=self._may_call,
            said=said,
            think_is_text=kimi_generation(self.model) == "k3",
        )

    def _text_behind_arguments(self) -> Grammar:
        """What reads text that a host sends as part of arguments."""
        guard = self._grammar("text")
        return self._kimi_grammar("text") if isinstance(guard, MarkerGuard) else guard


class PlanArguments(TypedDict, total=False):
    """What a caller can say of the request when it repairs a response: its `plan`, or what a plan is made of."""

    plan: Plan | None
    model: str | None
    tools: Tools | None
    tool_choice: Any
    history: Iterable[Mapping[str, Any] | Message] | None
    options: KimiOptions | None
    quoted: Iterable[str] | None


def plan_for(
    *,
    plan: Plan | None = None,
    model: str | None = None,
    tools: Tools | None = None,
    tool_choice: Any = None,
    history: Iterable[Mapping[str, Any] | Message] | None = None,
    options: KimiOptions | None = None,
    quoted: Iterable[str] | None = None,
) -> Plan:
    """The given plan, or a new one from the arguments of `Mender` and others: OpenAI dicts or canonical values.

    `quoted`: texts of the request that the model did not write, if they are not in the `history`.
    """
    if plan is not None:
        if not isinstance(plan, Plan):
            raise InvalidInput(f"plan must be a Plan from prepare_request, not {type(plan).__name__}", field="plan")
        if any(one is not None for one in (model, tools, tool_choice, history, options, quoted)):
            raise InvalidInput(
                "plan already contains model, tools, tool_choice, history, options and quoted: do not pass both",
                field="plan",
            )
        return plan
    if not isinstance(model, str):
        raise InvalidInput(f"model must be a string, not {type(model).__name__}", field="model")
    given = None if tools is None else _check_list(tools, (Mapping, Tool), "tools", "tool definitions")
    messages = _check_list(history or (), (Mapping, Message), "history", "messages")
    if options is None:
        options = KimiOptions.mending() if is_kimi_model(model) else PASS_THROUGH
    check_options(options)
    spec = PlanSpec(
        model=model,
        options=options,
        tools=None if given is None else declared_tools(given),
        may_call=allows_calls(given, tool_choice),
        history=messages,
        quoted=None
        if quoted is None
        else [*texts_of_others(messages), *_check_list(quoted, (str,), "quoted", "texts")],
    )
    return Plan(spec)


def allows_calls(tools: Sequence[Any] | None, tool_choice: Any) -> bool:
    """Whether the model may call tools: None means not known, an empty list or "none" that it may not."""
    choice = tool_choice.get("type") if isinstance(tool_choice, Mapping) else tool_choice
    return (tools is None or bool(tools)) and choice != "none"


def check_options(options: object) -> None:
    if not isinstance(options, KimiOptions):
        hint = "; use KimiOptions.from_json(…)" if isinstance(options, Mapping) else ""
        raise InvalidInput(f"options must be KimiOptions, not {type(options).__name__}{hint}", field="options")


def _check_list(values: object, kinds: tuple[type, ...], field: str, what: str) -> list[Any]:
    """The values as a list, all of these types; anything else raises an error with the place."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidInput(f"{field} must be a list of {what}, not {type(values).__name__}", field=field)
    listed = list(values)
    for place, value in enumerate(listed):
        if not isinstance(value, kinds):
            where = f"{field}[{place}]"
            raise InvalidInput(f"{where} must be one of the {what}, not {type(value).__name__}", field=where)
    return listed
