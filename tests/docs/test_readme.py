"""The READMEs are true: their Python runs and prints what it should, their commands work, their files exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

from moonshim.engine.hosts.table import GENERATIONS, HOSTS
from scripts.check_readmes import differences

ROOT: Final = Path(__file__).resolve().parents[2]
README: Final = (ROOT / "README.md").read_text("utf-8")
CHINESE: Final = (ROOT / "README.zh-CN.md").read_text("utf-8")
ADDRESS: Final = "127.0.0.1:8484"
MAX_LINES: Final = 200


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_it_is_short() -> None:
    assert len(README.splitlines()) < MAX_LINES


def test_the_agent_snippet_runs_and_prints_the_answer() -> None:
    (snippet,) = (code for code in blocks("python") if ADDRESS not in code)
    run = subprocess.run([sys.executable, "-c", snippet], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    assert "the text of notes.txt" in run.stdout


def test_the_curl_command_gets_a_call(demo: str) -> None:
    (command,) = (code for code in blocks("sh") if code.startswith("curl"))
    asked = ["sh", "-c", command.replace(ADDRESS, demo)]
    run = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60)
    head, _, body = run.stdout.replace("\r\n", "\n").partition("\n\n")
    assert "x-moonshim-repairs: " in head
    (choice,) = json.loads(body)["choices"]
    assert choice["message"]["tool_calls"][0]["id"] == "functions.get_weather:0"
    assert choice["finish_reason"] == "tool_calls"


def test_the_anthropic_snippet_gets_one_too(demo: str) -> None:
    (snippet,) = (code for code in blocks("python") if ADDRESS in code)
    asked = [sys.executable, "-c", snippet.replace(ADDRESS, demo)]
    run = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert (run.stdout, run.stderr) == ("['thinking', 'tool_use'] tool_use\n", "")


def test_both_readmes_count_the_hosts_and_generations_of_the_tables() -> None:
    generations = [name for name in GENERATIONS if name not in ("kimi", "other")]
    assert f"[{len(HOSTS)} kinds of host and {len(generations)} model generations]" in README
    assert re.search(rf"\[{len(HOSTS)} 种服务端.*、{len(generations)} 代模型\]", CHINESE)


@pytest.mark.parametrize("path", ["README.md", "README.zh-CN.md"])
def test_every_link_leads_somewhere(path: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / path).read_text("utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_settings_of_clients_can_be_read() -> None:
    codex, kimi = (tomllib.loads(code) for code in blocks("toml"))
    assert codex["model_providers"][codex["model_provider"]]["base_url"] == f"http://{ADDRESS}/v1"
    assert kimi["providers"][kimi["models"][kimi["default_model"]]["provider"]]["base_url"] == f"http://{ADDRESS}/v1"
    (opencode,) = (json.loads(code) for code in blocks("json"))
    provider, _, model = opencode["model"].partition("/")
    assert model in opencode["provider"][provider]["models"]


def test_every_make_target_that_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)\b", " ".join([*blocks("sh"), *re.findall(r"`([^`]*)`", README)])))
    assert {"serve", "test", "demo", "docs"} <= named
    assert named - targets == set()


def test_the_chinese_readme_shows_the_same_commands() -> None:
    assert differences(README, CHINESE) == ([], [])


@pytest.mark.parametrize(
    ("first", "second", "only_first", "only_second"),
    [
        ("```sh\nmake a  # one\n```", "```sh\nmake a  # 一\n```", [], []),
        ("```sh\nmake a\nmake b\n```", "```sh\nmake a\n```", ["make b"], []),
        ("Run `moonshim doctor`.", "运行 `moonshim mend`。", ["moonshim doctor"], ["moonshim mend"]),
    ],
)
def test_the_check_of_the_two_readmes_finds_what_differs(
    first: str, second: str, only_first: list[str], only_second: list[str]
) -> None:
    assert differences(first, second) == (only_first, only_second)


class _Words(HTMLParser):
    """The words of an SVG, without those of its style sheet."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._skips = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skips = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._skips = False

    def handle_data(self, data: str) -> None:
        if not self._skips:
            self.words += data.split()


def test_the_picture_is_what_the_demo_shows_today_and_loads_nothing(tmp_path: Path) -> None:
    fresh = tmp_path / "demo.svg"
    command = [sys.executable, "-m", "scripts.demo", "--svg", str(fresh)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60)
    committed = (ROOT / "docs" / "assets" / "demo.svg").read_text("utf-8")
    assert re.findall(r"url\(\s*[\"']?https?:|href=[\"']https?:|@import", committed) == []
    pictures = [_Words(), _Words()]
    for parser, text in zip(pictures, (committed, fresh.read_text("utf-8")), strict=True):
        parser.feed(text)
    assert pictures[0].words == pictures[1].words, 'draw it again: make demo ARGS="--svg docs/assets/demo.svg"'
