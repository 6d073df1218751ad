"""The public names: this list, each importable and explained, loaded when first used."""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys
from typing import Any

import pytest

import moonshim

PUBLIC = {
    "moonshim": """
        CannotExpress Change Failed Finished InvalidInput InvalidOption KimiOptions Media Mended Mender
        Message MoonshimError Plan Prepared Problem Reasoning Refused Repaired Text Tool ToolCall ToolResult
        ToolTokens TransformerFailed UnknownFormat UpstreamBroke UpstreamError UpstreamStalled
        UpstreamUnreachable count_tokens detect_tool_format format_tools is_kimi_model mend_chunks
        mend_response parse_tools prepare_request profile_for read_problem read_request render_problem
        resolve_references tool_id_strategy translate_messages
    """,
    "moonshim.types": """
        BlockClosed BlockDelta BlockKind BlockOpened BlockSigned CacheEntry Change Event Failed Finished
        HostProfile KimiOptions LostTurn Media Mended Message Opaque ParsedRequest Part Plan Prepared
        Problem ProblemKind Reasoning Repaired Request ResponseFormat Role Sampling Stage Started Text
        Thinking Tool ToolCall ToolChoice ToolResult ToolTokens Transformer Usage
    """,
    "moonshim.agent": """
        Agent AgentBusy AgentStopped AgentTool Allowed AnswerFailed AnswerStream ExchangeResult History
        HistoryError HistoryFile HistoryNotSaved MessageSaved SaveFailed Provider RoundStarted RunEnded Step Timeouts
        ToolStarted ToolEnded ToolFailed as_marked_text assemble_message parse_marked_text read_history tool
    """,
    "moonshim.agent.toolbox": """
        toolbox
    """,
    "moonshim.integrations": """
        Memory anthropic_http_client async_anthropic_http_client async_openai_http_client openai_http_client
    """,
    "moonshim.testing": """
        IntendedCall IntendedResponse RecordedHost RecordedRequest RecordedResponse Replies SimRequest Simulator
    """,
    "moonshim.simulator": """
        FAULTS IntendedCall IntendedResponse Model SimRequest Simulator SimulatorSettings play
    """,
}
"""Others build on these: a name that goes, or changes, is a new major version."""
NAMES = [(module, name) for module, names in PUBLIC.items() for name in names.split()]


@pytest.mark.parametrize("module", PUBLIC)
def test_these_are_the_public_names(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == sorted(PUBLIC[module].split())
    assert set(PUBLIC[module].split()) <= set(dir(importlib.import_module(module)))


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_every_public_name_is_there_and_says_what_it_is_for(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return  # an alias of types, a table, a module
    assert inspect.getdoc(value)
    assert not (value.__doc__ or "").startswith(name + "("), "a docstring of its own, not a made one"
    assert getattr(importlib.import_module(value.__module__), name) is value


def test_a_public_class_has_one_name_and_one_meaning() -> None:
    found: dict[str, object] = {}
    for module, name in NAMES:
        value = getattr(importlib.import_module(module), name)
        assert found.setdefault(name, value) is value, f"{module}.{name}"


def test_a_name_that_is_not_there_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(moonshim, "no_such_name")  # noqa: B009


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_the_package_loads_none_of_it() -> None:
    loaded = run("import sys, moonshim; print(*sorted(one for one in sys.modules if one.startswith('moonshim')))")
    assert loaded.split() == ["moonshim"]


def test_a_name_is_loaded_when_it_is_first_used() -> None:
    program = "import sys, moonshim; moonshim.KimiOptions; print(*(one for one in sys.modules if 'moonshim' in one))"
    loaded = run(program).split()
    assert "moonshim.engine.values.options" in loaded
    assert "moonshim.engine.response.stream" not in loaded


def test_a_star_import_brings_all_of_them() -> None:
    assert run("from moonshim import *; print('Mender' in dir(), 'mend_chunks' in dir())").split() == ["True", "True"]


@pytest.mark.parametrize("name", ["Mender", "mend_chunks", "KimiOptions", "detect_tool_format"])
def test_the_ways_in_have_an_example_that_holds(name: str) -> None:
    value = getattr(moonshim, name)
    module = importlib.import_module(value.__module__)
    (found,) = doctest.DocTestFinder(recurse=False).find(value, name, module=module)
    assert found.examples
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(found).failed == 0


def test_the_examples_of_the_first_page_hold() -> None:
    messages = [{"role": "assistant", "tool_calls": [{"id": "x", "type": "function", "function": {"name": "ls"}}]}]
    assert moonshim.is_kimi_model("moonshotai/Kimi-K2-Thinking")
    assert moonshim.detect_tool_format("qwen3-coder-plus") == "qwen"
    mapper = moonshim.tool_id_strategy("kimi").create_mapper(messages)
    calls: Any = messages[0]["tool_calls"]
    assert mapper.resolve_tool_call_id(calls[0]) == "functions.ls:0"
    assert mapper.resolve_tool_response_id({"role": "tool", "tool_call_id": "x", "content": ""}) == "functions.ls:0"
    tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}]
    assert moonshim.format_tools(tools, "anthropic")[0]["name"] == "ls"


@pytest.mark.parametrize("error", ["CannotExpress", "InvalidInput", "InvalidOption", "UnknownFormat"])
def test_every_error_is_of_one_tree_and_tells_code_status_and_retry(error: str) -> None:
    kind = getattr(moonshim, error)
    assert issubclass(kind, moonshim.MoonshimError)
    assert isinstance(kind.code, str)
    assert 400 <= kind.status < 600
    assert kind.retryable is False
