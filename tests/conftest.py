"""What every test file shares: the hypothesis profile, the tiers, the demo gateway, and the summary of the matrix."""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.matrix.report import table
from tests.support import profiles, tiers

profiles.load()
# Gateways that tests start, in this process or in others, must not write to the books of whoever runs the tests.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="moonshim-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude the collected tests from garbage collection: they are two million objects, most of a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before markers select
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tiers.mark_slow(items)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return (config.option.markexpr == tiers.WITHOUT_SLOW and tiers.is_wholly_slow(collection_path)) or None


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The address of what `make serve` serves when nothing is configured, on a free port."""
    command = [sys.executable, "-m", "moonshim", "serve", "--demo", "--port", "0"]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://(127\.0\.0\.1:\d+)", process.stdout.readline())
            assert found is not None
            yield found[1]
        finally:
            process.terminate()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    properties = [
        dict(report.user_properties)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
    ]
    if streams := sum(own.get("clean_streams", 0) for own in properties):
        terminalreporter.write_line(f"clean streams: {streams:,}, seed {profiles.SEED} (MOONSHIM_TEST_SEED)")
    rows = [own for own in properties if own.get("fault")]
    if rows:
        terminalreporter.write_sep("-", "the matrix")
        for line in table(rows):
            terminalreporter.write_line(line)
