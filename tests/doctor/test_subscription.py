"""What a check tells a subscriber of Kimi Code: the state of the login, and the quota where the host reports it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moonshim.config import Config
from moonshim.config.load import parse_config
from moonshim.doctor.findings import ProviderReport
from moonshim.doctor.report import advice, as_json, figures, verdict
from moonshim.doctor.subscription import Quota, describe_quota, read_quota
from moonshim.simulator import Simulator
from tests.doctor.checking import chat_host, check, checked, finding, wrong
from tests.support.command import CompletedCommand, run_moonshim
from tests.support.gateway.hosts import HostRequest, Peer, run, whole

AGENT = "claude-cli/2.0"
TOKEN = "eyJ-token-of-the-login"


@pytest.fixture(scope="module")
def kimi_code() -> Iterator[Simulator]:
    """As a real one would, it accepts one token only."""
    with Simulator(behaviour="kimi-coding", api_key=TOKEN).running() as server:
        yield server


def log_in(home: Path, expires_at: float) -> Path:
    path = home / "credentials" / "kimi-code.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"access_token": TOKEN, "expires_at": expires_at}))
    return path


def text_of(url: str) -> str:
    return (
        f'[[providers]]\nname = "kimi"\napi_base_url = "{url}/coding/v1"\nhost = "kimi-coding"\n'
        'api_key_from = "kimi-login"\nmodels = ["kimi-for-coding"]\n'
    )


def config(url: str, home: Path) -> Config:
    return parse_config(text_of(url), suffix=".toml", source="test", environ={"KIMI_CODE_HOME": str(home)})


def report_on(url: str, home: Path) -> ProviderReport:
    (report,) = run(check(*config(url, home).providers, user_agent=AGENT))
    assert TOKEN not in as_json(report)
    return report


def test_a_good_login_shows_its_file_its_expiry_and_the_quota(tmp_path: Path, kimi_code: Simulator) -> None:
    path = log_in(tmp_path, 4_000_000_000.5)
    report = report_on(kimi_code.url, tmp_path)
    assert wrong(report) == []
    assert finding(report, "login").said == f"{path}, expires 2096-10-02 07:06 UTC"
    shown = [text for title, text in figures(report) if title == "quota"]
    assert [text.partition(", resets ")[0] for text in shown] == [
        "5 hours: 12% used", "7 days: 34% used", "month: 56% used", "month, for code: 50% used",
    ]  # fmt: skip
    assert all(text.endswith(":00 UTC") for text in shown)
    fields = json.loads(as_json(report))
    assert fields["login"] == {"file": str(path), "state": "valid", "expires": "2096-10-02T07:06:40+00:00"}
    assert [quota["window"] for quota in fields["quota"]] == ["5h", "7d", "month_total", "month_code"]
    assert fields["quota"][0]["used_ratio"] == 0.12


@pytest.mark.parametrize("state", ["expired", "missing"])
def test_a_login_that_cannot_be_used_is_not_sent(tmp_path: Path, state: str) -> None:
    if state == "expired":
        log_in(tmp_path, 1_000_000_000)
    with Simulator(behaviour="kimi-coding", log=lambda _: None).running() as server:
        report = report_on(server.url, tmp_path)
        assert list(server.requests) == []
    assert wrong(report) == ["login"]
    expected = {"expired": "expired 2001-09-09 01:46 UTC", "missing": "no login in "}[state]
    assert expected in verdict(report)
    assert "run `kimi`" in (advice(finding(report, "login")) or "")
    assert (report.model, report.quota) == ("kimi-for-coding", ())
    assert json.loads(as_json(report))["login"]["state"] == state


def test_a_login_without_an_end_says_so(tmp_path: Path, kimi_code: Simulator) -> None:
    log_in(tmp_path, 0)
    assert finding(report_on(kimi_code.url, tmp_path), "login").said.endswith(", does not expire")


def test_a_host_without_a_report_on_the_quota_has_none() -> None:
    report = checked(chat_host(), host="kimi-coding")
    assert wrong(report) == []
    assert (report.quota, report.login) == ((), None)


def test_only_kimi_code_is_asked_for_a_quota() -> None:
    asked: list[str] = []

    async def script(peer: Peer, request: HostRequest) -> None:
        asked.append(request.path)
        await chat_host()(peer, request)

    checked(script)
    assert asked
    assert not any(path.endswith("usages") for path in asked)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b'{"usages": []}', b'{"usages": {"limit_5h": {"used_ratio": null}}}', b"\xff",
        b'{"usages": {"limit_5h": {"used_ratio": "nan"}, "limit_7d": {"used_ratio": -1}, "x": {"used_ratio": [1]}}}',
    ],
)  # fmt: skip
def test_a_report_that_makes_no_sense_is_no_report(body: bytes) -> None:
    assert read_quota(body) == ()

    async def script(peer: Peer, request: HostRequest) -> None:
        if request.path.endswith("/usages"):
            await peer.send(whole(body))
        else:
            await chat_host()(peer, request)

    report = checked(script, host="kimi-coding")
    assert (wrong(report), report.quota) == ([], ())


def test_a_window_that_is_not_known_is_shown_as_it_is_named() -> None:
    body = {"usages": {"limit_90d": {"used_ratio": 1.5, "reset_time": "soon"}, "limit_5h": {"used_ratio": 0}}}
    shown = [describe_quota(quota) for quota in read_quota(json.dumps(body).encode())]
    assert shown == ["90d: 150% used, resets soon", "5 hours: 0% used"]
    assert describe_quota(Quota("7d", 0.5, "0001-01-01T00:00:00+23:59")).startswith("7 days: 50% used, resets ")


def doctor(folder: Path, url: str, *arguments: str) -> CompletedCommand:
    file = folder / "moonshim.toml"
    file.write_text(text_of(url))
    given: Any = {"KIMI_CODE_HOME": str(folder)}
    done = run_moonshim("doctor", "--config", file, "--user-agent", AGENT, *arguments, **given)
    assert TOKEN not in done.out.decode() + done.stderr
    return done


def test_the_command_shows_both_as_text_and_as_json(tmp_path: Path, kimi_code: Simulator) -> None:
    path = log_in(tmp_path, time.time() + 3600)
    done = doctor(tmp_path, kimi_code.url)
    lines = done.out.decode().splitlines()
    assert done.code == 0, lines
    assert any(line.startswith(f"  ✓ login     {path}, expires ") for line in lines)
    assert sum(line.startswith("    quota     ") for line in lines) == 4
    done = doctor(tmp_path, kimi_code.url, "--json")
    fields = json.loads(done.out)
    assert fields["login"]["state"] == "valid"
    assert len(fields["quota"]) == 4
