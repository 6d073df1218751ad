"""The region of a key is found out by asking, once, and remembered without the key."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from moonshim.config import Config, config_from_environment, environment, parse_config, warnings_of
from moonshim.config.known_hosts import KNOWN_HOSTS
from moonshim.config.model import digest_of
from moonshim.config.regions import region_record
from moonshim.gateway.outbound import regions
from moonshim.gateway.outbound.regions import settle_regions
from moonshim.http_server.sockets import free_port
from moonshim.simulator import Simulator
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole

KEY = "sk-kimi-0123456789abcdef"
KIMI = next(host for host in KNOWN_HOSTS if host.name == "kimi")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"KIMI_API_KEY": KEY, "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def simulators() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def hosted(patch: pytest.MonkeyPatch, *urls: str) -> list[str]:
    """Kimi Code, with its regions at these addresses."""
    found = [f"{url}/coding/v1" for url in urls]
    row = replace(KIMI, api_base_url=found[0], regions=tuple(found))
    patch.setattr(environment, "KNOWN_HOSTS", (row,))
    return found


def simulated(stack: ExitStack, behaviour: str = "moonshot", *, key: str) -> str:
    return stack.enter_context(Simulator(behaviour=behaviour, api_key=key).running()).url


def loaded(environ: dict[str, str]) -> Config:
    config = config_from_environment(environ)
    assert config is not None
    return config


@pytest.mark.parametrize("behaviour", ["moonshot", "kimi-coding"])
@pytest.mark.parametrize("place", [0, 1])
def test_the_region_that_accepts_the_key_is_used_and_never_asked_for_again(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, behaviour: str, place: int
) -> None:
    with ExitStack() as stack:
        keys = [KEY if number == place else "sk-of-somebody-else" for number in range(2)]
        urls = hosted(monkeypatch, *(simulated(stack, behaviour, key=key) for key in keys))
        settled = settle_regions(loaded(environ), environ)
    assert (settled.providers[0].api_base_url, settled.providers[0].regions) == (urls[place], ())
    assert settled.providers[0].models == KIMI.models
    # Both simulators are gone: nobody could be asked.
    (again,) = loaded(environ).providers
    assert (again.api_base_url, again.regions) == (urls[place], ())
    assert warnings_of(loaded(environ)) == []


def test_only_a_digest_of_the_key_is_saved_for_its_owner_alone(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, simulators: ExitStack
) -> None:
    hosted(monkeypatch, simulated(simulators, key=KEY), simulated(simulators, key="other"))
    settle_regions(loaded(environ), environ)
    record = region_record(environ)
    assert record is not None
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert KEY not in record.read_text()
    assert digest_of(KEY) in record.read_text()
    assert [path.name for path in record.parent.iterdir()] == ["regions.json"]


def test_a_key_goes_to_the_second_region_only_if_the_first_does_not_accept_it(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def accepts(peer: Peer, asked: HostRequest) -> None:
        await peer.send(whole(b"{}"))

    async def test() -> None:
        async with Host(accepts) as first, Host(accepts) as second:
            default, _ = hosted(monkeypatch, first.url, second.url)
            settled = await asyncio.to_thread(settle_regions, loaded(environ), environ)
            assert settled.providers[0].api_base_url == default
            assert [(asked.method, asked.path) for asked in first.requests] == [("GET", "/coding/v1/models")]
            assert second.requests == []

    run(test())


def test_without_a_network_the_default_is_used_and_the_next_start_asks_again(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, simulators: ExitStack
) -> None:
    nowhere = [f"http://127.0.0.1:{free_port('127.0.0.1', 0)}" for _ in range(2)]
    default, _ = hosted(monkeypatch, *nowhere)
    settled = settle_regions(loaded(environ), environ)
    assert settled.providers[0].api_base_url == default
    (warning,) = warnings_of(settled)
    assert "the region of the key is not known yet" in warning
    assert "KIMI_BASE_URL" in warning
    _, second = hosted(monkeypatch, nowhere[0], simulated(simulators, key=KEY))
    assert settle_regions(loaded(environ), environ).providers[0].api_base_url == second


def test_a_host_that_never_answers_delays_a_start_only_so_long(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "ALL_SECONDS", 0.2)

    async def silent(peer: Peer, asked: HostRequest) -> None:
        await asyncio.Event().wait()

    async def test() -> None:
        async with Host(silent) as host:
            default, _ = hosted(monkeypatch, host.url, host.url)
            settled = await asyncio.to_thread(settle_regions, loaded(environ), environ)
        assert settled.providers[0].api_base_url == default

    run(test())


def test_a_key_that_every_region_refuses_is_not_remembered(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, simulators: ExitStack
) -> None:
    default, _ = hosted(monkeypatch, *(simulated(simulators, "kimi-coding", key="other") for _ in range(2)))
    assert settle_regions(loaded(environ), environ).providers[0].api_base_url == default
    assert loaded(environ).providers[0].regions != ()


def test_a_region_is_found_where_nothing_can_be_saved(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, simulators: ExitStack, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file, not a folder")
    _, second = hosted(monkeypatch, simulated(simulators, key="other"), simulated(simulators, key=KEY))
    assert settle_regions(loaded(environ), environ).providers[0].api_base_url == second


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"DIGEST": "https://elsewhere.test/v1"}', '{"DIGEST": 3}'])
def test_a_file_that_says_something_else_sends_the_key_nowhere(environ: dict[str, str], content: str) -> None:
    record = region_record(environ)
    assert record is not None
    record.parent.mkdir(parents=True)
    record.write_text(content.replace("DIGEST", digest_of(KEY)))
    (provider,) = loaded(environ).providers
    assert (provider.api_base_url, provider.regions) == (KIMI.api_base_url, KIMI.regions)


def test_an_address_that_the_user_gives_always_wins(environ: dict[str, str]) -> None:
    mine = "http://127.0.0.1:1/coding/v1"
    (provider,) = loaded(environ | {"KIMI_BASE_URL": mine}).providers
    assert (provider.api_base_url, provider.regions) == (mine, ())
    text = f'[[providers]]\nname = "kimi"\napi_base_url = "{KIMI.api_base_url}"\napi_key_env = "KIMI_API_KEY"\n'
    (provider,) = parse_config(text, suffix=".toml", environ=environ, source="test").providers
    assert provider.regions == ()
    without = parse_config("[gateway]\nport = 1\n", suffix=".toml", environ=environ, source="test")
    assert without.providers[0].regions == KIMI.regions, "a file without providers takes them from the environment"
