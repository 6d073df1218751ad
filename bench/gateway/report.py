"""All runs of a benchmark -> figures, tables in Markdown, and a JSON file."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from bench.gateway.cases import Workload
from bench.gateway.measure import Run

__all__ = ["Figures", "Report", "Row", "WorkloadReport", "machine", "summarise", "tables"]

BASELINE: Final = "nginx"
LATE_MS: Final = 0.2
"""The host's chunks should leave within this time, so that each one is a wake-up of its own."""


class Figures(Struct, frozen=True):
    """One figure over all rounds."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figures:
        return cls(statistics.median(values), min(values), max(values))


class Row(Struct, frozen=True, kw_only=True):
    """One server in one workload."""

    cost: Figures | None
    """CPU time in the unit of the workload; None for the host itself."""
    times_nginx: Figures | None
    """Compared with nginx in the same round."""
    first_ms: Figures | None
    took_ms: Figures | None
    delay_ms: Figures | None
    delay_p99_ms: Figures | None
    per_second: float
    """Chunks or requests."""
    reads_per_chunk: float | None
    """About 1 if every chunk was delivered on its own."""
    memory_per_stream_kb: float | None
    """From the first round: later ones find memory that the first one left behind."""
    peak_open: int
    """Streams that were open at the same time."""
    leaked: int
    kept_up: bool
    is_valid: bool
    problem: str | None
    rounds: Sequence[Run]


class WorkloadReport(Struct, frozen=True, kw_only=True):
    """One workload."""

    title: str
    unit: str
    rows: dict[str, Row]


class Report(Struct, kw_only=True):
    """Everything that was measured, as it is written to the JSON file."""

    date: str
    commit: str
    """Of this repository, with `-dirty` for changes since; empty outside of a checkout."""
    machine: dict[str, str]
    versions: dict[str, str]
    missing: dict[str, str]
    """Servers or dialects that were left out, and why."""
    warnings: list[str]
    instruments: dict[str, float]
    idle_memory_mb: dict[str, float]
    workloads: dict[str, WorkloadReport]


def machine() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or "unknown",
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
    }


def summarise(workload: Workload, runs: Mapping[str, list[Run]]) -> WorkloadReport:
    rows = {name: _row(workload, name, each, runs.get(BASELINE, [])) for name, each in runs.items() if each}
    return WorkloadReport(title=workload.title, unit=workload.unit, rows=rows)


def _row(workload: Workload, name: str, runs: list[Run], baseline: list[Run]) -> Row:
    results = [run.result for run in runs]
    is_server = any(run.cpu_s for run in runs)
    # A slow server has fewer rounds than nginx: each is compared with nginx in the same round.
    pairs = [(run.cost, floor.cost) for run, floor in zip(runs, baseline, strict=False) if floor.cost]
    problems = [run.problem for run in runs if run.problem]
    memory = [run.memory_per_stream for run in runs if run.memory_per_stream is not None]
    request, streams = workload.request, workload.request.stream
    done = sum(one.requests for one in results) * (request.chunks if workload.per == "chunk" else 1)
    is_text = streams and request.kind == "text"  # the first stamp of a leaked call is not its first token
    stamps = sum(one.stamps for one in results)
    return Row(
        cost=Figures.of([run.cost for run in runs]) if is_server else None,
        times_nginx=Figures.of([cost / floor for cost, floor in pairs]) if pairs and is_server else None,
        first_ms=_figures(one.first_ms.p50 for one in results if one.first_ms) if is_text else None,
        took_ms=_figures(one.took_ms.p50 for one in results if one.took_ms),
        delay_ms=_figures(one.delay_ms.p50 for one in results if one.delay_ms) if streams else None,
        delay_p99_ms=_figures(one.delay_ms.p99 for one in results if one.delay_ms) if streams else None,
        per_second=done / sum(one.wall_s for one in results),
        reads_per_chunk=sum(one.reads for one in results) / stamps if workload.is_paced and stamps else None,
        memory_per_stream_kb=memory[0] / 1e3 if memory and is_server else None,
        peak_open=max(one.peak_open for one in results),
        leaked=sum(one.leaked for one in results),
        kept_up=all(run.kept_up for run in runs),
        is_valid=not problems,
        problem=problems[0] if problems else None,
        rounds=runs,
    )


def _figures(values: Iterable[float]) -> Figures | None:
    each = list(values)
    return Figures.of(each) if each else None


# --- tables -----------------------------------------------------------------------------------------------------


def tables(report: Report) -> str:
    """The report for people."""
    parts = [f"# Gateway benchmark, {report.date} {report.commit}".rstrip(), ""]
    parts += [", ".join(f"{k}: {v}" for k, v in report.machine.items()), ""]
    parts += [f"- {name} {version}" for name, version in report.versions.items() if "," not in name]
    parts += [f"- NOT MEASURED: {name}: {reason}" for name, reason in report.missing.items()]
    parts += [f"- WARNING: {text}" for text in report.warnings]
    parts += ["", "The host and the load generator themselves:", ""]
    parts += [f"- {name}: {value:.3g}" for name, value in report.instruments.items()]
    parts += ["", "Idle memory, MB: " + ", ".join(f"{k} {v:.0f}" for k, v in report.idle_memory_mb.items())]
    for name, each in report.workloads.items():
        parts += ["", f"## {each.title} (`{name}`)", "", *_table(each)]
    return "\n".join(parts) + "\n"


def _table(workload: WorkloadReport) -> list[str]:
    columns = ["", workload.unit, "lowest to highest", "times nginx", *_LATENCY_TITLES, "per second", "notes"]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for name, row in workload.rows.items():
        latency = [_text(figure.median, 2) if figure else "" for figure in (row.first_ms, row.took_ms, row.delay_ms)]
        late = _text(row.delay_p99_ms.median, 2) if row.delay_p99_ms else ""
        cost = [_text(row.cost.median, 3), f"{row.cost.min:.3f} to {row.cost.max:.3f}"] if row.cost else ["", ""]
        times = f"{row.times_nginx.median:.2f}" if row.times_nginx else ""
        fields = [name, *cost, times, *latency, late, f"{row.per_second:,.0f}", _notes(row)]
        lines.append(f"| {' | '.join(fields)} |")
    return lines


_LATENCY_TITLES: Final = ("first token, ms", "whole response, ms", "delay of a chunk, ms", "p99")


def _text(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _notes(row: Row) -> str:
    notes = []
    if not row.is_valid:
        notes.append(f"INVALID: {row.problem}")
    if not row.kept_up:
        notes.append("could not keep up, read several chunks at once")
    elif row.reads_per_chunk is not None and row.reads_per_chunk < 0.9:
        notes.append(f"{row.reads_per_chunk:.2f} reads per chunk")
    if row.memory_per_stream_kb is not None:
        notes.append(f"{row.memory_per_stream_kb:.0f} KB per stream, {row.peak_open:,} open at once")
    if row.leaked:
        notes.append("markers leak")
    return "; ".join(notes)
