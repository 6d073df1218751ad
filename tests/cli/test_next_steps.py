"""Commands that cannot do what was asked: what they say names the cause and a next step that works."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import EXAMPLE, ROOT, environment, run_moonshim
from tests.support.gateway.serving import first_line
from tests.support.servers import DEADLINE

PROVIDER = '[[providers]]\nname = "a"\napi_base_url = "http://127.0.0.1:9/v1"\nmodels = ["kimi-k2.5"]\n'


pytestmark = pytest.mark.usefixtures("nothing_configured")


@pytest.mark.parametrize("command", [["serve"], ["doctor"], ["chat", "-p", "hi"]], ids=lambda command: command[0])
def test_a_file_with_only_keys_names_the_variables_and_the_demo(command: list[str], tmp_path: Path) -> None:
    assert run_moonshim("keys", "new", "alice", cwd=tmp_path).code == 0
    done = run_moonshim(*command, cwd=tmp_path)
    assert done.code == 2
    for word in ("moonshim.toml", "MOONSHOT_API_KEY", "OPENROUTER_API_KEY", "moonshim config example", "--demo"):
        assert word in done.stderr


def test_make_serve_still_serves_the_demo_when_the_file_has_only_keys(tmp_path: Path) -> None:
    assert run_moonshim("keys", "new", "alice", cwd=tmp_path).code == 0
    command = [sys.executable, "-m", "scripts.serve", "--port", "0"]
    errors = tmp_path / "errors"
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        line = first_line(process)
        process.terminate()
        process.wait(DEADLINE)
    assert "http://127.0.0.1:" in line
    told = errors.read_text()
    assert "moonshim.toml has no provider yet. Starting the demo" in told
    assert "without keys" in told


def test_the_demo_is_not_offered_to_other_machines_nor_told_to_make_keys(tmp_path: Path) -> None:
    done = run_moonshim("serve", "--demo", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)
    assert done.code == 2
    assert "--demo serves this machine only" in done.stderr
    assert "keys new" not in done.stderr
    assert "open_without_keys" not in done.stderr


@pytest.mark.parametrize("command", [["serve", "--config"], ["config", "check"]], ids=lambda command: command[0])
def test_the_command_that_makes_a_key_names_the_file_that_is_served(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "pub2.toml"
    file.write_text(f'{PROVIDER}[gateway]\nhost = "0.0.0.0"\n')
    done = run_moonshim(*command, "pub2.toml", cwd=tmp_path)
    assert done.code != 0
    assert f"`moonshim keys new NAME --config {file}`" in done.stderr
    assert run_moonshim("keys", "new", "NAME", "--config", file, cwd=tmp_path).code == 0
    assert run_moonshim("config", "check", "pub2.toml", cwd=tmp_path).code == 0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that takes no files, even from root, is needed")
def test_a_log_folder_and_a_store_that_cannot_be_created_are_named(tmp_path: Path) -> None:
    done = run_moonshim("serve", "--demo", "--port", "0", "--log-dir", "/proc/x", cwd=tmp_path)
    assert done.code == 2
    assert "log_dir /proc/x" in done.stderr
    assert "standard output" not in done.stderr
    done = run_moonshim("serve", "--demo", "--port", "0", cwd=tmp_path, MOONSHIM_STORE="sqlite:/proc/b.db")
    assert done.code != 0
    assert "/proc/b.db" in done.stderr
    assert "no such folder" not in done.stderr


def test_a_file_to_check_that_does_not_exist_is_not_blamed_on_an_option(tmp_path: Path) -> None:
    done = run_moonshim("config", "check", "nofile.toml", cwd=tmp_path)
    assert done.code == 1
    assert "nofile.toml: no such file" in done.stderr
    assert "--config" not in done.stderr


def test_a_check_shows_the_fields_that_are_added_to_requests_and_hints_at_the_host(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    models = 'models = ["kimi-k2.5", { id = "kimi-k3", body = { top_k = 5 } }]'
    file.write_text(PROVIDER.replace('models = ["kimi-k2.5"]', f"{models}\nbody = {{ temperature = 0.3, seed = 1 }}"))
    rows = [
        " ".join(line.split()) for line in run_moonshim("config", "check", file, cwd=tmp_path).out.decode().splitlines()
    ]
    assert "body temperature, seed" in rows
    assert "body for kimi-k3 top_k" in rows
    assert any(row.startswith("host generic (detected from the URL; ") and 'host = "vllm"' in row for row in rows)


def test_explain_points_from_a_stream_to_mend_and_from_an_address_to_base_url(tmp_path: Path) -> None:
    done = run_moonshim("explain", EXAMPLE, cwd=tmp_path)
    assert (done.code, "use `moonshim mend` for streams" in done.stderr) == (1, True)
    done = run_moonshim("explain", "--host", "http://127.0.0.1:8000/v1", "request.json", cwd=tmp_path)
    assert (done.code, "--base-url" in done.lines[0]) == (2, True)


def test_make_serve_says_how_make_takes_another_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "scripts.serve", "--demo", "--port", str(taken.getsockname()[1])]
        run = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert 'make serve ARGS="--port 9000"' in run.stderr


def test_a_file_of_claude_code_router_is_answered_in_its_own_terms(tmp_path: Path) -> None:
    provider = {"name": "moonshot", "api_base_url": "https://api.moonshot.ai/v1", "models": ["kimi-k2.5", "kimi-k3"]}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"Providers": [provider], "Router": {"default": "moonshot,kimi-k2.55"}}))
    checked = run_moonshim("config", "check", file, cwd=tmp_path).out.decode()
    assert "did you mean 'moonshot,kimi-k2.5'?" in checked
    printed = run_moonshim("keys", "new", "ci", "--print", "--config", file, cwd=tmp_path)
    assert "the `keys` list" in printed.stderr
    assert '"require_keys": true' in printed.stderr
    assert "[gateway]" not in printed.stderr
