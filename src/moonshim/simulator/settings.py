"""How a simulator behaves: one frozen value, made from the command line, a file, or in Python."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

__all__ = ["ASSUMPTIONS", "ModelRow", "SimulatorSettings"]

ASSUMPTIONS: Final[dict[str, str]] = {
    "k3-needs-reasoning": "K3 refuses calls without their reasoning, as K2.5 does; seen at Kimi Code only",
    "names-of-64": "names of tools have 64 characters at most before K3, as old pages say",
    "short-answers": "old K2 models stop after 1,024 tokens when `max_tokens` is not given",
    "web-search-thinks-not": "`$web_search` is refused while thinking is on",
    "counts-tokens": "the Messages endpoint has `count_tokens`",
    "k3-refuses-named-choice": "K3 refuses a `tool_choice` that names a tool, as K2.5 does; its own tests pass over it",
}
"""What nobody has shown of the real API, by the name under which `--assume` switches it on."""


class ModelRow(Struct, frozen=True, kw_only=True):
    """A model of the user's own: another name for a generation, with faults of its own."""

    generation: str
    faults: tuple[str, ...] = ()


class SimulatorSettings(Struct, frozen=True, kw_only=True):
    """Nothing is random unless there is a `seed`, and then it is the same for every run with that seed."""

    nature: str = "moonshot"
    """Whose manners it has: a row of `natures.NATURES`."""
    models: dict[str, ModelRow] = {}
    faults: tuple[str, ...] = ()
    """For every answer, as in a model's name: `markers-in-content`, `overloaded*1`, `cut-off@3`."""
    chaos: float = 0.0
    """The share of answers that get one more fault, chosen by `seed`."""
    seed: int = 0
    scenario: str = "one-call"
    """The name of a built-in scenario, or the path of a file."""
    model: str = ""
    """`module:name` or `file.py:name` of a model in Python; it takes the place of the scenario."""
    assume: tuple[str, ...] = ()
    api_key: str = ""
    """The only key that is accepted; empty: any, and none."""
    tokens_per_second: float = 0.0
    """0: as fast as they are read."""
    first_token_ms: float = 0.0
    body_bytes: int = 100 * 2**20
    """A request that is larger is refused (413)."""
