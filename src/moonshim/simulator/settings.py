"""The settings of a simulator: one frozen value, made from the command line, a file, or in Python."""

from __future__ import annotations

from typing import Any, ClassVar, Final
from warnings import warn

from msgspec import Struct, StructMeta

from moonshim.compat import FormerName

__all__ = ["ASSUMPTIONS", "ModelRow", "SimulatorSettings", "rename_nature"]

ASSUMPTIONS: Final[dict[str, str]] = {
    "k3-needs-reasoning": "K3 refuses calls without their reasoning, as K2.5 does (seen only on Kimi Code)",
    "names-of-64": "Before K3, tool names have at most 64 characters (from old documentation)",
    "short-answers": "Old K2 models stop after 1,024 tokens if `max_tokens` is not set",
    "web-search-thinks-not": "`$web_search` is refused while thinking is enabled",
    "counts-tokens": "The Messages endpoint supports `count_tokens`",
    "cache-writes": "Prompts are cached in blocks of 256 tokens, for 5m or 1h; Moonshot reports what it writes for K3",
    "k3-refuses-named-choice": "K3 refuses a `tool_choice` that names a tool, as K2.5 does (Kimi's own tests skip it)",
}
"""Unproven rules of the real API, by their name for `--assume`."""


class ModelRow(Struct, frozen=True, kw_only=True):
    """A custom model name: the generation it represents, and its faults."""

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
    warn("`nature` is deprecated; use `behaviour`", DeprecationWarning, stacklevel=3)
    return {"behaviour" if name == "nature" else name: value for name, value in fields.items()}


class SimulatorSettings(Struct, frozen=True, kw_only=True, metaclass=_AcceptsNature):
    """The settings of a `Simulator`. It is deterministic: the same `seed` gives the same faults in every run."""

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
    thinking_tokens: int = 0
    """Tokens that a model thinks at least wherever it thinks, at any effort. They share the limit of the response."""
    tokenizer: str = ""
    """Path of a model's `tiktoken.model` or of its folder, for exact token counts; empty: they are estimates."""
    body_bytes: int = 100 * 2**20
    """A request that is larger is refused (413)."""

    nature: ClassVar[FormerName] = FormerName("behaviour")
