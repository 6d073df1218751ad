"""A name that somebody wrote for a simulator -> what is wrong with it, with the nearest that is right; or nothing.

The command line and the file say the same in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable

from moonshim.config.problems import nearest
from moonshim.errors import MoonshimError
from moonshim.simulator.settings import ASSUMPTIONS

__all__ = [
    "wrong_assumption",
    "wrong_fault",
    "wrong_generation",
    "wrong_model",
    "wrong_nature",
    "wrong_scenario",
]


def wrong_nature(name: str) -> str | None:
    """
    >>> wrong_nature("moonshot"), wrong_nature("moonshoot")
    (None, 'there is no nature `moonshoot`; did you mean `moonshot`?')
    """
    from moonshim.simulator.host.behaviours import BEHAVIOURS

    return _unknown("nature", name, BEHAVIOURS)


def wrong_assumption(name: str) -> str | None:
    """
    >>> wrong_assumption("names-of-46")
    'there is no assumption `names-of-46`; did you mean `names-of-64`?'
    """
    return _unknown("assumption", name, ASSUMPTIONS)


def wrong_fault(text: str) -> str | None:
    """A fault as it is written behind a model's name: `cut-off`, `cut-off@3`, `cut-off*1`; commas between several.

    >>> wrong_fault("markers-in-content*1"), wrong_fault("five-rounds")
    (None, '`five-rounds` is a scenario, and no fault')
    """
    from moonshim.simulator.selection import read_names

    try:
        _, scenario = read_names(text)
    except MoonshimError as error:
        return str(error)
    return None if scenario is None else f"`{scenario}` is a scenario, and no fault"


def wrong_scenario(name_or_path: str) -> str | None:
    """
    >>> wrong_scenario("five-rounds"), wrong_scenario("five-round")
    (None, 'there is no scenario `five-round`; did you mean `five-rounds`?')
    """
    from moonshim.simulator.model.scenario_file import load_scenario

    try:
        load_scenario(name_or_path)
    except MoonshimError as error:
        return str(error)
    return None


def wrong_model(place: str) -> str | None:
    """`file.py:Name` of a model in Python. It is loaded: only so is it known whether it can be."""
    from moonshim.simulator.model.plugins import load_model

    try:
        load_model(place)
    except MoonshimError as error:
        return str(error)
    return None


def wrong_generation(name: str) -> str | None:
    """
    >>> wrong_generation("k2.5"), wrong_generation("k2.8")
    (None, 'there is no generation `k2.8`; did you mean `k2.7`?')
    """
    from moonshim.simulator.host.models import MODELS, generation_of

    return _unknown("generation", name, dict.fromkeys(known for model in MODELS if (known := generation_of(model))))


def _unknown(kind: str, name: str, known: Iterable[str]) -> str | None:
    names = list(known)
    if name in names:
        return None
    hint = nearest(name, names) or f"; there are {', '.join(names)}"
    return f"there is no {kind} `{name}`{hint}"
