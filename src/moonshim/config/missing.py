"""The environment -> the message that no configuration was found, which every command shows the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moonshim.config.environment import LOOKED_FOR
from moonshim.config.files.find import VARIABLE, user_folders

__all__ = ["FIRST_STEP", "describe_missing"]

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
    return (
        f"no configuration found. Looked for:\n  a file: {', '.join(files)}\n"
        f"  an API key in the environment:\n{variables}"
    )
