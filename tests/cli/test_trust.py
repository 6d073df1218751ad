"""A configuration that lies in the current folder does nothing before somebody has trusted it as it is."""

from __future__ import annotations

import json
import os
import select
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from moonshim.simulator import Simulator
from tests.support.command import MOONSHIM, CompletedCommand, environment, run_moonshim
from tests.support.gateway.serving import wait_until
from tests.support.servers import DEADLINE, running

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
    with Simulator(behaviour="selfhost").running() as simulator:
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


def in_folder(folder: Path, *arguments: str, stdin: bytes = b"", **changes: str) -> CompletedCommand:
    return run_moonshim(*arguments, cwd=folder, stdin=stdin, **changes)


def trust(folder: Path, *arguments: str) -> CompletedCommand:
    done = in_folder(folder, "trust", "--yes", *arguments)
    assert done.code == 0, done.stderr
    return done


@pytest.mark.parametrize("arguments", [*READ, *USED], ids=" ".join)
def test_nothing_of_a_configuration_in_the_current_folder_is_used_before_it_is_trusted(
    arguments: list[str], folder: Path, host: Simulator
) -> None:
    before = (folder / "moonshim.toml").read_text()
    done = in_folder(folder, *arguments)
    assert done.code == (1 if arguments == ["config", "check"] else 2)
    assert f"{folder / 'moonshim.toml'} is not trusted yet" in done.stderr
    assert "invalid configuration" not in done.stderr
    assert "`moonshim trust`" in done.stderr
    assert SECRET not in done.stderr + done.out.decode()
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
    assert "did you mean 'models'?" in done.stderr
    assert "is not trusted" in done.stderr
    assert SECRET not in done.stderr + done.out.decode()


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
    assert done.code == 0, done.stderr
    assert has_run(folder)
    assert host.requests
    assert in_folder(folder, "config", "check").code == 0
    assert "is already trusted" in trust(folder).stderr


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
    assert "has changed since you trusted it" in done.stderr
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
    assert "has changed since you trusted it" in done.stderr


def test_a_copy_or_a_link_elsewhere_is_not_trusted(folder: Path, tmp_path: Path) -> None:
    trust(folder)
    copied, linked = tmp_path / "copied", tmp_path / "linked"
    shutil.copytree(folder, copied)
    linked.mkdir()
    (linked / "moonshim.toml").symlink_to(folder / "moonshim.toml")
    (linked / "evil.py").write_text((folder / "evil.py").read_text())
    for other in (copied, linked):
        assert "is not trusted" in in_folder(other, "chat", "-p", "hi").stderr
    assert not has_run(folder)


def test_trust_can_be_taken_back(folder: Path) -> None:
    trust(folder)
    assert in_folder(folder, "trust", "--forget").code == 0
    assert "is not trusted" in in_folder(folder, "chat", "-p", "hi").stderr


def test_without_a_terminal_nothing_is_trusted_unless_that_is_said(folder: Path) -> None:
    for answer in (b"", b"y\n", b"yes\n" * 10):
        done = in_folder(folder, "trust", stdin=answer)
        assert done.code == 1
        assert "--yes" in done.stderr
        assert b"./evil.py:Evil" in done.out, "what it would do is shown all the same"
    assert "is not trusted" in in_folder(folder, "chat", "-p", "hi").stderr


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
    assert "is in your configuration folder and needs no trust" in in_folder(own, "trust", "--yes").stderr
    assert "there is no moonshim.toml or moonshim.json in this folder" in in_folder(tmp_path, "trust", "--yes").stderr


def test_a_gateway_that_runs_takes_a_change_when_it_is_trusted(host: Simulator, tmp_path: Path) -> None:
    path = tmp_path / "moonshim.toml"
    path.write_text(PROVIDER.format(url=host.url))
    trust(tmp_path)
    with running("serve", cwd=tmp_path) as gateway:
        path.write_text(path.read_text().replace('"lab"', '"changed"'))
        wait_until(lambda: "has changed since you trusted it" in gateway.stderr, "the change is refused")
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


# -- attacks -----------------------------------------------------------------------------------------------------

SWAPPER: Final = """
import os, sys
opened = 0
def swap(event, arguments):
    global opened
    if event == "open" and str(arguments[0]) == {target!r}:
        opened += 1
        if opened == 2:
            os.replace({worse!r}, {target!r})
sys.addaudithook(swap)
"""
"""Replaces a file just before the process opens it a second time, to use what it has checked at the first."""


@pytest.mark.parametrize("name", ["moonshim.toml", "evil.py"])
@pytest.mark.parametrize("arguments", [["chat", "-p", "hi"], ["doctor"], ["config", "check"], ["keys", "new", "al"]])
def test_what_is_swapped_after_the_check_is_neither_run_nor_trusted(
    arguments: list[str], name: str, folder: Path, tmp_path: Path
) -> None:
    evil, harmless = (folder / "evil.py").read_text(), "class Evil:\n    def prepare(self, request): return request\n"
    (folder / "evil.py").write_text(harmless)
    trust(folder)
    worse, hook = tmp_path / "worse", tmp_path / "hook"
    hook.mkdir()
    if name == "evil.py":
        worse.write_text(evil)
    else:
        (folder / "other.py").write_text(evil)
        worse.write_text((folder / name).read_text().replace("./evil.py", "./other.py"))
    (hook / "sitecustomize.py").write_text(SWAPPER.format(target=str(folder / name), worse=str(worse)))
    in_folder(folder, *arguments, PYTHONPATH=os.pathsep.join([str(hook), environment()["PYTHONPATH"]]))
    assert not has_run(folder)
    if not worse.exists():
        assert in_folder(folder, "doctor").code == 2
        assert not has_run(folder)


def test_in_a_folder_that_is_not_trusted_keys_touches_nothing(folder: Path) -> None:
    (folder / ".moonshim.toml.lock").mkdir()
    for arguments in (["new", "alice"], ["revoke", "alice"]):
        done = in_folder(folder, "keys", *arguments)
        assert done.code == 2
        assert "is not trusted" in done.stderr


def test_a_plug_in_that_changes_another_after_the_check_does_not_get_it_run(
    folder: Path, host: Simulator, tmp_path: Path
) -> None:
    second = folder / "second.py"
    second.write_text("class Evil:\n    def prepare(self, request): return request\n")
    (folder / "evil.py").write_text(
        f"open({str(second)!r}, 'a').write({EVIL.format(path=str(tmp_path / 'has-run'))!r})\n{second.read_text()}"
    )
    use = 'transformer = { use = ["./evil.py:Evil", "./second.py:Evil"] }\n'
    (folder / "moonshim.toml").write_text(PROVIDER.format(url=host.url) + use)
    trust(folder)
    assert in_folder(folder, "chat", "-p", "hi").code == 0
    assert "has-run" in second.read_text()
    assert not has_run(folder)


UNCOVERED: Final = {
    "a module": ["evil:Evil"],
    "a module in a package": ["inner.evil:Evil"],
    "an entry point": ["Evil"],
    "what is not an attribute": ["./evil.py:Evil.prepare"],
}


@pytest.mark.parametrize("name", UNCOVERED)
@pytest.mark.parametrize("by_path", [False, True], ids=["python -m", "PYTHONPATH"])
def test_code_beside_a_trusted_file_is_run_only_if_trust_covers_it(
    by_path: bool, name: str, folder: Path, host: Simulator
) -> None:
    use = f"transformer = {{ use = {UNCOVERED[name]!r} }}\n"
    (folder / "moonshim.toml").write_text(PROVIDER.format(url=host.url) + use)
    (folder / "inner").mkdir()
    (folder / "inner" / "__init__.py").write_text("")
    (folder / "inner" / "evil.py").write_text((folder / "evil.py").read_text())
    (folder / "evil-1.0.dist-info").mkdir()
    (folder / "evil-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (folder / "evil-1.0.dist-info" / "entry_points.txt").write_text("[moonshim.transformers]\nEvil = evil:Evil\n")
    path = os.pathsep.join([str(folder)] * by_path + [environment()["PYTHONPATH"]])
    trust(folder)
    with (folder / "evil.py").open("a") as file:
        file.write("# worse\n")
    for arguments in (["doctor"], ["config", "check"]):
        assert in_folder(folder, *arguments, PYTHONPATH=path).code != 0
        assert not has_run(folder)


def test_a_plug_in_that_claude_code_router_declares_is_covered(folder: Path, host: Simulator) -> None:
    (folder / "moonshim.toml").unlink()
    provider: dict[str, object] = {"name": "lab", "api_base_url": f"{host.url}/v1", "models": ["kimi-k2.5"]}
    provider["transformer"] = {"use": ["openrouter"]}
    for path in (" ./evil.py:Evil", "./evil.py:x.js"):
        declared = {"transformers": [{"name": "openrouter", "path": path}], "Providers": [provider]}
        (folder / "moonshim.json").write_text(json.dumps(declared))
        evil = (folder / "evil.py").read_text()
        (folder / "evil.py").write_text("class Evil:\n    def prepare(self, request): return request\n")
        trust(folder)
        (folder / "evil.py").write_text(evil)
        assert "has changed since you trusted it" in in_folder(folder, "doctor").stderr
        assert not has_run(folder)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_module_is_imported_from_the_current_folder(
    workers: str, folder: Path, host: Simulator, tmp_path: Path
) -> None:
    """Also with a configuration that is the user's own choice: its libraries and plug-ins are not this folder's."""
    own = tmp_path / "own.toml"
    own.write_text(PROVIDER.format(url=host.url))
    (folder / "moonshim.toml").unlink()
    for name in ("aiohappyeyeballs", "starlette", "redis", "pathlib", "msgspec", "asyncio"):
        (folder / f"{name}.py").write_text((folder / "evil.py").read_text())
    store = f"sqlite:{tmp_path}/state"
    with running("serve", "--config", own, "--workers", workers, cwd=folder, MOONSHIM_STORE=store) as gateway:
        assert gateway.get("/ready")[0] == 200
        assert gateway.stop() == 0
    assert not has_run(folder)


@pytest.mark.parametrize("variable", ["HOME", "XDG_CONFIG_HOME"])
def test_a_folder_in_the_current_one_is_never_the_users_own(
    variable: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path in the environment would let a checkout bring its own record of trust, or a trusted file."""
    trust(folder)
    own = folder / "x" / ("" if variable == "XDG_CONFIG_HOME" else ".config") / "moonshim"
    shutil.copytree(tmp_path / "home" / ".config" / "moonshim", own)
    in_folder(folder, "trust", "--forget")
    monkeypatch.setenv(variable, "x")
    assert "is not trusted" in in_folder(folder, "doctor").stderr
    (folder / "moonshim.toml").rename(own / "moonshim.toml")
    (folder / "evil.py").rename(own / "evil.py")
    in_folder(folder, "doctor")
    assert not has_run(folder)


def test_of_many_folders_that_are_trusted_at_once_none_is_forgotten(tmp_path: Path) -> None:
    folders = [tmp_path / f"checkout{number}" for number in range(12)]
    for one in folders:
        one.mkdir()
        (one / "moonshim.toml").write_text(PROVIDER.format(url="http://127.0.0.1:9"))
    running_now = [
        subprocess.Popen([*MOONSHIM, "trust", "--yes"], cwd=one, env=environment(), stdout=subprocess.DEVNULL)
        for one in folders
    ]
    assert [process.wait(DEADLINE) for process in running_now] == [0] * len(folders)
    record = json.loads((tmp_path / "home" / ".config" / "moonshim" / "trusted.json").read_text())
    assert sorted(record) == sorted(str(one / "moonshim.toml") for one in folders)


# -- what is damaged ---------------------------------------------------------------------------------------------

DAMAGE: Final[dict[str, Callable[[Path], object]]] = {
    "bad UTF-8": lambda path: path.write_bytes(b'{"\xff": "x"}'),
    "no JSON": lambda path: path.write_text("{"),
    "another type": lambda path: path.write_text("[]"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize(
    "arguments", [["config", "check"], ["serve"], ["keys", "new", "a"], ["trust", "--yes"]], ids=" ".join
)
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_record_of_trust_trusts_nothing_and_says_what_to_do(
    name: str, arguments: list[str], folder: Path, tmp_path: Path
) -> None:
    record = tmp_path / "home" / ".config" / "moonshim" / "trusted.json"
    record.parent.mkdir(parents=True)
    DAMAGE[name](record)
    done = in_folder(folder, *arguments)
    assert done.code == 2
    (line,) = (line for line in done.lines if "trusted.json" in line)
    assert "Move it away and run `moonshim trust` again" in line
    assert not has_run(folder)


@pytest.mark.parametrize(
    "arguments", [["serve"], ["doctor"], ["chat", "-p", "hi"], ["keys", "list"], ["keys", "new", "a"]], ids=" ".join
)
@pytest.mark.parametrize("named", [True, False], ids=["named", "found"])
def test_a_configuration_that_is_a_link_to_itself_is_told_as_one(
    named: bool, arguments: list[str], folder: Path
) -> None:
    (folder / "moonshim.toml").unlink()
    (folder / "moonshim.toml").symlink_to("moonshim.toml")
    done = in_folder(folder, *arguments, *(["--config", "moonshim.toml"] if named else []))
    assert done.code == 2
    assert "symbolic link loop; replace the link with a file" in done.stderr


@pytest.mark.parametrize("arguments", [["doctor"], ["keys", "list"], ["keys", "new", "a"]], ids=" ".join)
def test_a_home_folder_that_nobody_has_is_told_as_that(arguments: list[str], tmp_path: Path) -> None:
    done = in_folder(tmp_path, *arguments, "--config", "~no-such-user/moonshim.toml")
    assert done.code == 2
    assert "unknown user in a path with `~`; write the full path" in done.stderr


@pytest.mark.parametrize("arguments", [*READ, *USED, ["trust", "--yes"]], ids=" ".join)
def test_a_current_folder_that_was_deleted_is_told_as_that(arguments: list[str], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD" && exec "$@"'
    run = subprocess.run(
        ["sh", "-c", script, "sh", *MOONSHIM, *arguments],
        cwd=gone,
        env=environment(),
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert run.returncode == 2
    (line,) = run.stderr.decode().splitlines()
    assert line == "moonshim: the current folder no longer exists; change to another folder"
