"""The name of a marker family -> its grammar, imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

from msgspec import Struct

from moonshim.engine.grammar.protocol import Channel, Grammar
from moonshim.engine.values.conversation import Tool
from moonshim.engine.values.options import ToolTokens
from moonshim.errors import InvalidInput

__all__ = ["GRAMMARS", "GrammarFactory", "grammar_for"]


class GrammarFactory(Struct, frozen=True, gc=False):
    """Where a grammar is, and what its constructor takes besides `channel` and `calls`."""

    module: str
    cls: str
    takes: tuple[str, ...] = ("tools",)


GRAMMARS: Final[dict[str, GrammarFactory]] = {
    "kimi": GrammarFactory("kimi.any_generation", "KimiGrammar", ("names", "tokens")),
    "kimi_k2": GrammarFactory("kimi.k2", "KimiK2Grammar", ("names", "tokens")),
    "kimi_k3": GrammarFactory("kimi.k3", "KimiK3Grammar", ()),
    "hermes": GrammarFactory("hermes", "HermesGrammar"),
    "qwen_xml": GrammarFactory("qwen_xml", "QwenXmlGrammar"),
    "deepseek": GrammarFactory("deepseek", "DeepSeekGrammar"),
    "deepseek_dsml": GrammarFactory("deepseek_dsml", "DeepseekDsmlGrammar"),
    "glm": GrammarFactory("glm", "GlmGrammar"),
    "minimax": GrammarFactory("minimax", "MinimaxGrammar"),
    "llama_json": GrammarFactory("llama_json", "LlamaJsonGrammar"),
    "pythonic": GrammarFactory("pythonic", "PythonicGrammar"),
    "gemma": GrammarFactory("gemma", "GemmaGrammar"),
    "mistral": GrammarFactory("mistral", "MistralGrammar"),
}
"""Every family by name."""


def grammar_for(
    name: str,
    channel: Channel,
    *,
    tools: Sequence[Tool] | None = None,
    calls: bool = True,
    tokens: ToolTokens | None = None,
) -> Grammar:
    """A grammar of this family for one text field of one response.

    `tools` None: the declared tools are unknown. Without `calls`, call markers stay in the text. `tokens` replaces
    Kimi's default markers.
    """
    factory = GRAMMARS.get(name)
    if factory is None:
        raise InvalidInput(f"unknown grammar {name!r}; expected one of: {', '.join(GRAMMARS)}", field="grammar")
    arguments: dict[str, Any] = {}
    for key in factory.takes:
        if key == "names":
            arguments[key] = None if tools is None else frozenset(tool.name for tool in tools)
        else:
            arguments[key] = tools if key == "tools" else tokens
    grammar: Grammar = _class_of(factory)(channel, calls=calls, **arguments)
    return grammar


@cache
def _class_of(factory: GrammarFactory) -> Any:
    return getattr(import_module(f"moonshim.engine.grammar.{factory.module}"), factory.cls)
