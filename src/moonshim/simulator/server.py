"""Settings -> a Kimi API that listens on this machine, inside this process.

async with Simulator(behaviour="selfhost", faults=("markers-in-content",)) as server:
    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any")

with Simulator().running() as server:  # in its own thread
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="any")
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from moonshim.http_server.server import EmbeddedServer, serve_inside
from moonshim.http_server.threads import in_thread
from moonshim.simulator.host.tokenizer import load_tokenizer
from moonshim.simulator.http.app import SimulatorApp
from moonshim.simulator.http.exchange import SimExchange
from moonshim.simulator.http.log import log_failure, log_request
from moonshim.simulator.http.recorded import RecordedRequest
from moonshim.simulator.model.plugins import PluginModel, load_model
from moonshim.simulator.model.scenario import Scenario
from moonshim.simulator.model.scenario_file import load_scenario
from moonshim.simulator.model.scripted import ScriptedModel
from moonshim.simulator.response import Model
from moonshim.simulator.settings import SimulatorSettings, rename_nature
from moonshim.simulator.settings_check import check_settings

__all__ = ["Simulator"]


class Simulator:
    """A simulated host, for tests. Its keyword arguments are the fields of `SimulatorSettings`.

    Run it with `async with Simulator() as server`, or `with Simulator().running() as server` without an event loop, and
    send requests to `server.url`. `model` may also be a `Model` object, and `scenario` a `Scenario`.
    """

    def __init__(
        self,
        settings: SimulatorSettings | None = None,
        *,
        model: str | Model = "",
        scenario: str | Scenario = "",
        clock: Callable[[], float] = time.time,
        log: Callable[[RecordedRequest], None] = log_request,
        host: str = "127.0.0.1",
        port: int = 0,
        **fields: Any,
    ) -> None:
        named = {"model": model, "scenario": scenario}
        fields |= {name: value for name, value in named.items() if value and isinstance(value, str)}
        changed = replace(settings or SimulatorSettings(), **rename_nature(fields))
        self.settings: SimulatorSettings = check_settings(changed)
        self._model_given: Model | None = None
        if not isinstance(model, str):
            self._model_given = PluginModel(type(model).__name__, model.reply)
        elif not isinstance(scenario, str):
            self._model_given = ScriptedModel(scenario)
        self._exchange = SimExchange(
            self.settings,
            models=self._model,
            clock=clock,
            log=log,
            log_failure=log_failure,
            tokenizer=load_tokenizer(self.settings.tokenizer) if self.settings.tokenizer else None,
        )
        self.app: SimulatorApp = SimulatorApp(self._exchange)
        self._host, self._port = host, port
        self._server: EmbeddedServer | None = None

    def _model(self, scenario: str | None) -> Model:
        """The model for this scenario; for None, the model passed to the constructor or named in the settings."""
        if scenario is None and self._model_given is not None:
            return self._model_given
        if scenario is None and self.settings.model:
            return load_model(self.settings.model)
        return ScriptedModel(load_scenario(scenario or self.settings.scenario))

    @property
    def url(self) -> str:
        """The base URL: `http://127.0.0.1:8485`, without a path."""
        if self._server is None:
            raise RuntimeError("the simulator is not running: use it in a `with` statement")
        return self._server.url

    @property
    def requests(self) -> deque[RecordedRequest]:
        """The most recent requests, the newest last."""
        return self._exchange.requests

    @property
    def refusals(self) -> list[RecordedRequest]:
        """The requests that were refused."""
        return [recorded for recorded in self.requests if recorded.problem is not None]

    async def __aenter__(self) -> Simulator:
        self.app.open()
        self._server = await serve_inside(self.app, host=self._host, port=self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.app.close_and_wait()
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def running(self) -> AbstractContextManager[Simulator]:
        """Run in a background thread, for code without an event loop: `with Simulator().running() as server`."""
        return in_thread(self, "moonshim-simulator")
