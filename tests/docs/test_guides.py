"""The settings, commands and outputs that the pages show are right.

TOML, JSON and YAML snippets parse, snippets that are Moonshim configurations load, commands and their options exist,
and the outputs in the quickstart and in the engine guide are what a reader gets.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import moonshim
from moonshim.cli import COMMANDS
from moonshim.config import parse_config
from moonshim.simulator import Simulator

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
GENERATED: Final = ("api",)
"""Folders whose pages are made by a program."""
PAGES: Final = tuple(
    page for page in sorted(DOCS.rglob("*.md")) if not set(page.relative_to(DOCS).parts) & set(GENERATED)
)
LONGEST_PAGE: Final = 200
NEW_PAGES: Final = frozenset(
    {
        "claude-code",
        "claude-code-router",
        "codex",
        "engine",
        "how-it-works",
        "kimi-code",
        "litellm",
        "opencode",
        "reasoning",
        "self-hosting",
        "tool-call-ids",
    }
)
"""Pages for newcomers, besides those under get-started: they stay short."""
GATEWAY: Final = "127.0.0.1:8484"

FENCE: Final = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
INDENTED: Final = re.compile(r"^ {4,}(\S.*)$", re.MULTILINE)
COMMAND: Final = re.compile(r"(?:^|[\s/(])moonshim[ \t]+(-{0,2}[a-z].*)$", re.MULTILINE)
SHELLS: Final = ("", "sh", "bash", "console", "shell")

SETTINGS: Final = frozenset(
    {"providers", "aliases", "routes", "keys", "gateway", "timeouts", "retries", "limits", "prices", "Providers"}
)
"""Top-level tables of a Moonshim configuration, and the one by which files of claude-code-router are known."""
ENVIRONMENT: Final = {
    "MOONSHIM_SECRET": "0123456789abcdef0123456789abcdef",
    "MOONSHIM_KEY_DIGEST": "sha256:" + "0123456789abcdef" * 4,
    "LITELLM_MASTER_KEY": "sk-0123456789abcdef",
    **dict.fromkeys(("MOONSHOT_API_KEY", "OPENROUTER_API_KEY", "KIMI_API_KEY"), "sk-0123456789abcdef"),
}
HOSTS: Final = """
[[providers]]
name = "moonshot"
api_base_url = "https://api.moonshot.ai/v1"
models = ["kimi-k3", "kimi-k2.6"]

[[providers]]
name = "openrouter"
api_base_url = "https://openrouter.ai/api/v1"
"""
"""For snippets that show a part of a configuration."""


class Snippet(NamedTuple):
    name: str
    language: str
    text: str


def snippets(*languages: str) -> list[Snippet]:
    found: list[Snippet] = []
    for page in PAGES:
        for number, match in enumerate(FENCE.finditer(page.read_text("utf-8"))):
            if match[1] in languages:
                found.append(Snippet(f"{page.relative_to(DOCS).with_suffix('')}-{number}", match[1], match[2]))
    return found


def values_of(snippet: Snippet) -> Any:
    match snippet.language:
        case "toml":
            return tomllib.loads(snippet.text)
        case "json":
            return json.loads(snippet.text)
    return list(import_module("yaml").safe_load_all(snippet.text))


def is_configuration(values: Any) -> bool:
    """Whether these are settings of Moonshim, and not of a client (kimi-code has `providers`, too: as a table)."""
    if not isinstance(values, dict):
        return False
    if "api_base_url" in values or "Providers" in values:
        return True
    return bool(values) and values.keys() <= SETTINGS and isinstance(values.get("providers", []), list)


CONFIGURATIONS: Final = [one for one in snippets("toml", "json") if is_configuration(values_of(one))]


@pytest.mark.parametrize("snippet", snippets("toml", "json", "yaml"), ids=lambda one: one.name)
def test_settings_parse(snippet: Snippet) -> None:
    assert values_of(snippet) is not None


@pytest.mark.parametrize("snippet", CONFIGURATIONS, ids=lambda one: one.name)
def test_a_configuration_loads(snippet: Snippet) -> None:
    values = values_of(snippet)
    is_part = snippet.language == "toml" and "providers" not in values
    text = f"{snippet.text}\n{HOSTS}" if is_part else snippet.text
    config = parse_config(
        text, suffix=f".{snippet.language}", environ=ENVIRONMENT, source=snippet.name, folder=ROOT / "examples"
    )
    assert config.providers


def test_the_pages_show_configurations_of_every_kind() -> None:
    names = [one.name for one in CONFIGURATIONS]
    assert len(names) > 10
    assert any(name.startswith("guides/claude-code-router") for name in names)
    assert any(name.startswith("guides/self-hosting") for name in names)


def test_both_files_of_the_router_guide_mean_the_same() -> None:
    page = (DOCS / "guides" / "claude-code-router.md").read_text("utf-8")
    theirs, ours = (
        parse_config(
            re.findall(rf"^```{kind}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0],
            suffix=f".{kind}",
            environ=ENVIRONMENT,
            source=kind,
        )
        for kind in ("json", "toml")
    )
    assert [(one.name, one.models, one.keys, one.overrides, one.timeouts) for one in theirs.providers] == [
        (one.name, one.models, one.keys, one.overrides, one.timeouts) for one in ours.providers
    ]
    assert {name: theirs.aliases[name] for name in ours.aliases} == ours.aliases
    assert theirs.port == ours.port


class Shown(NamedTuple):
    """A command line that a page shows."""

    place: str
    words: tuple[str, ...]


def shown_commands() -> Iterator[Shown]:
    for page in (ROOT / "README.md", *PAGES):
        text = page.read_text("utf-8")
        prose = FENCE.sub("\n", text)
        pieces = [code for language, code in FENCE.findall(text) if language in SHELLS]
        pieces += [re.sub(r"\s+", " ", span) for span in SPAN.findall(prose) if "\n\n" not in span]
        pieces += INDENTED.findall(prose)
        for piece in pieces:
            for line in COMMAND.findall(piece):
                words = first_command(line)
                # A colon ends what a command prints: `moonshim serve: port 8484 is in use`.
                if words and not words[0].endswith(":"):
                    yield Shown(page.relative_to(ROOT).as_posix(), words)


def first_command(line: str) -> tuple[str, ...]:
    """The words of a line up to the first pipe, redirection or separator."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        for word in lexer:
            if set(word) <= set("();<>|&"):
                break
            words.append(word)
    except ValueError:  # a quote without its end: what a page shows is cut there
        pass
    return tuple(words)


@cache
def help_of(*words: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", "import sys; from moonshim.cli import main; sys.exit(main())", *words, "--help"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return run.stdout if run.returncode == 0 else ""


def unknown_parts(words: Sequence[str]) -> list[str]:
    """What a command line names that does not exist."""
    if words[0].startswith("-"):
        return [word for word in words[:1] if not names(help_of(), word)]
    if words[0] not in COMMANDS:
        return [words[0]]
    command, *rest = words[: words.index("--")] if "--" in words else words  # what follows is for another program
    known = help_of(command)
    actions = set(re.findall(rf"^\s+(?:usage: )?moonshim {command} ([a-z]+)", known, re.MULTILINE))
    if rest and rest[0] in actions | {"render"} and names(known, rest[0]):
        known += help_of(command, rest[0])
    return [word for word in rest if re.match(r"--?[a-z]", word) and not names(known, word.partition("=")[0])]


def names(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def test_every_command_that_the_pages_show_exists_with_its_options() -> None:
    found = list(dict.fromkeys(shown_commands()))
    assert len(found) > 40
    assert [f"{one.place}: moonshim {' '.join(one.words)}" for one in found if unknown_parts(one.words)] == []


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("serve --demo --port 0", []),
        ("keys new ci --models 'kimi-*' --rpm 60 > key", []),
        ("mend a.sse --set idPolicy=keep --output mended", []),
        ("simulate --fault overloaded", []),
        ("--version", []),
        ("sreve", ["sreve"]),
        ("serve --ports 1", ["--ports"]),
        ("launch qwen --demo -- --yolo", []),
        ("launch qwen --demos -- --yolo", ["--demos"]),
        ("keys new ci --model kimi-k3", ["--model"]),
    ],
)
def test_an_unknown_command_or_option_is_found(line: str, unknown: list[str]) -> None:
    assert unknown_parts(first_command(line)) == unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_for_newcomers_is_short_and_opens_with_a_paragraph(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    assert lines[0].startswith("# ")
    if page.parent.name == "get-started" or page.stem in NEW_PAGES:
        assert len(lines) < LONGEST_PAGE
        assert re.match(r"[A-Z\[]", lines[2])


# --- the quickstart ---------------------------------------------------------------------------------------------

QUICKSTART: Final = (DOCS / "get-started" / "quickstart.md").read_text("utf-8")


def test_the_first_command_of_the_quickstart_gives_what_it_shows(demo: str) -> None:
    (command,) = (code for language, code in FENCE.findall(QUICKSTART) if "curl" in code and language == "sh")
    before, after = (json.loads(code) for language, code in FENCE.findall(QUICKSTART) if language == "json")
    run = subprocess.run(
        ["sh", "-c", command.replace(GATEWAY, demo)], capture_output=True, text=True, check=True, timeout=60
    )
    head, _, body = run.stdout.replace("\r\n", "\n").partition("\n\n")
    (choice,) = json.loads(body)["choices"]
    assert (choice["message"], choice["finish_reason"]) == (after["message"], after["finish_reason"])
    (repairs,) = re.findall(r"^x-moonshim-repairs: (.*)$", head, re.MULTILINE)
    assert [one for one in repairs.split(", ") if f"`{one}`" not in QUICKSTART] == []

    request = json.loads(re.findall(r"-d '(.*)'", command, re.DOTALL)[0])
    with Simulator(behaviour="selfhost", faults=("markers-in-content",), log=lambda seen: None).running() as host:
        straight = ["curl", "-s", f"{host.url}/v1/chat/completions", "-H", "content-type: application/json"]
        run = subprocess.run(
            [*straight, "-d", json.dumps(request)], capture_output=True, text=True, check=True, timeout=60
        )
    (choice,) = json.loads(run.stdout)["choices"]
    assert choice["message"]["content"] == before["message"]["content"]
    assert choice["finish_reason"] == before["finish_reason"]


# --- the engine guide -------------------------------------------------------------------------------------------

ENGINE: Final = (DOCS / "guides" / "engine.md").read_text("utf-8")
PRINTED: Final = (
    re.findall(r"^```text\n(.*?)^```", ENGINE, re.DOTALL | re.MULTILINE)[2],
    """\
429 5.0
{'type': 'error', 'error': {'type': 'rate_limit_error', 'message': 'too fast'}}
400 messages[0].content invalid_request_error
""",
    "tool_calls\n['marker_call', 'marker_call', 'finish_reason']\n['get_weather', 'get_time']\n",
    "ls\nTrue\n",
    "True\nqwen\nfunctions.ls:0 functions.ls:0\n",
    "True\n",
)
ENGINE_CODE: Final = re.findall(r"```python\n(.*?)```", ENGINE, re.DOTALL)


@pytest.mark.parametrize(("code", "printed"), list(zip(ENGINE_CODE, PRINTED, strict=True)), ids=range(len(PRINTED)))
def test_the_engine_guide_prints_what_it_should(code: str, printed: str) -> None:
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (printed, "")


def test_the_example_on_ids_prints_what_it_shows() -> None:
    page = (DOCS / "concepts" / "tool-call-ids.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (printed, "")


def test_the_broken_stream_of_the_engine_guide_is_really_in_the_recording() -> None:
    before, after = re.findall(r"^```text\n(.*?)^```", ENGINE, re.DOTALL | re.MULTILINE)[:2]
    recording = (ROOT / "examples" / "leaked_markers.sse").read_text("utf-8")
    mender = moonshim.Mender(model="kimi-k2.5")
    mended = (mender.feed(recording.encode()) + mender.flush()).decode()
    for shown, stream in ((before, recording), (after, mended)):
        lines = re.findall(r'^"delta":.*$', shown, re.MULTILINE)
        assert lines
        assert [line for line in lines if line not in stream] == []
