"""Rows of a file and the reasons known for it -> a verdict on each."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from conformance.checked import Checked
from conformance.reasons import REASONS, Reason
from conformance.replies import Json

__all__ = ["FAULTS", "Suite", "Verdict", "judge"]

Outcome: TypeAlias = Literal["agrees", "decision", "source", "unexplained", "inconsistent", "stale"]
FAULTS: Final[tuple[Outcome, ...]] = ("unexplained", "inconsistent", "stale")
"""Someone has to check these: either the engine or the list of reasons is wrong."""


class Suite(Struct, frozen=True):
    """How the rows of one file are run."""

    file: str
    check: Callable[[Json], Checked]
    key_of: Callable[[Json], str]
    area_of: Callable[[Json], str]
    reasons: Mapping[str, tuple[str, ...]]


class Verdict(Struct, frozen=True):
    """The outcome of one row; `why` is a code in `REASONS`, or describes the problem."""

    key: str
    area: str
    outcome: Outcome
    why: str = ""
    row: Json = {}
    checked: Checked | None = None


def judge(suite: Suite, rows: Iterable[Json]) -> list[Verdict]:
    """One verdict for each row, and one for each listed row that does not exist."""
    codes = {key: code for code, keys in suite.reasons.items() for key in keys}
    verdicts = [_verdict(suite, row, codes.get(suite.key_of(row))) for row in rows]
    unknown = codes.keys() - {verdict.key for verdict in verdicts}
    return verdicts + [Verdict(key, "-", "stale", f"{codes[key]}: no such row") for key in sorted(unknown)]


def _verdict(suite: Suite, row: Json, code: str | None) -> Verdict:
    key, area = suite.key_of(row), suite.area_of(row)
    reason = REASONS[code] if code is not None else None
    try:
        checked = suite.check(row)
    except Exception as error:  # whatever a row does to the engine, the others are still judged
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Verdict(key, area, "unexplained", f"{type(error).__name__}: {error} ({where.name})", row)
    if not checked.consistent:
        return Verdict(key, area, "inconsistent", "results differ between ways of feeding", row, checked)
    if checked.agrees:
        outcome: Outcome = "agrees" if code is None else "stale"
        return Verdict(key, area, outcome, f"{code}: agrees now" if code is not None else "", row, checked)
    if code is None or reason is None:
        return Verdict(key, area, "unexplained", "no known reason", row, checked)
    if unfit := _unfit(reason, checked):
        return Verdict(key, area, "unexplained", f"not explained by {code}: {unfit}", row, checked)
    return Verdict(key, area, "source" if reason.kind == "source" else "decision", code, row, checked)


def _unfit(reason: Reason, checked: Checked) -> str:
    """What the reason does not cover."""
    others = checked.differing - {*reason.fields}
    if others:
        return f"{', '.join(sorted(others))} also differ"
    if reason.broken_off and any(way.error is None and way.finish != "length" for way in checked.ways.values()):
        return "the response ends as if the call were complete"
    return ""
