"""The settings of a simulator: one frozen value, made from the command line, a file, or in Python."""

from __future__ import annotations

from typing import Any, ClassVar, Final
from warnings import warn

from msgspec import Struct, StructMeta

from moonshim.compat import FormerName

__all__ = ["ASSUMPTIONS", "ModelRow", "SimulatorSettings", "rename_nature"]

ASSUMPTIONS: Final[dict[str, str]] = {
    "k3-needs-reasoning": "K3 refuses calls without their reasoning, as K2.5 does; seen at Kimi Code only",
    "names-of-64": "names of tools have 64 characters at most before K3, as old pages say",
    "short-answers": "old K2 models stop after 1,024 tokens when `max_tokens` is not given",
    "web-search-thinks-not": "`$web_search` is refused while thinking is on",
    "counts-tokens": "the Messages endpoint has `count_tokens`",
    "k3-refuses-named-choice": "K3 refuses a `tool_choice` that names a tool, as K2.5 does; its own tests pass over it",
}
"""Unproven rules of the real API, by the name that `--assume` enables them with."""


class ModelRow(Struct, frozen=True, kw_only=True):
    """A custom model name: the generation it stands for, and its own faults."""

    generation: str
    faults: tuple[str, ...] = ()


class _AcceptsNature(StructMeta):
    """Accepts the former keyword `nature` for one release."""

    def __call__(self, *values: Any, **fields: Any) -> Any:
        return super().__call__(*values, **rename_nature(fields))


def rename_nature(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with `behaviour` instead of its former name `nature`."""
    if "nature" not in fields:
        return fields
    warn("`nature` is called `behaviour` now", DeprecationWarning, stacklevel=3)
    return {"behaviour" if name == "nature" else name: value for name, value in fields.items()}


class SimulatorSettings(Struct, frozen=True, kw_only=True, metaclass=_AcceptsNature):
    """Behaviour is deterministic: `chaos` draws from `seed`, so the same seed gives the same run."""

    behaviour: str = "moonshot"
    """The host to emulate: a name in `host.behaviours.BEHAVIOURS`."""
    models: dict[str, ModelRow] = {}
    faults: tuple[str, ...] = ()
    """Applied to every response, written as in a model name: `markers-in-content`, `overloaded*1`, `cut-off@3`."""
    chaos: float = 0.0
    """The share of responses, from 0 to 1, that get one more fault, chosen by `seed`."""
    seed: int = 0
    scenario: str = "one-call"
    """The name of a built-in scenario, or the path of a file."""
    model: str = ""
    """`module:name` or `file.py:name` of a model in Python; it replaces the scenario."""
    assume: tuple[str, ...] = ()
    api_key: str = ""
    """The only API key that is accepted; empty: any key, or no key."""
    tokens_per_second: float = 0.0
    """0: as fast as the client reads."""
    first_token_ms: float = 0.0
    body_bytes: int = 100 * 2**20
    """A request that is larger is refused (413)."""

    nature: ClassVar[FormerName] = FormerName("behaviour")
