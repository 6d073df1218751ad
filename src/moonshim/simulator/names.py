"""A name from the user -> what is wrong with it, with the nearest valid name; or None.

The command line and the settings file share these messages.
"""

from __future__ import annotations

from collections.abc import Iterable

from moonshim.config.problems import nearest
from moonshim.errors import MoonshimError
from moonshim.simulator.settings import ASSUMPTIONS

__all__ = [
    "assumption_problem",
    "behaviour_problem",
    "fault_problem",
    "generation_problem",
    "model_problem",
    "scenario_problem",
    "tokenizer_problem",
]


def behaviour_problem(name: str) -> str | None:
    """
    >>> behaviour_problem("moonshot"), behaviour_problem("moonshoot")
    (None, "unknown behaviour 'moonshoot' (did you mean 'moonshot'?)")
    """
    from moonshim.simulator.host.behaviours import BEHAVIOURS

    return _unknown_name("behaviour", name, BEHAVIOURS)


def assumption_problem(name: str) -> str | None:
    """
    >>> assumption_problem("names-of-46")
    "unknown assumption 'names-of-46' (did you mean 'names-of-64'?)"
    """
    return _unknown_name("assumption", name, ASSUMPTIONS)


def fault_problem(text: str) -> str | None:
    """A fault as written after a model's name: `cut-off`, `cut-off@3`, `cut-off*1`; several are separated by commas.

    >>> fault_problem("markers-in-content*1"), fault_problem("five-rounds")
    (None, "'five-rounds' is a scenario, not a fault")
    """
    from moonshim.simulator.selection import read_names

    try:
        _, scenario = read_names(text)
    except MoonshimError as error:
        return str(error)
    return None if scenario is None else f"'{scenario}' is a scenario, not a fault"


def scenario_problem(name_or_path: str) -> str | None:
    """
    >>> scenario_problem("five-rounds"), scenario_problem("five-round")
    (None, "unknown scenario 'five-round' (did you mean 'five-rounds'?)")
    """
    from moonshim.simulator.model.scenario_file import load_scenario

    try:
        load_scenario(name_or_path)
    except MoonshimError as error:
        return str(error)
    return None


def model_problem(place: str) -> str | None:
    """`file.py:Name` of a model in Python. It is loaded to find out whether it can be."""
    from moonshim.simulator.model.plugins import load_model

    try:
        load_model(place)
    except MoonshimError as error:
        return str(error)
    return None


def tokenizer_problem(path: str) -> str | None:
    """A `tiktoken.model`, or the folder of a model. It is loaded to find out whether it can be."""
    from moonshim.simulator.host.tokenizer import load_tokenizer

    try:
        load_tokenizer(path)
    except MoonshimError as error:
        return str(error)
    return None


def generation_problem(name: str) -> str | None:
    """
    >>> generation_problem("k2.5"), generation_problem("k2.8")
    (None, "unknown generation 'k2.8' (did you mean 'k2.7'?)")
    """
    from moonshim.simulator.host.models import MODELS, generation_of

    return _unknown_name(
        "generation", name, dict.fromkeys(known for model in MODELS if (known := generation_of(model)))
    )


def _unknown_name(kind: str, name: str, known: Iterable[str]) -> str | None:
    names = list(known)
    if name in names:
        return None
    hint = nearest(name, names) or f"; choose from {', '.join(names)}"
    return f"unknown {kind} '{name}'{hint}"
