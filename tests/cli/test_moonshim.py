"""The command without a command: help, version, and how quickly they come."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from moonshim import cli
from tests.support.command import environment, run_moonshim


def test_alone_it_prints_help_and_calls_that_bad_usage() -> None:
    done = run_moonshim()
    assert (done.code, done.out) == (2, b"")
    assert done.lines[0] == "usage: moonshim COMMAND [ARGUMENT ...]"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["mend", "--help"], ["mend", "-h"]])
def test_help_goes_to_standard_output_without_colours(arguments: list[str]) -> None:
    done = run_moonshim(*arguments)
    assert (done.code, done.stderr) == (0, "")
    assert done.out.startswith(b"usage: moonshim")
    assert b"\x1b" not in done.out


def test_every_command_is_in_the_help() -> None:
    text = run_moonshim("--help").out.decode()
    assert all(name in text and summary in text for name, summary in cli.COMMANDS.items())


def test_the_version_is_that_of_the_package() -> None:
    done = run_moonshim("--version")
    assert done.code == 0
    try:
        expected = f"moonshim {importlib.metadata.version('moonshim')}\n"
    except importlib.metadata.PackageNotFoundError:
        expected = "moonshim (version unknown: the package is not installed)\n"
    assert done.out.decode() == expected


def test_an_unknown_command_is_bad_usage_and_the_commands_are_named() -> None:
    done = run_moonshim("mned\x1b[31m")
    assert done.code == 2
    assert "'mend'" in done.stderr or "mend" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "intended"),
    [
        (["srve"], "serve"),
        (["serve", "--prot", "1"], "--port"),
        (["keys", "lst"], "list"),
        (["keys", "new", "ana", "--model", "k3"], "--models"),
        (["config", "chekc"], "check"),
    ],
)
def test_what_was_meant_is_proposed(arguments: list[str], intended: str) -> None:
    done = run_moonshim(*arguments)
    assert done.code == 2
    assert f"(did you mean {intended!r}?)" in done.lines[0]


def test_a_file_that_is_to_be_checked_is_told_how() -> None:
    done = run_moonshim("config", "mine.toml")
    assert (done.code, "`moonshim config check mine.toml`" in done.stderr) == (2, True)


def test_help_survives_an_encoding_that_lacks_its_characters() -> None:
    done = run_moonshim("mend", "--help", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.code, done.stderr) == (0, "")


def test_help_imports_no_command_and_nothing_that_costs_time() -> None:
    program = (
        "import sys; from moonshim.cli import main; main(['--help']); print(*sorted(sys.modules), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True)
    loaded = set(run.stderr.split())
    assert "moonshim.cli.console" in loaded
    assert not loaded & {
        "moonshim.cli.mend",
        "moonshim.engine.response.stream",
        "msgspec",
        "importlib.metadata",
        "asyncio",
        "subprocess",
        "email",
        "unicodedata",
    }


def test_main_returns_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert cli.main([]) == 2
    assert cli.main(["mend", "--bogus"]) == 2
    assert "--bogus" in capsys.readouterr().err


def test_an_error_of_ours_is_a_line_and_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: list[str]) -> int:
        raise RuntimeError("broken\x1b[2J")

    monkeypatch.setattr(cli, "_run", fail)
    assert cli.main([]) == 1
    told = capsys.readouterr().err
    assert told.startswith("moonshim: internal error: RuntimeError: broken\\x1b[2J")
    monkeypatch.setenv("MOONSHIM_DEBUG", "1")
    with pytest.raises(RuntimeError):
        cli.main([])
