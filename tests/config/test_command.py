"""`moonshim config`: what a configuration means, everything that is wrong with it, and an example that works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moonshim.cli import config as command
from moonshim.config import EXAMPLE
from tests.config.texts import PROVIDER
from tests.support.command import ROOT, environment


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's configuration but that of the test."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")) or name.startswith(("MOONSHIM_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = command.main(arguments)
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


FILE = f"""
{PROVIDER}
[[providers]]
name = "moonshot"
api_base_url = "https://api.moonshot.ai/anthropic"
api_key_env = "MOONSHOT_API_KEY"
api_keys = ["sk-secret"]
models = ["kimi-k3"]
tool_limit = 64
headers = {{ X-Team = "close_text_block-close_text_block" }}
proxy = "http://me:hush-hush@proxy:3128"

[aliases]
"claude-*" = ["kimi-k3", "vllm/kimi-k2.5"]

[[keys]]
name = "ci"
digest = "sha256:{"a" * 64}"
models = ["kimi-*"]
requests_per_minute = 60

[gateway]
store = "redis://:hush-hush@cache:6379/0"
"""


def test_it_says_what_a_file_means_and_nothing_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "moonshim.toml").write_text(FILE)
    code, out, told = run(capsys, "check", "moonshim.toml")
    assert (code, told) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in (
        "vllm http://localhost:8000/v1/chat/completions",
        "moonshot https://api.moonshot.ai/anthropic/v1/messages",
        "dialect anthropic",
        "host moonshot-anthropic (detected from the URL)",
        "key set (from the configuration file), missing (MOONSHOT_API_KEY)",
        "models kimi-k3",
        "overrides tool_limit",
        "headers X-Team",
        "proxy http://***@proxy:3128",
        "claude-* kimi-k3, then vllm/kimi-k2.5",
        "ci kimi-*; 60 requests/min",
        "store redis://***@cache:6379/0",
    ):
        assert line in lines, out
    assert any("environment variable MOONSHOT_API_KEY is not set" in line for line in lines)
    assert "secret" not in out.replace("secret   generated", "")
    assert "hush" not in out
    assert "\x1b" not in out


def test_it_says_who_searches_and_what_a_key_may_see(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        f"""{PROVIDER}
[[keys]]
name = "me"
digest = "sha256:{"a" * 64}"
rights = ["inspect"]

[web_search]
provider = "command"
command = ["/usr/local/bin/search", "--token=hush"]
"""
    )
    code, out, _ = run(capsys, "check", str(path))
    assert code == 0
    assert "  me  all models; rights: inspect\n" in out
    assert "  search   command (/usr/local/bin/search)\n" in out
    assert "hush" not in out


@pytest.mark.parametrize("setting", ['api_key_env = "NO_KEY"', 'api_key = "$NO_KEY"', 'api_key = "${NO_KEY}"'])
def test_a_key_that_is_not_set_is_a_warning_however_it_is_named(
    setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f'[[providers]]\nname = "a"\napi_base_url = "https://h/v1"\nmodels = ["m"]\n{setting}\n'
    (tmp_path / "moonshim.toml").write_text(text)
    code, out, told = run(capsys, "check", "moonshim.toml")
    assert (code, told) == (0, "")
    assert "environment variable NO_KEY is not set" in out
    assert "missing (NO_KEY)" in out


def test_it_tells_every_problem_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[providers]]\nname = "a"\napi_base_url = "x"\nmodles = []\n')
    code, out, told = run(capsys, "check", str(path))
    assert (code, out) == (1, "")
    assert f"{path}:3: providers[0].api_base_url" in told
    assert "did you mean 'models'?" in told
    assert told.endswith("moonshim config: 2 problems\n")


def test_a_broken_provider_hides_no_alias_and_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.json"
    path.write_text(
        """{
        "Providers": [
            {"name": "a", "api_base_url": "x", "models": ["kimi-k3"], "transformer": {"use": ["groq"]}},
            {"name": "b", "api_base_url": "http://localhost/v1", "models": ["kimi-k2.5"]}
        ],
        "aliases": {"one": "kimi-k3", "two": "a/kimi-k4", "three": "b/kimi-k2.5", "four": "kimi-k9"}
        }"""
    )
    code, _, told = run(capsys, "check", str(path))
    assert code == 1
    assert "no provider has the model 'a/kimi-k4' (did you mean 'a/kimi-k3'?)" in told
    assert "no provider has the model 'kimi-k9'" in told
    assert "! " in told
    assert "transformer 'groq' is not needed: the host is detected from its address" in told
    assert told.endswith("moonshim config: 3 problems\n")


@pytest.mark.parametrize("broken", ['api_base_url = "x"', 'name = "${NO}"', 'name = "a"\nmodels = 3'])
def test_nothing_is_said_of_aliases_that_a_provider_without_a_name_might_have(
    broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'[[providers]]\n{broken}\n[aliases]\nfast = "a/kimi-k3"\n')
    assert "fast" not in run(capsys, "check", str(path))[2]


def test_without_a_file_it_shows_what_the_environment_gives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, told = run(capsys, "check")
    assert code == 1
    assert "no configuration found" in told
    assert "MOONSHOT_API_KEY, KIMI_API_KEY" in told
    assert "edit the file, then run `moonshim trust`" in told
    monkeypatch.setenv("MOONSHOT_API_KEY", "sk-hush")
    code, out, _ = run(capsys, "check")
    assert code == 0
    assert "set (MOONSHOT_API_KEY)" in out
    assert "configured from the environment: 1 provider, no warnings (keys not tested; run `moonshim doctor`)" in out
    assert "generated at each start" in out
    assert "sk-hush" not in out


def test_a_file_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, told = run(capsys, "check", "none.toml")
    assert code == 1
    assert "none.toml: no such file" in told


def test_the_example_is_one_that_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "example")
    assert (code, out) == (0, EXAMPLE)
    (tmp_path / "moonshim.toml").write_text(out)
    code, out, _ = run(capsys, "check", "moonshim.toml")
    assert code == 0
    assert "missing (MOONSHOT_API_KEY)" in out


@pytest.mark.parametrize("arguments", [(), ("chekc",), ("example", "x.toml")])
def test_what_is_not_understood_is_told(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, told = run(capsys, *arguments)
    assert code == 2
    assert "moonshim config" in told


def test_a_terminal_gets_colours(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    (tmp_path / "moonshim.toml").write_text(FILE)
    ours, theirs = pty.openpty()
    program = "import sys; from moonshim.cli.config import main; sys.exit(main(['check', 'moonshim.toml']))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), stdout=theirs, timeout=60, check=False
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "\x1b[1mmoonshot\x1b[0m" in shown


@pytest.mark.parametrize("name", ["moonshim.toml", "moonshim.json"])
def test_the_files_among_the_examples_can_be_used(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, told = run(capsys, "check", str(ROOT / "examples" / name))
    assert (code, told) == (0, "")


def test_the_example_file_is_the_one_that_is_printed() -> None:
    assert (ROOT / "examples" / "moonshim.toml").read_text("utf-8") == EXAMPLE


@pytest.mark.parametrize("ending", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_a_plug_in_that_ends_the_process_is_a_problem_like_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    (tmp_path / "leaving.py").write_text(f"raise {ending}(7)\n")
    file = tmp_path / "moonshim.toml"
    file.write_text(f'{PROVIDER}transformer = {{ use = ["./leaving.py:Leaving"] }}\n')
    code, _, said = run(capsys, "check", "moonshim.toml")
    assert (code, "1 problem" in said) == (1, True)
    assert f": {ending}: 7" in said
