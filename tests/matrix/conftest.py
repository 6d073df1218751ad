"""What the matrix found, printed as a table behind the tests."""

from __future__ import annotations

from typing import Any

from tests.matrix.report import table


def pytest_terminal_summary(terminalreporter: Any) -> None:
    rows = [
        dict(report.user_properties)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call" and dict(report.user_properties).get("fault")
    ]
    if rows:
        terminalreporter.write_sep("-", "the matrix")
        for line in table(rows):
            terminalreporter.write_line(line)
