"""Create a virtual environment with Moonshim and one of its extras.

Runs before anything is installed, on whatever `python3` the machine has: standard
library only, and syntax that an old interpreter can parse, so that it can report
what is missing instead of failing with a SyntaxError.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
STAMP = "moonshim-installed"
"""Written into an environment when it is complete: for which checkout, which extra and which pyproject.toml."""


class CannotSetUp(Exception):
    """Something failed or is missing; the message says what, and how to install it."""


class NoVenvModule(CannotSetUp):
    """This interpreter cannot create an environment, and installing the module is up to the user."""


# --- interpreters -----------------------------------------------------------------------------------------------


def version_of(python: str | Path) -> str | None:
    """`3.12`, or None when this is no interpreter that runs (a pyenv shim of a version that is not active)."""
    probe = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([str(python), "-c", probe], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def interpreters() -> dict[str, str]:
    """The interpreters on this machine that Moonshim supports, one for each version."""
    found: dict[str, str] = {}
    for version in VERSIONS:
        working = [path for path in _places(version) if version_of(path) == version]
        # One that can make an environment by itself is worth more than one that comes first.
        working.sort(key=lambda path: not _runs(path, "-c", "import ensurepip, venv"))
        if working:
            found[version] = working[0]
    return found


def _places(version: str) -> list[str]:
    name = f"python{version}"
    home = Path.home()
    folders = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    folders += sorted((home / ".pyenv" / "versions").glob(f"{version}*/bin"), reverse=True)
    folders += sorted((home / ".local" / "share" / "uv" / "python").glob(f"*-{version}*/bin"), reverse=True)
    folders += [Path("/usr/bin"), Path("/usr/local/bin")]
    paths = [str(folder / name) for folder in folders if (folder / name).exists()]
    return list(dict.fromkeys(paths))


def default_interpreter() -> str:
    """The one that runs this script if it is new enough, else the newest other one."""
    if version_of(sys.executable) in VERSIONS or sys.version_info[:2] > (3, 14):
        return sys.executable
    others = interpreters()
    if others:
        return others[max(others, key=VERSIONS.index)]
    raise CannotSetUp(
        f"Moonshim needs Python 3.11 or later; this is {sys.version.split()[0]}, and no other version was found.\n"
        "Install one (Debian 12 and later: apt install python3 python3-venv), "
        "or set its path: make PYTHON=/path/to/python3"
    )


# --- environments -----------------------------------------------------------------------------------------------


def ensure(folder: Path, python: str, extra: str, *, system_packages: bool = False) -> Path:
    """The interpreter of an environment in `folder` that is complete; does nothing when it already is.

    With `system_packages` a missing venv module may be installed by apt, when we are allowed to.
    """
    inside = folder / "bin" / "python"
    stamp = folder / STAMP
    recipe = f"{ROOT}[{extra}]\n" + hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    before = stamp.read_text() if stamp.exists() else ""
    usable = version_of(inside) == version_of(python)
    if usable and before == recipe:
        return inside
    uv = _uv()
    # A stamp of another checkout: the folder was copied, and its scripts and links still point there.
    copied = bool(before) and before.splitlines()[0] != recipe.splitlines()[0]
    if copied or not usable or not (uv or _runs(inside, "-m", "pip", "--version")):
        _create(folder, python, uv, system_packages)
    _say(f"installing into {_shown(folder)}")
    target = f"{ROOT}[{extra}]"
    if uv:
        _run([uv, "pip", "install", "--quiet", "--python", str(inside), "--editable", target])
    else:
        _run([str(inside), "-m", "pip", "install", "--quiet", "--editable", target])
    stamp.write_text(recipe)
    return inside


def tool_environment(folder: Path, *packages: str) -> Path:
    """The interpreter of an environment with these programs in it, apart from what Moonshim itself needs."""
    inside, stamp, recipe = folder / "bin" / "python", folder / STAMP, "\n".join(packages)
    if version_of(inside) and stamp.exists() and stamp.read_text() == recipe:
        return inside
    new_environment(folder)
    _say(f"installing {', '.join(packages)} into {_shown(folder)}")
    install(inside, *packages)
    stamp.write_text(recipe)
    return inside


def new_environment(folder: Path) -> Path:
    """The interpreter of a new, empty environment in `folder`, of the Python that runs this script."""
    _create(folder, sys.executable, _uv(), False)
    return folder / "bin" / "python"


def install(python: Path, *packages: str) -> None:
    """Install packages, wheels or source archives into the environment of this interpreter."""
    uv = _uv()
    command = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
    _run([*command, "--quiet", *packages])


def _create(folder: Path, python: str, uv: str | None, system_packages: bool) -> None:
    _say(f"creating {_shown(folder)} with Python {version_of(python)}")
    if uv:
        _run([uv, "venv", "--quiet", "--clear", "--python", python, str(folder)])
        return
    if not _runs(python, "-c", "import ensurepip, venv"):
        _install_venv_module(python, system_packages)
    _run([python, "-m", "venv", "--clear", str(folder)])


def _install_venv_module(python: str, system_packages: bool) -> None:
    package = f"python{version_of(python)}-venv"
    missing = f"{python} has no venv module."
    apt = shutil.which("apt-get")
    if not apt or Path(python).resolve().parent != Path("/usr/bin"):
        raise NoVenvModule(f"{missing} Install it, install uv, or use another Python: make PYTHON=/path/to/python3")
    if not system_packages or os.geteuid() != 0:
        raise NoVenvModule(f"{missing} Install it with: sudo apt-get install {package}")
    if not install_system_package(package):
        raise NoVenvModule(f"{missing} apt-get could not install {package}.")


def install_system_package(*packages: str) -> bool:
    """Install Debian packages; False when this machine has no apt-get, we are not root, or apt-get failed."""
    apt = shutil.which("apt-get")
    if not apt or os.geteuid() != 0:
        return False
    _say(f"installing system package {' '.join(packages)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        _run([apt, "update", "-qq"], quiet, subprocess.DEVNULL)
        _run([apt, "install", "-y", "-qq", "--no-install-recommends", *packages], quiet, subprocess.DEVNULL)
    except CannotSetUp as error:
        _say(str(error))
        return False
    return True


def _uv() -> str | None:
    uv = shutil.which("uv")
    return uv if uv and _runs(uv, "--version") else None


def _runs(*command: str | Path) -> bool:
    try:
        return subprocess.run([str(part) for part in command], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _run(command: list[str], env: dict[str, str] | None = None, stdout: int | None = None) -> None:
    # An environment that happens to be active must not decide where things go.
    env = {key: value for key, value in (env or os.environ).items() if key not in ("VIRTUAL_ENV", "PYTHONHOME")}
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=stdout, check=False)
    if done.returncode:
        raise CannotSetUp(f"command failed with exit code {done.returncode}: {' '.join(command)}")


def _say(text: str) -> None:
    print(f"set-up: {text}", file=sys.stderr, flush=True)


def _shown(folder: Path) -> str:
    return os.path.relpath(folder, ROOT)


def main() -> int:
    parser = argparse.ArgumentParser(description="Create the virtual environment that the Makefile uses.")
    parser.add_argument("folder", type=Path, help="folder of the environment, relative to the repository")
    parser.add_argument("--extra", default="dev", help="extra to install with Moonshim (default: dev)")
    arguments = parser.parse_args()
    try:
        ensure((ROOT / arguments.folder).absolute(), default_interpreter(), arguments.extra, system_packages=True)
    except CannotSetUp as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
