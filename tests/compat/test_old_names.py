"""What the documentation of version 0.1 showed still works, and warns."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from typing import Any

import pytest

import moonshim
from moonshim.compat import _MODULES
from moonshim.types import Message, Request, Text

SHOWN = {
    "moonshim.conversation": "Media Message Part Reasoning Request Text Tool ToolCall ToolResult Speaker",
    "moonshim.dialects.openai_responses": "resolve_references left_behind completed_in continued said_items",
    "moonshim.events": "BlockClosed BlockDelta BlockOpened BlockSigned Event Failed Finished failed_by",
    "moonshim.hosts.condition": "condition Conditioned condition_foreign",
    "moonshim.hosts.detect": "needs_for",
    "moonshim.hosts.needs": "Needs",
    "moonshim.hosts.table": "HOSTS ROWS",
    "moonshim.plan": "Plan",
    "moonshim.prepare": "read_request Asked Prepared",
    "moonshim.recollection": "recalled turn_filing Filing Turns",
    "moonshim.stage": "Stage Transformer TransformerFailed",
    "moonshim.tokens": "estimate_tokens",
    "moonshim.agent": "RoundBegan ToolBegan MessageKept NotKept HistoryNotKept Exchanged answered",
    "moonshim.simulator": "Meant MeantCall Question",
}
NAMES = [(module, name) for module, names in SHOWN.items() for name in names.split()]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_name_of_the_old_pages_is_there_and_warns(module: str, name: str) -> None:
    old = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=name) as warned:
        value = getattr(old, name)
    assert value is not None
    assert [one.filename for one in warned] == [__file__]


def test_an_old_name_is_the_very_thing_that_has_a_new_one() -> None:
    old: Any = importlib.import_module("moonshim.conversation")
    with pytest.warns(DeprecationWarning, match=r"is deprecated; use moonshim\.Message"):
        assert old.Message is Message


@pytest.mark.parametrize("module", _MODULES)
def test_every_old_module_offers_what_it_offered(module: str) -> None:
    old: Any = importlib.import_module(module)
    if not hasattr(importlib.import_module(_MODULES[module].to), "__all__"):
        return
    for name in old.__all__:
        with pytest.warns(DeprecationWarning, match=name):
            getattr(old, name)


def test_old_names_are_looked_up_by_import_statements() -> None:
    program = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from moonshim.conversation import *\n"
        "from moonshim.hosts.detect import needs_for\n"
        "import moonshim.dialects.openai_responses\n"
        "print(Message('user').role, needs_for(host='vllm', model='k2').tool_limit)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("user ")


@pytest.mark.parametrize("module", ["moonshim.no_such_module", "moonshim.conversation.parts", "moonshim.hosts.nowhere"])
def test_a_module_that_never_was_is_not_found(module: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(module)


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        importlib.import_module("moonshim.events").no_such_name  # noqa: B018


def test_the_old_arguments_of_functions_are_accepted() -> None:
    mender: Any = moonshim.Mender
    with pytest.warns(DeprecationWarning, match="goes is deprecated; use output_format"):
        assert mender(model="kimi-k3", goes="ndjson").feed(b"") == b""
    reply: Any = importlib.import_module("moonshim.engine.response.reply")
    plan = moonshim.prepare_request({"model": "k3", "messages": [{"role": "user", "content": "hi"}]}).plan
    with pytest.warns(DeprecationWarning, match="use (in|out)put_format") as warned:
        reply.read_reply(plan, comes="sse", goes="sse")
    assert len(warned) == 2
    read: Any = moonshim.read_problem
    with pytest.warns(DeprecationWarning, match="needs is deprecated; use profile"):
        assert read(429, b"", {}, needs=moonshim.profile_for(host="vllm", model="k3")).status == 429


def test_the_old_attributes_of_values_are_there() -> None:
    body = {"model": "k3", "messages": [{"role": "user", "content": "hi"}]}
    prepared: Any = moonshim.prepare_request(body, host="vllm")
    with pytest.warns(DeprecationWarning, match="profile"):
        assert prepared.needs is prepared.profile
    request: Any = Request(model="k3", messages=(Message("user", (Text("hi"),)),), body_overrides={"a": 1})
    with pytest.warns(DeprecationWarning, match="body_overrides"):
        assert request.put == {"a": 1}
    with pytest.warns(DeprecationWarning, match="locations"):
        assert request.places == ()


def test_the_simulator_takes_its_behaviour_under_the_old_name() -> None:
    from moonshim.simulator import Simulator, SimulatorSettings

    with pytest.warns(DeprecationWarning, match="behaviour"):
        box = Simulator(nature="selfhost")
    assert box.settings.behaviour == "selfhost"
    settings: Any = SimulatorSettings(behaviour="vllm")
    with pytest.warns(DeprecationWarning, match="behaviour"):
        assert settings.nature == "vllm"


def test_a_name_of_today_warns_of_nothing() -> None:
    modules = "moonshim, moonshim.types, moonshim.agent, moonshim.simulator, moonshim.integrations"
    program = f"import {modules}; moonshim.Mender; moonshim.agent.RoundStarted"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_a_message_takes_its_role_under_the_old_words() -> None:
    old: Any = Message
    with pytest.warns(DeprecationWarning, match="the role 'ai' was renamed to 'assistant'"):
        message = old("ai", (Text("hi"),))
    assert message == Message("assistant", (Text("hi"),))
    with pytest.warns(DeprecationWarning, match="role"):
        assert message.speaker == "ai"
    with pytest.warns(DeprecationWarning, match="role"):
        assert old("tool").speaker == "tool"
