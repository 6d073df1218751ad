"""Keys that get lost, from a file or one after the other, open no door; and no key is lost where several are made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.simulator import Simulator
from tests.support.command import MOONSHIM, environment, run_moonshim
from tests.support.gateway.serving import wait_until
from tests.support.servers import DEADLINE, Running, running

ASKED: Final = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}]}
FILE: Final = '[[providers]]\nname = "sim"\napi_base_url = "{url}/v1"\nmodels = ["kimi-k2.5"]\n'


pytestmark = pytest.mark.usefixtures("nothing_configured")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    with Simulator(behaviour="moonshot").running() as host:
        path = tmp_path / "gateway.toml"
        path.write_text(FILE.format(url=host.url))
        yield path


def keys(*arguments: str, file: Path) -> str:
    done = run_moonshim("keys", *arguments, "--config", file)
    assert done.code == 0, done.stderr
    return done.out.decode().strip()


def ask(gateway: Running, key: str | None = None, **headers: str) -> int:
    given = headers if key is None else headers | {"authorization": f"Bearer {key}"}
    return gateway.post("/v1/chat/completions", ASKED, **given)[0]


def events(gateway: Running, name: str) -> list[dict[str, Any]]:
    whole = gateway.stderr.rpartition("\n")[0]  # of a line that is being written, nothing is known yet
    return [line for line in map(json.loads, whole.splitlines()) if line["event"] == name]


def test_a_new_key_makes_keys_a_must(tmp_path: Path) -> None:
    texts = {
        "no-table.toml": "",
        "a-table.toml": "# Ours.\n\n[gateway]  # here\nport = 1\n",
        "switched-off.toml": "[gateway]\nport = 1\nrequire_keys = false # for now\n",
        "an-object.json": "{}",
        "a-table.json": '{"gateway": {"port": 1}}',
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text)
        keys("new", "alice", file=path)
        said = path.read_text()
        value = json.loads(said) if path.suffix == ".json" else tomllib.loads(said)
        assert value["gateway"]["require_keys"] is True, name
        assert ("port" in value["gateway"]) == ("port" in text), name
        assert said.count("#") == text.count("#"), name


def test_after_the_last_key_was_revoked_nobody_is_served(file: Path, tmp_path: Path) -> None:
    key = keys("new", "alice", file=file)
    with running("serve", "--config", file, cwd=tmp_path) as gateway:
        assert (ask(gateway), ask(gateway, key)) == (401, 200)
        keys("revoke", "alice", file=file)
        wait_until(lambda: events(gateway, "configuration_loaded"), "the file is read")
        assert (ask(gateway), ask(gateway, key)) == (401, 401)
        assert gateway.stop() == 0
    with running("serve", "--config", file, cwd=tmp_path) as gateway:
        assert (ask(gateway), ask(gateway, key)) == (401, 401), "a restart changes nothing"
        (warning,) = wait_until(lambda: events(gateway, "configuration_warning"), "it says why")
        assert "require_keys" in warning["problem"]
        other = keys("new", "bob", file=file)
        wait_until(lambda: events(gateway, "configuration_loaded"), "the file is read")
        assert (ask(gateway), ask(gateway, other)) == (401, 200)
        assert gateway.stop() == 0


CUTS: Final = {
    "before the keys": lambda text: text.partition("[[keys]]")[0],
    "without require_keys": lambda text: text.replace("require_keys = true", ""),
    "without either": lambda text: "[[providers]]" + text.partition("[[providers]]")[2].partition("[[keys]]")[0],
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
def test_a_file_that_lost_its_keys_is_not_taken_by_a_gateway_that_runs(cut: Any, file: Path, tmp_path: Path) -> None:
    key = keys("new", "alice", file=file)
    with running("serve", "--config", file, cwd=tmp_path) as gateway:
        file.write_text(cut(file.read_text()))
        (kept,) = wait_until(lambda: events(gateway, "configuration_rejected"), "the file is refused")
        assert kept["level"] == "error"
        assert "restart `moonshim serve`" in kept["problem"]
        assert (ask(gateway), ask(gateway, key)) == (401, 200)
        assert gateway.stop() == 0


def test_a_gateway_started_on_a_file_that_lost_its_keys_serves_nobody(file: Path, tmp_path: Path) -> None:
    key = keys("new", "alice", file=file)
    file.write_text(file.read_text().partition("[[keys]]")[0])
    with running("serve", "--config", file, cwd=tmp_path) as gateway:
        assert (ask(gateway), ask(gateway, key)) == (401, 401)
        assert gateway.stop() == 0


def test_a_worker_that_is_started_again_opens_no_door(file: Path, tmp_path: Path) -> None:
    keys("new", "alice", file=file)
    store = f"sqlite:{tmp_path}/state"
    with running("serve", "--config", file, "--workers", "2", cwd=tmp_path, MOONSHIM_STORE=store) as gateway:
        file.write_text(CUTS["without either"](file.read_text()))
        wait_until(lambda: len(events(gateway, "configuration_rejected")) == 2, "both refuse the file")
        table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [tuple(map(int, line.split())) for line in table.splitlines()]
        for child, parent in pairs:
            if parent == gateway.process.pid:
                os.kill(child, signal.SIGKILL)
        wait_until(lambda: len(events(gateway, "configuration_rejected")) == 4, "both were started again")
        assert wait_until(lambda: _answer(gateway), "one of them answers") == 401
        assert gateway.stop() == 0


def _answer(gateway: Running) -> int | None:
    try:
        return ask(gateway)
    except OSError:
        return None


FORWARDING: Final = (
    "X-Forwarded-For",
    "x_forwarded_for",
    "X-Forwarded-Proto",
    "Forwarded",
    "Forwarded-For",
    "X-Original-Forwarded-For",
    "X-Vercel-Proxied-For",
    "Via",
    "X-Via",
    "X-Real-IP",
    "x_real_ip",
    "Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "True-Client-IP",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "Fly-Region",
    "CF-Connecting-IP",
    "CF-Connecting-IPv6",
    "CF-Ray",
    "CDN-Loop",
    "X-Remote-Addr",
    "X-Envoy-External-Address",
    "X-Azure-FDID",
    "X-AppEngine-User-IP",
    "X-AppEngine-Country",
    "X-ARR-SSL",
    "X-Original-URL",
)
ORDINARY: Final = ("X-Stainless-Retry-Count", "Anthropic-Beta", "X-Request-Id", "cf-aig-metadata", "X-Viable", "Equip")


@pytest.mark.parametrize("header", ORDINARY)
def test_a_header_that_no_proxy_adds_needs_no_key(header: str, proxied: tuple[Running, Running, str]) -> None:
    assert ask(proxied[0], **{header: "192.0.2.7"}) == 200


@pytest.mark.parametrize("header", FORWARDING)
def test_what_comes_through_a_proxy_needs_a_key(header: str, proxied: tuple[Running, Running, str]) -> None:
    without, with_keys, key = proxied
    status, told = without.post("/v1/chat/completions", ASKED, **{header: "for=192.0.2.7"})
    assert status == 403
    assert "moonshim keys new" in told
    assert ask(without) == 200
    assert ask(with_keys, **{header: "for=192.0.2.7"}) == 401
    assert ask(with_keys, key, **{header: "for=192.0.2.7"}) == 200


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Running, str]]:
    """A gateway without keys, one with, and its key."""
    here, there = tmp_path_factory.mktemp("without"), tmp_path_factory.mktemp("with")
    with Simulator(behaviour="moonshot").running() as host:
        for folder in (here, there):
            (folder / "gateway.toml").write_text(FILE.format(url=host.url))
        key = keys("new", "alice", file=there / "gateway.toml")
        with (
            running("serve", "--config", here / "gateway.toml", cwd=here) as without,
            running("serve", "--config", there / "gateway.toml", cwd=there) as with_keys,
        ):
            yield without, with_keys, key


@pytest.mark.parametrize("there", [True, False], ids=["in a file", "in a file that is not there yet"])
def test_of_many_keys_that_are_made_at_once_none_is_lost_and_none_comes_back(there: bool, tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    if there:
        path.write_text(FILE.format(url="http://127.0.0.1:9"))
    old = [f"old{number}" for number in range(6)] if there else []
    for name in old:
        keys("new", name, file=path)
    new = [f"new{number}" for number in range(24 - len(old))]
    commands = [["new", name] for name in new] + [["revoke", name] for name in old]
    commands.sort(key=lambda command: command[1][3:])  # one among the other
    started = [
        subprocess.Popen([*MOONSHIM, "keys", *command, "--config", path], env=environment(), stderr=subprocess.PIPE)
        for command in commands
    ]
    for process in started:
        _, told = process.communicate(timeout=2 * DEADLINE)
        assert process.returncode == 0, told.decode()
    value = tomllib.loads(path.read_text())
    assert sorted(key["name"] for key in value["keys"]) == sorted(new)
    assert value["gateway"]["require_keys"] is True
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name], "no lock and no half of a file is left"


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_key_that_may_use_no_model_is_refused_with_what_to_write_instead(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"gateway.{suffix}"
    path.write_text(FILE.format(url="http://127.0.0.1:9") if suffix == "toml" else "{}")
    keys("new", "alice", "--models", "kimi-*", file=path)
    path.write_text(path.read_text().replace('"kimi-*"', ""))
    done = run_moonshim("config", "check", path, MOONSHOT_API_KEY="sk-0123456789abcdef")
    assert done.code == 1
    assert "keys[0].models" in done.stderr
    assert "remove `models` to allow all" in done.stderr
    assert "`moonshim keys revoke`" in done.stderr
