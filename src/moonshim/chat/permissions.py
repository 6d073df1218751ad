"""A call that changes things -> whether it may be run: asked once, always allowed, or not.

"Always" covers tools that write, for the files of the folder. A command is asked for each time: what it does depends on
files, such as the configuration of git, that a tool may have written meanwhile. So the files that other programs run by
themselves are asked for each time, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.agent.execution.runner import ALLOWED, Allowed
from moonshim.agent.toolbox.folder import WorkingFolder
from moonshim.agent.tools import AgentTool, ToolFailed
from moonshim.chat.render.sanitize import clean_line
from moonshim.engine.values.conversation import ToolCall
from moonshim.engine.wire.json_codec import decode_object

__all__ = ["Ask", "Grant", "Permission", "PermissionAnswer", "grant_for"]

PermissionAnswer: TypeAlias = Literal["once", "always", "no", "stop"]
Ask: TypeAlias = Callable[[ToolCall, "Grant | None"], Awaitable[PermissionAnswer]]

_FOLDERS: Final = """
    .git .githooks .husky .hg .svn .bzr .vscode .idea .devcontainer .github .gitlab .circleci .claude .codex .cursor
    .direnv .mvn .cargo .yarn .bundle node_modules .venv venv
"""
"""Folders with files that version control, editors, agents, and package managers run, at any depth."""
_FILES: Final = """
    .gitattributes .gitmodules .gitconfig .hgrc .envrc .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pypirc .netrc
    .bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin .inputrc .vimrc .exrc
    .nvimrc .gdbinit .lldbinit .pdbrc .tmux.conf .ripgreprc .mcp.json .gitlab-ci.yml .travis.yml
    .pre-commit-config.yaml lefthook.yml lefthook.yaml package.json composer.json mix.exs makefile gnumakefile justfile
    taskfile.yml taskfile.yaml rakefile gemfile cmakelists.txt configure build.rs build.gradle build.gradle.kts
    settings.gradle settings.gradle.kts gradlew mvnw pom.xml pyproject.toml setup.py setup.cfg tox.ini noxfile.py
    conftest.py sitecustomize.py usercustomize.py dockerfile docker-compose.yml docker-compose.yaml compose.yml
    compose.yaml jenkinsfile vagrantfile procfile moonshim.toml moonshim.json
"""
"""Files that such programs run or take commands from: hooks, filters, scripts of packages, settings."""
_RUN_FOLDERS: Final = frozenset(_FOLDERS.split())
_RUN_FILES: Final = frozenset(_FILES.split())
_RUN_ENDINGS: Final = (".pth", ".code-workspace")
_NOT_INTERACTIVE: Final = "This call needs confirmation, and this session cannot ask for it. Use only tools that read."


class Grant(Struct, frozen=True):
    """What "always" would allow."""

    key: str
    label: str
    """For the person who is asked."""


class Permission:
    """Decides, and remembers for as long as the chat lasts. Without `ask`, every call that needs permission is
    refused."""

    def __init__(
        self, folder: Path, *, yolo: bool = False, allowed: Iterable[str] = (), ask: Ask | None = None
    ) -> None:
        self.folder, self.yolo, self.ask = folder, yolo, ask
        self.refused: dict[str, None] = {}
        """The tools whose calls were refused because there was no one to ask, in order."""
        self.always: dict[str, Grant] = {name: Grant(name, f"all calls to {name}") for name in allowed}

    async def __call__(self, tool: AgentTool, call: ToolCall) -> Allowed:
        if self.yolo or not tool.asks or call.name in self.always:
            return ALLOWED
        grant = grant_for(call, self.folder)
        if grant is not None and grant.key in self.always:
            return ALLOWED
        if self.ask is None:
            self.refused[call.name] = None
            return Allowed(False, _NOT_INTERACTIVE, by_user=False)
        match await self.ask(call, grant):
            case "always":
                if grant is not None:
                    self.always[grant.key] = grant
                return ALLOWED
            case "once":
                return ALLOWED
            case "stop":
                return Allowed(False, stop=True)
        return Allowed(False)


def grant_for(call: ToolCall, folder: Path) -> Grant | None:
    """What "always" would mean for a call; None: it is asked for each time.

    >>> grant_for(ToolCall("1", "write_file", '{"path": "notes.md"}'), Path()).label
    'write_file in this folder'
    >>> grant_for(ToolCall("1", "write_file", '{"path": ".git/config"}'), Path())
    >>> grant_for(ToolCall("1", "bash", '{"command": "git status"}'), Path())
    """
    # Parsed as the tools do: two parsers could see two paths in one text.
    arguments = decode_object(call.arguments.encode("utf-8", "surrogatepass")) or {}
    path = arguments.get("path")
    if not isinstance(path, str):  # a command, or not a call that a tool accepts
        return None
    place = WorkingFolder(folder, outside=True)
    try:
        # The tools resolve a path the same way: `~` is a home folder, and links are followed.
        found = place.find(path)
    except ToolFailed:
        return None
    is_inside = place.has(found)
    if _is_run_by_others(found.relative_to(place.root) if is_inside else found):
        return None
    if not is_inside:
        return Grant(f"{call.name}\0{found}", f"{call.name} on {clean_line(str(found))}")
    return Grant(f"{call.name}\0", f"{call.name} in this folder")


def _is_run_by_others(path: Path) -> bool:
    """Whether a program may run this file, or a command in it, without being told to.

    Compared as file systems do that ignore case, and trailing dots and spaces.

    >>> [_is_run_by_others(Path(path)) for path in ("a/.GIT./config", "package.json", "src/main.py")]
    [True, True, False]
    """
    names = [name.casefold().rstrip(". ").partition(":")[0] for name in path.parts]
    last = names[-1] if names else ""
    return bool(_RUN_FOLDERS.intersection(names)) or last in _RUN_FILES or last.endswith(_RUN_ENDINGS)
