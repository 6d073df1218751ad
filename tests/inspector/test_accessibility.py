"""axe-core finds nothing, in any view, light and dark."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Callable
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from tests.inspector.test_page import ask, rows
from tests.support.servers import Running

VERSION: Final = "4.14.0"


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The code of axe-core, from npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed; it fetches axe-core, which checks the accessibility of the page")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm, "pack", "--silent", f"axe-core@{VERSION}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot fetch axe-core: {done.stderr.strip()[:300]}")
    with tarfile.open(folder / f"axe-core-{VERSION}.tgz") as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


def findings(page: Page, axe: str) -> list[str]:
    page.evaluate("() => { for (const one of document.getAnimations()) one.cancel() }")
    page.evaluate(f"() => {{ {axe} }}")
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {node['html'][:200]} {node['failureSummary'][:200]}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_found(scheme: str, gateway: Running, new_page: Callable[..., Page], axe: str) -> None:
    ask(gateway)
    gateway.post("/v1/chat/completions", {"model": "kimi-k2.6", "messages": 7})
    # The policy of the page forbids code that is not its own, as it should; here the browser adds some.
    page = new_page(gateway.url, color_scheme=scheme, bypass_csp=True)
    expect(rows(page)).to_have_count(2)
    assert findings(page, axe) == []
    rows(page).nth(1).click()
    for name in ("Conversation", "Stream", "Request", "Timeline", "Details"):
        page.get_by_role("tab", name=name).click()
        expect(page.locator("#panel")).not_to_be_empty()
        assert findings(page, axe) == [], name
    for path in ("#/overview", "#/try", "#/rules/marker_call"):
        page.goto(f"/inspector{path}")
        expect(page.locator("main h1").first).to_be_attached()
        assert findings(page, axe) == [], path
    page.get_by_role("button", name="Keyboard shortcuts").click()
    assert findings(page, axe) == []
