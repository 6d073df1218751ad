"""The documentation site, built as `make docs` does and read in a real browser."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("mkdocs", reason="the site is built with the dev extra")
pytest.importorskip("playwright", reason="the browser is driven with the dev extra")

from playwright.sync_api import Page, expect, sync_playwright

from scripts.browser import ARGUMENTS, ensure_browser
from scripts.check_public_types import PUBLIC

ROOT: Final = Path(__file__).resolve().parents[2]
GUIDE: Final = "guides/claude-code.html"
DIAGRAMS: Final = "concepts/how-it-works.html"
API: Final = "api/index.html"
PATIENCE: Final = 120_000
"""Milliseconds: on a loaded machine, the search takes a while to read its index."""
NARROW: Final = {"width": 360, "height": 740}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the site, built without a warning."""
    expect.set_options(timeout=PATIENCE)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=ensure_browser(), args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def page(site: str, browser: Any) -> Iterator[Page]:
    """A new page; at the end every request must have gone to the site, and the console must be free of errors."""
    context = browser.new_context(base_url=site)
    page: Page = context.new_page()
    foreign, errors = list[str](), list[str]()

    def note(request: Any) -> None:
        if not request.url.startswith((site, "data:", "blob:")):
            foreign.append(request.url)

    page.on("request", note)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield page
    context.close()
    assert foreign == []
    assert errors == []


def _width_of_content(page: Page) -> int:
    width: int = page.evaluate("document.documentElement.scrollWidth")
    return width


@pytest.mark.parametrize("path", ["index.html", GUIDE, API, DIAGRAMS, "reference/hosts.html", "zh/quickstart.html"])
def test_a_page_shows_its_text_and_fits_a_narrow_screen(page: Page, path: str) -> None:
    page.goto(f"/{path}")
    expect(page.locator("article h1")).to_be_visible()
    page.set_viewport_size({"width": NARROW["width"], "height": NARROW["height"]})
    assert _width_of_content(page) <= NARROW["width"]


def test_every_page_of_the_menu_can_be_reached(page: Page, site: str) -> None:
    page.goto("/index.html")
    links = page.locator(".md-nav--primary a.md-nav__link[href]")
    targets = {str(link.evaluate("node => node.href")).partition("#")[0] for link in links.all()}
    assert len(targets) > 30
    assert [target for target in sorted(targets) if page.request.get(target).status != 200] == []


def test_the_fonts_come_with_the_site(page: Page) -> None:
    page.goto("/index.html")
    loaded = page.evaluate("document.fonts.ready.then(() => [...document.fonts].map(f => f.family + ' ' + f.status))")
    assert any(font.startswith(('"Inter"', "Inter")) and font.endswith("loaded") for font in loaded)


@pytest.mark.parametrize(("words", "path"), [("reasoning", "concepts/reasoning"), ("思考内容", "zh/quickstart")])
def test_search_finds_a_page_and_opens_it(page: Page, words: str, path: str) -> None:
    page.goto("/index.html")
    query = page.locator("[data-md-component=search-query]").first
    query.click()
    expect(page.locator(".md-search-result__meta")).to_have_text("Type to start searching")  # its index is loaded
    query.fill(words)
    query.press("End")  # a key, which typing Chinese ends with too
    result = page.locator(f".md-search-result__item a[href*='{path}']").first
    expect(result).to_be_visible()
    result.click()
    expect(page).to_have_url(re.compile(rf"/{path}\.html\?h="))
    expect(page.locator("article mark").first).to_be_visible()


def test_a_chinese_page_says_so(page: Page) -> None:
    page.goto("/zh/quickstart.html")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")


def test_dark_and_light_follow_the_system_and_the_button(page: Page) -> None:
    body = page.locator("body")
    page.emulate_media(color_scheme="dark")
    page.goto("/index.html")
    expect(body).to_have_attribute("data-md-color-scheme", "slate")
    page.get_by_title("Switch to light mode").click()
    expect(body).to_have_attribute("data-md-color-scheme", "default")


def test_diagrams_are_drawn(page: Page) -> None:
    page.goto(f"/{DIAGRAMS}")
    diagrams = page.locator("div.mermaid")
    expect(diagrams.first).to_be_visible()
    assert diagrams.count() >= 2
    assert all((box := one.bounding_box()) and box["height"] > 100 for one in diagrams.all())


def test_every_public_name_is_in_the_reference(page: Page) -> None:
    ids: set[str] = set()
    for path in sorted((ROOT / "docs" / "api").glob("*.md")):
        page.goto(f"/api/{path.stem}.html")
        ids |= set(page.evaluate("[...document.querySelectorAll('article [id]')].map(node => node.id)"))
    names = {module: importlib.import_module(module).__all__ for module in PUBLIC}
    known = {identifier.rpartition(".")[2] for identifier in ids}
    assert sorted(f"{module}.{name}" for module, all_ in names.items() for name in all_ if name not in known) == []
