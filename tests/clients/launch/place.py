"""A client -> a home folder with a user's settings, a project, and the command; afterwards what is left or changed."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.clients.cases import Case
from tests.clients.install import FOLDER, ROOT
from tests.clients.launch.launched import Launched, UserFiles

__all__ = ["LaunchPlace", "Process"]

_CLOSED_PROXY: Final = "http://127.0.0.1:9"
_SERVER: Final = Path(__file__).with_name("notes_server.py")
_RUN_FOLDER: Final = Path(".local", "state", "moonshim", "run")
WORD_FILE: Final = "word.txt"
RAN: Final = "ran.txt"
"""Gets a line each time that the model's command runs."""
STARTED: Final = "started.txt"
"""Is there as soon as a command runs that does not end by itself."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process of this run."""

    pid: int
    command: tuple[str, ...]
    environment: dict[str, str]

    @property
    def is_gateway(self) -> bool:
        return "serve" in self.command and "MOONSHIM_LOCAL_KEY" in self.environment


class LaunchPlace:
    """Everything of one run is in its folder."""

    def __init__(self, client: Launched, case: str, programs: str) -> None:
        self.client, self._programs = client, programs
        self.folder = FOLDER / "runs" / f"launch-{client.name}-{case}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.home, self.work = self.folder / "home", self.folder / "work"
        for folder in (self.home, self.work, self.folder / "tmp"):
            folder.mkdir(parents=True)
        # Without a repository of its own, a client would find this one.
        subprocess.run(["git", "init", "--quiet", str(self.work)], check=True)
        self.word = f"word-{secrets.token_hex(6)}"
        (self.work / WORD_FILE).write_text(f"{self.word}\n")
        user = UserFiles(home=self.home, work=self.work, server=(sys.executable, str(_SERVER)))
        self._settings, self._state = client.settings(user), client.state(user)
        for name, text in {**self._settings, **self._state}.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        """The user has keys for other hosts, and a proxy that this computer's addresses are not excluded from."""
        return {
            "PATH": self._programs,
            "HOME": str(self.home),
            "TMPDIR": str(self.folder / "tmp"),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ANTHROPIC_API_KEY": "sk-of-the-user",
            "OPENAI_API_KEY": "sk-of-the-user",
            "HTTP_PROXY": _CLOSED_PROXY,
            "HTTPS_PROXY": _CLOSED_PROXY,
            "NO_PROXY": "localhost",  # where the simulator is
            "npm_config_registry": _CLOSED_PROXY,
            **self.client.environment,
        }

    def config(self, url: str, host: Case, models: tuple[str, ...]) -> Path:
        """A configuration of the gateway with the simulator at this address."""
        provider = {"name": "sim", "api_base_url": f"{url}{host.path}", "models": models, "dialect": host.dialect}
        if host.host:
            provider["host"] = host.host
        path = self.folder / "moonshim.json"
        path.write_bytes(msgspec.json.encode({"providers": [provider]}))
        return path

    def command(self, *options: str, arguments: tuple[str, ...] = ()) -> list[str]:
        return [sys.executable, "-m", "moonshim", "launch", self.client.name, *options, "--", *arguments]

    # -- looking ------------------------------------------------------------------------------------------------------

    def processes(self) -> list[Process]:
        """The processes that have our home folder in their environment."""
        return list(_processes(str(self.home)))

    def overlays(self) -> list[Path]:
        folder = self.home / _RUN_FOLDER
        return [path for path in folder.rglob("*") if path.is_file() and path.name != "launch.log"]

    def exposed(self) -> Iterator[str]:
        """While the client runs: keys in arguments, and files that others can read."""
        running = self.processes()
        keys = {one.environment["MOONSHIM_LOCAL_KEY"] for one in running if one.is_gateway}
        if len(keys) != 1:
            yield f"{len(keys)} gateways run"
        for one in running:
            if any(key in part for key in keys for part in one.command):
                yield f"the key is in the arguments of {one.command[0]}"
        for path in self.overlays():
            if path.stat().st_mode & 0o077 and any(key in path.read_text(errors="replace") for key in keys):
                yield f"others can read the key in {path.name}"
            if path.parent.stat().st_mode & 0o077:
                yield f"others can read the folder of {path.name}"

    def changed(self) -> Iterator[str]:
        """Settings of the user that are not as they were."""
        for name, text in self._settings.items():
            path = self.home / name
            if not path.exists() or path.read_text() != text:
                yield f"{name} has changed"
        for name, text in self._state.items():
            before, after = json.loads(text), json.loads((self.home / name).read_text())
            if lost := [key for key in before if key != "projects" and after.get(key) != before[key]]:
                yield f"{name} has changed: {', '.join(lost)}"
        for path in self.home.rglob("*"):
            # What the client writes by itself must not point to a gateway that is gone.
            if path.suffix in (".json", ".toml", ".yml") and path.is_file() and _mentions_gateway(path):
                yield f"{path.relative_to(self.home)} has settings of the launch"

    def left(self) -> Iterator[str]:
        """Gateways and files of a launcher that has ended."""
        for one in self.processes():
            if one.is_gateway:
                yield f"a gateway still runs: {one.pid}"
        for path in self.overlays():
            yield f"{path.relative_to(self.home)} is still there"

    def ran(self) -> int:
        path = self.work / RAN
        return len(path.read_text().splitlines()) if path.exists() else 0

    def end_all(self) -> None:
        """End what the client left running: these processes belong to this run alone."""
        for one in self.processes():
            if one.pid != os.getpid():
                try:
                    os.kill(one.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def _mentions_gateway(path: Path) -> bool:
    if _RUN_FOLDER.parts[2] in path.parts or any(part in path.parts for part in ("sessions", "projects", "storage")):
        return False
    text = path.read_text(errors="replace")
    return "MOONSHIM_LAUNCH" in text or "msk_" in text


def _processes(home: str) -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            command = tuple((folder / "cmdline").read_text(errors="replace").rstrip("\0").split("\0"))
            pairs = (folder / "environ").read_text(errors="replace").split("\0")
            state = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        environment = dict(pair.partition("=")[::2] for pair in pairs if "=" in pair)
        if environment.get("HOME") == home and state != "Z":
            yield Process(pid=int(folder.name), command=command, environment=environment)
