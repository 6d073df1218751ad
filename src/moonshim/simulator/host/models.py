"""The name of a model -> its Kimi generation, and the list of models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from moonshim.simulator.settings import ModelRow

__all__ = ["MODELS", "generation_of", "tokens_by_default"]

MODELS: Final = (
    "kimi-k2-0711-preview",
    "kimi-k2-0905-preview",
    "kimi-k2-turbo-preview",
    "kimi-k2-thinking",
    "kimi-k2-thinking-turbo",
    "kimi-k2.5",
    "kimi-k2.6",
    "kimi-k2.7-code",
    "kimi-k2.7-code-highspeed",
    "kimi-k3",
    "kimi-k3.1-pro",
    "kimi-k3.1-pro-highspeed",
    "kimi-for-coding",
    "kimi-for-coding-highspeed",
    "plain-1",
)
"""The models that `/v1/models` lists: every generation, including retired ones, and one that is not a Kimi."""

LONGEST_NAME: Final = 256
# With or without a folder, with or without `kimi-`; `k2p5`, `k2.5` and `k2-5` are the same; four digits are a date.
_KIMI: Final = re.compile(
    r"(?:.*[/:])?(?:kimi[-_ ]?)?k(?P<major>[23])(?:[.p_-](?P<minor>[0-9])(?![0-9]))?(?P<rest>(?:[-_.:@+][a-z0-9]+)*)"
)
_GENERATIONS: Final = {
    ("2", None): "k2",
    ("2", "5"): "k2.5",
    ("2", "6"): "k2.6",
    ("2", "7"): "k2.7",
    ("3", None): "k3",
    ("3", "1"): "k3.1",
}
# What Kimi Code serves under these names; the newest model for coding with a `-highspeed` twin is K2.7.
_ALIASES: Final = {"kimi-for-coding": "k2.7", "kimi-for-coding-highspeed": "k2.7", "plain-1": "other"}
_NONE: Final[Mapping[str, ModelRow]] = MappingProxyType({})
_TOKENS: Final = {"k2.5": 32_768, "k2.6": 32_768}


def generation_of(name: str, own: Mapping[str, ModelRow] = _NONE) -> str | None:
    """`k2` to `k3.1`, or `other` for a model that is not a Kimi; None for an unknown name.

    >>> [generation_of(name) for name in ("kimi-k2-0905-preview", "moonshotai/Kimi-K2-Thinking", "kimi-k2.5")]
    ['k2', 'k2-thinking', 'k2.5']
    >>> [generation_of(name) for name in ("accounts/fireworks/models/kimi-k2p6", "k3-256k", "k3.1-pro", "gpt-5")]
    ['k2.6', 'k3', 'k3.1', None]
    >>> generation_of("mine", {"mine": ModelRow(generation="k3")})
    'k3'
    """
    if name in own:
        return own[name].generation
    word = name.lower()
    if word in _ALIASES:
        return _ALIASES[word]
    found = _KIMI.fullmatch(word) if len(word) <= LONGEST_NAME else None
    generation = _GENERATIONS.get((found["major"], found["minor"])) if found else None
    return "k2-thinking" if generation == "k2" and found and "thinking" in found["rest"] else generation


def tokens_by_default(generation: str, assume: frozenset[str] = frozenset()) -> int | None:
    """The token limit of a response when the request sets none; None if it is not known."""
    if generation in ("k2", "k2-thinking"):
        return 1024 if "short-answers" in assume else None
    return _TOKENS.get(generation)
