"""The outcome of each recording -> a table, or one JSON document.

The document, with `--report json`:

    {"files": [{"file": "leaked.sse",            as given; "-" is standard input
                "kind": "sse",                   or "ndjson", "json"; null if it is not a recording
                "model": "kimi-k2.5",            the model it was mended for, or null
                "output": "mended/leaked.sse",   null: standard output, or nothing was written
                "clean": false,                  whether no repair was needed
                "repairs": 3,                    number of repairs
                "rules": {"marker_call": 2, "finish_reason": 1},
                "details": [{"rule": "marker_call", "detail": "…", "choice": 0}],   the first few hundred
                "ending": {"finish_reason": "tool_calls", "raw": "stop", "error": null},
                "error": null}]}                 why it could not be read to its end

If the response ended in an error, `ending.error` has `code`, `message` and `retryable`, and the other fields are null.
If the response did not end, `ending` is null. Later versions may add keys, but never remove one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from moonshim.cli.console import Paint, fit_columns, safe
from moonshim.engine.values.events import Failed, Finished, Repaired
from moonshim.gateway.observe.recording import Kind

__all__ = ["Outcome", "render_json", "render_table"]

_LEAST_DETAIL: Final = 12


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one recording."""

    file: str
    kind: Kind | None = None
    model: str | None = None
    output: str | None = None
    repairs: Sequence[Repaired] = ()
    counts: dict[str, int] = {}
    ending: Finished | Failed | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        return "standard input" if self.file == "-" else self.file


def render_table(outcome: Outcome, paint: Paint, width: int) -> str:
    """A headline, a row for each rule, and the ending. All text from the stream is made safe for a terminal."""
    if outcome.kind is None:
        return _trouble(outcome, paint)
    total = sum(outcome.counts.values())
    summary = paint.yellow(f"{total} repair{'s' * (total != 1)}") if total else paint.green("clean")
    where = f", written to {safe(outcome.output)}" if outcome.output is not None else ""
    lines = [f"{paint.bold(safe(outcome.name))}: {summary}{where}"]
    if outcome.counts:
        lines += _rows(outcome, paint, width)
    lines.append(f"  ending: {_format_ending(outcome.ending, paint)}")
    if outcome.error is not None:
        lines.append(_trouble(outcome, paint))
    return "\n".join(lines)


def _trouble(outcome: Outcome, paint: Paint) -> str:
    return f"moonshim mend: {paint.bold(safe(outcome.name))}: {paint.red(safe(outcome.error or ''))}"


def _rows(outcome: Outcome, paint: Paint, width: int) -> list[str]:
    examples: dict[str, str] = {}
    for repair in outcome.repairs:
        if not examples.get(repair.rule):
            examples[repair.rule] = repair.detail
    rules = {rule: safe(rule) for rule in outcome.counts}
    first = max(len("rule"), *map(len, rules.values()))
    second = max(len("count"), *(len(str(count)) for count in outcome.counts.values()))
    room = max(_LEAST_DETAIL, width - first - second - 6)
    rows = [paint.dim(f"  {'rule':<{first}}  {'count':>{second}}  example")]
    for rule, count in outcome.counts.items():
        # A detail may be a megabyte long; what is not shown need not be made safe.
        example = fit_columns(safe(examples.get(rule, "")[: room + 1]), room)
        rows.append(f"  {rules[rule]:<{first}}  {count:>{second}}  {example}".rstrip())
    return rows


def _format_ending(ending: Finished | Failed | None, paint: Paint) -> str:
    match ending:
        case None:
            return "none"
        case Failed():
            return paint.red(f"error {safe(ending.code)}: {safe(ending.message)}")
        case Finished():
            raw = "nothing" if ending.raw_reason is None else safe(ending.raw_reason)
            return safe(ending.reason) + (f" (the host sent {raw})" if ending.reason != ending.raw_reason else "")


def render_json(outcomes: Sequence[Outcome]) -> str:
    """One document for all recordings; in ASCII, so that no stream can send control characters to a terminal."""
    text = json.dumps({"files": [_entry(outcome) for outcome in outcomes]}, indent=2)
    return text.replace("\x7f", "\\u007f")


def _entry(outcome: Outcome) -> dict[str, Any]:
    return {
        "file": outcome.file,
        "kind": outcome.kind,
        "model": outcome.model,
        "output": outcome.output,
        "clean": outcome.kind is not None and not outcome.counts and outcome.error is None,
        "repairs": sum(outcome.counts.values()),
        "rules": outcome.counts,
        "details": [{"rule": one.rule, "detail": one.detail, "choice": one.choice} for one in outcome.repairs],
        "ending": _ending_fields(outcome.ending),
        "error": outcome.error,
    }


def _ending_fields(ending: Finished | Failed | None) -> dict[str, Any] | None:
    match ending:
        case None:
            return None
        case Finished():
            return {"finish_reason": ending.reason, "raw": ending.raw_reason, "error": None}
        case Failed():
            error = {"code": ending.code, "message": ending.message, "retryable": ending.retryable}
            return {"finish_reason": None, "raw": None, "error": error}
