"""Compare Moonshim with the test vectors of other projects, and explain each difference: `make conformance`.

The vectors are not part of this project. They are read from the folder in `MOONSHIM_VECTORS`, or from
`../shared/vectors`. Without them, nothing is compared and the exit code is 0. The exit code is 1 if a row differs
without a known reason, if the same text gives different results when it is fed differently, or if a row with a listed
reason agrees now.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance import k3_prompts, kimi, other_formats, report, source_documents, tool_schema_rules
from conformance.other_reasons import OTHER_FORMATS
from conformance.reasons import KIMI, SOURCE_DOCUMENTS
from conformance.replies import Json
from conformance.verdicts import FAULTS, Suite, judge

ROOT: Final = Path(__file__).resolve().parent.parent
SUITES: Final = (
    Suite("kimi.jsonl", kimi.check, kimi.key_of, kimi.area_of, KIMI),
    Suite(
        "source_documents.jsonl",
        source_documents.check,
        source_documents.key_of,
        source_documents.area_of,
        SOURCE_DOCUMENTS,
    ),
    Suite(
        "tool_schema_rules.jsonl",
        tool_schema_rules.check,
        tool_schema_rules.key_of,
        tool_schema_rules.area_of,
        {},
    ),
    Suite("other_formats.jsonl", other_formats.check, other_formats.key_of, other_formats.area_of, OTHER_FORMATS),
    Suite("k3_prompts", k3_prompts.check, k3_prompts.key_of, k3_prompts.area_of, {}),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument(
        "--verbose", action="store_true", help="show the input, the result and the expectation of each row that differs"
    )
    verbose: bool = parser.parse_args(arguments).verbose
    folder = Path(os.environ.get("MOONSHIM_VECTORS") or ROOT.parent / "shared" / "vectors")
    if not folder.is_dir():
        print(f"conformance: no vectors in {folder}, nothing was compared (set MOONSHIM_VECTORS to the folder)")
        return 0
    faults = sum([_run(suite, folder / suite.file, verbose) for suite in SUITES if (folder / suite.file).exists()])
    print(f"\nconformance: {faults} rows to check" if faults else "\nconformance: every difference has a known reason")
    return 1 if faults else 0


def _run(suite: Suite, path: Path, verbose: bool) -> int:
    """Print the report for one file; return the number of rows that someone has to check."""
    verdicts = judge(suite, _read(path))
    print(f"{report.table(suite, verdicts)}\n\n{report.reasons(verdicts)}\n")
    if verbose:
        shown = [verdict for verdict in verdicts if verdict.outcome != "agrees" and verdict.row]
        print("\n\n".join(map(report.details, shown)), end="\n\n")
    return sum(verdict.outcome in FAULTS for verdict in verdicts)


def _read(path: Path) -> list[Json]:
    if path.is_dir():
        return k3_prompts.read(path)
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


if __name__ == "__main__":
    raise SystemExit(main())
