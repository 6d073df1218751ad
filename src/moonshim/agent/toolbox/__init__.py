"""Tools for an agent that works in a folder: bash, read_file, write_file, edit_file, glob and grep."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from moonshim.agent.toolbox.files import Files
from moonshim.agent.toolbox.folder import WorkingFolder
from moonshim.agent.toolbox.process_environment import erase_from_proc
from moonshim.agent.toolbox.search import Search
from moonshim.agent.toolbox.shell import MOST_SECONDS, Shell
from moonshim.agent.tools import AgentTool, tool

__all__ = ["toolbox"]


def toolbox(
    folder: str | Path = ".",
    *,
    outside: bool = False,
    seconds: float = 120.0,
    most_seconds: float = MOST_SECONDS,
    output_limit: int = 30_000,
    hidden: Iterable[str] = (),
) -> list[AgentTool]:
    """Return the tools for an agent that works in a folder.

    `bash`, `write_file` and `edit_file` have `asks=True`: the agent's `allow` function decides about each call. The
    file tools cannot leave the folder, not even through symbolic links, unless `outside` is set. Commands start in the
    folder but can access anything that the user can: permission is their only restriction.

    Args:
        folder: The folder to work in.
        outside: Whether the file tools may read and write files outside the folder.
        seconds: The default time limit of a command, in seconds.
        most_seconds: The maximum time limit that the model can set for a command.
        output_limit: The maximum number of characters of output that the model gets.
        hidden: Environment variables that commands must not see, such as API keys. They are not passed on, and on Linux
            they are also erased from `/proc/PID/environ` of this process.

    >>> [one.name for one in toolbox() if one.asks]
    ['bash', 'write_file', 'edit_file']
    """
    place = WorkingFolder(folder, outside=outside)
    hidden = frozenset(hidden)
    erase_from_proc(hidden)
    files, search = Files(place, output_limit), Search(place, output_limit, hidden=hidden)
    shell = Shell(place, seconds=seconds, most_seconds=most_seconds, output_limit=output_limit, hidden=hidden)
    return [
        # The shell enforces the timeout itself, so that output up to then is not lost.
        tool(asks=True, timeout=0)(shell.bash),
        tool(files.read_file),
        tool(asks=True)(files.write_file),
        tool(asks=True)(files.edit_file),
        tool(search.glob),
        tool(timeout=0)(search.grep),
    ]
