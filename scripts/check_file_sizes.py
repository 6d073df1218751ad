"""Report every Python file that is too long, and the median length."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Final

LIMIT: Final = 900
FOLDERS: Final = ("src", "tests", "bench", "conformance", "examples", "scripts")
ROOT: Final = Path(__file__).resolve().parent.parent


def line_counts(folder: Path) -> dict[Path, int]:
    """The number of lines of each Python file below the folder."""
    return {path: len(path.read_bytes().splitlines()) for path in sorted(folder.rglob("*.py"))}


def main() -> int:
    counts = {path: lines for folder in FOLDERS for path, lines in line_counts(ROOT / folder).items()}
    if not counts:
        print("file sizes: no Python files found, nothing was checked", file=sys.stderr)
        return 1
    too_long = {path: lines for path, lines in counts.items() if lines > LIMIT}
    for path, lines in too_long.items():
        print(f"{path.relative_to(ROOT)}: {lines} lines (limit: {LIMIT})", file=sys.stderr)
    source = [lines for path, lines in counts.items() if path.is_relative_to(ROOT / "src")]
    median = statistics.median(source or [0])
    print(f"file sizes: {len(counts)} files, longest {max(counts.values())} lines, median in src {median:g}")
    return 1 if too_long else 0


if __name__ == "__main__":
    raise SystemExit(main())
