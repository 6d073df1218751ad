"""The environment -> the message that no configuration was found, which every command shows the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moonshim.config.environment import LOOKED_FOR
from moonshim.config.files.find import VARIABLE, user_folders
from moonshim.config.known_hosts import INIT_HOSTS

__all__ = ["FIRST_STEP", "describe_missing", "unused_keys"]

FIRST_STEP: Final = (
    "Run `moonshim init` to create one; or start with `moonshim config example > moonshim.toml`, edit the file, then "
    "run `moonshim trust`"
)
_PER_LINE: Final = 3


def describe_missing(environ: Mapping[str, str], named: str = "--config FILE") -> str:
    """Where a configuration was looked for; `named` is how the command line names a file.

    >>> print(describe_missing({"XDG_CONFIG_HOME": "/home/me/.config"}))  # doctest: +ELLIPSIS
    no configuration found. Looked for:
      a file: --config FILE, MOONSHIM_CONFIG, ./moonshim.toml or .json, /home/me/.config/moonshim/moonshim.toml or .json
      an API key in the environment:
        MOONSHOT_API_KEY, KIMI_API_KEY, ...
    """
    files = [named, VARIABLE, "./moonshim.toml or .json"]
    files += [f"{folder}/moonshim.toml or .json" for folder in user_folders(environ)]
    rows = [LOOKED_FOR[start : start + _PER_LINE] for start in range(0, len(LOOKED_FOR), _PER_LINE)]
    variables = ",\n".join("    " + ", ".join(row) for row in rows)
    unused = "".join(f"\n{line}" for line in unused_keys(environ))
    return (
        f"no configuration found. Looked for:\n  a file: {', '.join(files)}\n"
        f"  an API key in the environment:\n{variables}{unused}"
    )


def unused_keys(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each key in the environment that is used only after `moonshim init`.

    >>> unused_keys({"NOVITA_API_KEY": "sk-1"})
    ['NOVITA_API_KEY is set, but not used without a file: run `moonshim init --host novita`']
    """
    hosts: dict[str, list[str]] = {}
    for host in INIT_HOSTS:
        if environ.get(host.variable, "").strip():
            hosts.setdefault(host.variable, []).append(f"`moonshim init --host {host.name}`")
    return [
        f"{variable} is set, but not used without a file: run {' or '.join(commands)}"
        for variable, commands in hosts.items()
    ]
