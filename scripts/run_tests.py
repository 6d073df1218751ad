"""Run a tier of the test suite on one or more interpreters, and print one line for each at the end.

`make test` runs the quick tier: without the tests that are marked `slow` (tests/support/tiers.py), and with fewer
generated examples. `make test-all` (`--all`) runs every test, then the quick tests of the engine again to measure
branch coverage, which has to reach `fail_under` in pyproject.toml. Measuring more than doubles the time, so it is
limited to the engine and excludes the processes that tests start. `make test-pythons` (`--others`) runs the quick tier
on all other interpreters, each in a separate environment, to find differences between Python versions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from scripts.environment import ROOT, CannotSetUp, NoVenvModule, ensure, interpreters, version_of

ROUNDS: Final = ("tests/gateway/test_web_search.py", "tests/gateway/test_structured_output.py")
"""Exchanges of several rounds are tested with a gateway, which runs in the same process."""
MEASURED: Final = ("--cov", "--cov-report=", "tests/engine", "tests/golden", *ROUNDS)
"""The arguments of the run that measures the coverage of the engine."""
NO_TESTS_RAN: Final = 5
"""The exit code of pytest if it found no tests."""


def run_suite(python: Path, profile: str, arguments: list[str]) -> str:
    """Run the tests and summarise the result; "passed" only if there were tests and all of them passed."""
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
    return "passed" if code == 0 else f"FAILED: pytest exited with code {code}"


def environment(profile: str) -> dict[str, str]:
    """The environment variables for the tests: their profile, and a separate folder for bytecode if it is disabled.

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
            print(f"no Python other than {default} found")
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
            verdicts[version] = f"FAILED: cannot create the environment: {error}"
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
