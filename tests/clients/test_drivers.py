"""What needs no client to be installed: that every driver can be started, and that a bad run is known as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from moonshim.launch.clients import CLIENTS as LAUNCHABLE
from moonshim.simulator.http.recorded import RecordedRequest
from moonshim.simulator.model.scenario_file import parse_scenario
from moonshim.simulator.request import OfferedTool, SimCall, SimRequest, SimResult, SimTurn
from moonshim.simulator.response import IntendedResponse
from tests.clients.built_in.auto_mode import AUTO_MODE, AUTO_MODE_MESSAGES
from tests.clients.built_in.every_built_in import BUILT_IN
from tests.clients.built_in.feature import BuiltIn, Scene
from tests.clients.built_in.performer import Performer
from tests.clients.cases import CASES
from tests.clients.client import Client, Place
from tests.clients.every_client import CLIENTS
from tests.clients.framework import FRAMEWORK_CASES, FRAMEWORKS, Framework
from tests.clients.framework_runs import FILES, Finder
from tests.clients.install import FRAMEWORKS_PINNED, PINNED, version_of_launched
from tests.clients.judging import Ended, noticed_by_the_host, noticed_by_the_user, said_otherwise
from tests.clients.launch.every_launched import LAUNCHED
from tests.clients.launch.launched import CLOSED, OTHER, Launched, UserFiles
from tests.clients.scenario import scenario_for

QUESTION = SimRequest(wire="openai_chat", model="kimi-k2.5", generation="k2.5", turns=(), tools=(OfferedTool("Bash"),))


def seen(problem: str | None = None, **body: Any) -> RecordedRequest:
    return RecordedRequest(
        number=1, wire="openai_chat", request=QUESTION, intended=IntendedResponse(), problem=problem, body=body
    )


def ended(printed: str, code: int | None = 0) -> Ended:
    return Ended(code=code, printed=printed, complained="", seconds=1.0)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_what_a_driver_installs_is_pinned_and_its_command_names_address_model_and_prompt(
    client: Client, tmp_path: Path
) -> None:
    installed, home, work = (tmp_path / name for name in ("installed", "home", "work"))
    for folder in (installed, home, work):
        folder.mkdir()
    place = Place(
        installed=installed, home=home, work=work, url="http://127.0.0.1:1234", model="kimi-k2.5", prompt="Say it."
    )
    command = client.command(place)
    written = [file.read_text() for folder in (home, work) for file in folder.rglob("*") if file.is_file()]
    told = "\n".join([*command.arguments, *command.environment.values(), *written])
    assert set(client.packages) <= set(PINNED)
    assert all(part in told for part in (place.url, place.model, place.prompt))


@pytest.mark.parametrize("built_in", BUILT_IN, ids=lambda one: f"{one.client.name}, {one.feature.name}")
def test_a_feature_of_a_client_is_asked_for_in_its_own_command(built_in: BuiltIn, tmp_path: Path) -> None:
    installed, home, work = (tmp_path / name for name in ("installed", "home", "work"))
    for folder in (installed, home, work):
        folder.mkdir()
    prompt, scene = "Say it.", Scene(work=work, word="word-0123456789ab")
    place = Place(installed=installed, home=home, work=work, url="http://127.0.0.1:1", model="kimi-k3", prompt=prompt)
    command = built_in.command(scene, place)
    built_in.feature.prepare(scene)
    written = [file.read_text("latin-1") for folder in (home, work) for file in folder.rglob("*") if file.is_file()]
    told = "\n".join([*command.arguments, *command.environment.values(), *written])
    # In auto mode without a judge, the client has the address only, and asks for models of its own.
    named = (
        (place.url, prompt) if built_in.feature in (AUTO_MODE, AUTO_MODE_MESSAGES) else (place.url, place.model, prompt)
    )
    assert all(part in told for part in named)
    assert set(built_in.client.packages) <= set(PINNED)


def test_the_model_for_features_uses_each_tool_once_and_says_what_it_read() -> None:
    word = "word-0123456789ab"
    tools = (OfferedTool("Read"), OfferedTool("mcp__notes__file_note"))
    model = Performer(("WebSearch", {}), ("file_note", {"subject": "x"}))
    first = model.reply(replace(QUESTION, tools=tools))
    assert [(call.name, call.arguments) for call in first.calls] == [("mcp__notes__file_note", '{"subject":"x"}')]
    called = SimTurn(role="assistant", calls=(SimCall("1", "mcp__notes__file_note", "{}"),))
    result = SimTurn(role="tool", results=(SimResult("1", "mcp__notes__file_note", f"Filed as {word}."),))
    last = model.reply(replace(QUESTION, tools=tools, turns=(called, result)))
    assert (last.calls, last.text) == ((), f"I read: {word}.")


def test_names_are_used_once() -> None:
    features = [(one.name, one.feature.name) for one in BUILT_IN]
    assert len(set(features)) == len(features)
    for named in (CLIENTS, CASES, FRAMEWORKS, FRAMEWORK_CASES):
        names = [one.name for one in named]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_a_framework_is_pinned_and_has_a_script_that_runs_it(framework: Framework) -> None:
    script = Path(__file__).with_name("frameworks") / f"run_{framework.name.replace('-', '_')}.py"
    assert FRAMEWORKS_PINNED[framework.name]
    assert "def run(task" in script.read_text()
    assert framework.ways


def test_the_model_for_frameworks_reads_one_file_then_three_then_tells_every_word_that_it_was_given() -> None:
    words = [f"word-{digit * 12}" for digit in "abcd"]
    tools = (OfferedTool("tools-bash"), OfferedTool("tools-read_file"))
    turns, called = [SimTurn(role="user", text="Which words?")], []
    for given in (words[:1], words[1:], []):
        intended = Finder().reply(
            SimRequest(wire="openai_chat", model="m", generation="k2.5", turns=tuple(turns), tools=tools)
        )
        called.append([(call.name, call.arguments) for call in intended.calls])
        turns += [SimTurn(role="assistant", text=intended.text), *(SimTurn(role="user", text=word) for word in given)]
    assert [len(calls) for calls in called] == [1, 3, 0]
    assert [name for name, _ in called[1]] == ["tools-read_file", "tools-bash", "tools-read_file"]
    assert all(file in str(called) for file in FILES)
    assert all(word in intended.text for word in words)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_the_scenario_of_a_client_can_be_played(client: Client) -> None:
    text = msgspec.json.encode(scenario_for(client)).decode()
    assert len(parse_scenario(text, suffix=".json").acts[0].rounds) == 3


@pytest.mark.parametrize(
    ("one", "problems"),
    [
        (ended("It says pear and plum."), []),
        (ended("It says pear."), ["1 of 2 results are missing from the answer: 'It says pear.'"]),
        (ended("pear plum <|tool_call_begin|>"), ["<|tool_call_begin|> reached the user"]),
        (ended("pear plum", code=3), ["exited with code 3: pear plum"]),
        (ended("pear plum", code=None), ["timed out after 1 s"]),
    ],
)
def test_what_a_user_would_notice_is_told(one: Ended, problems: list[str]) -> None:
    client = next(client for client in CLIENTS if client.name == "Codex")
    assert list(noticed_by_the_user(client, one, ("pear", "plum"))) == problems


@pytest.mark.parametrize(
    ("requests", "times", "problems"),
    [
        ([seen(), seen()], 1, []),
        ([seen(), seen()], 2, ["the tool ran 2 times"]),
        ([seen()], 0, ["the tool ran 0 times", "there were 1 rounds"]),
        ([seen(), seen(problem="no")], 1, ["1 of 2 requests refused: no"]),
    ],
)
def test_what_the_host_noticed_is_told(requests: list[RecordedRequest], times: int, problems: list[str]) -> None:
    assert list(noticed_by_the_host(requests, times)) == problems


def test_a_history_that_changes_between_two_requests_is_told() -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}
    plain = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    other = {"role": "user", "content": [{"type": "text", "text": "Ho"}]}
    first, same = seen(tools=[], messages=[marked]), seen(tools=[], messages=[plain, other])
    assert list(said_otherwise([first, same])) == []
    assert list(said_otherwise([first, seen(tools=[], messages=[other])])) == [
        "request 2 does not start with the previous request"
    ]


@pytest.mark.parametrize("client", LAUNCHED, ids=lambda client: client.name)
def test_a_client_to_launch_is_pinned_and_its_user_has_other_settings(client: Launched, tmp_path: Path) -> None:
    user = UserFiles(home=tmp_path / "home", work=tmp_path / "work", server=("python", "server.py"))
    settings = "\n".join(client.settings(user).values())
    assert client.name in LAUNCHABLE
    assert version_of_launched(client)
    assert OTHER in settings
    assert CLOSED in settings
    assert ("server.py" in settings + "\n".join(client.state(user).values())) == client.has_mcp
    assert "A prompt." in client.once("A prompt.")


def test_every_client_that_can_be_launched_is_tested_but_crush() -> None:
    assert {client.name for client in LAUNCHED} == set(LAUNCHABLE) - {"crush"}  # downloads its program from elsewhere
