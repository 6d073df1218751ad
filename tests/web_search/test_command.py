"""A program that searches: its input, its output, its bounds, and what it must not see."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from moonshim.config import WebSearch
from moonshim.engine.values.searches import SearchResult
from moonshim.http_client import UpstreamClient
from moonshim.web_search import SearchFailed, run_search
from tests.support.gateway.hosts import run


def search(script: str, query: str = "kimi k3", **given: Any) -> tuple[SearchResult, ...]:
    """Run a Python program as the search."""

    async def test() -> tuple[SearchResult, ...]:
        client = UpstreamClient()
        settings = WebSearch(provider="command", command=(sys.executable, "-c", script), **{"seconds": 60, **given})
        try:
            return await run_search(settings, client, query)
        finally:
            await client.close()

    return run(test())


PRINTS_QUERY = """
import json, sys
print(json.dumps([{"url": "https://a.example/", "title": sys.stdin.read(), "text": "Words.", "published": "2026"}]))
"""


def test_the_query_comes_on_standard_input_and_pages_leave_on_standard_output() -> None:
    query = "ä'; echo $HOME `id` \u5317\u4eac"
    assert search(PRINTS_QUERY, query) == (SearchResult("https://a.example/", query, "Words.", "2026"),)


def test_the_environment_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONSHOT_API_KEY", "sk-secret")
    monkeypatch.setenv("MOONSHIM_SECRET", "secret")
    script = "import json, os; print(json.dumps([{'url': 'https://a.example/', 'title': ' '.join(os.environ)}]))"
    (result,) = search(script)
    assert set(result.title.split()) <= {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("import sys; sys.exit(3)", "it ended with exit status 3"),
        ("print('no JSON')", "the response is not valid JSON"),
        ("import sys\nwhile True: sys.stdout.write('x' * 65536)", "it wrote more than 2,097,152 bytes"),
    ],
    ids=["exit status", "not JSON", "endless output"],
)
def test_a_program_that_fails_says_why(script: str, problem: str) -> None:
    with pytest.raises(SearchFailed, match=problem):
        search(script)


def test_a_program_need_not_read_the_query() -> None:
    page = '[{"url": "https://a.example/", "title": "A page"}]'

    async def test() -> None:
        client = UpstreamClient()
        settings = WebSearch(provider="command", command=("echo", page))
        try:
            for _ in range(30):  # some of them have ended before the query is sent
                assert [result.title for result in await run_search(settings, client, "q")] == ["A page"]
        finally:
            await client.close()

    run(test())


def test_a_program_that_does_not_exist_is_named() -> None:
    async def test() -> None:
        client = UpstreamClient()
        try:
            await run_search(WebSearch(provider="command", command=("/no/such/program",)), client, "q")
        finally:
            await client.close()

    with pytest.raises(SearchFailed, match="cannot run /no/such/program: No such file or directory"):
        run(test())


def test_a_program_that_hangs_is_killed_with_everything_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"""
import os, pathlib, time
child = os.fork()
if child:
    pathlib.Path({str(pids)!r}).write_text(f"{{os.getpid()}} {{child}}")
time.sleep(1000)
"""

    async def test() -> None:
        client = UpstreamClient()
        settings = WebSearch(provider="command", command=(sys.executable, "-c", script), seconds=600)
        searching = asyncio.create_task(run_search(settings, client, "q"))
        while not (pids.exists() and pids.read_text().count(" ")):
            await asyncio.sleep(0.01)
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching
        while any(_is_running(int(pid)) for pid in pids.read_text().split()):
            await asyncio.sleep(0.01)
        await client.close()

    run(test())


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")
    return not (status.exists() and "State:\tZ" in status.read_text())


def test_a_search_has_a_time_limit() -> None:
    with pytest.raises(SearchFailed, match=r"no response within 0\.2 s"):
        search("import time; time.sleep(1000)", seconds=0.2)
