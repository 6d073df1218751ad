"""A serving command, as a user runs it: in its own process, with the line that announces it."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.command import MOONSHIM, environment
from tests.support.gateway.serving import first_line

DEADLINE: Final = 120.0


class Running:
    """A running server."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process, self._errors = process, errors
        self.line = first_line(process)
        assert self.line, f"it was not ready: {self.stderr[:2000]}"
        self.url = next(word for word in self.line.split() if word.startswith("http://"))

    @property
    def stderr(self) -> str:
        return self._errors.read_text()

    @property
    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stderr.splitlines()]

    def get(self, path: str) -> tuple[int, str]:
        return self._ask(urllib.request.Request(f"{self.url}{path}"))

    def post(self, path: str, body: dict[str, Any], **headers: str) -> tuple[int, str]:
        given = {"content-type": "application/json"} | headers
        return self._ask(urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), given))

    def _ask(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


@contextmanager
def running(command: str, *arguments: str | Path, cwd: Path, **changes: str) -> Iterator[Running]:
    """`moonshim serve` or `moonshim simulate` on a free port, and never a traceback."""
    errors = cwd / "stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [*MOONSHIM, command, "--port", "0", *map(str, arguments)],
            cwd=cwd,
            env=environment(**changes),
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    try:
        yield Running(process, errors)
        assert "Traceback" not in errors.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(DEADLINE)
        assert process.stdout is not None
        process.stdout.close()
