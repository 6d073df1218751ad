"""`moonshim completion`: the scripts know everything that the parsers define, and real shells complete with them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from select import select
from time import monotonic
from typing import Final

import pytest

from moonshim.cli.completion import bash, fish, zsh
from moonshim.cli.completion.command import SHELLS
from moonshim.cli.completion.model import CompletionCommand, completion_model
from tests.support.command import MOONSHIM, environment, run_moonshim

pty = pytest.importorskip("pty")

RENDERERS: Final = {"bash": bash.render, "zsh": zsh.render, "fish": fish.render}
SECONDS: Final = 20.0


@pytest.fixture(scope="module")
def model() -> CompletionCommand:
    return completion_model()


@pytest.fixture(scope="module")
def scripts(model: CompletionCommand, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A script for each shell; zsh autoloads it by the name `_moonshim`."""
    folder = tmp_path_factory.mktemp("scripts")
    paths = {shell: folder / shell / "_moonshim" for shell in SHELLS}
    for shell, path in paths.items():
        path.parent.mkdir()
        path.write_text(RENDERERS[shell](model))
    return paths


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files to complete."""
    (tmp_path / "leaked.sse").touch()
    (tmp_path / "two words.json").touch()
    (tmp_path / "mended").mkdir()
    return tmp_path


def need(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        if shell == "bash":
            pytest.fail("bash is not installed")
        pytest.skip(f"{shell} is not installed")
    return path


# -- the scripts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(shell: str, scripts: dict[str, Path]) -> None:
    done = run_moonshim("completion", shell)
    assert (done.code, done.stderr) == (0, "")
    assert done.out.decode() == scripts[shell].read_text()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_accepts_the_syntax(shell: str, scripts: dict[str, Path]) -> None:
    run = subprocess.run([need(shell), "-n", scripts[shell]], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_in_the_script(
    shell: str, scripts: dict[str, Path], model: CompletionCommand
) -> None:
    text = scripts[shell].read_text()
    commands = model.walk()
    assert {"serve", "keys new", "simulate faults", "config check"} <= {command.name for command in commands}
    for command in commands:
        assert not command.path or command.path[-1] in text
        for option in command.options:
            for spelling in option.spellings:
                shown = f"-l {spelling[2:]}" if shell == "fish" and spelling.startswith("--") else spelling
                assert shown.removeprefix("-" if shell == "fish" and len(spelling) == 2 else "") in text, command.name


def test_every_file_and_folder_argument_suggests_files_or_folders(model: CompletionCommand) -> None:
    for command in model.walk():
        for value in [*(option.value for option in command.options), *command.arguments]:
            if value is None:
                continue
            if "FILE" in value.label:
                assert value.source == "files", (command.name, value)
            elif value.label == "DIR":
                assert value.source == "folders", (command.name, value)


def test_names_are_suggested(model: CompletionCommand) -> None:
    values = {
        f"{command.name} {option.spellings[-1]}": option.value.names
        for command in model.walk()
        for option in command.options
        if option.value is not None
    }
    assert "markers-in-content" in values["simulate --fault"]
    assert "five-rounds" in values["simulate --scenario"]
    assert "selfhost" in values["simulate --as"]
    assert "kimi-k3" in values["simulate render --model"]
    assert "openrouter" in values["explain --host"]
    assert "bash" in values["chat --allow"]
    assert "idPolicy=keep" in values["mend --set"]
    assert "tool_limit=" in values["explain --set"]


def test_the_help_says_how_to_install_each_script() -> None:
    text = run_moonshim("completion", "--help").out.decode()
    assert all(f"moonshim completion {shell}" in text for shell in SHELLS)


@pytest.mark.parametrize("arguments", [(), ("tcsh",)])
def test_an_unknown_shell_is_bad_usage(arguments: tuple[str, ...]) -> None:
    done = run_moonshim("completion", *arguments)
    assert (done.code, done.out) == (2, b"")


# -- real shells -----------------------------------------------------------------------------------------------------

TYPED: Final = {
    "a command": ("moonshim expl\t", ["explain"]),
    "an action": ("moonshim keys rev\t", ["keys", "revoke"]),
    "an action beside options": ("moonshim simulate scen\t", ["simulate", "scenarios"]),
    "an option": ("moonshim serve --gra\t", ["serve", "--graceful-seconds"]),
    "an option after values": (
        "moonshim keys new ci --models a b --rp\t",
        ["keys", "new", "ci", "--models", "a", "b", "--rpm"],
    ),
    "a choice": ("moonshim serve --log-level war\t", ["serve", "--log-level", "warning"]),
    "a choice after =": ("moonshim serve --log-level=war\t", ["serve", "--log-level=warning"]),
    "a file": ("moonshim mend lea\t", ["mend", "leaked.sse"]),
    "a file with a space": ("moonshim config check two\t", ["config", "check", "two words.json"]),
    "a second file": ("moonshim mend leaked.sse two\t", ["mend", "leaked.sse", "two words.json"]),
    "a file for an option": ("moonshim explain --host vllm lea\t", ["explain", "--host", "vllm", "leaked.sse"]),
    "a folder": ("moonshim mend --output me\t", ["mend", "--output", "mended"]),
    "a variable": ("moonshim chat --key-env HOMEW\t", ["chat", "--key-env", "HOMEWORK_KEY"]),
    "a fault": ("moonshim simulate --fault markers-by\t", ["simulate", "--fault", "markers-by-character"]),
    "a second fault": (
        "moonshim simulate --fault cut-off,markers-by\t",
        ["simulate", "--fault", "cut-off,markers-by-character"],
    ),
    "a setting": ("moonshim mend --set idPolicy=uni\t", ["mend", "--set", "idPolicy=unique"]),
    "an option whose value names a command": (
        "moonshim chat --model serve --yo\t",
        ["chat", "--model", "serve", "--yolo"],
    ),
}


@pytest.mark.parametrize(("typed", "arguments"), TYPED.values(), ids=TYPED.keys())
def test_bash_completes(typed: str, arguments: list[str], scripts: dict[str, Path], folder: Path) -> None:
    setup = f"bind 'set bell-style none'; source {scripts['bash']}"
    assert complete_on_terminal([need("bash"), "--norc", "--noprofile", "-i"], setup, typed, folder) == arguments


@pytest.mark.parametrize(("typed", "arguments"), TYPED.values(), ids=TYPED.keys())
def test_zsh_completes(typed: str, arguments: list[str], scripts: dict[str, Path], folder: Path) -> None:
    setup = f"unsetopt beep; fpath=({scripts['zsh'].parent} $fpath); autoload -Uz compinit; compinit -u -D"
    assert complete_on_terminal([need("zsh"), "-f", "-i"], setup, typed, folder) == arguments


@pytest.mark.parametrize(("typed", "arguments"), TYPED.values(), ids=TYPED.keys())
def test_fish_completes(typed: str, arguments: list[str], scripts: dict[str, Path], folder: Path) -> None:
    """Fish lists the completions of a line on request, each with a description after a tab."""
    line = typed.removesuffix("\t")
    command = [need("fish"), "--no-config", "-c", f"source {scripts['fish']}; complete -C '{line}'"]
    run = subprocess.run(
        command, env=shell_environment(folder), cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    assert [one.partition("\t")[0].rstrip("/") for one in run.stdout.splitlines()] == arguments[-1:]


def test_bash_lists_the_commands_where_words_do_not_break_at_equals_signs(
    scripts: dict[str, Path], folder: Path
) -> None:
    """Some set COMP_WORDBREAKS without `=`: then bash replaces the whole word, and not only the part after it."""
    program = f"""
        source {scripts["bash"]}
        COMP_WORDBREAKS=' '
        COMP_LINE='moonshim mend --set=idPolicy=un' COMP_WORDS=(moonshim mend --set=idPolicy=un) COMP_CWORD=2
        _moonshim; printf '%s\\n' "${{COMPREPLY[@]}}"
        COMP_LINE='moonshim ' COMP_WORDS=(moonshim '') COMP_CWORD=1
        _moonshim; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    run = subprocess.run([need("bash"), "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    first, *commands = run.stdout.splitlines()
    assert first == "--set=idPolicy=unique"
    assert {"serve", "completion", "mend"} <= set(commands)


def complete_on_terminal(shell: list[str], setup: str, typed: str, folder: Path) -> list[str]:
    """Type a line into an interactive shell and run it; the arguments that the command received.

    `moonshim` is a function that prints its arguments, so the test does not depend on how a shell draws its line.
    """
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        shell,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=shell_environment(folder),
        cwd=folder,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            os.write(ours, f"{setup}; moonshim() {{ printf '<%s>' \"$@\"; echo END; }}; echo RE''ADY\n".encode())
            read_until(ours, b"READY")
            os.write(ours, typed.encode() + b"\n")
            output = read_until(ours, b"END")
        finally:
            process.kill()
            os.close(ours)
    line = output.decode(errors="replace").rpartition("END")[0].splitlines()[-1]
    return [part.rstrip("/") for part in line.partition("<")[2].rstrip(">").split("><")]  # zsh drops the slash again


def read_until(descriptor: int, end: bytes) -> bytes:
    data, deadline = b"", monotonic() + SECONDS
    while end not in data:
        ready, _, _ = select([descriptor], [], [], max(0.0, deadline - monotonic()))
        assert ready, data
        data += os.read(descriptor, 1 << 16)
    return data


def shell_environment(folder: Path) -> dict[str, str]:
    return environment(HOME=str(folder), TERM="dumb", HOMEWORK_KEY="x", LC_ALL="C.UTF-8", PS1="$ ")


def test_the_script_is_the_same_without_the_optional_packages(scripts: dict[str, Path], tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('aiohappyeyeballs', 'uvicorn', 'httptools', 'starlette', 'prompt_toolkit', 'rich'):\n"
        "    sys.modules[name] = None\n"
        "from moonshim.cli import main\n"
        "sys.exit(main(['completion', 'bash']))"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == scripts["bash"].read_text()


def test_a_closed_output_is_one_line() -> None:
    command = ["sh", "-c", f"{shlex.join([*MOONSHIM, 'completion', 'bash'])} >&-"]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr == "moonshim completion: cannot write to standard output: it is closed\n"
