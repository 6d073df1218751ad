"""Settings of the simulator in a file: what each key means, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonshim.config import ConfigError
from moonshim.simulator.config_file import load_settings, parse_settings
from moonshim.simulator.settings import ModelRow, SimulatorSettings

EVERYTHING = """\
as = "selfhost"
faults = ["markers-in-content", "overloaded*1"]
chaos = 0.1
seed = 7
scenario = "five-rounds"
assume = ["names-of-64"]
tokens_per_second = 50
first_token_ms = 200
thinking_tokens = 300
api_key_env = "SIMULATOR_KEY"

[models."mine"]
generation = "k3"
faults = ["ids-missing"]

[models."kimi-k2.5"]
faults = ["markers-in-reasoning"]
"""
SCENARIO = '[[round]]\ncall = "ls"\n'
MODEL = """\
from moonshim.simulator import IntendedResponse

class Parrot:
    def reply(self, question):
        return IntendedResponse(text=question.words)
"""


def wrong(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, environ=environ, source="sim.toml")
    return caught.value.problems


def test_every_key_says_what_an_option_says() -> None:
    assert parse_settings(EVERYTHING, environ={"SIMULATOR_KEY": "sk-1"}) == SimulatorSettings(
        behaviour="selfhost",
        faults=("markers-in-content", "overloaded*1"),
        chaos=0.1,
        seed=7,
        scenario="five-rounds",
        assume=("names-of-64",),
        tokens_per_second=50.0,
        first_token_ms=200.0,
        thinking_tokens=300,
        api_key="sk-1",
        models={
            "mine": ModelRow(generation="k3", faults=("ids-missing",)),
            "kimi-k2.5": ModelRow(generation="k2.5", faults=("markers-in-reasoning",)),
        },
    )


def test_an_empty_file_changes_nothing() -> None:
    assert parse_settings("", environ={}) == SimulatorSettings()


def test_paths_begin_at_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "rounds.toml").write_text(SCENARIO)
    (tmp_path / "parrot.py").write_text(MODEL)
    file = tmp_path / "simulator.toml"
    file.write_text('scenario = "rounds.toml"\nmodel = "parrot.py:Parrot"\n')
    settings = load_settings(file, {})
    assert settings.scenario == str(tmp_path / "rounds.toml")
    assert settings.model == f"{tmp_path / 'parrot.py'}:Parrot"


def test_every_mistake_is_told_with_its_line() -> None:
    text = EVERYTHING.replace("selfhost", "selfhots").replace("overloaded", "overlaoded").replace("0.1", "1.5")
    text = text.replace("names-of-64", "names-of-46").replace('"k3"', '"k4"').replace("five-rounds", "five-round")
    problems = wrong(text)
    assert [problem.split(": ")[0] for problem in problems] == [
        f"sim.toml:{line}" for line in (1, 2, 3, 5, 6, 10, 13)
    ], problems
    for place, near in (
        (0, "'selfhost'"),
        (1, "overloaded"),
        (3, "'five-rounds'"),
        (4, "'names-of-64'"),
        (5, "SIMULATOR_KEY"),
        (6, "k2.7, k3, k3.1"),
    ):
        assert near in problems[place]


@pytest.mark.parametrize(
    ("text", "received"),
    [
        ("[models.mine]\nfaults = []\n", "sim.toml:1: models.mine: unknown model: set its generation"),
        ('[models."a+b"]\ngeneration = "k3"\n', 'sim.toml:1: models."a+b": a model name cannot contain `+`'),
        ("[models]\nmine = 1\n", "sim.toml:2: models.mine: expected a table"),
        ("nature = 'vllm'\n", "sim.toml:1: nature: unknown key 'nature' (did you mean 'as'?)"),
        ("port = 1\n", "(--port)"),
        ("api_key = 'sk-1'\n", "put the key in an environment variable and name it with `api_key_env`"),
        ("faults = 'cut'\n", "sim.toml:1: faults: expected a list of strings"),
        ("faults = ['five-rounds']\n", "sim.toml:1: faults[0]: 'five-rounds' is a scenario, not a fault"),
        ("seed = -1\n", "sim.toml:1: seed: must be at least 0"),
        ("chaos = 'much'\n", "sim.toml:1: chaos: expected a number"),
        ("model = 'nowhere.py:Name'\n", "sim.toml:1: model: "),
        ("tokenizer = '/no/model'\n", "sim.toml:1: tokenizer: cannot read the vocabulary /no/model: No such file"),
        ("seed = [\n", "sim.toml:1"),
    ],
)  # fmt: skip
def test_a_mistake_says_what_to_do(text: str, received: str) -> None:
    assert received in "\n".join(wrong(text))


def test_a_scenario_with_a_mistake_says_where_in_it(tmp_path: Path) -> None:
    (tmp_path / "rounds.toml").write_text("[[round]]\nrepaet = 2\n")
    file = tmp_path / "simulator.toml"
    file.write_text('seed = 1\nscenario = "rounds.toml"\n')
    with pytest.raises(ConfigError) as caught:
        load_settings(file, {})
    (problem,) = caught.value.problems
    assert problem.startswith(f"{file}:2: scenario: ")
    assert "rounds.toml:2" in problem


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load_settings("none.toml", {})
