"""Model generations and hosts -> what each of them enforces, as two tables."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import Struct

__all__ = ["GENERATIONS", "HOSTS", "Contract", "Generation", "Host", "Json", "contract"]

Json: TypeAlias = dict[str, Any]


class Generation(Struct, frozen=True, kw_only=True):
    """What a generation of models takes."""

    family: str = "k2"
    thinks: bool = True
    """Thinking is on unless it is switched off."""
    may_not_think: bool = False
    fixed_sampling: bool = True
    keeps: bool = False
    """`thinking.keep` is known."""
    one_switch: bool = False
    """`thinking` and `reasoning_effort` may not come together."""
    needs_reasoning: bool = False
    """Assistant messages with calls need their reasoning while thinking is on."""
    name_length: int = 64
    most_tokens: int = 262_144


class Host(Struct, frozen=True, kw_only=True):
    """What a host looks at before the model sees anything."""

    moonshots: bool = False
    """Moonshot's own checks run there, or behind it."""
    renames_ids: bool = False
    """Ids of the history are rewritten before the model sees them; elsewhere it sees them as they are."""
    refuses_empty_text: bool = False
    always_needs_reasoning: bool = False
    indexes_details: bool = False
    """Entries of `reasoning_details` keep their index in a replay."""
    reasoning: tuple[str, ...] = ("reasoning_content",)
    """The fields that are read as reasoning."""


GENERATIONS: Final[dict[str, Generation]] = {
    "k2": Generation(thinks=False, may_not_think=True, fixed_sampling=False),
    "k2-thinking": Generation(fixed_sampling=False, needs_reasoning=True),
    "k2.5": Generation(may_not_think=True, one_switch=True, needs_reasoning=True),
    "k2.6": Generation(may_not_think=True, one_switch=True, needs_reasoning=True, keeps=True),
    "k2.7": Generation(needs_reasoning=True, keeps=True),
    "k3": Generation(family="k3", keeps=True, name_length=256, most_tokens=1_048_576),
    "k3.1": Generation(family="k3", keeps=True, name_length=256, most_tokens=1_048_576),
    "other": Generation(family="other", thinks=False, may_not_think=True, fixed_sampling=False, name_length=256),
}
_ANY_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details")
HOSTS: Final[dict[str, Host]] = {
    "moonshot": Host(moonshots=True, renames_ids=True),
    "moonshot-anthropic": Host(moonshots=True, renames_ids=True),
    "kimi-coding": Host(
        moonshots=True,
        renames_ids=True,
        refuses_empty_text=True,
        always_needs_reasoning=True,
        reasoning=("reasoning_content", "reasoning_details"),
    ),
    # It may hand the request to Moonshot, or to anybody else: both have to be able to take it.
    "openrouter": Host(moonshots=True, indexes_details=True, reasoning=_ANY_REASONING),
    "fireworks": Host(),
    "together": Host(reasoning=_ANY_REASONING),
    "siliconflow": Host(),
    "deepinfra": Host(),
    "groq": Host(),
    "nim": Host(),
    "vllm": Host(reasoning=("reasoning",)),
    "sglang": Host(),
    "generic": Host(reasoning=_ANY_REASONING),
}


class Contract(Struct, frozen=True):
    """One generation at one host."""

    generation: Generation
    host: Host
    host_name: str

    def needs_reasoning(self, thinking: bool) -> bool:
        if not thinking or not self.host.moonshots:
            return False
        return self.generation.needs_reasoning or (self.host.always_needs_reasoning and self.generation.family == "k3")

    @property
    def unique_ids(self) -> bool:
        """K3 tolerates an id that comes again."""
        return self.host.moonshots and self.generation.family == "k2"

    @property
    def positional_ids(self) -> bool:
        return not self.host.renames_ids and self.generation.family == "k2"


def contract(generation: str, host: str) -> Contract:
    """Raises `KeyError` for a name that is in neither table."""
    return Contract(GENERATIONS[generation], HOSTS[host], host)
