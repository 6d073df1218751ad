"""A client and a case -> what came of it: simulator, gateway and client, each started for this run alone."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from moonshim.simulator import Simulator
from tests.clients.cases import Case
from tests.clients.client import Client, Place
from tests.clients.install import FOLDER, ROOT, Node
from tests.clients.judging import (
    Ended,
    Outcome,
    noticed_by_the_host,
    noticed_by_the_user,
    said_otherwise,
    summary,
)
from tests.clients.scenario import NOTE, PROMPT, RAN, WORD, scenario_for

__all__ = ["LIMIT", "OFFLINE", "drive", "gateway", "log_lines", "provider_for", "run"]

LIMIT: Final = 120.0
STRAIGHT_LIMIT: Final = 30.0
"""Without the gateway: some clients ask again and again."""
READY: Final = 30.0
_CLOSED: Final = "http://127.0.0.1:9"
"""Where nobody listens: what goes anywhere but to this machine fails at once."""
OFFLINE: Final = {
    "HTTP_PROXY": _CLOSED,
    "HTTPS_PROXY": _CLOSED,
    "NO_PROXY": "127.0.0.1,localhost",
    "npm_config_registry": _CLOSED,
}


def run(client: Client, case: Case, node: Node, installed: Path, *, straight: bool = False) -> Outcome:
    """One run. `straight`: the client talks to the host itself, without the gateway."""
    name = f"{client.name} {case.name}{' straight' if straight else ''}"
    folder = FOLDER / "runs" / re.sub(r"\W+", "-", name.lower())
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("home", "work", "tmp"):
        (folder / name).mkdir(parents=True)
    words = {name: f"word-{secrets.token_hex(6)}" for name in (WORD, NOTE)}
    for name, word in words.items():
        (folder / "work" / name).write_text(f"{word}\n")
    scenario = folder / "scenario.json"
    scenario.write_bytes(msgspec.json.encode(scenario_for(client)))
    server = Simulator(behaviour=case.behaviour, faults=case.faults, scenario=str(scenario))
    with server.running(), contextlib.ExitStack() as stack:
        url = (
            server.url
            if straight
            else stack.enter_context(gateway({"providers": [provider_for(case, server.url)]}, folder))
        )
        place = Place(
            installed=installed,
            home=folder / "home",
            work=folder / "work",
            url=url,
            model=case.model,
            prompt=PROMPT.format(note=folder / "work" / NOTE),
        )
        ended = drive(client, place, node, folder, STRAIGHT_LIMIT if straight else LIMIT)
        requests = list(server.requests)
    (folder / "requests.json").write_bytes(msgspec.json.format(msgspec.json.encode([seen.body for seen in requests])))
    ran = folder / "work" / RAN
    times = len(ran.read_text().splitlines()) if ran.exists() else 0
    problems = [*noticed_by_the_user(client, ended, tuple(words.values())), *noticed_by_the_host(requests, times)]
    if not straight:
        problems += said_otherwise(requests)
    lines = [] if straight else log_lines(folder / "gateway.log")
    return Outcome(problems=tuple(problems), seen=summary(requests, lines), seconds=ended.seconds)


# -- processes ---------------------------------------------------------------------------------------------------


def provider_for(case: Case, url: str) -> dict[str, Any]:
    """The simulator at this address, as a provider of the gateway."""
    provider = {"name": case.name, "api_base_url": url + case.path, "models": [case.model], "dialect": case.dialect}
    return provider | ({"host": case.host} if case.host else {})


@contextlib.contextmanager
def gateway(config: dict[str, Any], folder: Path) -> Iterator[str]:
    """The command that people run, with this configuration; its address."""
    path = folder / "moonshim.json"
    path.write_bytes(msgspec.json.encode(config))
    command = [sys.executable, "-m", "moonshim", "serve", "--config", str(path), "--port", "0"]
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder / "home"), "PYTHONPATH": str(ROOT / "src")}
    with (folder / "gateway.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--graceful-seconds", "1"], cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield _address(process, folder / "gateway.log")
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + READY
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r" on (http://\S+)", log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(f"the gateway did not start: {log.read_text()[-2000:]}")


def drive(client: Client, place: Place, node: Node, folder: Path, limit: float) -> Ended:
    """Run the client until it ends, or the time is over."""
    command = client.command(place)
    environment = {
        "PATH": node.path,
        "HOME": str(place.home),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "SHELL": "/bin/bash",
        **OFFLINE,
        **command.environment,
    }
    begun = time.monotonic()
    with (folder / "stdout").open("wb") as printed, (folder / "stderr").open("wb") as complained:
        process = subprocess.Popen(
            command.arguments,
            cwd=place.work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=complained,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        # Some leave a server behind; the group is theirs alone.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    seconds = time.monotonic() - begun
    told = [(folder / name).read_text(errors="replace") for name in ("stdout", "stderr")]
    return Ended(code=code, printed=told[0], complained=told[1], seconds=seconds)


def log_lines(log: Path) -> list[dict[str, Any]]:
    """The lines of a gateway's log."""
    found = (line for line in log.read_text().splitlines() if line.startswith("{"))
    return [msgspec.json.decode(line) for line in found]
