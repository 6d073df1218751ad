"""Usage books for tests: records -> a file as the gateway writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moonshim.usage.database import UsageDatabase
from moonshim.usage.record import UsageRecord

DAY = 24 * 3600 * 1000
NOON = 1_794_830_400_000
"""2026-11-16 12:00 UTC."""


def record(number: int, **fields: Any) -> UsageRecord:
    """A settled exchange of 1,000 input and 100 output tokens for half a dollar."""
    usual: dict[str, Any] = {
        "id": f"r{number}",
        "request_id": f"q{number}",
        "started": NOON + number,
        "state": "settled",
        "key": "alice",
        "session": "s1",
        "client": "claude-code",
        "provider": "moonshot",
        "model": "kimi-k3",
        "input_tokens": 1000,
        "output_tokens": 100,
        "cost": 500_000_000_000,
        "currency": "$",
    }
    return UsageRecord(**(usual | fields))


def books(path: Path | None, records: list[UsageRecord]) -> UsageDatabase:
    """Books with these records; without a path, in memory."""
    database = UsageDatabase(path, days=36_500, max_bytes=2**30)
    database.write(records)
    return database


def write_books(path: Path, records: list[UsageRecord]) -> Path:
    books(path, records).close()
    return path
