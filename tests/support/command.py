"""The command as a user runs it: in its own process, with files and pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import moonshim

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLE: Final = ROOT / "examples" / "leaked_markers.sse"
TOOLS: Final = ROOT / "examples" / "tools.json"
MOONSHIM: Final = [sys.executable, "-m", "moonshim"]

CLEAN: Final = (
    b'data: {"model":"kimi-k2","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}\n\n'
    b'data: {"model":"kimi-k2","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
MARKERS: Final = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}"
    "<|tool_call_end|><|tool_calls_section_end|>"
)
RESPONSE: Final[dict[str, Any]] = {
    "id": "r1",
    "object": "chat.completion",
    "model": "kimi-k2",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": MARKERS}, "finish_reason": "stop"}],
}


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, without what would change the command's output, and with the package on the path."""
    odd = {"NO_COLOR", "COLUMNS", "MOONSHIM_DEBUG", "FORCE_COLOR", "PYTHONDONTWRITEBYTECODE"}
    kept = {name: value for name, value in os.environ.items() if name not in odd}
    source = str(Path(moonshim.__file__).parent.parent)
    path = os.pathsep.join(filter(None, [source, kept.get("PYTHONPATH")]))
    # For a hundred processes: none should have to compile the package again.
    ours = {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(ROOT / ".pytest_cache" / "bytecode"), "TERM": "xterm"}
    return kept | ours | changes


class CompletedCommand:
    """The result of a run of the command. Asserts for every run that no traceback was shown."""

    def __init__(self, run: subprocess.CompletedProcess[bytes]) -> None:
        self.code = run.returncode
        self.out = run.stdout
        self.stderr = run.stderr.decode()
        assert "Traceback" not in self.stderr, self.stderr
        assert "Exception ignored" not in self.stderr, self.stderr
        assert "internal error" not in self.stderr, self.stderr

    @property
    def lines(self) -> list[str]:
        return self.stderr.splitlines()


def run_moonshim(
    *arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None, **changes: str
) -> CompletedCommand:
    """Run the command to its end."""
    command = [*MOONSHIM, *map(str, arguments)]
    run = subprocess.run(
        command, input=stdin, capture_output=True, cwd=cwd, env=environment(**changes), timeout=60, check=False
    )
    return CompletedCommand(run)


def mend(*arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None, **changes: str) -> CompletedCommand:
    return run_moonshim("mend", *arguments, stdin=stdin, cwd=cwd, **changes)


def mend_with_engine(data: bytes, **arguments: Any) -> bytes:
    """The engine's result for a stream."""
    given: dict[str, Any] = {"model": "kimi", "options": moonshim.KimiOptions.mending()}
    mender = moonshim.Mender(**(given | arguments))
    return mender.feed(data) + mender.flush()
