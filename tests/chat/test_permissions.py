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

READERS = {
    "git status": "git status",
    "git  status --short": "git status",
    "git log --oneline -3": "git log",
    "ls": "ls",
    "ls -la src/moonshim": "ls",
}
EXACT = (
    *("", "ls; rm -rf /", "ls && rm x", "ls | sh", "ls $(rm x)", "ls `rm x`", "ls > file", "ls\nrm x", "ls &", "ls ~"),
    # Interpreters, and programs that run others, by whatever name.
    *(
        "bash script",
        "sh -c id",
        "sudo ls",
        "/usr/bin/env ls",
        "env ls",
        "xargs ls",
        "PATH=. ls",
        "nohup ls",
        "make all",
    ),
    *("python -c 'x'", "python x.py", "python3.11 x.py", "pypy3.11 x.py", "perl5.36 x.pl", "node18 x.js", "busybox ls"),
    *("tar cf x.tar src", "find . -name x", "find . -exec id", "rsync a b", "sort x", "npm run build", "./configure"),
    *("git -c core.pager=x status", "git -C x status", "git grep x", "git fetch", "git --git-dir=x status", "git"),
    # Programs that write, with any argument.
    *("rm -r build", "cp a b", "tee x", "git log --output=x", "git diff --outpu x", "git push", "uniq a b"),
    # Not the program that everybody knows by this name.
    *("./ls", "/tmp/ls", "ls=1 ls", "LS"),
)


def bash(command: str) -> ToolCall:
    return ToolCall("1", "bash", json.dumps({"command": command}))


@pytest.mark.parametrize(("command", "start"), READERS.items())
def test_always_covers_any_arguments_only_of_commands_that_read(command: str, start: str) -> None:
    assert grant_for(bash(command), Path("/work")).label == f"commands that start with `{start}`"


@pytest.mark.parametrize("command", EXACT)
def test_always_covers_exactly_this_command_and_no_other(command: str) -> None:
    grant = grant_for(bash(command), Path("/work"))
    assert grant.label == "exactly this command"
    others = [*(f"{command}{more}" for more in (" x", " -c id", " --output=x")), *EXACT, *READERS]
    assert grant.key not in {grant_for(bash(other), Path("/work")).key for other in others if other != command}


def write(path: str) -> ToolCall:
    return ToolCall("1", "write_file", json.dumps({"path": path, "content": ""}))


def test_what_writes_is_allowed_within_the_folder_only(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "~").mkdir()
    inside = [grant_for(write(path), tmp_path).key for path in ("a", "b/c", str(tmp_path / "d"))]
    assert len(set(inside)) == 1
    outside = [grant_for(write(path), tmp_path).key for path in ("../a", "/etc/passwd", "~/x", "~", "../b")]
    assert len({*outside, inside[0]}) == 6
    # The same file by another name.
    assert grant_for(write("link/passwd"), tmp_path) == grant_for(write("/etc/passwd"), tmp_path)
    unread = [grant_for(ToolCall("1", "write_file", text), tmp_path).key for text in ("not JSON", '{"path": ["~"]}')]
    assert len({*unread, inside[0]}) == 3


def test_always_in_this_folder_does_not_cover_somebodys_home(tmp_path: Path) -> None:
    person = Person("always")
    decide(Permission(tmp_path, ask=person), write("x"), write("y"), write("~/.bashrc"), write("~/.bashrc"))
    assert [json.loads(asked)["path"] for asked in person.asked] == ["x", "~/.bashrc"]


class Person:
    """Somebody who is asked, and answers the same each time."""

    def __init__(self, answer: PermissionAnswer) -> None:
        self.answer: PermissionAnswer = answer
        self.asked: list[str] = []

    async def __call__(self, call: ToolCall, grant: Grant) -> PermissionAnswer:
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
