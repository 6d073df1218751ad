"""Real clients, started by `moonshim launch` before a simulated host -> the pictures of the guides, in `docs/assets`.

    python -m scripts.client_pictures [FOLDER [NAME …]]

FOLDER has the clients as `make test-clients` installs them (default: `.clients`); the names select pictures. Everything
happens in a home folder of its own, which the clients show as `~`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final

from msgspec import Struct
from pyte.screens import Char
from rich.style import Style
from rich.text import Text

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator
from moonshim.simulator.model.judge import judge
from scripts.demo.picture import draw
from tests.clients.launch.terminal import COLUMNS, Terminal
from tests.clients.own_check import verdict

ROOT: Final = Path(__file__).parents[1]
MODELS: Final = ("kimi-k3", "kimi-k2.6")
PROJECT: Final = "weather"
_NAMES: Final = {"brown": "yellow", "brightbrown": "bright_yellow"}
_TREE: Final = {"report.py": 'print("Oslo: 4 degrees, rain")\n', "old-reports/may.txt": "Oslo: 14 degrees, sun\n"}
_CTRL_O: Final = "\x0f"
_SECONDS: Final = 2.0


class _Model:
    """Runs these commands with the client's shell, says this afterwards, and permits what is harmless."""

    def __init__(self, commands: Sequence[str], text: str) -> None:
        self._commands, self._text = commands, text

    def reply(self, request: SimRequest) -> IntendedResponse:
        if (verdicts := judge(request)) is not None:
            return IntendedResponse(text=verdicts)
        if (checked := verdict(request)) is not None:
            return checked
        done = sum(turn.role == "assistant" and bool(turn.calls) for turn in request.turns)
        if not request.tools or done >= len(self._commands):
            return IntendedResponse(text=self._text)
        call = IntendedCall("Bash", json.dumps({"command": self._commands[done], "description": "Run it"}))
        return IntendedResponse(calls=(call,))


class _Picture(Struct, frozen=True, kw_only=True):
    """What is typed, and what the picture shows."""

    name: str
    title: str
    arguments: tuple[str, ...]
    model: _Model
    rows: int = 28
    """Of the terminal."""
    ready: str
    prompt: str
    answer: str = ""
    """What is on the screen when these keys are typed."""
    keys: str = ""
    shown: tuple[str, ...]
    """What has to be on the screen in the end."""


_REPORT: Final = "python3 report.py > report.txt && cat report.txt"
_ANSWER: Final = "It is 4 degrees in Oslo, and it rains. The report is in report.txt."
_REFUSED: Final = "I wrote report.txt. The old reports are still there: deleting them was not allowed."

PICTURES: Final = (
    _Picture(
        name="claude-code",
        title="moonshim launch claude",
        arguments=("claude", "--model", "kimi-k3"),
        model=_Model((_REPORT,), _ANSWER),
        ready="auto mode on",
        prompt="/model",
        shown=MODELS,
    ),
    _Picture(
        name="claude-code-auto-mode",
        title="moonshim launch claude",
        arguments=("claude", "--model", "kimi-k3"),
        model=_Model((_REPORT,), _ANSWER),
        ready="auto mode on",
        prompt="Write today's report.",
        answer=_ANSWER[:20],
        keys=_CTRL_O,  # shows the commands, and who allowed them
        shown=("auto mode", "python3 report.py"),
    ),
    _Picture(
        name="claude-code-judge",
        title="moonshim launch claude --judge",
        arguments=("claude", "--model", "kimi-k3", "--judge", "kimi-k2.6"),
        model=_Model((_REPORT, "rm -rf old-reports"), _REFUSED),
        ready="auto mode on",
        prompt="Write today's report and tidy up.",
        shown=("It contains 'rm -rf'", _REFUSED[:20]),
    ),
    _Picture(
        name="codex-models",
        title="moonshim launch codex",
        arguments=("codex", "--model", "kimi-k3"),
        model=_Model((), _ANSWER),
        rows=14,
        ready="\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}",
        prompt="/model",
        shown=MODELS,
    ),
)


def main(arguments: Sequence[str]) -> int:
    clients = Path(arguments[0] if arguments else ROOT / ".clients").resolve()
    for picture in PICTURES:
        if len(arguments) > 1 and picture.name not in arguments[1:]:
            continue
        lines = _take(picture, clients)
        svg = draw(*lines, title=picture.title, width=COLUMNS, name=picture.name)
        (ROOT / "docs" / "assets" / f"{picture.name}.svg").write_text(svg, "utf-8")
    return 0


def _take(picture: _Picture, clients: Path) -> list[Text]:
    with _home() as home, Simulator(behaviour="moonshot", model=picture.model).running() as server:
        work = home / PROJECT
        config = home / "moonshim.json"
        provider = {"name": "moonshot", "api_base_url": f"{server.url}/v1", "host": "moonshot", "models": MODELS}
        config.write_text(json.dumps({"providers": [provider]}))
        programs = [str(path) for path in clients.glob("*/node_modules/.bin")]
        environment = {
            "PATH": os.pathsep.join([*programs, "/usr/local/bin", "/usr/bin", "/bin"]),
            "HOME": str(home),
            "TMPDIR": str(home),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "COLORTERM": "truecolor",
            "PYTHONPATH": str(ROOT / "src"),
            "IS_SANDBOX": "1",
        }
        client, *options = picture.arguments
        command = [sys.executable, "-m", "moonshim", "launch", client, "--config", str(config), *options]
        with Terminal(command, work, environment, picture.rows) as terminal:
            terminal.until(lambda: picture.ready in terminal.shown, "prompt")
            _rest(terminal)
            terminal.type(picture.prompt)
            terminal.until(lambda: picture.prompt in terminal.shown, "echo of what was typed")
            _rest(terminal)
            terminal.type("\r")
            if picture.keys:
                terminal.until(lambda: picture.answer in terminal.shown, picture.answer)
                _rest(terminal)
                terminal.type(picture.keys)
            terminal.until(lambda: all(text in terminal.shown for text in picture.shown), " and ".join(picture.shown))
            _rest(terminal)
            return _lines(terminal, (str(home), server.url))


@contextmanager
def _home() -> Iterator[Path]:
    """A user with a project, who has used the clients before."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        for name, text in _TREE.items():
            (home / PROJECT / name).parent.mkdir(parents=True, exist_ok=True)
            (home / PROJECT / name).write_text(text)
        project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        state = {"hasCompletedOnboarding": True, "projects": {str(home / PROJECT): project}}
        (home / ".claude.json").write_text(json.dumps(state))
        (home / ".codex").mkdir()
        (home / ".codex" / "config.toml").write_text(
            'check_for_update_on_startup = false\nsandbox_mode = "workspace-write"\napproval_policy = "on-request"\n'
            f'[projects."{home / PROJECT}"]\ntrust_level = "trusted"\n'
        )
        yield home


def _rest(terminal: Terminal) -> None:
    """Until nothing new was drawn for a while."""
    before, since = "", time.monotonic()
    while time.monotonic() - since < _SECONDS:
        terminal.read(0.1)
        if terminal.shown != before:
            before, since = terminal.shown, time.monotonic()


def _lines(terminal: Terminal, private: Sequence[str]) -> list[Text]:
    """The screen without what is empty above and below, in its colours. Raises `ValueError` for what is private."""
    screen = terminal.screen
    shown = [number for number, line in enumerate(screen.display) if line.strip()]
    if any(text in terminal.shown for text in private):
        raise ValueError(f"the screen shows something of this machine:\n{terminal.shown}")
    lines = []
    for number in range(shown[0], shown[-1] + 1):
        line = Text(no_wrap=True, end="")
        row = [screen.buffer[number][column] for column in range(COLUMNS)]
        for style, run in groupby(row, _style):
            line.append("".join(character.data for character in run), style)
        line.rstrip()
        lines.append(line)
    return lines


def _style(character: Char) -> Style:
    return Style(
        color=_color(character.fg),
        bgcolor=_color(character.bg),
        bold=character.bold,
        italic=character.italics,
        underline=character.underscore,
        reverse=character.reverse,
    )


def _color(name: str) -> str | None:
    if name == "default":
        return None
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return _NAMES.get(name, name.replace("bright", "bright_"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
