"""`serve`, `doctor`, `init` and `chat` with `KIMI_API_KEY`: real processes, and two simulators as its two regions."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from moonshim.simulator import Simulator
from tests.support import servers
from tests.support.command import CompletedCommand, environment

KEY: Final = "sk-kimi-0123456789abcdef"
_WITH_REGIONS: Final = """
import sys
from msgspec.structs import replace
from moonshim.config import environment, known_hosts
from moonshim.cli import main
regions = tuple(sys.argv.pop(1).split(","))
row = next(host for host in known_hosts.KNOWN_HOSTS if host.name == "kimi")
environment.KNOWN_HOSTS = (replace(row, api_base_url=regions[0], regions=regions),)
import moonshim.setup.answers as answers
answers.HOSTS_BY_NAME["kimi"] = environment.KNOWN_HOSTS[0]
sys.exit(main())
"""


@pytest.fixture(autouse=True)
def _nothing_configured(nothing_configured: None) -> None:
    """An empty home folder."""


@pytest.fixture
def regions() -> Iterator[list[str]]:
    """The first region refuses the key."""
    with ExitStack() as stack:
        keys = ("sk-of-somebody-else", KEY)
        yield [stack.enter_context(Simulator(api_key=key).running()).url + "/coding/v1" for key in keys]


def command(regions: list[str], *arguments: str) -> list[str]:
    return [sys.executable, "-c", _WITH_REGIONS, ",".join(regions), *arguments]


def ran(folder: Path, regions: list[str], *arguments: str) -> CompletedCommand:
    done = CompletedCommand(
        subprocess.run(
            command(regions, *arguments),
            capture_output=True,
            cwd=folder,
            env=environment(KIMI_API_KEY=KEY),
            timeout=60,
            check=False,
        )
    )
    assert KEY not in done.out.decode() + done.stderr
    return done


def test_serve_finds_the_region(tmp_path: Path, regions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "MOONSHIM", command(regions))
    with servers.running("serve", cwd=tmp_path, KIMI_API_KEY=KEY) as gateway:
        body = {"model": "kimi-for-coding", "messages": [{"role": "user", "content": "hi"}]}
        status, answer = gateway.post("/v1/chat/completions", body)
        assert status == 200, answer
        assert "configuration_warning" not in gateway.stderr
        assert KEY not in gateway.stderr


def test_doctor_checks_the_region_that_accepts_the_key(tmp_path: Path, regions: list[str]) -> None:
    done = ran(tmp_path, regions, "doctor", "--json")
    assert done.code == 0, done.out
    assert json.loads(done.out)["address"] == f"{regions[1]}/chat/completions"


def test_init_writes_the_region_into_the_file(tmp_path: Path, regions: list[str]) -> None:
    done = ran(tmp_path, regions, "init", "--host", "kimi", "--yes", "--output", "new.toml")
    assert done.code == 0, done.stderr
    assert f"The key belongs to {regions[1]}." in done.out.decode()
    assert tomllib.loads((tmp_path / "new.toml").read_text())["providers"][0]["api_base_url"] == regions[1]


def test_a_host_that_refuses_the_agent_does_not_hide_the_region(tmp_path: Path) -> None:
    with ExitStack() as stack:
        hosts = [Simulator(api_key=key, behaviour="kimi-coding") for key in ("sk-of-somebody-else", KEY)]
        regions = [stack.enter_context(host.running()).url + "/coding/v1" for host in hosts]
        done = ran(tmp_path, regions, "init", "--host", "kimi", "--yes", "--output", "new.toml")
    assert f"The key belongs to {regions[1]}." in done.out.decode()


def test_init_without_a_check_asks_nobody(tmp_path: Path, regions: list[str]) -> None:
    done = ran(tmp_path, regions, "init", "--host", "kimi", "--yes", "--no-check", "--output", "new.toml")
    assert done.code == 0, done.stderr
    assert tomllib.loads((tmp_path / "new.toml").read_text())["providers"][0]["api_base_url"] == regions[0]


def test_chat_uses_the_region_that_accepts_the_key(tmp_path: Path, regions: list[str]) -> None:
    done = ran(tmp_path, regions, "chat", "-p", "hi")
    assert done.code == 0, done.stderr
    assert done.out.strip()
