"""Who may run what: asked once, always within narrow bounds, or not at all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from moonshim.agent.running import ALLOWED, Allowed
from moonshim.agent.toolbox import toolbox
from moonshim.chat.permission import Answer, Grant, Permission, grant_for
from moonshim.conversation import ToolCall

COMMANDS = {
    "git status": "commands that begin with `git status`",
    "git status --short": "commands that begin with `git status`",
    "git -C x status": "commands that begin with `git`",
    "ls": "commands that begin with `ls`",
    "ls -la src/moonshim": "commands that begin with `ls`",
    "npm run build": "commands that begin with `npm run`",
    "./configure --prefix=/usr": "commands that begin with `./configure`",
    "ls; rm -rf /": "exactly this command",
    "ls && rm x": "exactly this command",
    "ls | sh": "exactly this command",
    "ls $(rm x)": "exactly this command",
    "ls `rm x`": "exactly this command",
    "ls > file": "exactly this command",
    "ls\nrm x": "exactly this command",
    "PATH=. ls": "exactly this command",
    "bash script": "exactly this command",
    "/usr/bin/env ls": "exactly this command",
    "sudo ls": "exactly this command",
    "python -c 'x'": "exactly this command",
    "": "exactly this command",
}


def bash(command: str) -> ToolCall:
    return ToolCall("1", "bash", json.dumps({"command": command}))


@pytest.mark.parametrize(("command", "label"), COMMANDS.items())
def test_always_allows_no_more_than_it_says(command: str, label: str) -> None:
    assert grant_for(bash(command), Path("/work")).label == label


def write(path: str) -> ToolCall:
    return ToolCall("1", "write_file", json.dumps({"path": path, "content": ""}))


def test_what_writes_is_allowed_within_the_folder_only(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    inside = [grant_for(write(path), tmp_path).key for path in ("a", "b/c", str(tmp_path / "d"))]
    assert len(set(inside)) == 1
    outside = [grant_for(write(path), tmp_path).key for path in ("../a", "/etc/passwd", "link/passwd", "../b")]
    assert len({*outside, inside[0]}) == 5
    assert grant_for(ToolCall("1", "write_file", "not JSON"), tmp_path).label == "write_file in this folder"


class Person:
    """Somebody who is asked, and answers the same each time."""

    def __init__(self, answer: Answer) -> None:
        self.answer: Answer = answer
        self.asked: list[str] = []

    async def __call__(self, call: ToolCall, grant: Grant) -> Answer:
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
def test_what_a_person_says_counts(answer: Answer, asked: int, allowed: Allowed) -> None:
    person = Person(answer)
    permission = Permission(Path.cwd(), ask=person)
    assert decide(permission, bash("git log"), bash("git log -3")) == [allowed] * 2
    assert len(person.asked) == asked


def test_what_was_allowed_for_good_covers_nothing_else() -> None:
    person = Person("always")
    permission = Permission(Path.cwd(), ask=person)
    decide(permission, bash("git log"), bash("git push"), bash("git log; rm x"), write("x"))
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
