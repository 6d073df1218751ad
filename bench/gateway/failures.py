"""Measure what is lost when a gateway is killed, reloaded or stopped: `python -m bench.gateway.failures`.

- Two gateways share one Redis (found as in the tests). Conversations switch between them with every request and drop
  their reasoning, and one gateway is killed. Counted: the requests that reach the host with all of their reasoning.
- A gateway gets SIGHUP thirty times, a broken configuration, then SIGTERM. Counted: the complete streams.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from typing import Any, Final

import aiohttp

from bench.gateway.processes import gateway
from bench.gateway.programs import host
from bench.gateway.traffic import Request, send
from tests.support.gateway.hosts import Host, HostRequest, Peer, whole
from tests.support.redis_server import running_redis

CONVERSATIONS: Final = 16
ROUNDS: Final = 31
"""Each round after the first adds one turn whose reasoning must be restored."""
STREAMS: Final = 100
RELOADS: Final = 30


async def _hopping() -> None:
    recalled: list[bool] = []

    async def script(peer: Peer, asked: HostRequest) -> None:
        messages = json.loads(asked.body)["messages"]
        name = messages[0]["content"]
        turns = [one for one in messages if one["role"] == "assistant"]
        if turns:
            recalled.append(all(one.get("reasoning_content") == f"{name}, {n}" for n, one in enumerate(turns)))
        function = {"name": "read", "arguments": json.dumps({"path": f"{name}, {len(turns)}"})}
        call = {"id": f"functions.read:{len(turns)}", "type": "function", "function": function}
        reasoning = f"{name}, {len(turns)}"
        message = {"role": "assistant", "content": "", "reasoning_content": reasoning, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": "kimi-k2.5"}
        await peer.send(whole(json.dumps({**head, "choices": [choice]}).encode()))

    with running_redis() as redis:
        store = f'\n[gateway]\nstore = "{redis.url}"\n'
        async with Host(script) as made:
            with gateway(made.port, extra=store) as first, gateway(made.port, extra=store) as second:
                ports = (first.port, second.port)

                async def converse(session: aiohttp.ClientSession, name: int) -> None:
                    messages: list[dict[str, Any]] = [{"role": "user", "content": f"conversation {name}"}]
                    for turn in range(ROUNDS):
                        if (name, turn) == (0, ROUNDS // 2):
                            os.kill(first.pid, signal.SIGKILL)
                        body = {"model": "kimi-k2.5", "messages": messages}
                        said = await _first_that_answers(session, (ports[(name + turn) % 2], second.port), body)
                        said.pop("reasoning_content", None)
                        result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "done"}
                        messages += [said, result]

                async with aiohttp.ClientSession() as session:
                    await asyncio.gather(*(converse(session, name) for name in range(CONVERSATIONS)))
    print(
        f"  {sum(recalled)} of {len(recalled)} requests (retries included) reached the host with all of their reasoning"
    )
    if not all(recalled):
        raise SystemExit("reasoning was lost")


async def _first_that_answers(session: aiohttp.ClientSession, ports: tuple[int, ...], body: Any) -> dict[str, Any]:
    for port in ports:
        try:
            async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as answer:
                said: dict[str, Any] = (await answer.json())["choices"][0]["message"]
                return said
        except aiohttp.ClientError:
            continue
    raise SystemExit("no gateway responds")


def _signals() -> None:
    with host() as upstream, gateway(upstream.port) as served:

        def disturb() -> None:
            time.sleep(2.0)
            for _ in range(RELOADS):
                os.kill(served.pid, signal.SIGHUP)
                time.sleep(0.05)
            served.config.write_text("not = = a configuration")
            os.kill(served.pid, signal.SIGHUP)
            time.sleep(2.0)
            os.kill(served.pid, signal.SIGTERM)

        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        request = Request(chunks=60, gap_us=200_000, slots=STREAMS)
        result = send(served.port, request, STREAMS, STREAMS, spread_us=1_000_000)
        disturbing.join()
    print(
        f"  {result.complete} of {result.requests} streams complete after {RELOADS} reloads, a broken file and SIGTERM"
    )
    if result.complete != result.requests:
        raise SystemExit("streams were lost")


def main() -> None:
    asyncio.run(_hopping())
    _signals()


if __name__ == "__main__":
    main()
