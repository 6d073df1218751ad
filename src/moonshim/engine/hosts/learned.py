"""Observed host behaviour -> profile fields that override the host table: how the host reads reasoning, how large a
tool's schema may be, and whether it has structured output."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, TypeVar

from moonshim.engine.hosts.profile import HostProfile
from moonshim.errors import MoonshimError, Problem

__all__ = ["LearnedFields"]

T = TypeVar("T")

_MISSING: Final = re.compile(r"(?i)thinking is enabled but reasoning_content is missing")
"""Moonshot's message, whichever host forwards it."""
_TOO_LARGE: Final = re.compile(r"(?i)schema exceeds maximum allowed size")
_SMALL_SCHEMA: Final = 15_000
"""Bytes that Moonshot's validator (MoonshotAI/walle, conf.go) accepted until its limit was raised to 120,000. Kimi Code
refused 24 KB in May and June 2026 (pi-subagents#235, kimi-code#965); whether any host still does is unverified."""
_FORMAT: Final = re.compile(r"(?i)response[_ ]?format|json_schema|structured[_ ]?output")
_REFUSED: Final = re.compile(
    r"(?i)support|unavailable|not available|unknown|unrecogni[sz]ed|unexpected|not allowed|not permitted"
)
"""Together: the host has no structured output. One that only refuses this schema does not say so."""
_PLAIN: Final = ("reasoning_content", "reasoning")
_MAX_CONTRARY: Final = 8
"""Responses in a row with another reasoning field after which the host has changed. A host that answers
from several servers alternates; each change of the field would change the prefix of every conversation."""
_MAX_TARGETS: Final = 1024
"""Maximum number of targets: clients choose the model names."""


class LearnedFields:
    """Learned profile fields by target: a provider and model, or any other identification of an endpoint. Bounded.

    Theory of operation. Errors teach at once. For the reasoning field, the first response of a target decides; later
    ones that disagree count only as a row without a response that agrees (`_contrary`). So a history's prefix changes
    at most once, with the first response of a host whose profile names the other field.
    """

    def __init__(self) -> None:
        self._fields: OrderedDict[Hashable, dict[str, Any]] = OrderedDict()
        self._contrary: OrderedDict[Hashable, int] = OrderedDict()
        """By target whose reasoning field is known: how many responses in a row had another one."""

    def overrides_for(self, target: Hashable) -> dict[str, Any]:
        """Overrides for the next request to this target."""
        return dict(self._fields.get(target, ()))

    def learn_from_error(
        self, target: Hashable, profile: HostProfile, problem: Problem, would_change: Callable[[dict[str, Any]], bool]
    ) -> bool:
        """Whether to retry the request because the host refused what can be corrected: lost reasoning, a schema that
        can be shortened, or a response format that can be described to the model.

        `would_change` returns whether these fields would change the request that was refused.
        """
        for fields in _remedies(profile, problem.message):
            try:
                changes = would_change(fields)
            except MoonshimError:
                continue  # otherwise the host's own error is the better answer
            if changes:
                self._store(target, fields)
                return True
        return False

    def learn_reasoning_field(self, target: Hashable, profile: HostProfile, field: str | None) -> None:
        """The host sent its reasoning in this field; a profile that names another one is wrong about this host.

        A host that refuses requests without reasoning is known to read the field of its profile.
        """
        if profile.lost_reasoning is not None or field not in _PLAIN or profile.reasoning_in not in _PLAIN:
            return
        # Not the profile's: another response may have taught the field since this request was sent.
        known = self._fields.get(target, {}).get("reasoning_in", profile.reasoning_in)
        contrary = 0 if field == known else self._contrary.get(target, _MAX_CONTRARY - 1) + 1
        if contrary == _MAX_CONTRARY:
            self._store(target, {"reasoning_in": field})
            contrary = 0
        _put(self._contrary, target, contrary)

    def _store(self, target: Hashable, fields: dict[str, Any]) -> None:
        _put(self._fields, target, self._fields.get(target, {}) | fields)


def _put(table: OrderedDict[Hashable, T], target: Hashable, value: T) -> None:
    table[target] = value
    table.move_to_end(target)
    while len(table) > _MAX_TARGETS:
        table.popitem(last=False)


def _remedies(profile: HostProfile, message: str) -> Iterator[dict[str, Any]]:
    """Overrides to try, mildest first. For reasoning: the right field; an empty string; a space, since an empty string
    may be dropped before it reaches the check."""
    if _TOO_LARGE.search(message) and profile.generation != "other":
        yield {"schema_flavour": "moonshot", "schema_limit": _SMALL_SCHEMA}
    if profile.structured_output == "json_schema" and _FORMAT.search(message) and _REFUSED.search(message):
        yield {"structured_output": None}
    if not _MISSING.search(message):
        return
    fields: dict[str, Any] = {
        "reasoning_in": "thinking" if profile.dialect == "anthropic" else "reasoning_content",
        "keeps_reasoning": "calls" if profile.keeps_reasoning == "none" else profile.keeps_reasoning,
    }
    for placeholder in dict.fromkeys((profile.lost_reasoning or "", " ")):
        yield fields | {"lost_reasoning": placeholder}
