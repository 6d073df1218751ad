"""`moonshim simulate` as a user runs it: what it refuses and why, the line when it is ready, its answers."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from openai import APIStatusError, BadRequestError, OpenAI

from moonshim.cli import main
from moonshim.cli.simulate.command import ACTIONS, parser
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.host.behaviours import BEHAVIOURS
from moonshim.simulator.model.scenario import BUILT_IN
from moonshim.simulator.selection import read_model, read_names
from tests.simulator.vocabulary import write_vocabulary
from tests.support.command import CompletedCommand, environment, run_moonshim
from tests.support.servers import running

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKED: Any = [{"role": "user", "content": "What is the weather in Paris?"}]


def simulate(*arguments: str | Path, cwd: Path) -> CompletedCommand:
    """Run it to its end, when it cannot be simulated."""
    return run_moonshim("simulate", *arguments, cwd=cwd)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["--as", "selfhots"], "--as: unknown behaviour 'selfhots' (did you mean 'selfhost'?)"),
            (["--fault", "markers-in-contents"], "markers-in-content"),
            (["--fault", "markers-in-content,cut-of"], "cut-of"),
            (["--fault", "five-rounds"], "--fault: 'five-rounds' is a scenario, not a fault"),
            (["--scenario", "five-round"], "unknown scenario 'five-round' (did you mean 'five-rounds'?)"),
            (["--scenario", "none.toml"], "--scenario: none.toml: No such file"),
            (["--assume", "names-of-46"], "unknown assumption 'names-of-46' (did you mean 'names-of-64'?)"),
            (["--model", "none.py:Mine"], "--model: "),
            (["--tokenizer", "none"], "--tokenizer: cannot read the vocabulary none: No such file or directory"),
            (["--tokenizer", "."], "--tokenizer: cannot read the vocabulary tiktoken.model: No such file or directory"),
            (["--tokenizer", __file__], "is damaged or not a vocabulary (`tiktoken.model`): line 1"),
            (["--model", "kimi-k3"], "kimi-k3 is a model name for requests, not a Python model"),
            (["--api-key-env", "NO_SUCH_KEY"], "--api-key-env: environment variable NO_SUCH_KEY is not set"),
            (["--config", "none.toml"], "none.toml: No such file"),
            (["--host", "no-such-host.invalid"], "cannot resolve the host 'no-such-host.invalid'"),
        ],
    )  # fmt: skip
    def test_a_name_of_nothing_is_one_line_before_any_port_opens(
        self, arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        monkeypatch.chdir(tmp_path)
        assert main(["simulate", "--port", "0", *arguments]) == 2
        captured = capsys.readouterr()
        (line,) = captured.err.splitlines()
        assert line.startswith("moonshim simulate: ")
        assert told in line
        assert captured.out == ""

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["--chaos", "2"], "argument --chaos: expected a number from 0 to 1, got '2'"),
            (["--seed", "-1"], "argument --seed: expected an integer from 0 to"),
            (["--tokens-per-second", "fast"], "expected a number from 0 to 1000000, got 'fast'"),
            (["--port", "70000"], "expected an integer from 0 to 65535"),
            (["--log-level", "loud"], "--log-level"),
            (["--sead", "7"], "(did you mean '--seed'?)"),
            (["fualts"], "(did you mean 'faults'?)"),
            (["--seed", "7", "faults"], "unrecognized arguments: faults"),
        ],
    )
    def test_what_makes_no_sense_is_told(
        self, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["simulate", *arguments]) == 2
        said = capsys.readouterr().err
        assert said.startswith("moonshim simulate: ")
        assert told in said

    def test_a_file_with_mistakes_tells_them_all_with_their_lines(self, tmp_path: Path) -> None:
        (tmp_path / "sim.toml").write_text('as = "moonshoot"\nseed = 1\nfaults = ["cut-of"]\n')
        done = simulate("--config", "sim.toml", cwd=tmp_path)
        assert done.code == 2
        assert [re.findall(r"sim\.toml:\d", line) for line in done.lines] == [["sim.toml:1"], ["sim.toml:3"]]

    def test_a_port_in_use_is_a_plain_line(self, tmp_path: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = simulate("--port", str(port), cwd=tmp_path)
        assert done.code == 1
        (line,) = done.lines
        assert line.startswith(f"moonshim simulate: port {port} on 127.0.0.1 is in use")

    def test_what_is_missing_of_the_packages_is_named_with_the_command(self, tmp_path: Path) -> None:
        program = (
            "import sys\nsys.modules['uvicorn'] = None\nfrom moonshim.cli import main\nsys.exit(main(['simulate']))"
        )
        command = [sys.executable, "-c", program]
        run = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment(), timeout=60, check=False)
        assert run.returncode == 2
        assert b'pip install ".[simulator]"' in run.stderr


class TestSimulating:
    def test_it_says_what_it_is_answers_the_official_clients_and_ends_well(self, tmp_path: Path) -> None:
        with running("simulate", "--as", "selfhost", "--seed", "7", cwd=tmp_path) as host:
            for word in (
                "moonshim simulator on http://127.0.0.1:",
                "as selfhost",
                "one-call",
                "faults: none",
                "no model",
            ):
                assert word in host.line
            assert host.get("/health")[0] == 200
            with OpenAI(base_url=f"{host.url}/v1", api_key="any", max_retries=0) as client:
                assert "kimi-k2.5" in [model.id for model in client.models.list()]
                message = (
                    client.chat.completions.create(model="kimi-k2.5", messages=ASKED, tools=[TOOL]).choices[0].message
                )
                assert message.tool_calls is not None
                (call,) = message.tool_calls
                assert call.type == "function"
                assert json.loads(call.function.arguments) == {"city": "Paris"}
                result: Any = {"role": "tool", "tool_call_id": call.id, "content": "rain and 12 degrees"}
                given: Any = [*ASKED, message.model_dump(exclude_none=True), result]
                answer = client.chat.completions.create(model="kimi-k2.5", messages=given, tools=[TOOL])
                assert "rain and 12 degrees" in str(answer.choices[0].message.content)
                leaked = client.chat.completions.create(
                    model="kimi-k2.5+markers-in-content", messages=ASKED, tools=[TOOL], stream=True
                )
                said = "".join(chunk.choices[0].delta.content or "" for chunk in leaked if chunk.choices)
                assert "<|tool_call_begin|>functions.get_weather:0" in said
            with Anthropic(base_url=host.url, api_key="any", max_retries=0) as other:
                spoken = other.messages.create(model="kimi-k3", max_tokens=1000, messages=ASKED)
                assert spoken.content[-1].type == "text"
            assert host.stop() == 0
            assert host.process.stdout is not None
            assert host.process.stdout.read() == b"", "one line on standard output, and no more"
            simulated = [line for line in host.logged if line["event"] == "simulated"]
            assert [line["status"] for line in simulated] == [200] * 4
            assert simulated[2]["faults"] == ["markers-in-content"]

    def test_what_it_refuses_is_in_its_log_in_the_words_of_the_error(self, tmp_path: Path) -> None:
        with running("simulate", cwd=tmp_path) as host:
            with OpenAI(base_url=f"{host.url}/v1", api_key="any", max_retries=0) as client:
                with pytest.raises(BadRequestError) as caught:
                    client.chat.completions.create(model="kimi-k3", messages=ASKED, temperature=0.2)
                with pytest.raises(APIStatusError) as unknown:
                    client.chat.completions.create(model="kimi-k3+markers-in-contents", messages=ASKED)
            assert "markers-in-content" in unknown.value.message
            assert host.stop(signal.SIGINT) == 0
            refused = [line for line in host.logged if line["event"] == "simulated"]
            assert [line["level"] for line in refused] == ["warning", "warning"]
            assert refused[0]["problem"] in str(caught.value)

    def test_a_path_that_is_not_there_is_logged_with_those_that_are(self, tmp_path: Path) -> None:
        with running("simulate", cwd=tmp_path) as host:
            status, told = host.post("/v1/v1/messages", {})
            assert (status, "anthropic package" in told) == (404, False), "no host would say so"
            host.post("/v1/embeddings", {})
            assert host.stop() == 0
            hints = [line["hint"] for line in host.logged if line["event"] == "misused"]
            assert "the Anthropic SDK adds /v1 itself" in hints[0]
            assert "/v1/chat/completions" in hints[1]

    def test_it_ends_with_its_terminal_and_leaves_the_port(self, tmp_path: Path) -> None:
        with running("simulate", cwd=tmp_path) as host:
            assert host.stop(signal.SIGHUP) == 0

    def test_the_command_line_counts_more_than_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "sim.toml").write_text(
            'as = "vllm"\nscenario = "five-rounds"\nfaults = ["no-done"]\nchaos = 0.25\n'
        )
        given = [
            "--config",
            "sim.toml",
            "--as",
            "selfhost",
            "--fault",
            "markers-in-content",
            "--fault",
            "overloaded*1,stall",
        ]
        with running("simulate", *given, "--seed", "3", cwd=tmp_path) as host:
            for word in ("as selfhost", "five-rounds", "markers-in-content, overloaded*1, stall", "25%", "seed 3"):
                assert word in host.line
            assert host.stop() == 0

    def test_it_counts_tokens_with_the_vocabulary_of_a_model(self, tmp_path: Path) -> None:
        write_vocabulary(tmp_path)
        with running("simulate", "--tokenizer", str(tmp_path), cwd=tmp_path) as host:
            body = {"model": "kimi-k2.7-code", "messages": [{"role": "user", "content": "ab user"}]}
            status, response = host.post("/v1/chat/completions", body)
            assert status == 200
            # Six markers, `user`, `ab`, a space, `user`, and the letters of `assistant`.
            assert json.loads(response)["usage"]["prompt_tokens"] == 6 + 1 + 3 + len("assistant")
            assert host.stop() == 0

    def test_a_key_is_asked_for_and_never_shown(self, tmp_path: Path) -> None:
        key = "sk-simulated-0123456789"
        with running("simulate", "--api-key-env", "SIM_KEY", "--log-level", "debug", cwd=tmp_path, SIM_KEY=key) as host:
            body = {"model": "kimi-k2.5", "messages": ASKED}
            assert host.post("/v1/chat/completions", body)[0] == 401
            assert host.post("/v1/chat/completions", body, authorization=f"Bearer {key}")[0] == 200
            assert host.stop() == 0
            assert "0123456789" not in host.stderr + host.line

    def test_an_address_that_others_reach_is_served_with_a_warning(self, tmp_path: Path) -> None:
        with running("simulate", "--host", "0.0.0.0", cwd=tmp_path) as host:
            assert host.stop() == 0
            assert [line["event"] for line in host.logged if line["level"] == "warning"] == ["public_address"]

    def test_nobody_waits_for_an_answer_when_it_ends(self, tmp_path: Path) -> None:
        with (
            running("simulate", "--tokens-per-second", "0.01", cwd=tmp_path) as host,
            OpenAI(base_url=f"{host.url}/v1", api_key="any", max_retries=0) as client,
        ):
            stream = client.chat.completions.create(model="kimi-k2.5", messages=ASKED, stream=True)
            next(iter(stream))
            assert host.stop() == 0
            stream.close()


class TestTables:
    @pytest.mark.parametrize(
        ("which", "names"),
        [("faults", FAULTS), ("scenarios", BUILT_IN), ("behaviours", BEHAVIOURS), ("models", ["kimi-k2.5", "kimi-k3"])],
    )
    def test_everything_there_is_stands_in_its_table(
        self, which: str, names: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["simulate", which]) == 0
        shown = capsys.readouterr().out
        assert [name for name in names if not re.search(rf"^  {re.escape(name)} ", shown, re.MULTILINE)] == []
        assert main(["simulate", which, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert set(names) <= {row["name"] for row in rows}
        assert all(row["about"] for row in rows)

    def test_the_former_name_of_behaviours_works(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["simulate", "natures"]) == 0
        printed = capsys.readouterr()
        assert "selfhost" in printed.out
        assert "`natures` is now called `behaviours`" in printed.err

    def test_a_word_leaves_what_has_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["simulate", "faults", "vllm", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert 0 < len(rows) < len(FAULTS)
        assert main(["simulate", "faults", "slot-dots"]) == 0
        heading, *_, last = capsys.readouterr().out.splitlines()
        assert heading == "leaks: tool calls in the text or the reasoning (slot-…: with an unusual id)"
        assert last.startswith("Add one to a model name: kimi-k3+cut-off.")
        assert main(["simulate", "faults", "no such word"]) == 1
        assert "no such word" in capsys.readouterr().err


def test_every_name_in_the_help_is_one_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--help"]) == 0
    shown = capsys.readouterr().out
    asked = re.findall(r"^  (kimi-\S+\+\S+)", shown, re.MULTILINE)
    assert len(asked) == 5
    for name in asked:
        wanted = read_model(name)
        assert wanted.faults or wanted.scenario
    (header,) = re.findall(r"x-moonshim-simulate: (.*)", shown)
    assert read_names(header)[1] == "five-rounds"
    assert set(re.findall(r"simulate --fault (\S+)  ", shown)) <= FAULTS.keys()
    assert set(re.findall(r"simulate --scenario (\S+)  ", shown)) <= BUILT_IN.keys()
    assert all(name in shown for name in ACTIONS)


def test_help_imports_nothing_that_costs_time() -> None:
    program = (
        "import sys; from moonshim.cli import main; main(['simulate', '--help']); "
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True)
    loaded = set(run.stderr.split())
    assert "moonshim.cli.simulate" in loaded
    assert not loaded & {"moonshim.simulator", "moonshim.config", "uvicorn", "asyncio", "starlette"}


def test_every_option_and_action_is_in_the_help() -> None:
    command = parser()
    shown = command.format_help()
    for words in [*(action.option_strings for action in command._actions), ACTIONS]:
        assert all(
            re.search(rf"^ +(?:-h, )?{re.escape(word)}\b", shown, re.MULTILINE) for word in words if word != "-h"
        )
