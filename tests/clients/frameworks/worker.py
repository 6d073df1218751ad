"""Tasks as JSON lines on stdin -> answers as JSON lines on stdout, by one framework in its own environment.

`python worker.py agno` loads `run_agno.py` and calls its `run(task)` for every line. This file and the `run_*` files
import nothing of Moonshim: their environments do not have it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace


def tools_in(folder: Path) -> SimpleNamespace:
    """Two tools that work in this folder; `ran.txt` there gets a line for every call."""

    def note(call: str) -> None:
        with (folder / "ran.txt").open("a") as ran:
            ran.write(f"{call}\n")

    def bash(command: str) -> str:
        """Run a shell command and return its output.

        Args:
            command: The command to run.
        """
        note(command)
        return subprocess.run(["/bin/sh", "-c", command], cwd=folder, capture_output=True, text=True, check=True).stdout

    def read_file(path: str) -> str:
        """Return the content of a file.

        Args:
            path: The file to read.
        """
        note(path)
        return (folder / path).read_text()

    return SimpleNamespace(bash=bash, read_file=read_file)


def main(framework: str) -> None:
    # Frameworks print their progress: only answers may go to stdout.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run = importlib.import_module(f"run_{framework}").run

    def report(result: dict[str, str]) -> None:
        answers.write(json.dumps(result) + "\n")
        answers.flush()

    report({})  # it is loaded
    for line in sys.stdin:
        task = SimpleNamespace(**json.loads(line))
        task.tools = tools_in(Path(task.folder))
        try:
            report({"answer": str(run(task))})
        except BaseException as error:  # whatever a framework raises is its result
            traceback.print_exc()
            report({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1])
