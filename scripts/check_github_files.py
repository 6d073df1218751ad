"""The YAML files in .github -> an error for each one that GitHub would reject, and for each action that is not pinned.

The schemas come with check-jsonschema, so the check needs no network. GitHub reports such mistakes only after a push,
and drops a broken issue form without a message.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SCHEMAS: Final = (
    ("vendor.github-workflows", "workflows/*.yml"),
    ("custom.github-workflows-require-timeout", "workflows/*.yml"),
    ("vendor.github-actions", "actions/*/action.yml"),
    ("vendor.github-issue-config", "ISSUE_TEMPLATE/config.yml"),
    ("vendor.github-issue-forms", "ISSUE_TEMPLATE/*_*.yml"),
    ("vendor.dependabot", "dependabot.yml"),
)
"""Each built-in schema of check-jsonschema, and the files below .github that it describes."""
_USES: Final = re.compile(r"^\s*(?:- )?uses: *(\S+)", re.MULTILINE)
_PINNED: Final = re.compile(r"\./.+|[\w.-]+/[\w./-]+@(?:v\d+|release/v\d+)")
"""An action of this repository, or the major version of another one, which Dependabot keeps current."""


def problems(folder: Path) -> Iterator[str]:
    """What is wrong in a .github folder, one string for each failed check."""
    for schema, pattern in SCHEMAS:
        yield from schema_problems(folder, schema, pattern)
    yield from other_problems(folder)


def schema_problems(folder: Path, schema: str, pattern: str) -> Iterator[str]:
    """What one schema rejects."""
    files = sorted(folder.glob(pattern))
    if not files:
        yield f"{pattern}: no such file in {folder.name}"
        return
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        yield f"{schema}: {(run.stdout + run.stderr).strip()}"


def other_problems(folder: Path) -> Iterator[str]:
    """Files that no schema describes, and actions without a version."""
    covered = {path for _, pattern in SCHEMAS for path in folder.glob(pattern)}
    for path in sorted(folder.rglob("*.y*ml")):
        if path not in covered:
            yield f"{path.relative_to(folder)}: no schema is known for this file; add it to {Path(__file__).name}"
        for action in _USES.findall(path.read_text(encoding="utf-8")):
            if not _PINNED.fullmatch(action):
                yield f"{path.relative_to(folder)}: {action}: expected a major version such as actions/checkout@v6"


def main() -> int:
    found = list(problems(ROOT / ".github"))
    for problem in found:
        print(f".github: {problem}", file=sys.stderr)
    print(f".github: {len(SCHEMAS)} schemas checked, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
