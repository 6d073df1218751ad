"""Faults, generations, dialects, ways and hosts -> the conversations to try: those that apply, all or pair by pair."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from moonshim.simulator.fault import Fault
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.request import Wire

__all__ = ["BROKEN_ROUND", "CLEAN", "CLIENTS", "HOSTS", "MODELS", "Cell", "SimulatedHost", "full", "pairwise"]

CLEAN: Final = "no fault"
BROKEN_ROUND: Final = 4
"""Where in the conversation the faults come that nobody can mend."""
SAID_TO_BE_CUT: Final = frozenset({"finish-length"})
"""The host says that it stopped too early; nothing tells that it did not, and clients are told what it says."""
READ_CALLS: Final = frozenset({"moonshot", "kimi-coding"})
"""Hosts whose own parser reads the markers of calls: in the text of their responses, markers may be a quotation."""
LEAKS_NO_CALL: Final = frozenset(
    {
        # Reasoning, text, or tags alone.
        "think-end-in-content",
        "think-tags-in-content",
        "xtml-orphan-response-end",
        "xtml-message-end-in-content",
        "xtml-response-begun-in-content",
        "xtml-reasoning-in-content",
        # Calls in the reasoning, where no parser reads them.
        "markers-in-reasoning",
        "think-never-closed",
        "call-without-section-in-reasoning",
        "calls-without-ends",
        "markers-in-reasoning-and-native",
        "xtml-in-reasoning",
        "xtml-think-never-closed",
        "xtml-sep-elided",
        "xtml-spaced",
    }
)
"""Faults of the group `leaks` that put no call into the text; all others do."""
CLIENTS: Final = ("openai_chat", "anthropic", "openai_responses")
WAYS: Final = ("whole", "events", "helper")
MODELS: Final = {
    "k2": "kimi-k2-0905-preview",
    "k2-thinking": "kimi-k2-thinking",
    "k2.5": "kimi-k2.5",
    "k2.6": "kimi-k2.6",
    "k2.7": "kimi-k2.7-code",
    "k3": "kimi-k3",
    "k3.1": "kimi-k3.1-pro",
}


class SimulatedHost(Struct, frozen=True):
    """A behaviour of the simulator, and how a gateway is configured for it."""

    behaviour: str
    wires: tuple[Wire, ...] = ("openai_chat",)
    row: str | None = None
    """The row of the host table; None: found from the address, as for any self-host over Chat."""
    messages_row: str | None = None


HOSTS: Final[dict[str, SimulatedHost]] = {
    "moonshot": SimulatedHost("moonshot", ("openai_chat", "anthropic"), "moonshot", "moonshot-anthropic"),
    "selfhost": SimulatedHost("selfhost", ("openai_chat", "anthropic"), None, "vllm"),
    "kimi-coding": SimulatedHost("kimi-coding", ("openai_chat", "anthropic"), "kimi-coding", "kimi-coding"),
    "vllm": SimulatedHost("vllm", ("openai_chat",), "vllm"),
    "sglang": SimulatedHost("sglang", ("openai_chat",), "sglang"),
    "fireworks": SimulatedHost("fireworks", ("openai_chat",), "fireworks"),
    "together": SimulatedHost("together", ("openai_chat",), "together"),
    "openrouter": SimulatedHost("openrouter", ("openai_chat",), "openrouter"),
    "siliconflow": SimulatedHost("siliconflow", ("openai_chat",), "siliconflow"),
}


SEVERAL_HOSTS: Final = ("moonshot", "selfhost", "openrouter", "kimi-coding", "vllm", "fireworks", "together")
"""Those of the pairwise choice; the full product has all."""
OF_THE_WIRE: Final = ("frames", "errors", "endings", "messages", "calls")
"""Groups of faults that no model knows of: one of each family, and fewer hosts, will do in the pairwise choice."""


class Cell(Struct, frozen=True):
    """One conversation of the matrix."""

    fault: str
    generation: str
    client: str
    wire: Wire
    way: str
    host: str

    def __str__(self) -> str:
        return "-".join((self.generation, self.client, "over", self.wire, self.way, self.host))

    @property
    def model(self) -> str:
        """As the simulator is asked for it. What cannot be mended comes once, in the middle of the conversation."""
        name = MODELS[self.generation]
        if self.fault == CLEAN:
            return name
        return f"{name}+{self.fault}@{BROKEN_ROUND}" if self.cannot_be_mended else f"{name}+{self.fault}"

    @property
    def cannot_be_mended(self) -> bool:
        fault = FAULTS.get(self.fault)
        return fault is not None and (fault.fatal or self.is_silent or self.may_quote)

    @property
    def may_quote(self) -> bool:
        """A call in the text of a host that reads calls: it may be quoted, so it is refused."""
        fault = FAULTS.get(self.fault)
        leaks = fault is not None and fault.group == "leaks" and self.fault not in LEAKS_NO_CALL
        return leaks and self.host in READ_CALLS

    @property
    def is_silent(self) -> bool:
        """The host's answer is well formed, and only the model knows that it is not what it meant."""
        fault = FAULTS.get(self.fault)
        return fault is not None and (fault.lost or self.fault in SAID_TO_BE_CUT)

    @property
    def pairs(self) -> Iterator[tuple[str, str]]:
        return itertools.combinations((self.fault, self.generation, self.client, self.wire, self.way, self.host), 2)


def _applies(fault: Fault | None, cell: Cell) -> bool:
    if cell.wire not in HOSTS[cell.host].wires:
        return False
    return fault is None or fault.applies(wire=cell.wire, family=cell.generation[:2], stream=cell.way != "whole")


def _cells_of(name: str, *, all_hosts: bool = True) -> list[Cell]:
    fault = FAULTS.get(name)
    wires: tuple[Wire, ...] = ("openai_chat", "anthropic")
    models, hosts = tuple(MODELS), tuple(HOSTS)
    if not all_hosts:
        hosts = SEVERAL_HOSTS
        if fault is not None and fault.group in OF_THE_WIRE:
            models, hosts = ("k2.5", "k3.1"), hosts[:3]
    made = itertools.product(models, CLIENTS, wires, WAYS, hosts)
    return [cell for values in made if _applies(fault, cell := Cell(name, *values))]


def names() -> list[str]:
    return [CLEAN, *FAULTS]


def pairwise() -> list[Cell]:
    """As few as will do for every two values that can come together to come together once."""
    dice = random.Random(7)
    covered: set[tuple[str, str]] = set()
    chosen: list[Cell] = []
    for name in names():
        cells = _cells_of(name, all_hosts=False)
        while cells:
            tried = dice.sample(cells, min(80, len(cells)))
            best = max(tried, key=lambda cell: sum(pair not in covered for pair in cell.pairs))
            if all(pair in covered for pair in best.pairs):
                cells = [cell for cell in cells if not covered.issuperset(cell.pairs)]
                continue
            covered.update(best.pairs)
            chosen.append(best)
    return chosen


def full() -> list[Cell]:
    """Every fault, generation, client and upstream dialect; ways and hosts take turns."""
    chosen: list[Cell] = []
    for name in names():
        groups: dict[tuple[str, str, str], list[Cell]] = {}
        for cell in _cells_of(name):
            groups.setdefault((cell.generation, cell.client, cell.wire), []).append(cell)
        chosen += [cells[(7 * turn) % len(cells)] for turn, cells in enumerate(groups.values())]
    return chosen
