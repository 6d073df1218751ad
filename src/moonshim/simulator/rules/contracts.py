"""Model generations and hosts -> what each of them enforces, as two tables."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.simulator.rules.objection import Objection

__all__ = ["GENERATIONS", "HOSTS", "Contract", "GenerationRules", "HostRules", "Json", "contract"]

Json: TypeAlias = dict[str, Any]
Switch: TypeAlias = Literal["thinking", "template", "reasoning"]


class GenerationRules(Struct, frozen=True, kw_only=True):
    """What a generation of models accepts."""

    family: str = "k2"
    thinks: bool = True
    """Thinking is on unless it is disabled."""
    may_not_think: bool = False
    """`thinking: {type: disabled}` is supported."""
    template_may_not_think: bool = False
    """A prompt can be written so that the model does not think, by hosts that render it themselves."""
    reads_thinking: bool = False
    """`thinking` is validated; elsewhere the platform ignores it, like any unknown field."""
    fixed_sampling: bool = True
    temperatures: tuple[float, ...] = (1,)
    """Those allowed while it thinks, if the sampling is fixed. The first is the one that a refusal names."""
    plain_temperature: float = 0.6
    """The one that is allowed while it does not think."""
    no_logprobs: bool = False
    keeps: bool = False
    """`thinking.keep` is supported."""
    one_switch: bool = False
    """`thinking` and `reasoning_effort` must not be combined."""
    needs_reasoning: bool = False
    """Assistant messages with calls need their reasoning while thinking is on."""
    most_tokens: int = 262_144


class HostRules(Struct, frozen=True, kw_only=True):
    """What a host checks before the model sees anything."""

    moonshots: bool = False
    """Moonshot's own checks run there, or further upstream."""
    renames_ids: bool = False
    """Ids of the history are rewritten before the model sees them; elsewhere it sees them unchanged."""
    self_hosted: bool = False
    """Messages, too, accepts K2's own ids (vllm#46344) and shows them to the model; elsewhere Anthropic's are right."""
    refuses_empty_text: bool = False
    always_needs_reasoning: bool = False
    refuses_efforts: bool = False
    """An unknown `reasoning_effort` is refused; elsewhere it is ignored."""
    samples_messages: bool = True
    """Messages has Chat's rules for `temperature` and similar; elsewhere it ignores them."""
    details: Literal["bare", "indexed", "unread"] = "unread"
    """Whether entries of `reasoning_details` must have lost the stream's index, may keep it, or do not matter."""
    resolves_results: bool = False
    """K3: a result that follows no call cannot be rendered, since the prompt needs the name of its tool."""
    reasoning: tuple[str, ...] = ("reasoning_content",)
    """The fields that are read as reasoning."""
    switches: tuple[Switch, ...] = ("thinking", "template", "reasoning")
    """Which of `thinking.type`, `chat_template_kwargs.thinking` and `reasoning.enabled` have an effect."""


# Moonshot's tests for other hosts (Kimi-Vendor-Verifier, tests/params) expect these to be accepted, and 1.1 not.
_TESTED: Final = (1, 0.6, 0)
# K3's documentation has no `thinking`. It is accepted with any value; `disabled` leaves the effort and the reasoning
# out of the prompt (Kimi-Vendor-Verifier, tests/k3_features), and `reasoning` of a router has no effect.
_K3: Final = GenerationRules(
    family="k3",
    may_not_think=True,
    template_may_not_think=True,
    plain_temperature=1,
    no_logprobs=True,
    keeps=True,
    most_tokens=1_048_576,
)
GENERATIONS: Final[dict[str, GenerationRules]] = {
    "k2": GenerationRules(thinks=False, may_not_think=True, fixed_sampling=False),
    "k2-thinking": GenerationRules(reads_thinking=True, fixed_sampling=False, needs_reasoning=True),
    "k2.5": GenerationRules(
        reads_thinking=True,
        may_not_think=True,
        template_may_not_think=True,
        one_switch=True,
        needs_reasoning=True,
    ),
    "k2.6": GenerationRules(
        reads_thinking=True,
        may_not_think=True,
        template_may_not_think=True,
        one_switch=True,
        needs_reasoning=True,
        keeps=True,
        temperatures=_TESTED,
    ),
    "k2.7": GenerationRules(reads_thinking=True, needs_reasoning=True, keeps=True, temperatures=_TESTED),
    "k3": _K3,
    "k3.1": _K3,
    "other": GenerationRules(family="other", thinks=False, may_not_think=True, fixed_sampling=False),
}
_ANY_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details")
_OPEN: Final[tuple[Switch, ...]] = ("template",)
HOSTS: Final[dict[str, HostRules]] = {
    "moonshot": HostRules(moonshots=True, renames_ids=True, switches=("thinking",)),
    "moonshot-anthropic": HostRules(moonshots=True, renames_ids=True, switches=("thinking",)),
    "kimi-coding": HostRules(
        moonshots=True,
        renames_ids=True,
        refuses_empty_text=True,
        always_needs_reasoning=True,
        refuses_efforts=True,
        samples_messages=False,
        details="bare",
        reasoning=("reasoning_content", "reasoning_details"),
        switches=("thinking",),
    ),
    # It may route the request to Moonshot or to any other host: both must accept it.
    "openrouter": HostRules(moonshots=True, details="indexed", reasoning=_ANY_REASONING),
    "fireworks": HostRules(),
    "together": HostRules(reasoning=_ANY_REASONING),
    "siliconflow": HostRules(),
    "deepinfra": HostRules(),
    "groq": HostRules(),
    "nim": HostRules(),
    # Like OpenRouter, they may forward a request to Moonshot.
    "opencode": HostRules(moonshots=True, reasoning=_ANY_REASONING),
    "vercel": HostRules(moonshots=True, details="indexed", reasoning=_ANY_REASONING),
    **dict.fromkeys(
        ("bedrock", "baseten", "novita", "nebius", "modal", "cloudflare", "ollama", "volcengine", "alibaba", "azure"),
        HostRules(reasoning=_ANY_REASONING),
    ),
    "vllm": HostRules(self_hosted=True, reasoning=("reasoning",), resolves_results=True, switches=_OPEN),
    "sglang": HostRules(self_hosted=True, switches=_OPEN),
    "generic": HostRules(reasoning=_ANY_REASONING),
}


class Contract(Struct, frozen=True):
    """One generation at one host."""

    generation: GenerationRules
    host: HostRules
    host_name: str

    @property
    def moonshots(self) -> bool:
        """Moonshot's checks apply to its own models."""
        return self.host.moonshots and self.generation.family != "other"

    def objection(self, message: str) -> Objection:
        """What Moonshot refuses. For other hosts it is unknown, but the engine must not send it to them either."""
        return Objection(message, ours=not self.moonshots)

    @property
    def unique_ids(self) -> bool:
        """K3 tolerates repeated ids."""
        return self.moonshots and self.generation.family == "k2"

    @property
    def positional_ids(self) -> bool:
        return not self.host.renames_ids and self.generation.family == "k2"


def contract(generation: str, host: str) -> Contract:
    """Raises `KeyError` for a name that is in neither table."""
    return Contract(GENERATIONS[generation], HOSTS[host], host)
