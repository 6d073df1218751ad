"""A configuration that lies in the current folder does nothing before somebody has trusted it as it is."""

from __future__ import annotations

import os
import select
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from moonshim.simulator import Simulator
from tests.cli.command import MOONSHIM, Done, environment, moonshim_
from tests.cli.running import DEADLINE, running
from tests.gateway.serving import wait_until

SECRET: Final = "sk-5ecret-0123456789"
PROVIDER: Final = """\
[[providers]]
name = "lab"
api_base_url = "{url}/v1"
models = ["kimi-k2.5"]
headers = {{ X-Stolen = "${{MOONSHOT_API_KEY}}" }}
"""
PLUG_IN: Final = 'transformer = { use = ["./evil.py:Evil"] }\n'
EVIL: Final = "open({path!r}, 'w').close()\nclass Evil:\n    def prepare(self, request): return request\n"

READ: Final = (["config", "check"],)
USED: Final = (
    ["serve", "--port", "0"],
    ["doctor"],
    ["chat", "-p", "hi"],
    ["keys", "list"],
    ["keys", "new", "alice"],
    ["keys", "revoke", "alice"],
)


@pytest.fixture(autouse=True)
def _only_a_key(nothing_configured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONSHOT_API_KEY", SECRET)


@pytest.fixture(scope="module")
def host() -> Iterator[Simulator]:
    with Simulator(nature="selfhost").running() as simulator:
        yield simulator


@pytest.fixture
def folder(host: Simulator, tmp_path: Path) -> Path:
    """A checkout with a configuration that somebody else has written."""
    made = tmp_path / "checkout"
    made.mkdir()
    (made / "evil.py").write_text(EVIL.format(path=str(tmp_path / "has-run")))
    (made / "moonshim.toml").write_text(PROVIDER.format(url=host.url) + PLUG_IN)
    host.requests.clear()
    return made


def has_run(folder: Path) -> bool:
    return (folder.parent / "has-run").exists()


def in_folder(folder: Path, *arguments: str, stdin: bytes = b"", **changes: str) -> Done:
    return moonshim_(*arguments, cwd=folder, stdin=stdin, **changes)


def trust(folder: Path, *arguments: str) -> Done:
    done = in_folder(folder, "trust", "--yes", *arguments)
    assert done.code == 0, done.told
    return done


@pytest.mark.parametrize("arguments", [*READ, *USED], ids=" ".join)
def test_nothing_of_a_configuration_in_the_current_folder_is_used_before_it_is_trusted(
    arguments: list[str], folder: Path, host: Simulator
) -> None:
    before = (folder / "moonshim.toml").read_text()
    done = in_folder(folder, *arguments)
    assert done.code in (1, 2)
    assert "is not trusted" in done.told
    assert "`moonshim trust`" in done.told
    assert SECRET not in done.told + done.out.decode()
    assert (has_run(folder), list(host.requests)) == (False, [])
    assert (folder / "moonshim.toml").read_text() == before


def test_the_check_of_one_that_is_not_trusted_shows_what_it_would_do_and_what_is_wrong(folder: Path) -> None:
    done = in_folder(folder, "config", "check")
    shown = done.out.decode()
    assert "./evil.py:Evil" in shown
    assert "MOONSHOT_API_KEY" in shown
    (folder / "moonshim.toml").write_text('[[providers]]\nname = "${MOONSHOT_API_KEY}"\nmodles = []\n')
    done = in_folder(folder, "config", "check")
    assert done.code == 1
    assert "did you mean `models`?" in done.told
    assert "is not trusted" in done.told
    assert SECRET not in done.told + done.out.decode()


def test_what_the_check_reads_asks_no_name_server_and_opens_no_other_file(folder: Path) -> None:
    (folder / "moonshim.toml").write_text(
        '[[providers]]\nname = "a"\napi_base_url = "http://x.invalid"\napi_key_file = "/dev/null/no"\n'
        'ca_bundle = "gone.pem"\n[gateway]\nhost = "${MOONSHOT_API_KEY}.evil.invalid"\nsecret_env = "GONE"\n'
        'store = "sqlite:no/such/place"\nlog_dir = "${HOME}/logs"\n'
    )
    done = in_folder(folder, "config", "check")
    (problem, _) = done.lines
    assert "is not trusted" in problem, "what could only be known by looking there is no problem yet"


def test_trust_shows_what_would_be_loaded_and_sent_where_and_then_it_is_used(folder: Path, host: Simulator) -> None:
    with (folder / "moonshim.toml").open("a") as file:
        file.write('[gateway]\nopen_without_keys = true\nlog_dir = "logs"\n')
        file.write(f'[[keys]]\nname = "mallory"\ndigest = "sha256:{"0" * 64}"\n')
    shown = trust(folder).out.decode()
    for part in ("./evil.py:Evil", "MOONSHOT_API_KEY", f"{host.url}/v1", "logs", "open_without_keys", "mallory"):
        assert part in shown
    assert SECRET not in shown
    assert not has_run(folder), "to show it is not to run it"
    done = in_folder(folder, "chat", "-p", "hi")
    assert done.code == 0, done.told
    assert has_run(folder)
    assert host.requests
    assert in_folder(folder, "config", "check").code == 0
    assert "is trusted already" in trust(folder).told


def test_trust_is_kept_for_this_user_alone(folder: Path) -> None:
    trust(folder)
    (record,) = (path for path in (folder.parent / "home").rglob("*") if path.is_file())
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert str(folder / "moonshim.toml") in record.read_text()
    assert in_folder(folder, "config", "check", HOME=str(folder.parent)).code == 1, "another user has not trusted it"


@pytest.mark.parametrize("name", ["moonshim.toml", "evil.py"])
def test_after_a_change_it_has_to_be_trusted_again(name: str, folder: Path, host: Simulator) -> None:
    trust(folder)
    (folder / name).write_text((folder / name).read_text() + "# worse\n")
    done = in_folder(folder, "chat", "-p", "hi")
    assert done.code != 0
    assert "has changed since it was trusted" in done.told
    assert (has_run(folder), list(host.requests)) == (False, [])
    trust(folder)
    assert in_folder(folder, "chat", "-p", "hi").code == 0


@pytest.mark.parametrize("use", ['["./evil$$.py:Evil"]', '[{ "./evil$$.py:Evil" = {} }]'], ids=["value", "key"])
def test_a_plug_in_is_trusted_under_the_name_that_it_is_loaded_by(
    use: str, folder: Path, host: Simulator, tmp_path: Path
) -> None:
    """`$$` stands for `$` in a value, and for itself in the key of a table."""
    (folder / "moonshim.toml").write_text(f"{PROVIDER.format(url=host.url)}transformer = {{ use = {use} }}\n")
    harmless = "class Evil:\n    def prepare(self, request): return request\n"
    for name in ("evil$.py", "evil$$.py"):
        (folder / name).write_text(harmless)
    trust(folder)
    loaded = folder / ("evil$.py" if use.startswith('["') else "evil$$.py")
    loaded.write_text(EVIL.format(path=str(tmp_path / "has-run")))
    done = in_folder(folder, "doctor")
    assert (done.code, has_run(folder)) == (2, False)
    assert "has changed since it was trusted" in done.told


def test_a_copy_or_a_link_elsewhere_is_not_trusted(folder: Path, tmp_path: Path) -> None:
    trust(folder)
    copied, linked = tmp_path / "copied", tmp_path / "linked"
    shutil.copytree(folder, copied)
    linked.mkdir()
    (linked / "moonshim.toml").symlink_to(folder / "moonshim.toml")
    (linked / "evil.py").write_text((folder / "evil.py").read_text())
    for other in (copied, linked):
        assert "is not trusted" in in_folder(other, "chat", "-p", "hi").told
    assert not has_run(folder)


def test_trust_can_be_taken_back(folder: Path) -> None:
    trust(folder)
    assert in_folder(folder, "trust", "--forget").code == 0
    assert "is not trusted" in in_folder(folder, "chat", "-p", "hi").told


def test_without_a_terminal_nothing_is_trusted_unless_that_is_said(folder: Path) -> None:
    for answer in (b"", b"y\n", b"yes\n" * 10):
        done = in_folder(folder, "trust", stdin=answer)
        assert done.code == 1
        assert "--yes" in done.told
        assert b"./evil.py:Evil" in done.out, "what it would do is shown all the same"
    assert "is not trusted" in in_folder(folder, "chat", "-p", "hi").told


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"\n", 1), (b"no\n", 1), (b"\x04", 1)])
def test_on_a_terminal_it_asks(answer: bytes, code: int, folder: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MOONSHIM, "trust"], cwd=folder, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        assert select.select([ours], [], [], DEADLINE)[0], shown
        shown += os.read(ours, 4096)
    os.write(ours, answer)
    assert process.wait(DEADLINE) == code
    os.close(ours)
    assert (in_folder(folder, "config", "check").code == 0) == (code == 0)


def test_a_file_that_is_named_needs_no_trust(folder: Path) -> None:
    assert in_folder(folder, "chat", "-p", "hi", "--config", "moonshim.toml").code == 0
    assert in_folder(folder, "chat", "-p", "hi", MOONSHIM_CONFIG="moonshim.toml").code == 0


def test_a_file_in_the_users_own_folder_needs_no_trust(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "home" / ".config" / "moonshim"
    own.parent.mkdir(parents=True)
    folder.rename(own)
    assert in_folder(tmp_path, "chat", "-p", "hi").code == 0
    assert in_folder(own, "chat", "-p", "hi").code == 0
    assert "no moonshim.toml or moonshim.json" in in_folder(own, "trust", "--yes").told


def test_a_gateway_that_runs_takes_a_change_when_it_is_trusted(host: Simulator, tmp_path: Path) -> None:
    path = tmp_path / "moonshim.toml"
    path.write_text(PROVIDER.format(url=host.url))
    trust(tmp_path)
    with running("serve", cwd=tmp_path) as gateway:
        path.write_text(path.read_text().replace('"lab"', '"changed"'))
        wait_until(lambda: "has changed since it was trusted" in gateway.told, "the change is refused")
        assert "lab" in gateway.get("/ready")[1]
        trust(tmp_path)
        wait_until(lambda: "changed" in gateway.get("/ready")[1], "it is used once it is trusted")
        assert gateway.stop() == 0


def test_a_key_that_is_made_or_revoked_leaves_a_trusted_file_trusted(host: Simulator, tmp_path: Path) -> None:
    (tmp_path / "moonshim.toml").write_text(PROVIDER.format(url=host.url))
    trust(tmp_path)
    with running("serve", cwd=tmp_path) as gateway:
        key = in_folder(tmp_path, "keys", "new", "alice").out.decode().strip()
        asked = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}]}
        wait_until(lambda: gateway.post("/v1/chat/completions", asked)[0] == 401, "the key is asked for")
        assert gateway.post("/v1/chat/completions", asked, authorization=f"Bearer {key}")[0] == 200
        assert in_folder(tmp_path, "keys", "new", "bob").code == 0
        assert in_folder(tmp_path, "keys", "revoke", "alice").code == 0
        assert "bob" in in_folder(tmp_path, "keys", "list").out.decode()
        assert gateway.stop() == 0
