"""What the command line, the environment and the folders say -> the configuration file to read, if there is one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moonshim.config.problems import ConfigError

__all__ = ["VARIABLE", "find_config", "new_config_path", "user_folders"]

VARIABLE: Final = "MOONSHIM_CONFIG"
_NAMES: Final = ("moonshim.toml", "moonshim.json")


def find_config(explicit: str | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The file: as the command line says, as `MOONSHIM_CONFIG` says, here, or in the user's configuration folder.

    Raises `ConfigError` when a file that was named is not there: another one must not take its place.
    """
    named = explicit or environ.get(VARIABLE)
    if named:
        path = cwd / Path(named).expanduser()
        if not path.exists():
            raise ConfigError([f"{named}: there is no such file (named by {'--config' if explicit else VARIABLE})"])
        return path
    folders = [cwd, *user_folders(environ)]
    return next((path for folder in folders for name in _NAMES if (path := folder / name).is_file()), None)


def new_config_path(explicit: str | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """Where to create a configuration file, so that `find_config` finds it: as named, or in the user's folder."""
    named = explicit or environ.get(VARIABLE)
    return cwd / Path(named).expanduser() if named else [*user_folders(environ), cwd][0] / _NAMES[0]


def user_folders(environ: Mapping[str, str], platform: str = sys.platform) -> list[Path]:
    """Where people keep their configurations, the first that counts first.

    >>> [str(path) for path in user_folders({"HOME": "/home/me"}, "linux")]
    ['/home/me/.config/moonshim']
    """
    if platform == "win32":
        return [Path(environ["APPDATA"]) / "moonshim"] if environ.get("APPDATA") else []
    home = Path(environ["HOME"]) if environ.get("HOME") else None
    folders = [Path(environ["XDG_CONFIG_HOME"])] if environ.get("XDG_CONFIG_HOME") else []
    if home is not None:
        folders.append(home / ".config")
        if platform == "darwin":
            folders.append(home / "Library" / "Application Support")
    return [folder / "moonshim" for folder in dict.fromkeys(folders)]
