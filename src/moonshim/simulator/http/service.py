"""Settings -> what a server serves: the simulator's application, with its log."""

from __future__ import annotations

import signal
from typing import Any

from moonshim.config import Limits
from moonshim.simulator.server import Simulator
from moonshim.simulator.settings import SimulatorSettings

__all__ = ["SimulatorService", "open_simulator"]


async def open_simulator(settings: SimulatorSettings) -> SimulatorService:
    """What `moonshim simulate` serves."""
    return SimulatorService(Simulator(settings))


class SimulatorService:
    """A simulator in a process of its own. Nobody waits for its answers when it ends: it is a thing for tests."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self.app: Any = simulator.app
        self.limits = Limits()

    def drain(self) -> None:
        self._simulator.app.close()

    async def reload(self) -> None:
        """There is nothing to load again. Whoever hangs up has closed the terminal: it ends, and leaves the port."""
        signal.raise_signal(signal.SIGTERM)

    async def close(self) -> None:
        self._simulator.app.close()
