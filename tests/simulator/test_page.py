"""docs/guides/simulator.md is true: its Python prints what it shows, its files load, its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from moonshim.simulator import FAULTS
from moonshim.simulator.config_file import load_settings
from moonshim.simulator.model.scenario_file import load_scenario
from moonshim.simulator.selection import read_model, read_names

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "guides" / "simulator.md").read_text()
SCENARIO, SETTINGS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
PYTHON: Final = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(PRINTED,) = re.findall(r"prints\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("snippet", "printed"), list(zip(PYTHON, ("", PRINTED), strict=True)), ids=("model", "server"))
def test_a_snippet_runs_and_prints(snippet: str, printed: str) -> None:
    run = subprocess.run([sys.executable, "-c", snippet], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.stdout == printed, run.stderr
    assert run.returncode == 0


def test_the_scenario_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SCENARIO)
    (act,) = load_scenario(str(tmp_path / "mine.toml")).acts
    assert [one.repeat for one in act.rounds] == [1, 3]


def test_the_settings_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(SETTINGS)
    settings = load_settings(tmp_path / "settings.toml", {})
    assert settings.behaviour == "selfhost"
    assert settings.models["my-kimi"].faults == ("markers-in-reasoning",)


def test_the_names_are_known() -> None:
    for name in re.findall(r"`(kimi-[\w.]+\+[^`]+)`", PAGE):
        assert read_model(name).model.startswith("kimi-")
    (header,) = re.findall(r"x-moonshim-simulate: ([^`]+)`", PAGE)
    assert read_names(header)
    for name in re.findall(r"--fault ([a-z-]+)", PAGE):
        assert name in FAULTS
