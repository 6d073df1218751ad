"""The command line, the environment and the folders -> the configuration file to read, if there is one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Final

from msgspec import Struct

from moonshim.config.files.source_file import file_problem
from moonshim.config.problems import ConfigError

__all__ = [
    "NAMES",
    "VARIABLE",
    "FoundConfig",
    "NoSuchConfig",
    "look_for_config",
    "new_config_path",
    "state_folder",
    "user_folders",
]

VARIABLE: Final = "MOONSHIM_CONFIG"
NAMES: Final = ("moonshim.toml", "moonshim.json")


class NoSuchConfig(ConfigError):
    """A file was named that does not exist."""


class FoundConfig(Struct, frozen=True):
    """An existing configuration file."""

    path: Path
    needs_trust: bool
    """The file was found in the current folder rather than named or found in the user's configuration folder."""


def look_for_config(explicit: str | None, environ: Mapping[str, str], cwd: Path) -> FoundConfig | None:
    """The file: from the command line, from `MOONSHIM_CONFIG`, in the current folder, or in the user's configuration
    folder.

    Does not check whether it is trusted: `load_found` does. Raises `NoSuchConfig` if a file that was named does not
    exist: another one must not take its place. Raises `ConfigError` for one that cannot be accessed, whether it was
    named or not.
    """
    named = explicit or environ.get(VARIABLE)
    if named:
        path = _named_path(named, cwd)
        if not _exists(path):
            raise NoSuchConfig([f"{named}: no such file{'' if explicit else f' (set in {VARIABLE})'}"])
        return FoundConfig(path, needs_trust=False)
    own = user_folders(environ)
    found = next((path for folder in [cwd, *own] for name in NAMES if _exists(path := folder / name, file=True)), None)
    if found is None:
        return None
    folders = {folder.resolve() for folder in own}
    return FoundConfig(found, needs_trust=found.parent == cwd and cwd.resolve() not in folders)


def _named_path(named: str, cwd: Path) -> Path:
    try:
        return cwd / Path(named).expanduser()
    except RuntimeError:
        raise ConfigError([f"{named}: unknown user in a path with `~`; write the full path"]) from None


def _exists(path: Path, *, file: bool = False) -> bool:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise ConfigError([file_problem(path, error) if isinstance(error, OSError) else f"{path}: {error}"]) from None
    return S_ISREG(mode) or not file


def new_config_path(explicit: str | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """Path for a new configuration file that `look_for_config` will find: as named, or in the user's folder."""
    named = explicit or environ.get(VARIABLE)
    return _named_path(named, cwd) if named else [*user_folders(environ), cwd][0] / NAMES[0]


def user_folders(environ: Mapping[str, str], platform: str = sys.platform) -> list[Path]:
    """The user's configuration folders, in order of precedence.

    As the XDG specification says, a relative path in a variable is ignored: it would turn a folder in the current one,
    which may belong to another user, into the user's own.

    >>> [str(path) for path in user_folders({"HOME": "/home/me"}, "linux")]
    ['/home/me/.config/moonshim']
    """

    def folder_in(variable: str) -> list[Path]:
        path = Path(environ.get(variable, ""))
        return [path] if path.is_absolute() else []

    if platform == "win32":
        folders = folder_in("APPDATA")
    else:
        folders = folder_in("XDG_CONFIG_HOME")
        for home in folder_in("HOME"):
            folders.append(home / ".config")
            if platform == "darwin":
                folders.append(home / "Library" / "Application Support")
    return [folder / "moonshim" for folder in dict.fromkeys(folders)]


def state_folder(environ: Mapping[str, str], platform: str = sys.platform) -> Path | None:
    """The folder for what Moonshim finds out and would rather not find out again; None: this user has none.

    >>> str(state_folder({"HOME": "/home/me"}, "linux"))
    '/home/me/.local/state/moonshim'
    """
    home = "LOCALAPPDATA" if platform == "win32" else "HOME"
    for variable, rest in (("XDG_STATE_HOME", ()), (home, (".local", "state"))):
        folder = Path(environ.get(variable, ""))
        if folder.is_absolute():
            return folder.joinpath(*rest, "moonshim")
    return None
