"""What people are told when something small is wrong: once, with a name that exists, and in words meant for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import moonshim
from moonshim.agent import Provider
from moonshim.engine.values.conversation import Thinking
from tests.support.command import MOONSHIM, environment, run_moonshim
from tests.support.servers import Running, running

pytestmark = pytest.mark.usefixtures("nothing_configured")


def test_a_variable_that_is_not_set_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "moonshim.toml").write_text(
        """\
[[providers]]
name = "a"
api_base_url = "${ADDRESS}/v1"
api_key = "$KEY"
models = ["$MODEL"]
proxy = "$PROXY"
transformer = { use = ["$CHAIN"] }
[gateway]
port = "${PORT}"
store = "$STORE"
"""
    )
    done = run_moonshim("config", "check", "moonshim.toml", cwd=tmp_path)
    assert done.code == 1
    places = [line.split(": ")[1] for line in done.lines if "moonshim.toml" in line]
    assert len(places) == 7
    assert len(set(places)) == len(places), done.stderr


def refused(gateway: Running, model: str, **headers: str) -> str:
    asked = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    message = json.loads(gateway.post("/v1/chat/completions", asked, **headers)[1])["error"]["message"]
    assert isinstance(message, str)
    return message


def test_a_pattern_and_a_fault_are_answered_with_models_that_exist(tmp_path: Path) -> None:
    with running("serve", cwd=tmp_path, MOONSHOT_API_KEY="sk-0123456789abcdef") as gateway:
        assert "Did you mean 'moonshot/kimi-k3'" in refused(gateway, "moonshot/*")
        assert "Did you mean 'kimi-k2.6', 'kimi-k2.5'?" in refused(gateway, "kimi-k2.?")
        for asked in ("kimi-k2.5+fault", "kimi-k2.5+markers-in-reasoning+split-bytes"):
            told = refused(gateway, asked)
            assert "Did you mean 'kimi-k2.5'," in told
            assert "GET /v1/models lists the models." in told
            assert "only the simulator" in told
        assert "Did you mean 'moonshot/kimi-k2.5'" in refused(gateway, "moonshot/kimi-k2.5+fault")


def test_no_pattern_is_suggested_where_any_name_is_taken(tmp_path: Path) -> None:
    with running("serve", cwd=tmp_path, OPENROUTER_API_KEY="sk-0123456789abcdef") as gateway:
        assert refused(gateway, "moonshot/*").count("moonshot/*") == 1, "only as what was asked for"
        told = refused(gateway, "nosuch")
        assert "To send a name that is not listed, add its provider: 'openrouter/nosuch'." in told


def test_a_client_that_is_refused_is_not_told_to_run_a_command_of_the_gateway(tmp_path: Path) -> None:
    made = run_moonshim("keys", "new", "alice", cwd=tmp_path)
    assert made.code == 0
    with running("serve", cwd=tmp_path, MOONSHOT_API_KEY="sk-0123456789abcdef") as gateway:
        told = refused(gateway, "kimi-k3", authorization="Bearer msk_wrong")
        assert "moonshim" not in told
        assert "Ask the operator of this gateway" in told


def test_an_effort_that_does_not_exist_is_refused() -> None:
    with pytest.raises(moonshim.InvalidInput, match="high"):
        Provider("http://127.0.0.1:9/v1", model="kimi-k3", thinking="hihg")
    for known in ("on", "off", "minimal", "high", "max", True, None, Thinking(enabled=True, effort="a word of a host")):
        Provider("http://127.0.0.1:9/v1", model="kimi-k3", thinking=known)


@pytest.mark.parametrize(
    ("call", "is_right"),
    [
        ("KimiOptions.mending()", True),
        ("KimiOptions.mending(id_policy='keep', buffer_limit=2048)", True),
        ("KimiOptions.mending(nonsense=1)", False),
        ("KimiOptions.mending(id_policy='kepe')", False),
    ],
)
def test_type_checkers_know_the_options(call: str, is_right: bool, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"from moonshim import KimiOptions\n\nmade: KimiOptions = {call}\n")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode == 0) is is_right, run.stdout + run.stderr


def test_every_option_can_be_given_to_the_preset() -> None:
    plain = moonshim.KimiOptions()
    fields = {name: getattr(plain, name) for name in plain.__struct_fields__}
    assert moonshim.KimiOptions.mending(**fields) == plain


def test_debugging_shows_where_a_command_failed(tmp_path: Path) -> None:
    command = [*MOONSHIM, "serve", "--config", "missing.toml"]
    plain = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    debugged = subprocess.run(
        command, cwd=tmp_path, env=environment(MOONSHIM_DEBUG="1"), capture_output=True, text=True, check=False
    )
    assert "Traceback" not in plain.stderr
    assert debugged.stderr.startswith(plain.stderr)
    assert debugged.stderr.count("Traceback (most recent call last)") >= 1
    assert "NoSuchConfig" in debugged.stderr
    assert debugged.returncode == plain.returncode == 2


def test_an_empty_input_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text("\n")
    done = run_moonshim("explain", "request.json", cwd=tmp_path)
    assert done.code == 1
    assert done.stderr == "moonshim explain: request.json: the input is empty\n"
    piped = run_moonshim("explain", cwd=tmp_path)
    assert piped.stderr == "moonshim explain: standard input: the input is empty; pass FILE, or pipe a request in\n"


def test_a_string_that_is_not_closed_is_suspected(tmp_path: Path) -> None:
    (tmp_path / "moonshim.toml").write_text('[[providers]]\nname = "a\n')
    done = run_moonshim("config", "check", "moonshim.toml", cwd=tmp_path)
    assert done.code == 1
    assert "moonshim.toml:2:10: Illegal character '\\n' (is a quote missing?)" in done.stderr
