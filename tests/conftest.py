"""What every test file shares: the hypothesis profile, and what the matrix found, printed behind the tests."""

from __future__ import annotations

from typing import Any

from tests import profiles
from tests.matrix.report import table

profiles.load()


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
