"""A folder -> the tools for an agent that works in it: bash, read_file, write_file, edit_file, glob, grep."""

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
    """Tools for this folder. Those that change something have `asks`: the agent's `allow` is asked for each call.

    Files outside of the folder cannot be read or written, also through links, unless `outside` allows it. A command
    is started in the folder but can access anything: permission is the only restriction. `seconds` is how long a
    command may take unless it asks for more, up to `most_seconds`; `output_limit` is how many characters of output
    the model gets; `hidden` are environment variables that commands do not see, such as keys: they are not handed
    down, and on Linux they are blanked in this process's /proc/PID/environ.

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
