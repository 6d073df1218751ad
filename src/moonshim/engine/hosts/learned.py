"""What a host has shown of itself -> profile fields that override the host table: how it reads reasoning."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final

from moonshim.engine.hosts.profile import HostProfile
from moonshim.errors import MoonshimError, Problem

__all__ = ["LearnedFields"]

_MISSING: Final = re.compile(r"(?i)thinking is enabled but reasoning_content is missing")
"""The words of Moonshot, whichever host passes them on."""
_PLAIN: Final = ("reasoning_content", "reasoning")
_MOST: Final = 1024
"""Targets that are remembered: the names of models are the client's to make up."""


class LearnedFields:
    """Cells by target: a provider and a model, or whatever else identifies who is asked. Bounded."""

    def __init__(self) -> None:
        self._fields: OrderedDict[Hashable, dict[str, Any]] = OrderedDict()

    def of(self, target: Hashable) -> dict[str, Any]:
        """Overrides for the next request to this target."""
        return dict(self._fields.get(target, ()))

    def learn_from_error(
        self, target: Hashable, profile: HostProfile, problem: Problem, would_change: Callable[[dict[str, Any]], bool]
    ) -> bool:
        """Whether the request should be sent again, since the host missed reasoning that can be put in.

        `would_change` says whether the request differs from the one that was refused, with these cells.
        """
        if not _MISSING.search(problem.message):
            return False
        for fields in _remedies(profile):
            try:
                changes = would_change(fields)
            except MoonshimError:
                continue  # then what the host said is the better answer
            if changes:
                self._put(target, fields)
                return True
        return False

    def learn_reasoning_field(self, target: Hashable, profile: HostProfile, field: str | None) -> None:
        """The host told its reasoning in this field: a row that names another one is wrong about this host.

        One that refuses requests without reasoning is known to look in the field of its row.
        """
        if profile.lost_reasoning is None and {field, profile.reasoning_in} == set(_PLAIN):
            self._put(target, {"reasoning_in": field})

    def _put(self, target: Hashable, fields: dict[str, Any]) -> None:
        self._fields[target] = fields
        self._fields.move_to_end(target)
        while len(self._fields) > _MOST:
            self._fields.popitem(last=False)


def _remedies(profile: HostProfile) -> Iterator[dict[str, Any]]:
    """What to try, the mildest first: the right field; an empty text; a blank, for an empty text may be dropped on
    the way to whoever checks."""
    fields: dict[str, Any] = {
        "reasoning_in": "thinking" if profile.dialect == "anthropic" else "reasoning_content",
        "keeps_reasoning": "calls" if profile.keeps_reasoning == "none" else profile.keeps_reasoning,
    }
    for placeholder in dict.fromkeys((profile.lost_reasoning or "", " ")):
        yield fields | {"lost_reasoning": placeholder}
