"""`moonshim chat -p`: one answer in three forms, for scripts; exit codes, pipes, and what is said when it cannot be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from moonshim.simulator import Simulator
from tests.chat.player import Player
from tests.chat.talking import in_folder
from tests.support.command import MOONSHIM, CompletedCommand, environment, run_moonshim

KEYS = {name: "" for name in os.environ if name.endswith("_API_KEY")}


def once(
    host: Simulator, folder: Path, *arguments: str, model: str = "kimi-k2.5", stdin: bytes = b""
) -> CompletedCommand:
    to = ("--base-url", f"{host.url}/v1", "--model", model, "--folder", str(folder))
    data = {"XDG_DATA_HOME": str(folder / "data")}
    return run_moonshim("chat", *to, *arguments, stdin=stdin, cwd=folder, **data)


def test_the_answer_as_text_has_no_colours_and_moves_nothing(host: Simulator, tmp_path: Path) -> None:
    done = once(host, in_folder(tmp_path), "-p", "hostile words", "--yolo")
    assert done.code == 0
    assert done.out.decode() == "The end \\x1b[2J\\x1b]0;owned\\x07\\x1b[31mred\\u202etxt\n"
    assert done.stderr == ""


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_the_answer_as_json_moves_nothing_either(host: Simulator, tmp_path: Path, form: str) -> None:
    done = once(host, in_folder(tmp_path), "-p", "hostile words", "--yolo", "--output", form)
    assert done.code == 0
    assert "\\u202etxt" in done.out.decode()
    assert not [char for char in done.out.decode() if not char.isprintable() and char != "\n"]


def test_the_answer_as_one_object(host: Simulator, tmp_path: Path) -> None:
    done = once(host, in_folder(tmp_path), "-p", "list the files", "--allow", "bash", "--output", "json")
    assert done.code == 0
    (line,) = done.out.decode().splitlines()
    answer = json.loads(line)
    assert answer["text"].startswith("There are **two** things:")
    assert answer["reasoning"] == "There they are."
    (call,) = answer["calls"]
    assert (call["name"], json.loads(call["arguments"]), call["is_error"]) == ("bash", {"command": "ls"}, False)
    assert call["result"].split() == ["data", "notes.md", "src"]
    assert (answer["ending"], answer["rounds"], answer["format"]) == ("answered", 2, "kimi")
    assert answer["usage"]["output_tokens"] > 0
    assert answer["cost"] is None
    # The same conversation goes on where it was left.
    told = once(host, tmp_path, "-p", "-", "--resume", answer["conversation"], "--output", "json", stdin=b"hello\n")
    again = json.loads(told.out)
    assert (again["text"], again["conversation"]) == ("Hello yourself.", answer["conversation"])
    asked = host.requests[-1].body
    assert [message["role"] for message in asked["messages"]] == [
        *("system", "user", "assistant", "tool", "assistant", "user")
    ]
    assert asked["messages"][2]["reasoning_content"] == "I look.\nA shell can tell."


def test_a_conversation_without_thoughts_goes_on_at_a_strict_host_that_nobody_knows(
    host: Simulator, tmp_path: Path
) -> None:
    done = once(host, in_folder(tmp_path), "-p", "how much is it", "--yolo", "--output", "json")
    conversation = json.loads(done.out)["conversation"]
    with Simulator(model=Player(), behaviour="moonshot", assume=("k3-needs-reasoning",)).running() as strict:
        for model in ("kimi-k2.5", "kimi-k2.7-code", "kimi-k3"):
            told = once(strict, tmp_path, "-p", "hello", "--resume", conversation, model=model)
            assert (told.code, told.out) == (0, b"Hello yourself.\n"), (model, told.stderr)
        assert not strict.refusals


def test_every_step_as_a_line(host: Simulator, tmp_path: Path) -> None:
    done = once(host, in_folder(tmp_path), "-p", "both of them", "--output", "stream-json")
    assert done.code == 0
    steps = [json.loads(line) for line in done.out.splitlines()]
    kinds = [step["type"] for step in steps]
    assert kinds[0] == "chat"
    assert kinds[-1] == "run_ended"
    assert kinds.count("round_began") == 2
    assert kinds.count("tool_began") == kinds.count("tool_ended") == 2
    text = "".join(step["text"] for step in steps if step["type"] == "block_delta")
    assert text.endswith("Read both.")
    assert steps[-1]["reason"] == "answered"
    assert b"\x1b" not in done.out


def test_providers_models_and_prices_are_those_of_the_gateway(host: Simulator, tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    (folder / "moonshim.toml").write_text(
        f'[[providers]]\nname = "lab"\napi_base_url = "{host.url}/v1"\nmodels = ["kimi-k2.5"]\n'
        f'[[providers]]\nname = "other"\napi_base_url = "{host.url}/anthropic"\nmodels = ["kimi-k3"]\n'
        '[aliases]\nsmart = "other/kimi-k3"\n[prices]\n"kimi-k3" = { input = 1000, output = 0 }\n'
    )
    # A data folder that cannot be made is told, and is no reason not to answer.
    (folder / "data").touch()
    done = run_moonshim(
        *("chat", "-p", "hello", "--model", "smart", "--output", "json", "--config", "moonshim.toml"),
        cwd=folder,
        XDG_DATA_HOME=str(folder / "data"),
    )
    answer = json.loads(done.out)
    assert (answer["provider"], answer["model"], answer["text"]) == ("other", "kimi-k3", "Hello yourself.")
    assert answer["cost"] == {"$": pytest.approx(answer["usage"]["input_tokens"] / 1000)}
    assert host.requests[-1].wire == "anthropic"
    assert "this conversation is not saved" in done.stderr


def test_a_host_that_cannot_be_reached_and_a_model_that_it_lacks_come_with_a_next_step(
    host: Simulator, tmp_path: Path
) -> None:
    done = once(host, in_folder(tmp_path), "-p", "hi", model="kimi-k9")
    assert done.code == 1
    assert "Choose another model with --model" in done.stderr
    address = "http://127.0.0.1:9/v1"
    data = str(tmp_path / "data")
    done = run_moonshim(
        "chat", "--base-url", address, "--model", "kimi-k3", "-p", "hi", cwd=tmp_path, XDG_DATA_HOME=data
    )
    assert (done.code, "that --base-url is correct" in done.stderr) == (1, True)
    file = tmp_path / "x.toml"
    file.write_text(
        f'[[providers]]\nname = "a"\napi_base_url = "{address}"\nmodels = ["kimi-k3"]\n[retries]\nattempts = 1\n'
    )
    done = run_moonshim("chat", "--config", file, "-p", "hi", cwd=tmp_path, XDG_DATA_HOME=data)
    assert (done.code, f"`moonshim doctor --config {file}`" in done.stderr) == (1, True)


def test_nobody_is_there_to_be_asked(host: Simulator, tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    done = once(host, folder, "--output", "json", stdin=b"write it")
    answer = json.loads(done.out)
    assert (done.code, answer["text"]) == (0, "Written.")
    assert answer["calls"][0]["result"].startswith("Error: not run. This call needs confirmation")
    assert done.stderr == (
        "moonshim chat: write_file was not run: -p cannot ask for confirmation; "
        "allow it with --allow write_file or --yolo\n"
    )
    assert not (folder / "new.txt").exists()


@pytest.mark.parametrize(
    ("model", "more", "code", "told"),
    [
        ("kimi-k2.5+unheard-of", [], 1, "unknown fault or scenario 'unheard-of'"),
        ("kimi-k2.5", ["--rounds", "1"], 3, "The round limit (1) was reached"),
    ],
)
def test_how_it_ends_is_told_and_in_the_exit_code(
    host: Simulator, tmp_path: Path, model: str, more: list[str], code: int, told: str
) -> None:
    done = once(host, in_folder(tmp_path), "-p", "both of them", *more, model=model)
    assert (done.code, done.out) == (code, b"")
    assert told in done.stderr


@pytest.mark.parametrize(("more", "runs"), [([], 4), (["--repeats", "2"], 2)])
def test_a_model_that_repeats_itself_is_stopped_at_the_limit(
    host: Simulator, tmp_path: Path, more: list[str], runs: int
) -> None:
    done = once(host, in_folder(tmp_path), "-p", "stuck", "--output", "json", *more)
    answer = json.loads(done.out)
    assert (done.code, answer["ending"]) == (3, "repeating")
    assert sum(call["result"] == "notes.md" for call in answer["calls"]) == runs


def test_a_model_may_repeat_itself_where_no_limit_is_set(host: Simulator, tmp_path: Path) -> None:
    done = once(host, in_folder(tmp_path), "-p", "stuck", "--output", "json", "--repeats", "0", "--rounds", "8")
    answer = json.loads(done.out)
    assert (done.code, answer["ending"]) == (3, "rounds")
    assert [call["result"] for call in answer["calls"]] == ["notes.md"] * 8


def test_a_signal_stops_it_and_the_conversation_is_whole(host: Simulator, tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    command = ["chat", "--base-url", f"{host.url}/v1", "--model", "kimi-k2.5", "-p", "wait for it", "--yolo"]
    process = subprocess.Popen(
        [*MOONSHIM, *command, "--output", "stream-json"],
        cwd=folder,
        env=environment(XDG_DATA_HOME=str(folder / "data")),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    steps: list[dict[str, Any]] = []
    for line in process.stdout:
        steps.append(json.loads(line))
        if steps[-1]["type"] == "tool_began":
            process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.stdout.close()
    assert steps[-1]["reason"] == "cancelled"
    kept = [
        json.loads(line) for line in next((folder / "data" / "moonshim" / "chats").iterdir()).read_text().splitlines()
    ]
    spoken = [line["message"]["role"] for line in kept if "message" in line]
    assert spoken == ["user", "assistant", "tool"]


WRONG = {
    "nothing is configured": (["-p", "hi"], "edit the file, then run `moonshim trust`"),
    "no model": (["-p", "hi", "--base-url", "http://127.0.0.1:1/v1"], "--base-url needs --model"),
    "no address": (["-p", "hi", "--base-url", "nowhere", "--model", "k"], "--base-url must be a URL"),
    "two hosts": (["-p", "hi", "--demo", "--base-url", "http://h"], "cannot be combined with"),
    "no folder": (["-p", "hi", "--demo", "--folder", "/nowhere"], "the folder does not exist"),
    "nothing to ask": (["-p", " ", "--demo"], "the prompt is empty"),
    "nothing on standard input": (["--demo"], "standard input is empty; pass -p PROMPT, or pipe a prompt in"),
    "a model that is not there": (["-p", "hi", "--demo", "--model", "gpt-9"], "Model 'gpt-9' not found"),
    "a provider that is not there": (["-p", "hi", "--demo", "--provider", "x"], "unknown provider `x`"),
    "a conversation that is not there": (["-p", "hi", "--demo", "--resume", "n"], "no conversation `n`"),
    "an invalid format": (["-p", "hi", "--demo", "--tool-format", "klingon"], "Invalid tool format 'klingon'"),
    "an invalid tool": (["-p", "hi", "--demo", "--allow", "x"], "unknown tool; available tools: bash, read_file"),
    "an invalid way to think": (["-p", "hi", "--demo", "--thinking", "hard"], "off, minimal, low, medium"),
    "no rounds": (["-p", "hi", "--demo", "--rounds", "0"], "from 1 to 1000000, got '0' (-1: no limit)"),
    "no repeats": (["-p", "hi", "--demo", "--repeats", "-1"], "expected an integer from 0 to 1000000, got '-1'"),
    "a prompt without -p": (["--demo", "hello", "there"], "pass a prompt with -p, in quotes"),
    "an option that is not there": (["--modle", "x"], "(did you mean '--model'?)"),
}


@pytest.mark.parametrize(("arguments", "told"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_asked_is_told(
    arguments: list[str], told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from moonshim.cli import main

    for name in (*KEYS, "MOONSHIM_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "nothing").open("w+") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert main(["chat", *arguments]) == 2
    shown = capfd.readouterr()
    assert told in shown.err
    assert shown.out == ""


def test_help_has_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    from moonshim.cli import main

    assert main(["chat", "--help"]) == 0
    assert "exit codes:\n  0    the model answered" in capsys.readouterr().out
