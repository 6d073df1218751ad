"""The thinking parameters of a request -> whether the model will think, and Moonshot's objections to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator.rules.contracts import Contract, Json
from moonshim.simulator.rules.objection import Objection
from moonshim.simulator.rules.shapes import describe, field

__all__ = ["check_chat_thinking", "check_messages_thinking", "will_think"]

EFFORTS: Final = ("low", "high", "max")
OTHER_EFFORTS: Final = ("medium", "xhigh")
"""Kimi Code treats them as `high` and `max`."""


def will_think(body: Json, of: Contract) -> bool:
    """Whether the model will think, by the parameters that each host supports."""
    generation, heeded = of.generation, of.host.switches
    if not generation.thinks:
        return False
    if "template" in heeded and field(body, "chat_template_kwargs", "thinking") is False:
        return not generation.template_may_not_think
    if "thinking" in heeded and field(body, "thinking", "type") == "disabled":
        return not generation.may_not_think
    if "reasoning" in heeded and field(body, "reasoning", "enabled") is False:
        return not generation.may_not_think or generation.family == "k3"
    return True


def check_chat_thinking(body: Json, of: Contract) -> Iterator[Objection]:
    if not of.moonshots or not of.generation.thinks:
        return
    effort, thinking = body.get("reasoning_effort"), body.get("thinking")
    yield from _thinking(thinking, of, body.get("model"))
    if of.generation.one_switch and effort is not None and thinking is not None:
        yield Objection("cannot specify both 'thinking' and 'reasoning_effort'")
    yield from _effort(effort, of, "reasoning_effort")


def check_messages_thinking(body: Json, of: Contract) -> Iterator[Objection]:
    if not of.moonshots or not of.generation.thinks:
        return
    effort, thinking = field(body, "output_config", "effort"), body.get("thinking")
    yield from _thinking(thinking, of, body.get("model"))
    if of.generation.one_switch and effort is not None and thinking is not None:
        yield Objection("cannot specify both 'thinking' and 'reasoning_effort'", ours=True)
    yield from _effort(effort, of, "output_config.effort")


def _thinking(thinking: Any, of: Contract, model: Any) -> Iterator[Objection]:
    if thinking is None:
        return
    passed_over = not of.generation.reads_thinking
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if not isinstance(thinking, dict) or kind not in ("enabled", "disabled"):
        yield Objection("invalid thinking: type must be enabled or disabled", ours=passed_over)
        return
    if kind == "disabled" and (passed_over or not of.generation.may_not_think):
        yield Objection("invalid thinking: only type=enabled is allowed for this model", ours=passed_over)
    keep = thinking.get("keep")
    if keep is not None and not of.generation.keeps:
        yield Objection(f'thinking.keep is not supported by model "{model}"', ours=passed_over)
    elif keep is not None and keep != "all":
        yield Objection("invalid thinking: keep must be 'all' or null", ours=passed_over)
    yield from _effort(thinking.get("effort"), of, "thinking.effort")


def _effort(effort: Any, of: Contract, name: str) -> Iterator[Objection]:
    """The platform ignores unknown values, which is never what the caller wanted."""
    if effort is None or effort in EFFORTS:
        return
    passed_over = not of.host.refuses_efforts or effort in OTHER_EFFORTS
    yield Objection(f"invalid {name}: {describe(effort)} is not one of {', '.join(EFFORTS)}", ours=passed_over)
