"""What is lost when a gateway is killed, reloaded or stopped: `python -m bench.gateway.failures`.

- Two gateways on one Redis (found as by the tests), conversations that change the gateway with every request and drop
  their reasoning, one gateway killed: how many turns reach the host with their reasoning.
- SIGHUP thirty times, a broken configuration, then SIGTERM: how many streams arrive whole.
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

from bench.gateway.client import body_of, run_streams
from bench.gateway.load import CHAT
from bench.gateway.processes import gateway, host
from tests.support.gateway.hosts import Host, HostRequest, Peer, whole
from tests.support.redis_server import running_redis

CONVERSATIONS: Final = 16
ROUNDS: Final = 31
"""Each after the first brings one turn whose reasoning must be recalled."""
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
                            os.kill(first.pids[0], signal.SIGKILL)
                        body = {"model": "kimi-k2.5", "messages": messages}
                        said = await _first_that_answers(session, (ports[(name + turn) % 2], second.port), body)
                        said.pop("reasoning_content", None)
                        result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "done"}
                        messages += [said, result]

                async with aiohttp.ClientSession() as session:
                    await asyncio.gather(*(converse(session, name) for name in range(CONVERSATIONS)))
    print(
        f"  {sum(recalled)} of {len(recalled)} requests had all of their reasoning; the host was asked again for some"
    )
    if not all(recalled):
        raise SystemExit("reasoning was lost")


async def _first_that_answers(session: aiohttp.ClientSession, ports: tuple[int, ...], body: Any) -> dict[str, Any]:
    for port in ports:
        try:
            async with session.post(f"http://127.0.0.1:{port}{CHAT}", json=body) as answer:
                said: dict[str, Any] = (await answer.json())["choices"][0]["message"]
                return said
        except aiohttp.ClientError:
            continue
    raise SystemExit("no gateway answers")


def _signals() -> None:
    with host(chunks=60, gap_ms=200.0) as upstream, gateway(upstream) as served:

        def disturb() -> None:
            time.sleep(2.0)
            for _ in range(RELOADS):
                os.kill(served.pids[0], signal.SIGHUP)
                time.sleep(0.05)
            served.config.write_text("this is = = no configuration")
            os.kill(served.pids[0], signal.SIGHUP)
            time.sleep(2.0)
            os.kill(served.pids[0], signal.SIGTERM)

        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        result = run_streams(served.port, CHAT, body_of("kimi-k2.5", stream=True), STREAMS, spread=1.0)
        disturbing.join()
    print(f"  {result.whole} of {result.streams} streams whole after {RELOADS} reloads, a broken file and SIGTERM")
    if result.whole != result.streams:
        raise SystemExit("streams were lost")


def main() -> None:
    asyncio.run(_hopping())
    _signals()


if __name__ == "__main__":
    main()
