"""Verdicts -> a table for each file, then the rows that differ under their reasons."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from conformance.reasons import REASONS
from conformance.replies import Json
from conformance.verdicts import FAULTS, Suite, Verdict

__all__ = ["details", "reasons", "table"]

_COLUMNS: Final = ("agrees", "decision", "source", *FAULTS)
_HEADINGS: Final = ("agree", "by design", "source error", *FAULTS)
_TITLES: Final = {
    "decision": "Differs by design",
    "source": "Error in the source",
}


def table(suite: Suite, verdicts: Sequence[Verdict]) -> str:
    """The number of rows per area and outcome; columns with only zeros are omitted."""
    areas = sorted({verdict.area for verdict in verdicts})
    counts = {area: Counter(v.outcome for v in verdicts if v.area == area) for area in areas}
    total = Counter(verdict.outcome for verdict in verdicts)
    columns = [(key, heading) for key, heading in zip(_COLUMNS, _HEADINGS, strict=True) if total[key]]
    lines = [["", "rows", *(heading for _, heading in columns)]]
    for name, count in (*counts.items(), ("all", total)):
        lines.append([name, str(count.total()), *(str(count[key] or "-") for key, _ in columns)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]
    ideal = sum(v.outcome == "agrees" and v.checked is not None and v.checked.ideal for v in verdicts)
    note = (
        f"\n  ({ideal} of these agree with the result that the row marks as ideal, because its source is wrong)"
        if ideal
        else ""
    )
    return "\n".join([suite.file, *(f"  {row.rstrip()}" for row in rows)]) + note


def reasons(verdicts: Iterable[Verdict]) -> str:
    """Every row that does not agree, by reason; faults come last, one per line."""
    by_code: dict[str, list[str]] = {}
    faults: list[str] = []
    for verdict in verdicts:
        if verdict.outcome in FAULTS:
            faults.append(f"  {verdict.outcome}: {verdict.key}: {verdict.why}")
        elif verdict.outcome != "agrees":
            by_code.setdefault(verdict.why, []).append(verdict.key)
    lines: list[str] = []
    for kind, title in _TITLES.items():
        codes = [code for code in REASONS if code in by_code and REASONS[code].kind == kind]
        if codes:
            lines.append(f"  {title}:")
        for code in codes:
            lines.append(f"    {REASONS[code].sentence} [{code}: {len(by_code[code])}]")
            lines += [f"      {line}" for line in _listed(by_code[code])]
    return "\n".join(lines + faults)


def _listed(keys: list[str]) -> list[str]:
    """Numbers on one line, names on a line each."""
    return [", ".join(keys)] if all(key.isdigit() for key in keys) else list(dict.fromkeys(keys))


def details(verdict: Verdict) -> str:
    """What went in, what came out, and what was expected."""
    row, checked = verdict.row, verdict.checked
    lines = [f"{verdict.outcome}: {verdict.key} ({verdict.why})", f"  input     {_shown(_input(row))}"]
    if checked is not None:
        lines += [f"  got       {_shown(checked.got)}", f"  expected  {_shown(checked.expected)}"]
        if verdict.outcome == "inconsistent":
            lines += [f"  {way}: {reply}" for way, reply in checked.ways.items()]
    return "\n".join(lines)


def _input(row: Json) -> Any:
    return "".join(row["chunks"]) if "chunks" in row else row.get("input")


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
