"""What repairing a response needs to know about its request: tools, history, model, options -> a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict

from msgspec import Struct

from moonshim.engine.dialects.protocol import Dialect, ResponseContext
from moonshim.engine.formats import is_kimi_model, kimi_generation
from moonshim.engine.grammar.kimi.any_generation import KimiGrammar
from moonshim.engine.grammar.kimi.k2 import KimiK2Grammar
from moonshim.engine.grammar.kimi.k3 import KimiK3Grammar
from moonshim.engine.grammar.protocol import Channel, Grammar
from moonshim.engine.ids import IdRepairer
from moonshim.engine.repair.repairer import ResponseRepairer
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


class Plan:
    """What the repair of a response needs to know about its request. `prepare_request` creates it.

    A plan holds no state of a response: one plan can be used for several responses.
    """

    __slots__ = (
        "_declared",
        "_grammar_name",
        "_history",
        "_may_call",
        "_transformers",
        "cache_ttl",
        "client",
        "hides_usage",
        "model",
        "names",
        "options",
        "reply",
        "upstream",
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
        self.options: KimiOptions = spec.options
        self._grammar_name, self._history, self._may_call = spec.grammar, spec.history, spec.may_call
        self._declared = DeclaredTools(None if spec.tools is None else list(spec.tools))
        # Transformers that leave responses alone cost nothing, and one that fails does so before the request is sent.
        self._transformers = tuple(one for one in reversed(spec.transformers) if self._stages_of(one))

    @property
    def translates(self) -> bool:
        """Whether the response has to be encoded: for another dialect, for custom tool calls, or after transformers."""
        if self.client is None or self.upstream is None:
            return False
        custom = any(tool.kind == "custom" for tool in self.reply.tools.values())
        return custom or bool(self._transformers) or not (self.client.name == self.upstream.name == "openai_chat")

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
            policy=options.id_policy,
            prefix=options.id_prefix,
            normalize_all=options.id_normalization,
            repair=options.repair_on_mismatch,
            scope=options.counter_scope,
            client_messages=self.reply.request.messages,
        )
        grammars: dict[Channel, Grammar] = {}
        if options.manual_tool_parsing:
            grammars = {"reasoning": self._grammar("reasoning"), "text": self._grammar("text")}
        after_arguments = partial(self._grammar, "text") if grammars and self._may_call else None
        return ResponseRepairer(self._declared, options, ids, grammars, after_arguments)

    def _grammar(self, channel: Channel) -> Grammar:
        names, tokens = self._declared.names, self.options.tool_tokens
        if self._grammar_name is not None:
            from moonshim.engine.grammar.registry import grammar_for

            return grammar_for(
                self._grammar_name, channel, tools=self._declared.tools, calls=self._may_call, tokens=tokens
            )
        match kimi_generation(self.model):
            case "k2":
                return KimiK2Grammar(channel, names=names, tokens=tokens, calls=self._may_call)
            case "k3":
                return KimiK3Grammar(channel, calls=self._may_call)
            case _:
                return KimiGrammar(channel, names=names, tokens=tokens, calls=self._may_call)


class PlanArguments(TypedDict, total=False):
    """What a caller can say of the request when it repairs a response: its `plan`, or what a plan is made of."""

    plan: Plan | None
    model: str | None
    tools: Tools | None
    tool_choice: Any
    history: Iterable[Mapping[str, Any] | Message] | None
    options: KimiOptions | None


def plan_for(
    *,
    plan: Plan | None = None,
    model: str | None = None,
    tools: Tools | None = None,
    tool_choice: Any = None,
    history: Iterable[Mapping[str, Any] | Message] | None = None,
    options: KimiOptions | None = None,
) -> Plan:
    """The given plan, or a new one from the arguments of `Mender` and others: OpenAI dicts or canonical values."""
    if plan is not None:
        if not isinstance(plan, Plan):
            raise InvalidInput(f"plan must be a Plan from prepare_request, not {type(plan).__name__}", field="plan")
        if any(one is not None for one in (model, tools, tool_choice, history, options)):
            raise InvalidInput(
                "plan already contains model, tools, tool_choice, history and options: do not pass both", field="plan"
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
