"""Who may run what: asked once, always within narrow bounds, or not at all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from moonshim.agent.execution.runner import ALLOWED, Allowed
from moonshim.agent.toolbox import toolbox
from moonshim.chat.permissions import Grant, Permission, PermissionAnswer, grant_for
from moonshim.engine.values.conversation import ToolCall

COMMANDS = ("git status", "git log --oneline -3", "ls", "cat x", "make all", "rm -r build", "", "ls; rm -rf /")
RUN_BY_OTHERS = (
    ".git/config",
    ".git/hooks/post-checkout",
    "sub/.git/config",
    ".git",
    ".GIT/config",
    ".git./config",
    ".git::$INDEX_ALLOCATION/config",
    "./x/../.git/config",
    "link/config",
    ".gitattributes",
    "src/.gitattributes",
    ".gitmodules",
    ".husky/pre-commit",
    ".github/workflows/ci.yml",
    ".vscode/tasks.json",
    "package.json",
    "web/package.json",
    "Makefile",
    "pyproject.toml",
    "tests/conftest.py",
    ".envrc",
    ".venv/lib/x.pth",
    "node_modules/x/index.js",
    ".claude/settings.json",
)


def bash(command: str) -> ToolCall:
    return ToolCall("1", "bash", json.dumps({"command": command}))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_asked_for_each_time(command: str) -> None:
    assert grant_for(bash(command), Path("/work")) is None
    person = Person("always")
    permission = Permission(Path.cwd(), ask=person)
    assert decide(permission, bash(command), bash(command)) == [ALLOWED] * 2
    assert len(person.asked) == 2
    assert permission.always == {}


@pytest.mark.parametrize("path", RUN_BY_OTHERS)
def test_a_file_that_programs_run_by_themselves_is_asked_for_each_time(tmp_path: Path, path: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "link").symlink_to(".git")
    person = Person("always")
    permission = Permission(tmp_path, ask=person)
    decide(permission, write("notes.md"), write("src/main.py"), write(path), write(path))
    assert [json.loads(asked)["path"] for asked in person.asked] == ["notes.md", path, path]


def test_the_name_of_the_folder_itself_does_not_count(tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "project"
    folder.mkdir(parents=True)
    assert grant_for(write("notes.md"), folder) is not None


def test_what_was_written_unasked_makes_no_command_run_another(tmp_path: Path) -> None:
    """`fsmonitor` in the configuration of git is a command that `git status` runs."""
    person = Person("always")
    permission = Permission(tmp_path, ask=person)
    attack = json.dumps({"path": ".git/config", "content": '[core]\n\tfsmonitor = "id > X"\n'})
    decide(permission, write("notes.md"), bash("git status"))
    before = len(person.asked)
    decide(permission, ToolCall("1", "write_file", attack), bash("git status"))
    assert len(person.asked) == before + 2


def write(path: str) -> ToolCall:
    return ToolCall("1", "write_file", json.dumps({"path": path, "content": ""}))


def test_what_writes_is_allowed_within_the_folder_only(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "~").mkdir()
    inside = [key_of(write(path), tmp_path) for path in ("a", "b/c", str(tmp_path / "d"))]
    assert len(set(inside)) == 1
    outside = [key_of(write(path), tmp_path) for path in ("../a", "/etc/passwd", "~/x", "~", "../b")]
    assert len({*outside, inside[0]}) == 6
    # The same file by another name.
    assert grant_for(write("link/passwd"), tmp_path) == grant_for(write("/etc/passwd"), tmp_path)
    for unread in ("not JSON", '{"path": ["~"]}', '{"path": "\\u0000"}'):
        assert grant_for(ToolCall("1", "write_file", unread), tmp_path) is None


def key_of(call: ToolCall, folder: Path) -> str:
    grant = grant_for(call, folder)
    assert grant is not None
    return grant.key


def test_always_in_this_folder_does_not_cover_somebodys_home(tmp_path: Path) -> None:
    person = Person("always")
    decide(Permission(tmp_path, ask=person), write("x"), write("y"), write("~/notes"), write("~/notes"))
    assert [json.loads(asked)["path"] for asked in person.asked] == ["x", "~/notes"]


class Person:
    """Somebody who is asked, and answers the same each time."""

    def __init__(self, answer: PermissionAnswer) -> None:
        self.answer: PermissionAnswer = answer
        self.asked: list[str] = []

    async def __call__(self, call: ToolCall, grant: Grant | None) -> PermissionAnswer:
        self.asked.append(call.arguments)
        return self.answer


def decide(permission: Permission, *calls: ToolCall) -> list[Allowed]:
    tools = {tool.name: tool for tool in toolbox()}

    async def run() -> list[Allowed]:
        return [await permission(tools[call.name], call) for call in calls]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "asked", "allowed"),
    [
        ("once", 2, ALLOWED),
        ("always", 1, ALLOWED),
        ("no", 2, Allowed(False)),
        ("stop", 2, Allowed(False, stop=True)),
    ],
)
def test_what_a_person_says_counts(answer: PermissionAnswer, asked: int, allowed: Allowed) -> None:
    person = Person(answer)
    permission = Permission(Path.cwd(), ask=person)
    assert decide(permission, write("a"), write("b")) == [allowed] * 2
    assert len(person.asked) == asked


def test_what_was_allowed_for_good_covers_nothing_else() -> None:
    person = Person("always")
    permission = Permission(Path.cwd(), ask=person)
    edit = ToolCall("1", "edit_file", json.dumps({"path": "x", "old": "a", "new": "b"}))
    decide(permission, write("x"), write("y"), edit, bash("ls"), bash("ls"))
    assert [call for call in person.asked if "command" in call] == [bash("ls").arguments] * 2
    assert len(person.asked) == 4


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [({"yolo": True}, ALLOWED), ({"allowed": ["bash"]}, ALLOWED), ({}, False), ({"allowed": ["write_file"]}, False)],
)
def test_without_anybody_to_ask(changes: dict[str, Any], allowed: Any) -> None:
    (decided,) = decide(Permission(Path.cwd(), **changes), bash("ls"))
    assert decided == allowed or decided.run is allowed


def test_what_only_reads_is_never_asked_for() -> None:
    call = ToolCall("1", "read_file", '{"path": "x"}')
    assert decide(Permission(Path.cwd()), call) == [ALLOWED]
