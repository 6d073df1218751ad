"""The name of a marker family -> the grammar that reads it, loaded when it is first needed."""

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

__all__ = ["GRAMMARS", "Factory", "grammar_for"]


class Factory(Struct, frozen=True, gc=False):
    """Where a grammar is, and what its constructor takes besides `channel` and `calls`."""

    module: str
    cls: str
    takes: tuple[str, ...] = ("tools",)


GRAMMARS: Final[dict[str, Factory]] = {
    "kimi": Factory("kimi", "KimiGrammar", ("names", "tokens")),
    "kimi_k2": Factory("kimi_k2", "KimiK2Grammar", ("names", "tokens")),
    "kimi_k3": Factory("kimi_k3", "KimiK3Grammar", ()),
    "hermes": Factory("hermes", "HermesGrammar"),
    "qwen_xml": Factory("qwen_xml", "QwenXmlGrammar"),
    "deepseek": Factory("deepseek", "DeepSeekGrammar"),
    "deepseek_dsml": Factory("deepseek_dsml", "DeepseekDsmlGrammar"),
    "glm": Factory("glm", "GlmGrammar"),
    "minimax": Factory("minimax", "MinimaxGrammar"),
    "llama_json": Factory("llama_json", "LlamaJsonGrammar"),
    "pythonic": Factory("pythonic", "PythonicGrammar"),
    "gemma": Factory("gemma", "GemmaGrammar"),
    "mistral": Factory("mistral", "MistralGrammar"),
}
"""Every family by its name."""


def grammar_for(
    name: str,
    channel: Channel,
    *,
    tools: Sequence[Tool] | None = None,
    calls: bool = True,
    tokens: ToolTokens | None = None,
) -> Grammar:
    """A grammar of this family for one text field of one response.

    `tools` None means that nobody knows which there are; without `calls` markers of calls
    are left alone as text. `tokens` are Kimi's own markers, if they are not the usual ones.
    """
    factory = GRAMMARS.get(name)
    if factory is None:
        raise InvalidInput(f"no grammar is called {name!r}; there are {', '.join(GRAMMARS)}", field="grammar")
    given: dict[str, Any] = {}
    for key in factory.takes:
        if key == "names":
            given[key] = None if tools is None else frozenset(tool.name for tool in tools)
        else:
            given[key] = tools if key == "tools" else tokens
    grammar: Grammar = _class_of(factory)(channel, calls=calls, **given)
    return grammar


@cache
def _class_of(factory: Factory) -> Any:
    return getattr(import_module(f"moonshim.engine.grammar.{factory.module}"), factory.cls)
