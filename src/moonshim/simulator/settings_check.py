"""Settings as somebody wrote them in Python -> the same, with the types that they should have, or what is wrong."""

from __future__ import annotations

from typing import Any

import msgspec

from moonshim.errors import InvalidInput
from moonshim.simulator.names import wrong_assumption, wrong_generation
from moonshim.simulator.settings import SimulatorSettings

__all__ = ["WrongSettings", "checked"]


class WrongSettings(InvalidInput):
    """A field of the settings has a value that means nothing."""

    code = "wrong_settings"


def checked(settings: SimulatorSettings) -> SimulatorSettings:
    """Python puts anything into a field, and it would show in the middle of somebody's test. Names of natures, faults
    and scenarios are looked up by whoever uses them, and are not looked at here.

    >>> checked(SimulatorSettings(faults="no-done", chaos=1)).faults
    ('no-done',)
    >>> checked(SimulatorSettings(chaos=10))
    Traceback (most recent call last):
    moonshim.simulator.settings_check.WrongSettings: chaos: this is a share of all answers, from 0 to 1
    """
    fields: dict[str, Any] = {name: getattr(settings, name) for name in settings.__struct_fields__}
    for name in ("faults", "assume"):
        if isinstance(fields[name], str):  # else each of its letters would be a name
            fields[name] = (fields[name],)
    try:
        made = msgspec.convert(fields, SimulatorSettings)
    except msgspec.ValidationError as error:
        raise WrongSettings(str(error).replace("$.", "")) from None
    if not 0 <= made.chaos <= 1:
        raise WrongSettings("chaos: this is a share of all answers, from 0 to 1", field="chaos")
    wrong = [wrong_assumption(name) for name in made.assume]
    wrong += [wrong_generation(row.generation) for row in made.models.values()]
    for problem in filter(None, wrong):
        raise WrongSettings(problem)
    return made
