"""Settings -> the service that a server runs: the simulator's application, with its log."""

from __future__ import annotations

import signal
from typing import Any

from moonshim.config import Limits
from moonshim.simulator.server import Simulator
from moonshim.simulator.settings import SimulatorSettings

__all__ = ["SimulatorService", "open_simulator"]


async def open_simulator(settings: SimulatorSettings) -> SimulatorService:
    """Create the service for `moonshim simulate`."""
    return SimulatorService(Simulator(settings))


class SimulatorService:
    """A simulator in its own process. On shutdown it does not wait for running responses: it is made for tests."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self.app: Any = simulator.app
        self.limits = Limits()

    def drain(self) -> None:
        self._simulator.app.close()

    async def reload(self) -> None:
        """There is nothing to reload. SIGHUP means that the terminal was closed: stop, and free the port."""
        signal.raise_signal(signal.SIGTERM)

    async def close(self) -> None:
        self._simulator.app.close()
