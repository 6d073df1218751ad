"""The store in a file: it survives its process, is shared between several, and says what is wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from moonshim.errors import InvalidInput
from moonshim.store import StoreUnavailable
from moonshim.store.sqlite import SCHEMA_VERSION, SqliteStore


def script(text: str, *args: object) -> subprocess.Popen[bytes]:
    """A process of its own that runs this, with its output in a pipe."""
    command = [sys.executable, "-c", textwrap.dedent(text), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


WRITER = """
import asyncio, sys
from pathlib import Path
from moonshim.store.sqlite import SqliteStore

async def write(store, writer):
    number = 0
    while True:
        await store.put(f"{writer}:{number}", b"x" * 3000, None)
        await store.put_entry("entries", f"{writer}:{number}", b"y", 3600)
        await store.add(f"count {writer}", 1, 3600)
        sys.stdout.write(f"{writer}:{number}\\n")
        sys.stdout.flush()
        number += 1

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    await asyncio.gather(*(write(store, f"{sys.argv[2]}{n}") for n in range(4)))

asyncio.run(main())
"""


def test_what_was_answered_survives_a_kill_in_the_middle_of_writing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for life in ("first", "second"):
        process = script(WRITER, path, life)
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(150)]
        process.send_signal(signal.SIGKILL)
        told += process.stdout.read().splitlines(keepends=True)
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        keys = [line.decode().strip() for line in told if line.endswith(b"\n")]

        async def check(keys: list[str] = keys) -> None:
            store = await SqliteStore.open(path)
            assert await store.get_many(keys) == [b"x" * 3000] * len(keys)
            for writer in {key.partition(":")[0] for key in keys}:
                acknowledged = sum(key.startswith(f"{writer}:") for key in keys)
                assert await store.add(f"count {writer}", 0, 60) >= acknowledged
            await store.close()

        assert len(keys) >= 150
        asyncio.run(check())


SHARER = """
import asyncio, sys
from pathlib import Path
from moonshim.store.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    secret = await store.put_new("secret", sys.argv[2].encode(), None)
    await asyncio.gather(*(store.add("count", 1, 3600) for _ in range(100)))
    got = [await store.lease("lease", f"{sys.argv[2]} {n}", 5, 3600) for n in range(5)]
    await store.close()
    print(secret.decode(), sum(got))

asyncio.run(main())
"""


def test_several_processes_share_one_file_from_its_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    processes = [script(SHARER, path, f"process{number}") for number in range(3)]
    told = [process.communicate(timeout=60)[0].decode().split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len({secret for secret, _ in told}) == 1
    assert sum(int(leases) for _, leases in told) == 5

    async def total() -> int:
        store = await SqliteStore.open(path)
        try:
            return await store.add("count", 0, 60)
        finally:
            await store.close()

    assert asyncio.run(total()) == 300


def test_the_file_is_for_its_owner_alone_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "state.db"

    async def run() -> None:
        store = await SqliteStore.open(path)
        await store.put("a", b"1", 60)
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
        assert len(list(path.parent.iterdir())) == 4  # with the log, its index, and the reserve
        await store.close()

    old = os.umask(0)
    try:
        asyncio.run(run())
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def open_and_close(path: Path) -> None:
    async def run() -> None:
        await (await SqliteStore.open(path)).close()

    asyncio.run(run())


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    open_and_close(path)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 6}")
    db.close()
    with pytest.raises(InvalidInput, match=f"newer Moonshim .schema {SCHEMA_VERSION + 6}"):
        open_and_close(path)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 6,)
    db.close()


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("These are my notes, and they must stay what they are.\n" * 20)
    before = text.read_bytes()
    with pytest.raises(InvalidInput, match="not a SQLite database"):
        open_and_close(text)
    assert text.read_bytes() == before
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.close()
    with pytest.raises(InvalidInput, match="another application"):
        open_and_close(other)


@pytest.mark.parametrize("where", ["", "file/below/a/file.db"], ids=["a folder", "below a file"])
def test_a_place_where_no_file_can_be_is_told(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable):
        open_and_close(tmp_path / where)


def test_a_disk_that_is_full_is_told_and_what_was_there_stays_readable(tmp_path: Path) -> None:
    process = script(
        """
        import asyncio, resource, signal, sys
        from pathlib import Path
        from moonshim.store import StoreUnavailable
        from moonshim.store.sqlite import SqliteStore

        async def main():
            store = await SqliteStore.open(Path(sys.argv[1]))
            await store.put("before", b"kept", None)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
            secret = b"hush " * 100_000
            for attempt in range(2):
                try:
                    await store.put("after", secret, None)
                except StoreUnavailable as error:
                    print(error)
            print(await store.get("before"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            await store.put("after", secret, None)
            print(len(await store.get("after")))
            await store.close()

        asyncio.run(main())
        """,
        tmp_path / "state.db",
    )
    told = process.communicate(timeout=60)[0].decode().splitlines()
    assert process.returncode == 0
    assert [line.partition(":")[0] for line in told[:2]] == ["the store failed"] * 2
    assert told[2:] == ["b'kept'", "500000"]
    assert not any("hush" in line for line in told)


def test_a_file_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def run() -> None:
        store = await SqliteStore.open(path)
        await store.put("a", b"1", 60)
        for file in list(tmp_path.iterdir()):
            file.unlink()
        await store.put("a", b"2", 60)
        assert path.is_file()
        other = await SqliteStore.open(path)
        assert await other.get("a") == b"2"
        await other.close()
        await store.close()

    asyncio.run(run())


def test_a_file_that_was_replaced_by_another_one_is_told_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def run() -> None:
        store = await SqliteStore.open(path)
        for file in list(tmp_path.iterdir()):
            file.unlink()
        path.write_text("notes " * 1000)
        with pytest.raises(StoreUnavailable):
            await store.put("a", b"2", 60)
        await store.close()

    asyncio.run(run())
    assert path.read_text() == "notes " * 1000


def test_a_job_that_cannot_be_done_takes_no_other_with_it(tmp_path: Path) -> None:
    async def run() -> None:
        store = await SqliteStore.open(tmp_path / "state.db")
        results = await asyncio.gather(
            store.put("a", b"1", 60),
            store.add("count", 1 << 80, 60),
            store.put("b", b"2", 60),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [type(None), StoreUnavailable, type(None)]
        assert await store.get_many(["a", "b"]) == [b"1", b"2"]
        await store.close()

    asyncio.run(run())


def test_a_file_that_somebody_locks_is_waited_for_and_then_told(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def run() -> None:
        store = await SqliteStore.open(path, patience=0.1)
        await store.put("a", b"1", 60)
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        writes = await asyncio.gather(*(store.put("a", b"2", 60) for _ in range(20)), return_exceptions=True)
        assert {type(result) for result in writes} == {StoreUnavailable}
        assert await store.get("a") == b"1"
        db.execute("COMMIT")
        db.close()
        await store.put("a", b"3", 60)
        assert await store.get("a") == b"3"
        await store.close()

    asyncio.run(run())


def test_what_is_over_leaves_the_file_while_others_are_written(tmp_path: Path) -> None:
    path, now = tmp_path / "state.db", [1000.0]

    async def run() -> None:
        store = await SqliteStore.open(path, lambda: now[0])
        for number in range(100):
            await store.put(f"{number}", b"x", 1)
            await store.put_entry(f"{number}", "field", b"x", 1)
            await store.add(f"{number}", 1, 1)
            await store.lease(f"{number}", "me", 1, 1)
        now[0] = 2000.0
        for _ in range(200):
            await store.put("kept", b"x", None)
        await store.close()

    asyncio.run(run())
    db = sqlite3.connect(path)
    tables = ("item", "entries", "entry", "counter", "lease")
    assert [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables] == [1, 0, 0, 0, 0]
    db.close()


def test_a_closed_store_says_so_and_one_can_be_closed_twice(tmp_path: Path) -> None:
    async def run() -> None:
        store = await SqliteStore.open(tmp_path / "state.db")
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.get("a")

    asyncio.run(run())


def test_the_loop_runs_on_while_the_file_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def run() -> None:
        store = await SqliteStore.open(path)
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.put("a", b"1", 60))
        turns = 0
        while turns < 100:  # the loop turns, and the write still waits for the lock
            await asyncio.sleep(0)
            turns += 1
        assert not waiting.done()
        db.execute("COMMIT")
        db.close()
        await waiting
        assert await store.get("a") == b"1"
        await store.close()

    asyncio.run(run())


def test_a_waiter_that_is_cancelled_harms_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        store = await SqliteStore.open(tmp_path / "state.db")
        waiters = [asyncio.ensure_future(store.put(f"{number}", b"x", 60)) for number in range(20)]
        await asyncio.sleep(0)
        for waiter in waiters[::2]:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
        assert await store.get("1") == b"x"
        await store.close()

    asyncio.run(run())


# --- size ---------------------------------------------------------------------------------------------------------

MIB = 1024 * 1024


def test_a_file_stays_within_its_bound_and_every_tenant_has_a_share(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def run() -> None:
        store = await SqliteStore.open(path, limit=8 * MIB)
        await store.put("secret", b"s" * 32, None)
        await store.add("limits:small:requests", 5, 60)
        for number in range(10):
            await store.put(f"turn:small:{number}", b"x" * 50_000, 60)
        await store.put_entry("recall:small:key", "field", b"x" * 1000, 60)
        for number in range(300):
            await store.put(f"turn:large:{number}", b"x" * 100_000, 60 + number)
            await store.put_entry(f"recall:large:{number}", "field", b"x" * 10_000, 60 + number)
        assert path.stat().st_size < 9 * MIB
        assert None not in await store.get_many([f"turn:small:{number}" for number in range(10)])
        assert await store.entries("recall:small:key")
        assert await store.get("secret") == b"s" * 32
        assert await store.add("limits:small:requests", 1, 60) == 6
        assert await store.get("turn:large:0") is None
        assert await store.entries("recall:large:0") == {}
        assert await store.get("turn:large:299") is not None
        assert await store.entries("recall:large:299")
        with pytest.raises(StoreUnavailable):
            await store.put("turn:large:too much", b"x" * 8 * MIB, 60)
        assert await store.get("turn:large:299") is not None
        await store.close()

    asyncio.run(run())


def test_a_file_of_an_older_version_is_read_and_its_rows_make_room_first(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def run() -> None:
        await (await SqliteStore.open(path)).close()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old:
            for table in ("item", "entries"):
                old.execute(f"DROP INDEX {table}_tenant")
                for column in ("tenant", "size"):
                    old.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
            later = time.time() + 600
            for number in range(20):
                row = (f"turn:a:{number}".encode(), later, bytes(100_000))
                old.execute("INSERT INTO item (key, expires, value) VALUES (?, ?, ?)", row)
        store = await SqliteStore.open(path, limit=3 * MIB)
        assert None not in await store.get_many([f"turn:a:{number}" for number in range(20)])
        for number in range(20):
            await store.put(f"turn:b:{number}", bytes(100_000), 60)
        assert None not in await store.get_many([f"turn:b:{number}" for number in range(20)])
        assert None in await store.get_many([f"turn:a:{number}" for number in range(20)])
        await store.close()

    asyncio.run(run())


def test_on_a_full_disk_what_is_stored_makes_room_for_what_comes(tmp_path: Path) -> None:
    async def run() -> None:
        store = await SqliteStore.open(tmp_path / "state.db")
        for number in range(100):
            await store.put(f"turn:large:{number}", b"x" * 100_000, 600 + number)
        await store.put("turn:small:1", b"mine", 600)

        def pages(db: sqlite3.Connection) -> int:
            count: int = db.execute("PRAGMA page_count").fetchone()[0]
            return count

        full = await store._database.run(pages, writes=False)
        # SQLite fails from here on as it does on a full disk, when the file would have to grow.
        await store._database.run(lambda db: db.execute(f"PRAGMA max_page_count={full}"), writes=False)
        for number in range(100, 250):
            await asyncio.gather(
                store.put(f"turn:large:{number}", b"x" * 100_000, 600 + number),
                store.put_entry(f"recall:small:{number}", "field", b"y" * 1000, 600),
                store.add(f"limits:small:{number}", 1, 60),
            )
        await store.ping()
        assert await store._database.run(pages, writes=False) == full
        assert await store.get("turn:small:1") == b"mine"
        assert [len(one) for one in await store.entries_many(["recall:small:100", "recall:small:249"])] == [1, 1]
        assert await store.get_many(["turn:large:0", "turn:large:249"]) == [None, b"x" * 100_000]
        await store.close()

    asyncio.run(run())
