"""Mixed exchanges over two workers, one of which is killed: the books agree with what the simulator served."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moonshim.simulator.http.recorded import RecordedRequest
from moonshim.simulator.server import Simulator
from tests.support.gateway.serving import wait_until
from tests.support.servers import Running, running

CONFIG = """
[gateway]
workers = 2
store = "sqlite:store.db"

[retries]
breaker_failures = 1000000

[[providers]]
name = "chat"
api_base_url = "{url}/v1"
api_key = "none"

[[providers]]
name = "messages"
api_base_url = "{url}/anthropic"
api_key = "none"
dialect = "anthropic"
"""
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
BROKEN = "+cut-off"
CONCURRENT = 48


def request_of(number: int) -> tuple[str, dict[str, Any]]:
    """Every dialect with both hosts, streamed and not; now and then a response that breaks off, or without usage."""
    path, stream, provider = PATHS[number % 3], number // 3 % 2 == 0, ("chat", "messages")[number // 6 % 2]
    fault = BROKEN if stream and number % 29 == 0 else "+no-usage" if number % 31 == 0 and provider == "chat" else ""
    text = f"exchange {number}. " + "What is the time? " * (number % 7)
    body: dict[str, Any] = {"model": f"{provider}/kimi-k2.5{fault}", "stream": stream}
    if path.endswith("responses"):
        return path, body | {"input": text, "store": False}
    return path, body | {"messages": [{"role": "user", "content": text}], "max_tokens": 1000}


class Client:
    """Sends requests; `lost` are those whose gateway died, `left` those that it left itself."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.lost: set[int] = set()
        self.left: set[int] = set()
        self.done = 0
        self.halfway = asyncio.Event()

    async def send_all(self, count: int) -> None:
        numbers = iter(range(count))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def send_some() -> None:
                for number in numbers:
                    await self._send(session, number)
                    self.done += 1
                    if self.done * 2 >= count:
                        self.halfway.set()

            await asyncio.gather(*(send_some() for _ in range(CONCURRENT)))

    async def _send(self, session: aiohttp.ClientSession, number: int) -> None:
        path, body = request_of(number)
        headers = {"x-request-id": f"exchange-{number}", "x-session-id": f"session-{number % 10}"}
        try:
            async with session.post(self._url + path, json=body, headers=headers) as response:
                if number % 23 == 0:
                    self.left.add(number)
                    await response.content.readany()
                    return
                assert response.status == 200
                await response.read()
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
            self.lost.add(number)


async def kill_a_worker(gateway: Running, client: Client) -> None:
    await client.halfway.wait()
    supervisor = gateway.process.pid
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)


def rows_of(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute("SELECT * FROM exchanges")]


@pytest.mark.parametrize("count", [300, 10_000])
def test_the_books_agree_with_what_was_served(tmp_path: Path, count: int) -> None:
    served: dict[int, list[RecordedRequest]] = defaultdict(list)

    def note(recorded: RecordedRequest) -> None:
        found = re.search(r"exchange (\d+)", str(recorded.body))
        assert found is not None
        served[int(found[1])].append(recorded)

    state = tmp_path / "state"
    with Simulator(behaviour="moonshot", log=note).running() as simulator:
        (tmp_path / "moonshim.toml").write_text(CONFIG.format(url=simulator.url))
        arguments = ("serve", "--config", tmp_path / "moonshim.toml", "--log-level", "debug")
        with running(*arguments, cwd=tmp_path, XDG_STATE_HOME=str(state)) as gateway:

            async def run() -> Client:
                client = Client(gateway.url)
                await asyncio.gather(client.send_all(count), kill_a_worker(gateway, client))
                return client

            client = asyncio.run(run())
            wait_until(lambda: "usage_recovered" in gateway.stderr, "the next worker books what the dead one left")
            # A worker that is stopped before it serves leaves a file, which the next start removes.
            wait_until(lambda: gateway.stderr.count("worker_ready") == 3, "the next worker serves")
            assert gateway.stop() == 0
            logged = gateway.logged
    rows = rows_of(state / "moonshim" / "usage.db")
    assert list((state / "moonshim").glob("usage.db?*")) == []
    by_number = {int(row["request_id"].removeprefix("exchange-")): row for row in rows}
    assert len(by_number) == len(rows), "an exchange was booked twice"
    assert served.keys() - by_number.keys() == set(), "an exchange is missing"
    in_flight = {number for number, row in by_number.items() if row["state"] == "in_flight"}
    (recovered,) = (line for line in logged if line["event"] == "usage_recovered")
    assert (recovered["in_flight"], recovered["settled"]) == (len(in_flight), 0)
    assert client.lost, "no request was running when the worker was killed"
    assert len(in_flight) < count / 4
    for number, row in by_number.items():
        if number in in_flight:
            assert row["output_tokens"] is None
            continue
        (recorded,) = served[number]
        assert row["session"] == f"session-{number % 10}"
        if row["estimated"]:
            assert number in client.left or re.search("cut-off|no-usage", recorded.asked_model), row
            continue
        assert recorded.tally is not None
        counts = (row["input_tokens"], row["output_tokens"], row["cache_read_tokens"] or 0)
        assert counts == (recorded.tally.prompt, recorded.tally.completion, recorded.tally.cached), row
    exact = Counter((row["dialect"], row["provider"]) for row in rows if not row["estimated"])
    assert len(exact) == 6
    assert sum(exact.values()) > 0.85 * count
