"""Records that are opened and settled are in the books, whatever happens to the process or to the file."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from moonshim.config import Budget, Config, GatewayKey, UsageBooks
from moonshim.usage.ledger import UsageLedger, books_warnings
from moonshim.usage.record import UsageRecord
from moonshim.usage.running import RunningFile

DAY = 24 * 3600 * 1000


class Books:
    """A ledger at a path, and what it logged."""

    def __init__(self, path: Path | None, **given: Any) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.unsaved = 0
        self.ledger = UsageLedger(path, report=self._report, count_unsaved=self._count, **given)

    def _report(self, name: str, *, level: str = "info", **fields: Any) -> None:
        self.events.append((name, fields))

    def _count(self, records: int) -> None:
        self.unsaved += records

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def open_one(self, started: int | None = None, **given: Any) -> UsageRecord:
        started = int(time.time() * 1000) if started is None else started
        record = UsageRecord(id=self.ledger.new_id(started), request_id="r", started=started, **given)
        self.ledger.open_record(record)
        return record

    def book(self, count: int = 1, **given: Any) -> list[UsageRecord]:
        records = [self.open_one(**given) for _ in range(count)]
        for record in records:
            record.input_tokens, record.output_tokens = 10, 5
            self.ledger.settle(record)
        return records

    async def count(self) -> int:
        found: int = await self.ledger.run(lambda db: db.execute("SELECT count(*) FROM exchanges").fetchone()[0])
        return found


def with_books(path: Path | None, test: Callable[[Books], Awaitable[None]], **given: Any) -> Books:
    books = Books(path, **given)

    async def run() -> None:
        await books.ledger.start()
        try:
            await test(books)
        finally:
            await books.ledger.close()

    asyncio.run(run())
    return books


def rows(path: Path, select: str = "id, state, output_tokens") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"SELECT {select} FROM exchanges ORDER BY id").fetchall()


def test_settled_records_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state" / "usage.db"

    async def test(books: Books) -> None:
        books.book(3, key="laptop")
        assert await books.count() == 3
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    books = with_books(path, test)
    assert (
        rows(path, "key, state, input_tokens, output_tokens, cost, estimated")
        == [("laptop", "settled", 10, 5, None, 0)] * 3
    )
    assert [one.name for one in path.parent.iterdir()] == ["usage.db"]
    assert books.events == []


def test_a_record_is_written_without_a_further_one(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"

    async def test(books: Books) -> None:
        books.book()
        while not rows(path):
            await asyncio.sleep(0.01)

    with_books(path, test)


def test_two_processes_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"

    async def test(first: Books) -> None:
        async def other(second: Books) -> None:
            for _ in range(50):
                first.book(2)
                second.book(3)
                await asyncio.gather(first.count(), second.count())
            assert await second.count() == 250

        second = Books(path)
        await second.ledger.start()
        await other(second)
        await second.ledger.close()
        assert second.events == []

    assert with_books(path, test).events == []
    assert len(rows(path)) == 250


def test_what_has_not_ended_at_the_end_is_booked_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"

    async def first(books: Books) -> None:
        books.open_one(key="laptop")
        books.book(2)

    with_books(path, first)
    assert len(rows(path)) == 2

    async def second(books: Books) -> None:
        assert books.events == [("usage_recovered", {"in_flight": 1, "settled": 0})]

    with_books(path, second)
    assert sorted(rows(path, "state, key, output_tokens")) == [
        ("in_flight", "laptop", None),
        ("settled", None, 5),
        ("settled", None, 5),
    ]
    assert with_books(path, lambda _: asyncio.sleep(0)).events == []
    assert [one.name for one in tmp_path.iterdir()] == ["usage.db"]


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.usage.test_ledger import Books

async def run():
    books = Books(Path(sys.argv[1]))
    await books.ledger.start()
    books.book(100)
    await books.count()
    books.book(700)
    open = [books.open_one() for _ in range(40)]
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(run())
"""


def test_what_a_killed_process_had_not_written_is_found(tmp_path: Path) -> None:
    """More than the first slots of the file, too."""
    path = tmp_path / "usage.db"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(rows(path)) == 100
    books = with_books(path, lambda _: asyncio.sleep(0))
    assert books.events == [("usage_recovered", {"in_flight": 740, "settled": 0})]
    states = [state for _, state, _ in rows(path)]
    assert (states.count("settled"), states.count("in_flight")) == (100, 740)
    assert [one.name for one in tmp_path.iterdir()] == ["usage.db"]


STARTED = """
import asyncio, sys
from pathlib import Path
from tests.usage.test_ledger import with_books

sys.exit(len(with_books(Path(sys.argv[1]), lambda _: asyncio.sleep(0)).events))
"""


def test_the_file_of_a_process_that_lives_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"

    async def test(books: Books) -> None:
        books.open_one()
        assert subprocess.run([sys.executable, "-c", STARTED, str(path)], check=False).returncode == 0
        assert len(list(tmp_path.glob("*-running-*"))) == 1

    with_books(path, test)


def test_a_record_that_was_cut_off_while_it_was_copied_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"

    async def first(books: Books) -> None:
        books.open_one()
        books.open_one()

    with_books(path, first)
    (left,) = tmp_path.glob("*-running-*")
    data = bytearray(left.read_bytes())
    data[4096 + 20] ^= 1
    left.write_bytes(data)
    assert with_books(path, lambda _: asyncio.sleep(0)).events == [("usage_recovered", {"in_flight": 1, "settled": 0})]


def test_settling_leaves_either_the_open_or_the_settled_record(tmp_path: Path) -> None:
    """If the process is killed between the two writes, both are there, and the settled one counts."""
    running = RunningFile.create(tmp_path / "usage.db")
    record = UsageRecord(id="1", request_id="r", started=1)
    assert running.put(record)
    before = running.path.read_bytes()
    record.state = "settled"
    assert running.put(record)
    data = bytearray(running.path.read_bytes())
    data[4096:8192] = before[4096:8192]
    running.path.write_bytes(data)
    running.close()
    path = tmp_path / "usage.db"
    with_books(path, lambda _: asyncio.sleep(0))
    assert rows(path) == [("1", "settled", None)]


KEYS: Final = (GatewayKey(name="ci", digest="", budgets=(Budget(period="day", limit=Decimal(1)),)),)


def test_it_is_said_that_budgets_need_books_that_survive(tmp_path: Path) -> None:
    (memory,) = books_warnings(Config(keys=KEYS, usage=UsageBooks(file="memory:")), {})
    assert memory.startswith("keys have budgets, but usage records are in memory only")
    assert books_warnings(Config(keys=KEYS), {}) == [memory], "as in a container without a home"
    (tmp_path / "file").touch()
    for environ, file in (
        ({"XDG_STATE_HOME": str(tmp_path / "file")}, None),
        ({}, str(tmp_path / "file" / "usage.db")),
    ):
        (unwritable,) = books_warnings(Config(keys=KEYS, usage=UsageBooks(file=file)), environ)
        assert "usage records cannot be written to /" in unwritable
    assert books_warnings(Config(keys=KEYS), {"XDG_STATE_HOME": str(tmp_path / "new")}) == []
    assert books_warnings(Config(), {}) == [], "nothing is lost but the report"
