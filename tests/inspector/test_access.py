"""Who may see the inspector, over sockets."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from moonshim.config.model import digest_of
from tests.support.servers import Running, running

KEY: Final = "msk_inspector-0123456789"
OTHER: Final = "msk_other-0123456789"
STATE: Final = "/inspector/api/state"


def call(url: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], str]:
    data = None if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"} | named)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, dict(response.headers), response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def with_keys(folder: Path, extra: str = "") -> Path:
    file = folder / "moonshim.toml"
    file.write_text(
        f"""
[gateway]
{extra}
[[providers]]
name = "nowhere"
api_base_url = "http://127.0.0.1:9/v1"
models = ["kimi-k3"]
[[keys]]
name = "watcher"
digest = "{digest_of(KEY)}"
rights = ["inspect"]
[[keys]]
name = "worker"
digest = "{digest_of(OTHER)}"
"""
    )
    file.chmod(0o600)
    return file


def test_without_keys_this_machine_sees_it(gateway: Running) -> None:
    assert call(gateway.url, STATE)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"x_forwarded_for": "203.0.113.7"},
        {"forwarded": "for=203.0.113.7"},
        {"via": "1.1 proxy"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
    ids=str,
)
def test_nobody_else_does(gateway: Running, headers: dict[str, str]) -> None:
    status, _, text = call(gateway.url, STATE, **headers)
    assert status == 403
    assert json.loads(text)["error"]["message"]
    assert call(gateway.url, "/inspector/api/mend", {"text": "x"}, **headers)[0] == 403


def test_strict_headers_on_everything(gateway: Running) -> None:
    for path in ("/inspector", "/inspector/static/app.js", STATE, "/inspector/api/nothing", "/inspector/static/../x"):
        _, headers, _ = call(gateway.url, path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


def test_with_keys_it_asks_for_one_with_the_right(tmp_path: Path, new_page: Callable[..., Page]) -> None:
    with running("serve", "--config", with_keys(tmp_path), cwd=tmp_path) as gateway:
        assert call(gateway.url, STATE)[0] == 401
        assert call(gateway.url, STATE, authorization=f"Bearer {KEY}")[0] == 401
        page = new_page(gateway.url)
        field = page.get_by_label("Gateway key")
        field.fill("msk_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("Invalid gateway key")
        field.fill(OTHER)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("may not see the inspector")
        field.fill(KEY)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("No exchanges yet")).to_be_visible()
        (cookie,) = page.context.cookies()
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert KEY not in cookie["value"]
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Gateway key")).to_be_visible()
        changed = cookie["value"][:-3] + "AAA"
        assert call(gateway.url, STATE, cookie=f"moonshim_inspector={changed}")[0] == 401
        assert KEY not in gateway.stderr


def test_a_key_that_was_removed_ends_its_sessions(tmp_path: Path) -> None:
    file = with_keys(tmp_path)
    with running("serve", "--config", file, cwd=tmp_path) as gateway:
        status, headers, _ = call(gateway.url, "/inspector/login", {"key": KEY})
        assert status == 204
        cookie = headers["set-cookie"].partition(";")[0]
        assert call(gateway.url, STATE, cookie=cookie)[0] == 200
        file.write_text(file.read_text().replace('rights = ["inspect"]', ""))
        gateway.process.send_signal(1)
        for _ in range(600):
            if call(gateway.url, STATE, cookie=cookie)[0] == 401:
                break
        assert call(gateway.url, STATE, cookie=cookie)[0] == 401


def test_it_can_be_off(tmp_path: Path) -> None:
    with running("serve", "--config", with_keys(tmp_path, "inspector = false"), cwd=tmp_path) as gateway:
        assert call(gateway.url, "/inspector")[0] in (401, 404)
        assert call(gateway.url, "/inspector", authorization=f"Bearer {KEY}")[0] == 404


@pytest.mark.parametrize(
    ("forwarded", "secure"),
    [("https", True), ("https, http", True), ("HTTPS", True), ("http", False), ("http, https", False), ("", False)],
)
def test_the_cookie_is_secure_where_the_browser_has_https(forwarded: str, secure: bool, tmp_path: Path) -> None:
    with running("serve", "--config", with_keys(tmp_path), cwd=tmp_path) as gateway:
        _, headers, _ = call(gateway.url, "/inspector/login", {"key": KEY}, x_forwarded_proto=forwarded)
        assert headers["set-cookie"].endswith("; Secure") is secure
