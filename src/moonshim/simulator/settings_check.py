"""Settings written in Python -> the same with the right types, or a `WrongSettings`."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

import msgspec

from moonshim.errors import InvalidInput
from moonshim.simulator.names import assumption_problem, generation_problem
from moonshim.simulator.settings import SimulatorSettings

__all__ = ["WrongSettings", "check_settings"]


class WrongSettings(InvalidInput):
    """A field of the settings has an invalid value."""

    code = "wrong_settings"


def check_settings(settings: SimulatorSettings) -> SimulatorSettings:
    """Check types and ranges early, so that a mistake does not show in the middle of a test.

    Names of behaviours, faults and scenarios are checked where they are looked up.

    >>> check_settings(SimulatorSettings(faults="no-done", chaos=1)).faults
    ('no-done',)
    >>> check_settings(SimulatorSettings(chaos=10))
    Traceback (most recent call last):
    moonshim.simulator.settings_check.WrongSettings: chaos: must be between 0 and 1
    """
    fields: dict[str, Any] = {name: getattr(settings, name) for name in settings.__struct_fields__}
    for name in ("faults", "assume"):
        if isinstance(fields[name], str):  # otherwise each of its letters would be a name
            fields[name] = (fields[name],)
    if isinstance(fields["tokenizer"], PathLike):
        fields["tokenizer"] = fspath(fields["tokenizer"])
    try:
        made = msgspec.convert(fields, SimulatorSettings)
    except msgspec.ValidationError as error:
        raise WrongSettings(str(error).replace("$.", "")) from None
    if not 0 <= made.chaos <= 1:
        raise WrongSettings("chaos: must be between 0 and 1", field="chaos")
    if made.thinking_tokens < 0:
        raise WrongSettings("thinking_tokens: must be 0 or more", field="thinking_tokens")
    wrong = [assumption_problem(name) for name in made.assume]
    wrong += [generation_problem(row.generation) for row in made.models.values()]
    for problem in filter(None, wrong):
        raise WrongSettings(problem)
    return made
