"""`moonshim usage`: the books, as people and programs read them."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from moonshim.store import open_store
from moonshim.usage.ledger import UsageLedger
from moonshim.usage.record import COST_UNITS, UsageRecord
from moonshim.usage.shared import SharedUsage
from tests.support.command import MOONSHIM, CompletedCommand, environment, run_moonshim
from tests.support.redis_server import running_redis
from tests.usage.books import DAY, record, write_books

NOW = int(time.time() * 1000) - 1000


def recent(number: int, **fields: Any) -> UsageRecord:
    return record(number, **({"started": NOW - number} | fields))


BOOKS = [
    recent(1, cache_read_tokens=900, cache_write_tokens=50, cost=int(1.25 * COST_UNITS)),
    recent(2, model="kimi-k2.6", cost=COST_UNITS // 100, estimated=True),
    recent(3, key="bob", model="kimi-for-coding", provider="plan", cost=None, currency=None),
    recent(4, key="bob", input_tokens=None, output_tokens=None, state="in_flight", cost=None, currency=None),
    recent(5, started=NOW - 60 * DAY, cost=COST_UNITS * 100),
]


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return write_books(tmp_path / "usage.db", BOOKS)


def test_a_table_by_model(books: Path) -> None:
    done = run_moonshim("usage", "--by", "model", "--file", books)
    assert (done.code, done.stderr) == (0, "")
    lines = done.out.decode().splitlines()
    assert lines[0].endswith(" UTC")
    rows = [line.split() for line in lines[2:7]]
    assert rows == [
        ["MODEL", "REQS", "INPUT", "READ", "WRITE", "OUTPUT", "COST"],
        ["kimi-k3", "2", "1.0k", "90%", "50", "100", "≥", "$1.25"],
        ["kimi-k2.6", "1", "1.0k", "0%", "0", "100", "$0.0100"],
        ["kimi-for-coding", "1", "1.0k", "0%", "0", "100", "unknown"],
        ["total", "4", "3.0k", "30%", "50", "300", "≥", "$1.26"],
    ]
    assert lines[8:] == [
        "1 request without a known cost: add a price to [prices] for plan/kimi-for-coding",
        "1 request in flight when the gateway was killed: tokens and cost unknown",
        "1 request with estimated tokens: interrupted, or not counted by the host",
    ]
    assert "\x1b" not in done.out.decode()
    assert "█" not in done.out.decode()


def test_searches_without_a_price_make_the_cost_a_lower_bound(tmp_path: Path) -> None:
    one = recent(1, searches=3, unpriced_searches=2, cost=COST_UNITS)
    done = run_moonshim("usage", "--by", "model", "--file", write_books(tmp_path / "usage.db", [one]))
    assert "≥ $1.00" in done.out.decode()
    expected = (
        "2 web searches without a cost in the currency of the models: set `price` in [web_search], or `search` in "
        "[prices] if the host searches"
    )
    assert done.out.decode().splitlines()[-1] == expected
    done = run_moonshim("usage", "--csv", "--file", tmp_path / "usage.db")
    (row,) = csv.DictReader(done.out.decode().splitlines())
    assert (row["searches"], row["unpriced_searches"], row["cost $"]) == ("3", "2", "1.00")


def test_currencies_stand_side_by_side(tmp_path: Path) -> None:
    books = write_books(tmp_path / "u.db", [recent(1), recent(2, cost=3 * COST_UNITS, currency="¥")])
    line = run_moonshim("usage", "--by", "key", "--file", books).out.decode().splitlines()[3]
    assert line.endswith("$0.5000 + ¥3.00")


def test_since_until_and_key_select(books: Path) -> None:
    def count(*arguments: str) -> int:
        done = run_moonshim("usage", "--json", "--file", books, *arguments)
        assert done.code == 0
        requests: int = json.loads(done.out)["total"]["requests"]
        return requests

    assert count() == 4
    assert count("--since", "90d") == 5
    assert count("--since", "90d", "--until", "30d") == 1
    assert count("--key", "bob") == 2
    assert count("--key", "nobody") == 0


def test_json_is_what_the_gateway_returns(books: Path) -> None:
    document = json.loads(run_moonshim("usage", "--by", "key", "--json", "--file", books).out)
    assert (document["object"], document["by"], document["has_more"]) == ("usage", "key", False)
    alice, bob = document["data"]
    assert (alice["name"], alice["costs"], alice["cost_unknown"]) == ("alice", {"$": "1.26"}, 0)
    assert (bob["name"], bob["costs"], bob["cost_unknown"], bob["in_flight"]) == ("bob", {}, 2, 1)


def test_csv_cannot_run_formulas(tmp_path: Path) -> None:
    names = ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", 'quoted", name', "plain"]
    books = write_books(tmp_path / "u.db", [recent(n, session=name) for n, name in enumerate(names)])
    out = run_moonshim("usage", "--by", "session", "--csv", "--file", books).out.decode()
    header, *rows = csv.reader(out.splitlines())
    assert header[:4] == ["session", "requests", "in_flight", "estimated"]
    assert header[-2:] == ["cost $", "cost_unknown"]
    assert sorted(row[0] for row in rows) == sorted(
        ["'=HYPERLINK(1)", "'+1", "'-1", "'@SUM(A1)", 'quoted", name', "plain"]
    )
    assert all(row[-2:] == ["0.50", "0"] for row in rows)


def test_csv_cannot_control_the_terminal(tmp_path: Path) -> None:
    books = write_books(tmp_path / "u.db", [recent(1, session="\x1b]0;pwn\x07\u202ered")])
    out = run_moonshim("usage", "--by", "session", "--csv", "--file", books).out.decode()
    assert r"\x1b]0;pwn\x07\u202ered," in out
    assert all(char.isprintable() for line in out.splitlines() for char in line)


def test_a_cost_that_is_unknown_is_an_empty_cell(books: Path) -> None:
    out = run_moonshim("usage", "--by", "provider", "--csv", "--file", books).out.decode()
    rows = {row["provider"]: row for row in csv.DictReader(out.splitlines())}
    assert (rows["plan"]["cost $"], rows["plan"]["cost_unknown"]) == ("", "1")


def test_empty_books_say_what_to_do(tmp_path: Path) -> None:
    done = run_moonshim("usage", "--file", write_books(tmp_path / "u.db", []))
    assert (done.code, done.out) == (0, b"")
    assert "no requests in this period" in done.stderr
    assert len(done.lines) == 1


def test_books_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    missing, text, other, locked = (tmp_path / name for name in ("missing.db", "text.db", "other.db", "locked.db"))
    text.write_text("This is a text file, and not a database at all.\n" * 50)
    sqlite3.connect(other).execute("CREATE TABLE mine (x)").connection.close()
    write_books(locked, BOOKS)
    holder = sqlite3.connect(locked, isolation_level=None)
    holder.execute("PRAGMA journal_mode=DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    for path, message in (
        (
            missing,
            "does not exist. `moonshim serve` creates it; with --demo, the records are in memory and GET /v1/usage",
        ),
        (tmp_path, "is not a file"),
        (text, "is not a usage database; pass another file with --file"),
        (other, "is not a usage database of this version of Moonshim"),
        (locked, "is locked by another process; try again"),
    ):
        done = run_moonshim("usage", "--file", path)
        assert (done.code, done.out, len(done.lines)) == (1, b"", 1), path
        assert message in done.stderr, path
    holder.close()


def test_without_a_file_it_reads_that_of_the_gateway(tmp_path: Path) -> None:
    provider = '[[providers]]\nname = "p"\napi_base_url = "http://localhost:1/v1"\n'
    home: dict[str, Any] = {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "none"),
    }

    def read(settings: str | None) -> Any:
        file = tmp_path / "settings.toml"
        file.write_text(provider + (settings or ""))
        named: dict[str, Any] = {} if settings is None else {"MOONSHIM_CONFIG": str(file)}
        return run_moonshim("usage", "--json", cwd=tmp_path, **home, **named)

    assert f"{tmp_path}/state/moonshim/usage.db does not exist" in read(None).stderr
    (tmp_path / "state" / "moonshim").mkdir(parents=True)
    write_books(tmp_path / "state" / "moonshim" / "usage.db", BOOKS)
    write_books(tmp_path / "own.db", BOOKS[:1])
    counts = [json.loads(read(one).out)["total"]["requests"] for one in (None, "", '[usage]\nfile = "own.db"\n')]
    assert counts == [4, 4, 1]
    for settings, message in (
        ('[usage]\nfile = "memory:"\n', "request GET /v1/usage from the gateway"),
        ("[usage]\nfile = 1\n", "usage.file: expected a string, got an integer; or pass --file PATH"),
    ):
        done = read(settings)
        assert (done.code, len(done.lines)) == (1, 1)
        assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--since", "soon"), "argument --since: expected a period (30min, 12h, 7d, 2w, 3mo, 1y), a date (2026-"),
        (("--since", "30m"), "argument --since: expected a period (30min, 12h, 7d, 2w, 3mo, 1y)"),
        (("--until", "2d", "--since", "1d"), "argument --until: must be after --since"),
        (("--since", "0001-01-01T00:00+23:59"), "argument --since: expected a period"),
        (("--until", "9999-12-31T23:59:59-12:00"), "argument --until: expected a period"),
        (("--key", "\udcff\udcfe"), "argument --key: must be valid UTF-8"),
        (("--by", "modle"), "did you mean 'model'?"),
        (("--json", "--csv"), "not allowed with argument"),
    ],
)
def test_wrong_arguments_are_explained(arguments: tuple[str, ...], message: str) -> None:
    done = run_moonshim("usage", *arguments)
    assert done.code == 2
    assert message in done.stderr


def on_a_terminal(*arguments: str | Path, **changes: str) -> str:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MOONSHIM, *map(str, arguments)], env=environment(**changes), stdin=subprocess.DEVNULL, stdout=theirs
    )
    os.close(theirs)
    told = b""
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # EIO: how Linux says that the other side is closed
            break
        told += data
    assert process.wait(30) == 0
    os.close(ours)
    return told.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("by", ["day", "model"])
def test_a_terminal_shows_bars_and_colours_within_its_width(tmp_path: Path, by: str) -> None:
    records = [recent(n, model=f"模型-{n}", started=NOW - n * DAY, cost=(n + 1) * COST_UNITS) for n in range(12)]
    books = write_books(tmp_path / "u.db", records)
    told = on_a_terminal("usage", "--by", by, "--file", books, COLUMNS="80", NO_COLOR="1", LANG="C.UTF-8")
    assert "\x1b" not in told
    assert all(_columns(line) <= 80 for line in told.splitlines()), told
    bars = [line.count("█") for line in told.splitlines()]
    assert max(bars) > 3
    coloured = on_a_terminal("usage", "--by", by, "--file", books, COLUMNS="80", LANG="C.UTF-8")
    assert "\x1b[32m█" in coloured
    assert "m\x1b[0m" not in coloured  # a colour for nothing
    assert "COST  SHARE" in told


def test_sessions_can_be_told_apart_on_a_terminal(tmp_path: Path) -> None:
    """Of what does not fit, the bar goes first, then the middle of a name. The prefix says nothing."""
    generated = [recent(n, session=f"conversation-2c0ef0813459{n:04}", started=NOW - n * DAY) for n in range(5)]
    other = [recent(9, session=f"会话-{'x' * 60}9", cost=COST_UNITS, currency="¥")]
    books = write_books(tmp_path / "u.db", generated + other)
    for columns in (80, 60):
        told = on_a_terminal(
            "usage", "--by", "session", "--file", books, COLUMNS=str(columns), NO_COLOR="1", LANG="C.UTF-8"
        )
        names = [line.split()[0] for line in told.splitlines()[3:9]]
        assert len(set(names)) == 6
        assert all(_columns(line) <= columns for line in told.splitlines()), told
        assert "█" not in told
        assert any(name.startswith("会话-") and name.endswith("xx9") and "…" in name for name in names)
    assert "2c0ef08134590003" in on_a_terminal(
        "usage", "--by", "session", "--file", books, COLUMNS="80", LANG="C.UTF-8"
    )
    piped = run_moonshim("usage", "--by", "session", "--file", books).out.decode()
    assert f"会话-{'x' * 60}9 " in piped
    (line,) = [line.split() for line in piped.splitlines() if line.startswith("2c0ef08134590003 ")]
    assert line[1:3] == time.strftime("%m-%d %H:%M", time.gmtime((NOW - 3 * DAY) // 1000)).split()


def test_requests_that_no_host_accepted_cost_nothing(tmp_path: Path) -> None:
    refused = recent(2, provider="nosuch", input_tokens=0, output_tokens=0, cost=0, currency=None, status=404)
    books = write_books(tmp_path / "u.db", [recent(1), refused])
    lines = run_moonshim("usage", "--by", "provider", "--file", books).out.decode().splitlines()
    assert lines[4].split() == ["nosuch", "1", "0", "-", "0", "0", "-"]
    assert lines[-1].split() == ["total", "2", "1.0k", "0%", "0", "100", "$0.5000"]
    out = run_moonshim("usage", "--by", "provider", "--csv", "--file", books).out.decode()
    rows = {row["provider"]: row for row in csv.DictReader(out.splitlines())}
    assert (rows["nosuch"]["cost $"], rows["nosuch"]["cost_unknown"]) == ("0.00", "0")


def test_lost_caches_are_counted_with_the_most_frequent_reason(tmp_path: Path) -> None:
    reasons = ["tools[12] changed", "tools[12] changed", "system changed", None]
    books = write_books(tmp_path / "u.db", [recent(n, prefix_lost=reason) for n, reason in enumerate(reasons)])
    told = run_moonshim("usage", "--file", books).out.decode()
    assert told.endswith("3 requests lost the prompt cache, mostly (2): tools[12] changed\n")


def _columns(line: str) -> int:
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(char) in "WF" else 1 for char in line)


def test_names_cannot_control_the_terminal(tmp_path: Path) -> None:
    books = write_books(tmp_path / "u.db", [recent(1, session="a\x1b[2Jb\nc")])
    told = on_a_terminal("usage", "--by", "session", "--file", books, NO_COLOR="1")
    assert "\x1b" not in told
    assert "a\\x1b[2Jb\\nc" in told


def test_an_old_terminal_gets_plain_characters(tmp_path: Path) -> None:
    records = [recent(1), recent(2, cost=None, currency=None)]
    books = write_books(tmp_path / "u.db", records)
    told = on_a_terminal("usage", "--file", books, NO_COLOR="1", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ">= $0.5000" in told
    assert "####" in told


BUDGETS = """
[[providers]]
name = "vllm"
api_base_url = "http://localhost:8000/v1"
[[keys]]
name = "alice"
digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
budgets = [{ period = "total", limit = "2.00" }, { period = "total", tokens = 1000, soft = true }]
"""


def test_budgets_follow_the_table(tmp_path: Path) -> None:
    books = write_books(tmp_path / "usage.db", [record(number, started=int(time.time() * 1000)) for number in range(3)])
    config = tmp_path / "moonshim.toml"
    config.write_text(f'{BUDGETS}\n[usage]\nfile = "{books}"')
    shown = run_moonshim("usage", MOONSHIM_CONFIG=str(config)).out.decode()
    lines = [line.split() for line in shown.partition("KEY")[2].splitlines()]
    assert lines[0][-2:] == ["RESETS", "KIND"]
    assert lines[1] == ["alice", "$2.00", "in", "total", "$1.50", "$0.5000", "75%", "never", "hard"]
    assert lines[2] == [
        *("alice", "1,000", "tokens", "in", "total"),
        *("3,300", "tokens", "0", "tokens", "330%", "never", "soft"),
    ]
    named = run_moonshim("usage", "--config", config, cwd=tmp_path).out.decode()
    assert named.partition("KEY")[2] == shown.partition("KEY")[2]
    (tmp_path / "state" / "moonshim").mkdir(parents=True)
    books.rename(tmp_path / "state" / "moonshim" / "usage.db")
    home: dict[str, Any] = {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "none"),
    }
    without = run_moonshim("usage", cwd=tmp_path / "state", **home)
    assert "KEY" not in without.out.decode()
    assert without.lines == ["moonshim usage: budgets are not shown: no configuration was found; pass --config FILE"]
    config.write_text(f'{BUDGETS}\n[usage]\nfile = "{tmp_path}/state/moonshim/usage.db"')
    document = json.loads(run_moonshim("usage", "--json", MOONSHIM_CONFIG=str(config)).out)
    assert [budget["used"] for budget in document["budgets"]] == ["1.50", 3300]


def test_gateways_that_share_a_redis_are_added_up(tmp_path: Path) -> None:
    now = int(time.time() * 1000)

    async def use(url: str) -> None:
        for name, count in (("here", 2), ("there", 3)):
            store, ledger = await open_store(url, memory_bytes=1000), UsageLedger(tmp_path / name / "usage.db")
            await ledger.start()
            for number in range(count):
                ledger.settle(record(number, started=now))
            shared = SharedUsage(store, ledger, days=90)
            await shared.write()
            await ledger.close()
            await store.close()

    with running_redis() as redis:
        asyncio.run(use(redis.url))
        config = tmp_path / "moonshim.toml"
        config.write_text(
            f'{BUDGETS}\n[usage]\nfile = "{tmp_path}/here/usage.db"\n[gateway]\nstore = "redis://127.0.0.1:${{PORT}}"'
        )

        def show(*arguments: str | Path) -> CompletedCommand:
            return run_moonshim("usage", "--json", *arguments, MOONSHIM_CONFIG=str(config), PORT=str(redis.port))

        assert json.loads(show().out)["total"]["requests"] == 5
        only_here = show("--file", tmp_path / "here" / "usage.db")
        assert json.loads(only_here.out)["total"]["requests"] == 2
        redis.stop()
        alone = show()
        assert json.loads(alone.out)["total"]["requests"] == 2
        assert "only the usage of this machine is shown" in alone.stderr
