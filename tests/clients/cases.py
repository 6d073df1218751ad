"""What goes wrong at the host in each run: a name, a model, the manners of the host, and its faults."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

__all__ = ["CASES", "Case"]


class Case(Struct, frozen=True, kw_only=True):
    """One run of a client through the gateway, and one without it."""

    name: str
    model: str
    behaviour: str
    faults: tuple[str, ...] = ()
    path: str = "/v1"
    """Behind the address of the simulator, for the gateway."""
    host: str = ""
    """The row of the gateway's table; empty: found by the gateway."""
    dialect: Literal["openai_chat", "anthropic"] = "openai_chat"

    @property
    def shown(self) -> str:
        faults = " + ".join(self.faults) or "no fault"
        wire = ", Messages" if self.dialect == "anthropic" else ""
        return f"{self.model} at {self.behaviour}{wire}: {faults}"


CASES: Final = (
    Case(name="clean", model="kimi-k2.5", behaviour="selfhost"),
    Case(name="content", model="kimi-k2.5", behaviour="selfhost", faults=("markers-in-content", "split-bytes")),
    Case(name="reasoning", model="kimi-k2.6", behaviour="vllm", host="vllm", faults=("markers-in-reasoning",)),
    Case(name="k3", model="kimi-k3", behaviour="sglang", host="sglang", faults=("xtml-in-content", "split-bytes")),
    Case(name="moonshot", model="kimi-k3", behaviour="moonshot", host="moonshot"),
    Case(
        name="messages",
        model="kimi-k2.5",
        behaviour="selfhost",
        host="generic",
        faults=("markers-in-content",),
        path="/anthropic",
        dialect="anthropic",
    ),
    Case(
        name="ids",
        model="kimi-k3",
        behaviour="fireworks",
        host="fireworks",
        faults=("ids-fireworks-k3",),
        path="/anthropic",
        dialect="anthropic",
    ),
)
