"""The tools that real clients offer -> which of them to call by default, and with what arguments.

Tools called by default work in any folder and change nothing: a shell echoes a word, a folder is listed. Nothing is
written, fetched or started unless a scenario names the tool.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from moonshim.simulator.request import OfferedTool

__all__ = ["ENDS", "KnownFacts", "choose", "ending_tool", "guesses", "is_harmless"]


class KnownFacts(Struct, frozen=True):
    """What arguments can be made of."""

    mark: str
    """A string that is easy to find again: `moonshim-1`."""
    words: str = ""
    """The user's message."""


class _Kind(Struct, frozen=True):
    """Tools that do the same under different names."""

    names: tuple[str, ...]
    arguments: Callable[[KnownFacts], dict[str, Any]]
    """By parameter name; of a tuple, the first value that the schema allows is used."""


_FILE: Final = re.compile(r"(?<![\w.])(?:~|\.{1,2})?/?(?:[\w.-]+/)*[\w-]*\.\w{1,8}(?![\w/])")


def _file(facts: KnownFacts) -> str:
    """A file that the user mentions; otherwise one that many folders have."""
    found = _FILE.search(facts.words)
    return found[0] if found else "README.md"


def _shell(facts: KnownFacts) -> dict[str, Any]:
    line = f"echo {shlex.quote(facts.mark)}"
    command = (line, ["bash", "-lc", line])
    return {"command": command, "cmd": command, "description": "Print a word", "is_background": False}


def _folder(facts: KnownFacts) -> dict[str, Any]:
    return dict.fromkeys(("path", "dir_path", "directory", "target_directory"), ".")


def _search(facts: KnownFacts) -> dict[str, Any]:
    return {"pattern": "moonshim", "query": "moonshim", "path": "."}


def _read(facts: KnownFacts) -> dict[str, Any]:
    file = _file(facts)
    return dict.fromkeys(("file_path", "filePath", "path", "absolute_path", "file", "filename"), file) | {
        "paths": [file]
    }


def _plan(facts: KnownFacts) -> dict[str, Any]:
    step = f"Look at {facts.mark}"
    todo = {"id": "1", "content": step, "title": step, "step": step, "description": step}
    todo |= {"status": "in_progress", "priority": "medium", "activeForm": f"Looking at {facts.mark}"}
    return {"todos": [todo], "plan": [todo], "items": [todo]}


# In order of preference.
_KINDS: Final = (
    _Kind(
        (
            "Bash",  # Claude Code, kimi-code
            "Shell",  # kimi-cli
            "bash",  # opencode
            "shell",  # Codex
            "shell_command",
            "local_shell",
            "exec_command",
            "container.exec",
            "run_shell_command",  # qwen-code, gemini-cli
            "execute_command",  # Roo Code, Kilo Code
            "run_terminal_cmd",
            "exec",
            "terminal",
        ),
        _shell,
    ),
    _Kind(("LS", "list", "ls", "list_directory", "list_dir", "list_files", "ListDirectory"), _folder),
    # kimi-code refuses a pattern that is nothing but a wildcard.
    _Kind(("Glob", "glob", "file_glob_search", "find_files"), lambda facts: {"pattern": "*.md"}),
    _Kind(("Grep", "grep", "search_file_content", "grep_search", "grep_files", "search_files"), _search),
    _Kind(("Read", "ReadFile", "read", "read_file", "view", "view_file", "read_many_files"), _read),
    _Kind(
        ("TodoWrite", "todowrite", "todo_write", "write_todos", "update_plan", "SetTodoList", "TodoList"),
        _plan,
    ),
)
_KIND_OF: Final = {name: kind for kind in _KINDS for name in kind.names}

_ONLY_BY_NAME: Final = frozenset(
    {
        # Claude Code
        *("Write", "Edit", "MultiEdit", "NotebookEdit", "WebFetch", "WebSearch", "Task", "Agent", "KillShell"),
        *("KillBash", "BashOutput", "TaskOutput", "TaskStop", "TaskCreate", "TaskUpdate", "ExitPlanMode"),
        *("EnterPlanMode", "AskUserQuestion", "Skill", "SlashCommand", "SendMessage", "Monitor", "ToolSearch"),
        *("EnterWorktree", "ExitWorktree", "CronCreate", "CronDelete", "ScheduleWakeup", "RemoteTrigger"),
        # Codex
        *("apply_patch", "write_stdin", "view_image", "web_search", "request_user_input", "spawn_agent"),
        *("send_input", "wait_agent", "close_agent", "resume_agent", "request_permissions", "send_message"),
        *("followup_task", "list_agents", "wait"),
        # kimi-code, kimi-cli
        *("WriteFile", "StrReplaceFile", "FetchURL", "SearchWeb", "SendDMail", "CreateSubagent", "AskUser"),
        *("AgentSwarm", "ReadMediaFile", "TaskList", "CronList"),
        # opencode
        *("write", "edit", "multiedit", "patch", "webfetch", "websearch", "codesearch", "task", "question", "skill"),
        *("batch", "lsp", "plan_enter", "plan_exit", "invalid"),
        # qwen-code, gemini-cli
        *("write_file", "edit_file", "replace", "web_fetch", "google_web_search", "save_memory", "exit_plan_mode"),
        *("ask_user_question", "ask_user", "agent", "create_file", "delete_file", "task_create", "task_get"),
        *("task_list", "task_update", "task_stop", "task_output"),
        # Roo Code, Kilo Code
        *("write_to_file", "apply_diff", "insert_content", "search_and_replace", "browser_action", "new_task"),
        *("switch_mode", "ask_followup_question", "use_mcp_tool"),
    }
)
"""Tools that change things, reach the network, start agents or prompt a person: called only if a scenario names
them."""

ENDS: Final = frozenset(
    {"final_result", "final_answer", "submit", "finish", "done", "attempt_completion", "StructuredOutput"}
)
"""Tools through which clients expect the final answer: pydantic-ai, smolagents, Roo Code, Claude Code."""


def is_harmless(name: str) -> bool:
    """Whether a tool may be called without being named. Unknown tools may: they were offered to be called.

    >>> is_harmless("Bash"), is_harmless("Write"), is_harmless("get_weather")
    (True, False, True)
    """
    return name not in _ONLY_BY_NAME


def choose(tools: Sequence[OfferedTool], words: str) -> OfferedTool | None:
    """The tool to call when a scenario does not name one: mentioned by the user, well known, or the first.

    >>> tools = [OfferedTool("Write"), OfferedTool("get_weather"), OfferedTool("Grep"), OfferedTool("Bash")]
    >>> [tool.name for words in ("Hi", "Use grep!", "Write!") if (tool := choose(tools, words))]
    ['Bash', 'Grep', 'Bash']
    """
    harmless = [tool for tool in tools if is_harmless(tool.name)]
    # A tool that ends the conversation is called in the middle of it only when there is nothing else.
    harmless = [tool for tool in harmless if tool.name not in ENDS] or harmless
    for tool in harmless:
        if re.search(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", words, re.IGNORECASE):
            return tool
    known = [tool for tool in harmless if tool.name in _KIND_OF]
    ranked = sorted(known, key=lambda tool: _KINDS.index(_KIND_OF[tool.name]))
    return next(iter([*ranked, *harmless]), None)


def ending_tool(tools: Sequence[OfferedTool]) -> OfferedTool | None:
    """The tool through which a client expects the final answer."""
    return next((tool for tool in tools if tool.name in ENDS), None)


def guesses(name: str, facts: KnownFacts) -> dict[str, Any]:
    """Likely arguments for the parameters of a known tool; empty for an unknown one.

    >>> guesses("exec_command", KnownFacts("moonshim-1"))["cmd"][0]
    'echo moonshim-1'
    """
    kind = _KIND_OF.get(name)
    return kind.arguments(facts) if kind else {}
