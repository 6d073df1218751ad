"""The table of marker families: every name has its grammar, and nothing is loaded before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from moonshim.engine.grammar.protocol import CallStarted, Channel, TextFound
from moonshim.engine.grammar.registry import GRAMMARS, grammar_for
from moonshim.engine.values.conversation import Tool
from moonshim.engine.values.options import ToolTokens
from moonshim.errors import InvalidInput


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize("channel", ["text", "reasoning"])
def test_every_family_reads_plain_text(name: str, channel: Channel) -> None:
    for calls in (True, False):
        grammar = grammar_for(name, channel, tools=[Tool("ls")], calls=calls)
        assert grammar.held == ""
        assert [*grammar.feed("Hello."), *grammar.flush()] == [TextFound(channel, "Hello.")]


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_family_can_be_told_that_tags_are_text(name: str) -> None:
    grammar = grammar_for(name, "text")
    grammar.tags_are_text = True
    assert grammar.tags_are_text


def test_an_unknown_name_is_refused_with_the_list_of_those_that_are() -> None:
    with pytest.raises(InvalidInput, match=r"unknown grammar 'hermess'; expected one of: kimi, .*hermes, ") as refused:
        grammar_for("hermess", "text")
    assert refused.value.field == "grammar"


def test_kimi_gets_the_names_and_its_own_markers() -> None:
    grammar = grammar_for("kimi_k2", "text", tools=[Tool("ls")], tokens=ToolTokens(arg_begin="(("))
    assert grammar.feed("ls:0(({}")[0] == CallStarted("text", "ls:0")


def test_only_the_family_that_is_needed_is_loaded() -> None:
    program = (
        "import sys; from moonshim.engine.grammar.registry import grammar_for; grammar_for('hermes', 'text');"
        "print([name for name in sys.modules if name.startswith('moonshim.engine.grammar.') and"
        " name.split('.')[2] in ('kimi', 'kimi_k2', 'kimi_k3', 'gemma', 'pythonic', 'deepseek', 'tagged')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
