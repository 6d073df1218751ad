"""A Kimi API that runs anywhere: as strict as the real one, and able to misbehave in every way that hosts do."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moonshim.simulator import play
    from moonshim.simulator.answer import Meant, MeantCall, Model
    from moonshim.simulator.box import Simulator
    from moonshim.simulator.faults import FAULTS
    from moonshim.simulator.question import Question
    from moonshim.simulator.settings import SimulatorSettings

__all__ = ["FAULTS", "Meant", "MeantCall", "Model", "Question", "Simulator", "SimulatorSettings", "play"]

_WHERE = {
    "FAULTS": "faults",
    "Meant": "answer",
    "MeantCall": "answer",
    "Model": "answer",
    "Question": "question",
    "Simulator": "box",
    "SimulatorSettings": "settings",
}


def __getattr__(name: str) -> Any:
    # Nothing is loaded before it is used: the pure parts need no server.
    from importlib import import_module

    if name == "play":
        return import_module(f"{__name__}.play")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
