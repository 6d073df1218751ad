"""A report -> the bar chart of the README: CPU time for 10,000 streamed chunks, by server."""

from __future__ import annotations

from html import escape
from typing import Final

from bench.gateway.report import Report, WorkloadReport

__all__ = ["draw"]

SHOWN: Final = {"text": "Chat, text", "messages": "Messages over Chat, text"}
"""The workloads in the chart, and the titles of their bars."""
_WIDTH: Final = 760
_LABELS: Final = 190
_VALUES: Final = 150
_BAR: Final = 16
_STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 11px; fill: #59636e }
  .bar { fill: #8c959f }
  .own { fill: #2563eb }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .bar { fill: #6e7681 } .own { fill: #60a5fa }
  }
"""


def draw(report: Report) -> str:
    parts: list[str] = []
    top = 28
    parts.append(_text(0, 18, "CPU seconds of the proxy for 10,000 streamed chunks (less is better)", "title"))
    shown = [(title, report.workloads[name]) for name, title in SHOWN.items() if name in report.workloads]
    most = max((row.cost.median for _, each in shown for row in each.rows.values() if row.cost), default=1.0)
    for title, workload in shown:
        parts.append(_text(0, top + 18, f"{title}: {workload.title.split(':')[0]}", "small"))
        top += 26
        for name, value, times in _bars(workload):
            width = max(1.0, value / most * (_WIDTH - _LABELS - _VALUES))
            kind = "own" if name.startswith("moonshim") else "bar"
            parts.append(_text(_LABELS - 8, top + 13, _versioned(report, name), "", anchor="end"))
            parts.append(f'<rect class="{kind}" x="{_LABELS}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="2"/>')
            parts.append(_text(_LABELS + width + 6, top + 13, f"{value:.2f} s{times}", ""))
            top += _BAR + 6
        top += 6
    machine = report.machine
    footer = f"{report.date} · {machine['cores']} cores, {machine['cpu']} · {machine['system']} · make bench-gateway"
    parts.append(_text(0, top + 14, footer, "small"))
    top += 24
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" height="{top}" '
        f'role="img" aria-label="CPU seconds of each proxy for 10,000 streamed chunks">\n'
        f"<style>{_STYLE}</style>\n{lines}\n</svg>\n"
    )


def _bars(workload: WorkloadReport) -> list[tuple[str, float, str]]:
    """The valid rows, from the lowest to the highest."""
    rows = [
        (
            name,
            row.cost.median,
            f" · {row.times_nginx.median:.1f} × nginx" if row.times_nginx and name != "nginx" else "",
        )
        for name, row in workload.rows.items()
        if row.cost and row.is_valid and "," not in name
    ]
    return sorted(rows, key=lambda row: row[1])


def _versioned(report: Report, name: str) -> str:
    return f"{name} {report.versions.get(name, '')}".strip()


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{css}>{escape(text)}</text>'
