"""Pin all development dependencies in a lock file, and check the pinned versions for known vulnerabilities.

`make lock` writes requirements-dev.lock, for all Python versions and platforms. `make audit` looks up the versions in a
vulnerability database. It fails if it cannot look up all of them, so that success means that every package was checked.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any, Final

from scripts.environment import ROOT, CannotSetUp, tool_environment

LOCK: Final = ROOT / "requirements-dev.lock"
TOOLS: Final = ROOT / ".venvs" / "tools"
_OLDEST: Final = "3.11"
CLEAN, VULNERABLE, NOT_AUDITED = 0, 1, 2


def lock(arguments: list[str]) -> int:
    """Write the lock file. Existing versions stay, unless `--upgrade` is passed."""
    uv = shutil.which("uv") or str(tool_environment(TOOLS, "uv", "pip-audit").parent / "uv")
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", _OLDEST, "--extra", "dev"]
    # No names of package indexes: they differ from machine to machine, and some are private.
    command += ["--no-emit-index-url", "--no-emit-find-links", "--no-annotate"]
    command += ["--custom-compile-command", "make lock", "--output-file", str(LOCK), *arguments, "pyproject.toml"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def audit(arguments: list[str]) -> int:
    """Look up every version in the lock file; the exit code is 0 only if all were found and none is vulnerable."""
    python = tool_environment(TOOLS, "uv", "pip-audit")
    command = [str(python), "-m", "pip_audit", "--requirement", str(LOCK), "--no-deps", "--disable-pip"]
    command += ["--progress-spinner", "off", "--format", "json", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    code, lines = verdict(done.stdout, done.stderr)
    print("\n".join(lines))
    return code


def verdict(report: str, errors: str = "") -> tuple[int, list[str]]:
    """What pip-audit found, as an exit code and lines for a person.

    >>> verdict('{"dependencies": [{"name": "a", "skip_reason": "Dependency not found"}]}')[0] == NOT_AUDITED
    True
    """
    try:
        found: list[dict[str, Any]] = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (errors.strip().splitlines() or ["it printed nothing"])[-1]
        return NOT_AUDITED, [
            f"audit: NOT AUDITED. pip-audit failed; check that its vulnerability service is reachable: {last}"
        ]
    skipped = [one["name"] for one in found if "skip_reason" in one]
    known = [(one["name"], one["version"], fault) for one in found for fault in one.get("vulns", [])]
    lines = [
        f"audit: {name} {version}: {fault['id']}, fixed in {', '.join(fault['fix_versions']) or 'no version'}"
        for name, version, fault in known
    ]
    if skipped or not found:
        lines.append(
            f"audit: NOT AUDITED: {len(skipped)} of {len(found)} packages. The vulnerability service does not know them"
            f" or is not reachable: {', '.join(skipped[:5])}{', …' if len(skipped) > 5 else ''}"
        )
    if known:
        return VULNERABLE, lines
    if skipped or not found:
        return NOT_AUDITED, lines
    return CLEAN, [f"audit: no known vulnerabilities in {len(found)} packages"]


def main(arguments: list[str]) -> int:
    commands = {"lock": lock, "audit": audit}
    if arguments[:1] not in ([name] for name in commands):
        print(f"usage: python -m scripts.dependencies {'|'.join(commands)} [options]", file=sys.stderr)
        return 2
    try:
        return commands[arguments[0]](arguments[1:])
    except CannotSetUp as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return NOT_AUDITED


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
