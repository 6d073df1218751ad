"""`moonshim config check` and `moonshim serve` accept and refuse the same configurations, for the same reasons."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

import pytest

from tests.support.command import run_moonshim
from tests.support.servers import running

PROVIDER: Final = """\
[[providers]]
name = "a"
api_base_url = "http://127.0.0.1:9/v1"
models = ["kimi-k2.5"]

"""


pytestmark = pytest.mark.usefixtures("nothing_configured")


REFUSED: Final = {
    "an address that others reach, without keys": ('host = "0.0.0.0"', "moonshim keys new"),
    "workers that cannot share their memory": ("workers = 2", "memory:"),
    "a store in a folder that is missing": ('store = "sqlite:no/such/folder/state.db"', "no/such"),
    "a store in a folder that is a file": ('store = "sqlite:moonshim.toml/state.db"', "moonshim.toml"),
    "a store that is a folder": ('store = "sqlite:folder"', "folder"),
    "a store that is another program's database": ('store = "sqlite:foreign.db"', "foreign.db"),
    "a store that is no database": ('store = "sqlite:moonshim.toml"', "moonshim.toml"),
    "a host name without an address": ('host = "no-such-host.invalid"', "no-such-host.invalid"),
    "a log folder that cannot be made": ('log_dir = "moonshim.toml/logs"', "moonshim.toml/logs"),
}


@pytest.mark.parametrize(("line", "word"), REFUSED.values(), ids=REFUSED.keys())
def test_the_check_refuses_what_serve_refuses(line: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "moonshim.toml").write_text(f"{PROVIDER}[gateway]\n{line}\n")
    (tmp_path / "folder").mkdir()
    with sqlite3.connect(tmp_path / "foreign.db") as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    before = sorted(tmp_path.iterdir())
    checked = run_moonshim("config", "check", cwd=tmp_path, MOONSHIM_CONFIG="moonshim.toml")
    assert (checked.code, checked.out) == (1, b"")
    assert sorted(tmp_path.iterdir()) == before, "a check creates nothing"
    served = run_moonshim("serve", "--port", "0", cwd=tmp_path, MOONSHIM_CONFIG="moonshim.toml")
    assert (served.code, served.out) == (2, b"")
    reason = checked.lines[0].removeprefix("✗ ").partition("moonshim.toml: ")[2]
    assert word in reason
    assert reason in served.stderr


def test_the_check_of_an_environment_refuses_what_serve_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOONSHOT_API_KEY", "sk-test-key-12345")
    monkeypatch.setenv("MOONSHIM_STORE", "sqlite:no/such/state.db")
    assert run_moonshim("config", "check", cwd=tmp_path).code == 1
    assert run_moonshim("serve", "--port", "0", cwd=tmp_path).code == 2


def test_what_the_check_accepts_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONSHIM_CONFIG", "moonshim.toml")
    gateway = '[gateway]\nstore = "sqlite:new/state.db"\nworkers = 2\nlog_dir = "logs/of/today"\n'
    (tmp_path / "moonshim.toml").write_text(PROVIDER + gateway)
    assert run_moonshim("config", "check", cwd=tmp_path).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["moonshim.toml"], "a check creates nothing"
    with running("serve", cwd=tmp_path) as served:
        assert served.get("/health")[0] == 200
        checked = run_moonshim("config", "check", cwd=tmp_path)  # while the store is in use
        assert checked.code == 0, checked.stderr
        assert served.stop() == 0
