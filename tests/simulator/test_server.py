"""A simulator in a test of one's own: in a loop, in a thread, again and again, with a log that says what was wrong."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

import moonshim.simulator
from moonshim.http_server import logs
from moonshim.http_server.sockets import BindError
from moonshim.simulator import IntendedResponse, SimRequest, Simulator, SimulatorSettings
from moonshim.simulator.http.recorded import RecordedRequest
from moonshim.simulator.model.scenario_file import load_scenario
from moonshim.simulator.selection import UnknownName
from moonshim.simulator.settings_check import WrongSettings
from tests.simulator.asking import CHAT_TOOLS, Rounds
from tests.simulator.conversations import request

HELLO: Any = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "Hi"}], "tools": CHAT_TOOLS}
CHAT = "/v1/chat/completions"


def test_everything_that_is_promised_can_be_imported() -> None:
    for name in moonshim.simulator.__all__:
        assert getattr(moonshim.simulator, name) is not None
    assert set(moonshim.simulator.__all__) >= {
        "Simulator",
        "SimulatorSettings",
        "SimRequest",
        "IntendedResponse",
        "FAULTS",
        "play",
    }
    with pytest.raises(AttributeError):
        _ = moonshim.simulator.nothing


def test_playing_needs_no_server() -> None:
    code = (
        "import sys; from moonshim.simulator import FAULTS, play; "
        "print(*(name for name in ('uvicorn', 'asyncio') if name in sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_it_runs_in_the_loop_of_a_test() -> None:
    async def ask() -> str:
        async with (
            Simulator(model=Rounds()) as server,
            AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any") as client,
        ):
            stream = await client.chat.completions.create(**HELLO, stream=True)
            return str([chunk.choices[0].finish_reason async for chunk in stream][-1])

    assert asyncio.run(ask()) == "tool_calls"


def test_it_runs_again_after_it_was_closed_and_remembers_what_it_saw() -> None:
    server = Simulator(model=Rounds())
    for number in (1, 2):
        with server.running():
            assert request(server.url, "POST", CHAT, HELLO).status == 200
        assert len(server.requests) == number
    with pytest.raises(RuntimeError, match="is not running"):
        _ = server.url


def test_settings_come_as_a_value_or_as_fields_or_both() -> None:
    settings = SimulatorSettings(behaviour="vllm", seed=3)
    server = Simulator(settings, seed=4, model=Rounds())
    assert (server.settings.behaviour, server.settings.seed) == ("vllm", 4)
    with pytest.raises(TypeError):
        Simulator(natures="vllm")


def test_a_mistake_shows_when_it_is_made() -> None:
    with pytest.raises(UnknownName, match="split-bytes"):
        Simulator(faults=("split-byte",))


def test_without_a_model_it_plays_a_scenario() -> None:
    with (
        Simulator(scenario="parallel").running() as named,
        Simulator(scenario=load_scenario("parallel")).running() as given,
    ):
        for server in (named, given):
            request(server.url, "POST", CHAT, HELLO)
    assert named.requests[-1].intended == given.requests[-1].intended
    assert named.requests[-1].intended is not None
    assert len(named.requests[-1].intended.calls) > 1


def test_a_model_in_a_file_is_found_by_its_place(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from moonshim.simulator import IntendedResponse\n\n\n"
        "def parrot(question):\n    return IntendedResponse(text=question.words)\n"
    )
    with Simulator(model=f"{file}:parrot").running() as server:
        assert request(server.url, "POST", CHAT, HELLO).json["choices"][0]["message"]["content"] == "Hi"


class Wrong:
    def reply(self, sim_request: SimRequest) -> IntendedResponse:
        return "Hello"  # type: ignore[return-value]


def test_a_model_that_returns_something_else_is_told_what_to_return() -> None:
    with Simulator(model=Wrong()).running() as server:
        answer = request(server.url, "POST", CHAT, HELLO)
    assert answer.status == 500
    assert "IntendedResponse(text=" in answer.json["error"]["message"]
    assert server.refusals == list(server.requests)


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with Simulator(model=Rounds()).running() as server:
        taken = int(server.url.rpartition(":")[2])
        with pytest.raises(BindError), Simulator(model=Rounds(), port=taken).running():
            pass


def test_an_error_in_a_test_leaves_the_box_closed() -> None:
    server = Simulator(model=Rounds())
    with pytest.raises(ZeroDivisionError), server.running():
        _ = 1 / 0
    with server.running():
        assert request(server.url, "GET", "/health").status == 200


def test_misuse_is_in_the_log_in_the_words_of_the_error(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with file.open("w") as stream:
        logs.configure("info", stream)
        try:
            with Simulator(model=Rounds()).running() as server:
                request(server.url, "POST", CHAT, HELLO | {"model": "kimi-k2.5+crlf", "stream": True})
                request(server.url, "POST", CHAT, HELLO | {"temperature": 0.3})
                request(server.url, "POST", "/v1/embeddings", {})
        finally:
            logs.close()
    good, refused, nowhere = (json.loads(line) for line in file.read_text().splitlines())
    assert (good["number"], good["wire"], good["round"], good["status"]) == (1, "openai_chat", 1, 200)
    assert (good["model"], good["faults"]) == ("kimi-k2.5+crlf", ["crlf"])
    assert (refused["level"], refused["status"]) == ("warning", 400)
    assert refused["problem"] == "invalid temperature: only 1 is allowed for this model"
    assert (nowhere["path"], nowhere["status"]) == ("/v1/embeddings", 404)


def test_one_fault_may_be_a_text_and_rows_of_models_may_be_plain() -> None:
    server = Simulator(faults="no-done", models={"mine": {"generation": "k2.6"}})
    assert server.settings.faults == ("no-done",)
    assert server.settings.models["mine"].generation == "k2.6"


@pytest.mark.parametrize(
    ("fields", "received"),
    [
        ({"chaos": 2}, "chaos: must be between 0 and 1"),
        ({"chaos": "often"}, "Expected `float`, got `str` - at `chaos`"),
        ({"assume": "names-of-46"}, "did you mean 'names-of-64'"),
        ({"models": {"mine": {"generation": "k2.8"}}}, "did you mean 'k2.7'"),
    ],
)
def test_settings_that_mean_nothing_are_told_before_it_runs(fields: dict[str, Any], received: str) -> None:
    with pytest.raises(WrongSettings, match=re.escape(received)):
        Simulator(**fields)


def test_the_former_names_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match="`behaviour`"):
        assert Simulator(nature="vllm").settings.behaviour == "vllm"
    with pytest.warns(DeprecationWarning, match="`behaviour`"):
        settings = SimulatorSettings(nature="vllm")  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="`behaviour`"):
        assert settings.nature == "vllm"
    with pytest.warns(DeprecationWarning, match="`request`"):
        assert RecordedRequest(number=1, wire="openai_chat").question is None
