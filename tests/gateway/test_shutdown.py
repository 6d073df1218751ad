"""`moonshim serve` told to stop, or killed: streams that run finish, nothing new is taken, and what was kept stays."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.config import LOOKED_FOR
from tests.support.command import MOONSHIM, environment
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, chunked_head, chunks, run
from tests.support.gateway.leaks import sockets
from tests.support.gateway.raw_client import (
    CLIENTS,
    answer_of,
    ask,
    body_of,
    connected,
    content_of,
    error_of,
    read_stream,
    sending,
    short_stream,
)

STREAMS: Final = 50
CONFIG: Final = """\
[gateway]
store = "{store}"

[[providers]]
name = "host"
host = "vllm"
api_base_url = "{url}/v1"
api_key = "sk-host"
models = ["kimi-k2.5"]
"""


class Process:
    """A gateway in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path, port: int) -> None:
        self.process, self._errors, self.port = process, errors, port

    @property
    def told(self) -> str:
        return self._errors.read_text()

    async def get(self, path: str) -> tuple[int, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            return int(head.split(b" ")[1]), json.loads(body) if body.startswith(b"{") else body
        finally:
            writer.close()

    async def open_requests(self) -> float:
        body = (await self.get("/metrics"))[1]
        return float(body.partition(b"\nmoonshim_requests_open ")[2].partition(b"\n")[0])


@asynccontextmanager
async def served(folder: Path, host: Host, *arguments: str, store: str = "memory:") -> AsyncIterator[Process]:
    """`moonshim serve`, as a user runs it, before a host that this process plays."""
    (folder / "moonshim.toml").write_text(CONFIG.format(store=store, url=host.url))
    errors = folder / "stderr"
    kept = {name: value for name, value in environment().items() if name not in LOOKED_FOR}
    with errors.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *MOONSHIM,
            "serve",
            *("--port", "0", "--config", "moonshim.toml", *arguments),
            cwd=folder,
            env=kept,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        assert line, f"it was not ready: {errors.read_text()}"
        url = next(word for word in line.split() if word.startswith("http://"))
        yield Process(process, errors, int(url.rpartition(":")[2]))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Held:
    """A host that begins an answer, and ends it when it is told to."""

    def __init__(self) -> None:
        self.stream = short_stream("openai_chat")
        self.middle = self.stream.index(b"\n\n", self.stream.index(b"Hi.")) + 2
        self.let_go = asyncio.Event()

    async def __call__(self, peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head() + chunks(self.stream[: self.middle], end=False))
        gone, told = asyncio.ensure_future(peer.gone()), asyncio.ensure_future(self.let_go.wait())
        await asyncio.wait((gone, told), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        told.cancel()
        await peer.send(chunks(self.stream[self.middle :]))
        peer.writer.close()


async def until(holds: Any) -> None:
    while not await holds():
        await asyncio.sleep(0.02)


def test_fifty_streams_that_run_at_sigterm_finish_and_nothing_new_is_taken(tmp_path: Path) -> None:
    async def test() -> None:
        host = Held()
        before = sockets()
        async with Host(host) as upstream, served(tmp_path, upstream) as gateway:
            assert (await gateway.get("/ready"))[0] == 200
            begun = asyncio.Semaphore(0)

            async def stream(client: str) -> Any:
                async with connected(gateway.port) as connection:
                    connection.send(client, body_of(client))
                    await connection.head()
                    await connection.until(lambda body: b"Hi." in body)
                    begun.release()
                    return content_of(client, await connection.rest())

            running = [asyncio.ensure_future(stream(CLIENTS[n % 3])) for n in range(STREAMS)]
            for _ in running:
                await begun.acquire()
            assert await gateway.open_requests() == STREAMS
            gateway.process.send_signal(signal.SIGTERM)

            async def drains() -> bool:
                return await gateway.get("/ready") == (503, {"status": "draining"})

            await until(drains)
            assert (await gateway.get("/health"))[0] == 200
            for client in CLIENTS:
                for streamed in (True, False):
                    refused = await ask(gateway.port, client, body_of(client, stream=streamed))
                    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
                    assert refused.headers["connection"] == "close"
                    assert "shutting down" in error_of(client, refused.json)["message"]
            assert len(upstream.requests) == STREAMS
            assert not any(one.done() for one in running)
            host.let_go.set()
            for said in await asyncio.gather(*running):
                assert (said.text, len(said.calls), said.error) == ("Hi.", 2, None)
            assert await gateway.process.wait() == 0
            with pytest.raises(ConnectionRefusedError):
                await gateway.get("/health")
            assert "Traceback" not in gateway.told
        assert len(sockets() - before) == 0

    run(test())


def test_what_outlives_its_grace_is_told_so_and_never_looks_whole(tmp_path: Path) -> None:
    async def silent(peer: Peer, asked: HostRequest) -> None:
        await (peer.gone() if b"silent" in asked.body else held(peer, asked))

    async def test() -> None:
        async with Host(silent) as upstream, served(tmp_path, upstream, "--graceful-seconds", "0.2") as gateway:

            async def stream(client: str) -> Any:
                async with connected(gateway.port) as connection:
                    connection.send(client, body_of(client))
                    await connection.head()
                    await connection.until(lambda body: b"Hi." in body)
                    begun.release()
                    return read_stream(client, (await connection.rest()).body)

            begun = asyncio.Semaphore(0)
            streams = [asyncio.ensure_future(stream(client)) for client in CLIENTS]
            waiting = [asyncio.ensure_future(ask(gateway.port, one, body_of(one, "silent"))) for one in CLIENTS]
            for _ in CLIENTS:
                await begun.acquire()
            await upstream.until(lambda: len(upstream.requests) == 2 * len(CLIENTS))
            gateway.process.send_signal(signal.SIGTERM)
            for said in await asyncio.gather(*streams):
                assert (said.text, said.reason) == ("Hi.", None)
                assert "shutting down" in said.error["message"]
            for client, refused in zip(CLIENTS, await asyncio.gather(*waiting), strict=True):
                assert (refused.status, refused.headers["retry-after"]) == (503, "1")
                error_of(client, refused.json)
            assert await gateway.process.wait() == 0
            assert "Traceback" not in gateway.told
            await upstream.until(lambda: upstream.open == 0)

    held = Held()
    run(test())


def test_what_was_thought_survives_a_kill(tmp_path: Path) -> None:
    """kill -9 in the middle of another stream, with a store in a file."""

    async def test() -> None:
        store = f"sqlite:{tmp_path / 'state.db'}"
        held = Held()
        script: Script = sending(answer_of("openai_chat"))

        async def host(peer: Peer, asked: HostRequest) -> None:
            await (held if b"another" in asked.body else script)(peer, asked)

        async with Host(host) as upstream:
            async with served(tmp_path, upstream, store=store) as gateway:
                first = await ask(gateway.port, "anthropic", body_of("anthropic"))
                assert content_of("anthropic", first).text == "Hi."
                async with connected(gateway.port) as connection:
                    connection.send("anthropic", body_of("anthropic", "another"))
                    await connection.head()
                    await connection.until(lambda body: b"Hi." in body)
                    gateway.process.send_signal(signal.SIGKILL)
                    assert not (await connection.rest()).ended
                assert await gateway.process.wait() == -signal.SIGKILL
            await upstream.until(lambda: upstream.open == 0)
            async with served(tmp_path, upstream, store=store) as gateway:
                body = body_of("anthropic")
                uses = [{"type": "tool_use", "id": f"toolu_{n}", "name": "ls", "input": {"n": n}} for n in range(2)]
                results = [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "x"} for n in range(2)]
                said = [{"type": "text", "text": "Hi."}, *uses]
                body["messages"] += [{"role": "assistant", "content": said}, {"role": "user", "content": results}]
                reply = await ask(gateway.port, "anthropic", body)
                assert read_stream("anthropic", reply.body).text == "Hi."
                sent = json.loads(upstream.requests[-1].body)["messages"]
                assert [one["reasoning"] for one in sent if one["role"] == "assistant"] == ["Hm."]

    run(test())
