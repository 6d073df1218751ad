"""A simulated Kimi API: as strict as the real one, and able to misbehave in every way that hosts do."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moonshim.simulator.faults import FAULTS
    from moonshim.simulator.request import SimRequest
    from moonshim.simulator.response import IntendedCall, IntendedResponse, Model
    from moonshim.simulator.server import Simulator
    from moonshim.simulator.settings import SimulatorSettings
    from moonshim.simulator.wire import playback as play

__all__ = [
    "FAULTS",
    "IntendedCall",
    "IntendedResponse",
    "Model",
    "SimRequest",
    "Simulator",
    "SimulatorSettings",
    "play",
]

_WHERE = {
    "FAULTS": "faults",
    "IntendedResponse": "response",
    "IntendedCall": "response",
    "Model": "response",
    "SimRequest": "request",
    "Simulator": "server",
    "SimulatorSettings": "settings",
}

_OLD_NAMES = {"Meant": "IntendedResponse", "MeantCall": "IntendedCall", "Question": "SimRequest"}


def __getattr__(name: str) -> Any:
    # Nothing is imported before it is used: the pure parts need no server.
    from importlib import import_module

    if name in _OLD_NAMES:
        from moonshim.compat import new_name

        name = new_name(__name__, name, _OLD_NAMES)
    if name == "play":
        return import_module(f"{__name__}.wire.playback")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
