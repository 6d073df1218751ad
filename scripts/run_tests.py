"""The machine's interpreters -> a tier of the test suite run on each, and one line for each at the end.

`make test` runs the quick tier: without the tests that are marked `slow` (tests/support/tiers.py), and with fewer
generated examples. `make test-all` (`--all`) runs every test, and then the quick tests of the engine once more for the
branches that they cover: measuring more than doubles the time, so it is not done everywhere, nor in the processes that
tests start. `fail_under` in pyproject.toml is what has to be reached. `make test-pythons` (`--others`) runs the quick
tier on the other interpreters, each in an environment of its own: they are there to find what differs between Python
versions, not to look for the same faults again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from scripts.environment import ROOT, CannotSetUp, NoVenvModule, ensure, interpreters, version_of

MEASURED: Final = ("--cov", "--cov-report=", "tests/engine", "tests/golden")
"""The arguments of the run that measures the coverage of the engine."""
NO_TESTS_RAN: Final = 5
"""The exit code of pytest when it found nothing to run."""


def run_suite(python: Path, profile: str, arguments: list[str]) -> str:
    """Run the tests; the verdict in a few words, "passed" only when there were tests and all of them passed."""
    # Snapshots are compared as ever; without the option inline-snapshot explains at length that xdist cannot fix them.
    # One more than there are cores: many tests wait for processes and hosts of their own.
    workers = (os.cpu_count() or 1) + 1
    options = ["-q", "-rfEsX", "-n", str(workers), "--dist", "worksteal", "--inline-snapshot=disable"]
    if profile == "quick":
        options += ["-m", "not slow"]
    command = [str(python), "-m", "pytest", *options, *arguments]
    code = subprocess.run(command, cwd=ROOT, env=environment(profile), check=False).returncode
    if code == NO_TESTS_RAN:
        return "FAILED: no tests ran"
    return "passed" if code == 0 else f"FAILED: pytest ended with code {code}"


def environment(profile: str) -> dict[str, str]:
    """What the tests run with: their profile, and bytecode, in a folder of its own where it is not wanted elsewhere.

    Without bytecode every worker, and every process that a test starts, compiles all that it imports.
    """
    env = {**os.environ, "MOONSHIM_TEST_PROFILE": profile}
    if env.pop("PYTHONDONTWRITEBYTECODE", ""):
        env.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".pytest_cache" / "bytecode"))
    return env


def main(arguments: list[str]) -> int:
    default = version_of(sys.executable) or "?"
    every_test = arguments[:1] == ["--all"]
    others = arguments[:1] == ["--others"]
    profile = "full" if every_test else "quick"
    jobs: dict[str, tuple[str | None, str]] = {default: (None, os.environ.get("MOONSHIM_TEST_PROFILE", profile))}
    if every_test or others:
        arguments = arguments[1:]
    if others:
        jobs = {version: (path, profile) for version, path in interpreters().items() if version != default}
        if not jobs:
            print(f"there is no other Python than {default} here")
            return 0

    verdicts: dict[str, str] = {}
    for version, (path, profile) in jobs.items():
        print(f"\n== Python {version}, {profile} profile", flush=True)
        begun = time.monotonic()
        try:
            python = Path(sys.executable) if path is None else ensure(ROOT / ".venvs" / version, path, "test")
        except NoVenvModule as error:
            verdicts[version] = f"NOT TESTED: {error}"
            continue
        except CannotSetUp as error:
            verdicts[version] = f"FAILED: no environment: {error}"
            continue
        verdict = run_suite(python, profile, arguments)
        if every_test and not arguments and verdict == "passed":
            verdict = run_suite(python, "quick", list(MEASURED))
        verdicts[version] = f"{verdict} ({time.monotonic() - begun:.0f} s, {profile} profile)"

    print("\n== Tests")
    for version, verdict in verdicts.items():
        print(f"Python {version}: {verdict}")
    failed = any(verdict.startswith("FAILED") for verdict in verdicts.values())
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
