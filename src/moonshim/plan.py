"""What mending a reply needs to know of its request: tools, history, model, options -> a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moonshim.conversation import Message, Tool
from moonshim.errors import InvalidInput
from moonshim.formats import is_kimi_model, kimi_generation
from moonshim.grammar.events import Channel, Grammar
from moonshim.grammar.kimi import KimiGrammar
from moonshim.grammar.kimi_k2 import KimiK2Grammar
from moonshim.grammar.kimi_k3 import KimiK3Grammar
from moonshim.history import declared_tools
from moonshim.ids import IdRepairer
from moonshim.options import KimiOptions
from moonshim.repair.answer import Answer
from moonshim.repair.names import Declared
from moonshim.repair.slip import Observer

__all__ = ["Plan", "Tools", "plan_for"]

Tools = Iterable[Mapping[str, Any] | Tool]

# What any other model gets: framing and finish, hands off everything else.
_PASS_THROUGH = KimiOptions(repair_on_mismatch=False, id_policy="keep")


class Plan:
    """Makes the parts that mend one reply; it holds no state of a stream, so one plan may serve many."""

    __slots__ = ("_calls", "_declared", "_history", "model", "options")

    def __init__(
        self,
        model: str,
        tools: list[Tool] | None,
        tool_choice: Any,
        history: list[Any],
        options: KimiOptions,
        *,
        offered: bool = True,
    ) -> None:
        self.model = model
        self.options = options
        self._history = history
        self._declared = Declared(tools)
        # `None` means that nobody knows; an empty list, or "none", that there are no tools.
        choice = tool_choice.get("type") if isinstance(tool_choice, Mapping) else tool_choice
        self._calls = offered and choice != "none"

    def answer(self, observe: Observer | None = None, *, hears: bool = True) -> Answer:
        """The part that mends one choice. Who `hears` is told every piece of text, not only repairs and blocks."""
        options = self.options
        ids = IdRepairer(
            self._history,
            policy=options.id_policy,
            prefix=options.id_prefix,
            normalize_all=options.id_normalization,
            repair=options.repair_on_mismatch,
            scope=options.counter_scope,
        )
        grammars: dict[Channel, Grammar] = {}
        if options.manual_tool_parsing:
            grammars = {"reasoning": self._grammar("reasoning"), "text": self._grammar("text")}
        return Answer(self._declared, options, ids, grammars, observe if hears else None, observe)

    def _grammar(self, channel: Channel) -> Grammar:
        names, tokens = self._declared.names, self.options.tool_tokens
        match kimi_generation(self.model):
            case "k2":
                return KimiK2Grammar(channel, names=names, tokens=tokens, calls=self._calls)
            case "k3":
                return KimiK3Grammar(channel, calls=self._calls)
            case _:
                return KimiGrammar(channel, names=names, tokens=tokens, calls=self._calls)


def plan_for(
    *,
    model: str,
    tools: Tools | None = None,
    tool_choice: Any = None,
    history: Iterable[Mapping[str, Any] | Message] | None = None,
    options: KimiOptions | None = None,
) -> Plan:
    """A plan from what people have at hand: OpenAI dicts or canonical values."""
    if not isinstance(model, str):
        raise InvalidInput(f"model must be a string, not {type(model).__name__}", field="model")
    given = None if tools is None else _listed(tools, (Mapping, Tool), "tools", "tool definitions")
    past = _listed(history or (), (Mapping, Message), "history", "messages")
    if options is None:
        options = KimiOptions.mending() if is_kimi_model(model) else _PASS_THROUGH
    _check_options(options)
    declared = None if given is None else declared_tools(given)
    return Plan(model, declared, tool_choice, past, options, offered=given is None or bool(given))


def _check_options(options: object) -> None:
    if not isinstance(options, KimiOptions):
        hint = "; make them with KimiOptions.from_json(…)" if isinstance(options, Mapping) else ""
        raise InvalidInput(f"options must be KimiOptions, not {type(options).__name__}{hint}", field="options")


def _listed(values: object, kinds: tuple[type, ...], field: str, what: str) -> list[Any]:
    """A list of these kinds of values; anything else is an error that names the place."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidInput(f"{field} must be a list of {what}, not {type(values).__name__}", field=field)
    listed = list(values)
    for place, value in enumerate(listed):
        if not isinstance(value, kinds):
            where = f"{field}[{place}]"
            raise InvalidInput(f"{where} must be one of the {what}, not {type(value).__name__}", field=where)
    return listed
