"""A gateway on the simulator, and a browser that notices everything that a page must not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("playwright", reason="the browser is driven with the dev extra")

from playwright.sync_api import Browser, Page, expect, sync_playwright

from scripts.browser import ARGUMENTS, ensure_browser
from tests.support.servers import Running, running

PATIENCE: Final = 120_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not for the session: as long as Playwright runs, no other test of the process can run an event loop.
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=ensure_browser(), args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    with running("serve", "--demo", cwd=tmp_path) as server:
        yield server


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open the inspector of a gateway. At the end: no request elsewhere, no error in the console."""
    contexts: list[Any] = []
    foreign: list[str] = []
    errors: list[str] = []

    def open_page(url: str, path: str = "", **options: Any) -> Page:
        context = browser.new_context(base_url=url, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on(
            "request", lambda one: foreign.append(one.url) if not one.url.startswith((url, "data:", "blob:")) else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda one: errors.append(one.text) if one.type == "error" else None)
        page.goto(f"/inspector{path}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert foreign == []
    # Browsers log every status over 399; that is not an error of the page.
    assert [error for error in errors if not error.startswith("Failed to load resource")] == []
