"""Books that cannot be written: one warning, records in memory, and in the file as soon as that works."""

from __future__ import annotations

import os
import re
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from moonshim.simulator.server import Simulator
from moonshim.usage import database
from moonshim.usage.database import SCHEMA_VERSION
from tests.support.gateway.serving import wait_until
from tests.support.servers import running
from tests.usage.test_ledger import Books, rows, with_books

HOUR = 3_600_000
DAY = 24 * HOUR


def is_text(path: Path) -> None:
    path.write_text("This is not a database. " * 100)


def is_a_folder(path: Path) -> None:
    path.mkdir()


def is_newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE exchanges (id TEXT PRIMARY KEY, other TEXT)")
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")


def is_of_another_application(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE notes (text TEXT)")


FAULTS: dict[Callable[[Path], None], str] = {
    is_text: "file is not a database",
    is_a_folder: "unable to open",
    is_newer: f"newer version of Moonshim (schema {SCHEMA_VERSION + 1}, supported: {SCHEMA_VERSION})",
    is_of_another_application: "a SQLite database of another application",
}


@pytest.mark.parametrize(("spoil", "problem"), FAULTS.items(), ids=lambda one: getattr(one, "__name__", None))
def test_an_unusable_file_is_left_alone(tmp_path: Path, spoil: Callable[[Path], None], problem: str) -> None:
    path = tmp_path / "usage.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None

    async def test(books: Books) -> None:
        books.book(2)
        assert await books.count() == 2
        books.book(3)
        assert await books.count() == 5
        assert (path.read_bytes() if path.is_file() else None) == before

    books = with_books(path, test)
    ((name, fields),) = books.events
    assert (name, fields["file"]) == ("usage_not_saved", str(path))
    assert problem in fields["problem"]
    assert books.unsaved == 5


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder with books, in which nothing can be written."""
    folder = tmp_path / "state"
    folder.mkdir()
    if os.geteuid() == 0:  # no mode stops root
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=False).returncode:
            pytest.skip("nothing can be mounted here")
        with_books(folder / "usage.db", book_one)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        yield folder
        subprocess.run(["umount", "-l", folder], check=True)
    else:
        with_books(folder / "usage.db", book_one)
        (folder / "usage.db").chmod(0o400)
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)


async def book_one(books: Books) -> None:
    books.book(1)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system")
def test_a_folder_that_cannot_be_written(read_only: Path) -> None:
    async def test(books: Books) -> None:
        books.book(2)
        assert await books.count() >= 2

    for path in (read_only / "usage.db", read_only / "other.db", read_only / "new" / "usage.db"):
        books = with_books(path, test)
        assert books.names == ["usage_not_saved"]
        assert re.search("(?i)read-?only|permission|unable to open", str(books.events))


def test_records_are_saved_when_the_file_works_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_RETRY_SECONDS", 0.0)
    path = tmp_path / "usage.db"
    path.mkdir()

    async def test(books: Books) -> None:
        books.book(2)
        assert await books.count() == 2
        path.rmdir()
        books.book(1)
        assert await books.count() == 3

    books = with_books(path, test)
    assert books.names == ["usage_not_saved", "usage_saved_again"]
    assert len(rows(path)) == 3


def test_what_could_not_be_saved_is_found_by_the_next_process(tmp_path: Path) -> None:
    """With its tokens."""
    path = tmp_path / "usage.db"
    path.mkdir()

    async def first(books: Books) -> None:
        books.book(2)

    assert with_books(path, first).names == ["usage_not_saved"]
    path.rmdir()

    async def second(books: Books) -> None:
        assert books.events == [("usage_recovered", {"in_flight": 0, "settled": 2})]

    with_books(path, second)
    assert [row[1:] for row in rows(path)] == [("settled", 5)] * 2


def test_a_file_that_is_deleted_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"

    async def test(books: Books) -> None:
        books.book(2)
        assert await books.count() == 2
        for one in tmp_path.glob("usage.db*"):
            one.unlink()
        books.book(1)
        assert await books.count() == 1

    assert with_books(path, test).events == []
    assert len(rows(path)) == 1


WRITER = """
import sys
from pathlib import Path
from tests.usage.books import books, record
mine = books(Path(sys.argv[1]), [])
for line in sys.stdin:
    print(mine.write([record(int(line))], now=True), flush=True)
mine.close()
"""


def test_a_file_that_is_deleted_alone_is_created_again_by_several_processes(tmp_path: Path) -> None:
    """Its journal stays, since another process has it open."""
    path = tmp_path / "usage.db"
    command = [sys.executable, "-c", WRITER, str(path)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as two,
    ):

        def write(process: subprocess.Popen[str], number: int) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            print(number, file=process.stdin, flush=True)
            return process.stdout.readline()

        for number, process in enumerate((one, two, one, two, two, one)):
            if number == 2:
                path.unlink()
                assert (tmp_path / "usage.db-wal").exists()
            assert "is_saved=True" in write(process, number)
    assert sorted(row[0] for row in rows(path)) == ["r2", "r3", "r4", "r5"]


def test_what_is_not_a_file_of_running_exchanges_does_not_block_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "usage.db-running-1-aa")
    with (tmp_path / "usage.db-running-2-bb").open("wb") as huge:
        huge.write(b"moonshim usage 1")
        huge.truncate(20 * 2**30)

    async def test(books: Books) -> None:
        books.book(1)

    assert with_books(tmp_path / "usage.db", test).events == []
    assert len(rows(tmp_path / "usage.db")) == 1
    assert len(list(tmp_path.glob("*-running-*"))) == 2


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_MOST_HELD", 10)

    async def test(books: Books) -> None:
        for number in range(30):
            books.book(1, key=f"key {number}")
        kept = await books.ledger.run(lambda db: db.execute("SELECT key FROM exchanges ORDER BY id").fetchall())
        assert kept == [(f"key {number}",) for number in range(20, 30)]

    with_books(None, test)


def test_a_column_that_an_older_version_lacks_is_added(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"

    async def test(books: Books) -> None:
        books.book(1)

    with_books(path, test)
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE exchanges DROP COLUMN prefix_lost")
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION - 1}")
    assert with_books(path, test).events == []
    assert rows(path, "prefix_lost") == [(None,)] * 2


def test_old_records_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    now = time.time() * 1000

    async def test(books: Books) -> None:
        books.book(1, started=int(now - 31 * DAY), key="old")
        books.book(1, started=int(now - 29 * DAY), key="recent")

    with_books(path, test, days=30)

    async def again(books: Books) -> None:
        assert await books.count() == 1

    with_books(path, again, days=30)
    assert rows(path, "key") == [("recent",)]


def test_the_oldest_records_are_deleted_when_the_file_is_full(tmp_path: Path) -> None:
    path, limit = tmp_path / "usage.db", 1024 * 1024
    now = int(time.time() * 1000)

    async def test(books: Books) -> None:
        for batch in range(40):
            books.book(250, started=now - HOUR + batch, session=f"session {batch}", requested_model="m" * 100)
            await books.count()

    assert with_books(path, test, max_bytes=limit).events == []
    assert path.stat().st_size <= limit
    left = [int(name.removeprefix("session ")) for (name,) in set(rows(path, "session"))]
    assert 2 <= len(left) < 40
    assert max(left) == 39
    assert sorted(left) == list(range(min(left), 40))


CONFIG = """
[[providers]]
name = "host"
api_base_url = "{url}/v1"
api_key = "none"
models = ["kimi-k2.5"]
"""
BODY: dict[str, Any] = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.mark.skipif(sys.platform != "linux", reason="limits another process")
def test_requests_go_on_while_the_disk_is_full(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    state = tmp_path / "state"
    log = tmp_path / "serve"
    log.mkdir()
    with Simulator(log=lambda _: None).running() as simulator:
        (tmp_path / "moonshim.toml").write_text(CONFIG.format(url=simulator.url))
        with running("serve", "--config", tmp_path / "moonshim.toml", cwd=log, XDG_STATE_HOME=str(state)) as gateway:
            pid, usual = gateway.process.pid, resource.getrlimit(resource.RLIMIT_FSIZE)
            path = state / "moonshim" / "usage.db"
            assert gateway.post("/v1/chat/completions", BODY)[0] == 200
            wait_until(lambda: rows(path), "the first record is in the file")
            # The log of the database cannot grow, that of the gateway (200 bytes a line) can.
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (Path(f"{path}-wal").stat().st_size + 1, usual[1]))
            for _ in range(20):
                assert gateway.post("/v1/chat/completions", BODY)[0] == 200
            wait_until(lambda: "usage_not_saved" in gateway.stderr, "the gateway warns")
            metrics = gateway.get("/metrics")[1]
            assert 'moonshim_store_failures_total{operation="usage"}' in metrics
            resource.prlimit(pid, resource.RLIMIT_FSIZE, usual)
            assert gateway.stop() == 0
            events = [line["event"] for line in gateway.logged]
            assert not any("request_id" in line for line in gateway.logged if line["event"].startswith("usage"))
    assert events.count("usage_not_saved") == 1
    assert events.count("usage_saved_again") == 1
    assert [row[1] for row in rows(path)] == ["settled"] * 21
