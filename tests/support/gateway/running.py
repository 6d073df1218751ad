"""The whole gateway on a real socket, in a test's event loop: a configuration -> an address, and clients for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

import uvicorn
from anthropic import AsyncAnthropic
from msgspec.structs import replace
from openai import AsyncOpenAI

from moonshim.config import Config, ProviderConfig, Secret
from moonshim.gateway.app import build_app
from moonshim.gateway.state import GatewayState
from moonshim.http_server.protocol import protocol_with

__all__ = ["PLAIN_ASGI", "Running", "config_for", "running"]

MODEL: Final = "kimi-k2.5"
PLAIN_ASGI: Final[ContextVar[bool]] = ContextVar("plain_asgi", default=False)
"""Whether gateways are served as by another ASGI server than ours: without its extensions."""


def config_for(url: str, *, dialect: str = "openai_chat", **given: Any) -> Config:
    """One self-hosted Kimi at this address; `given` are fields of the provider or of the configuration."""
    fields = set(Config.__struct_fields__)
    ours = {key: value for key, value in given.items() if key in fields}
    theirs = {key: value for key, value in given.items() if key not in fields}
    base = f"{url}/anthropic" if dialect == "anthropic" else f"{url}/v1"
    defaults: dict[str, Any] = {"name": "host", "api_base_url": base, "models": (MODEL,), "host": "vllm"}
    defaults |= {"keys": (Secret("sk-host"),), "dialect": dialect}
    if dialect == "anthropic":
        defaults["host"] = "moonshot-anthropic"
    return Config(providers=(ProviderConfig(**(defaults | theirs)),), **ours)


class Running:
    """A running gateway."""

    def __init__(self, state: GatewayState, port: int, server: uvicorn.Server) -> None:
        self.state, self.port, self.server = state, port, server
        self.url = f"http://127.0.0.1:{port}"

    def openai(self, **given: Any) -> AsyncOpenAI:
        options: dict[str, Any] = {"base_url": f"{self.url}/v1", "api_key": "none", "max_retries": 0}
        return AsyncOpenAI(**(options | given))

    def anthropic(self, **given: Any) -> AsyncAnthropic:
        options: dict[str, Any] = {"base_url": self.url, "api_key": "none", "max_retries": 0}
        return AsyncAnthropic(**(options | given))


@asynccontextmanager
async def running(config: Config, *, providers: tuple[ProviderConfig, ...] = ()) -> AsyncIterator[Running]:
    """Serve this configuration on a free loopback port."""
    if providers:
        config = replace(config, providers=(*config.providers, *providers))
    state = await GatewayState.open(config)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", 0))
        listening.listen(512)
        app = build_app(state)
        options = uvicorn.Config(
            _without_extensions(app) if PLAIN_ASGI.get() else app,
            http=protocol_with(config.limits),
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            ws="none",
        )
        server = uvicorn.Server(options)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(server._serve([listening]))
        try:
            while not server.started:
                await asyncio.sleep(0.001)
                if task.done():
                    task.result()
            yield Running(state, listening.getsockname()[1], server)
        finally:
            server.should_exit = server.force_exit = True
            await task
            await state.close()


def _without_extensions(app: Any) -> Any:
    async def served(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "extensions": {}}, receive, send)

    return served
