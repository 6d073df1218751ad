"""The numbers and the thinking of a request -> what Moonshot has against them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator.rules.contracts import Contract, Json

__all__ = ["chat_thinking", "check_sampling", "check_stop", "check_thinking", "check_tokens", "messages_thinking"]

EFFORTS: Final = ("low", "high", "max")
MOST_STOPS: Final = 5
LONGEST_STOP: Final = 32


def chat_thinking(body: Json, of: Contract) -> bool:
    """Whether the model will think, as each host lets it be said."""
    if not of.generation.thinks:
        return False
    switches = (
        _field(body, "thinking", "type") == "disabled",
        _field(body, "chat_template_kwargs", "thinking") is False,
        _field(body, "reasoning", "enabled") is False,
    )
    return not (of.generation.may_not_think and any(switches))


def messages_thinking(body: Json, of: Contract) -> bool:
    off = _field(body, "thinking", "type") == "disabled"
    return of.generation.thinks and not (of.generation.may_not_think and off)


def _field(body: Json, name: str, below: str) -> Any:
    value = body.get(name)
    return value.get(below) if isinstance(value, dict) else None


def check_sampling(body: Json, of: Contract, thinking: bool) -> Iterator[str]:
    """Left out is always right; `null` counts as left out."""
    if not of.host.moonshots:
        return
    if of.generation.fixed_sampling:
        allowed = {
            "temperature": 1 if thinking else 0.6,
            "top_p": 0.95,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "n": 1,
        }
        for name, only in allowed.items():
            if body.get(name) is not None and (isinstance(body[name], bool) or body[name] != only):
                yield f"invalid {name}: only {only} is allowed for this model"
    elif of.generation.family == "k2" and (heat := body.get("temperature")) is not None:
        if isinstance(heat, bool) or not isinstance(heat, int | float) or not 0 <= heat <= 1:
            yield "invalid temperature: only values from 0 to 1 are allowed for this model"
        elif heat < 0.01 and body.get("n") not in (None, 1):
            yield "invalid n: only 1 is allowed when temperature is close to 0"


def check_tokens(body: Json, of: Contract, *names: str) -> Iterator[str]:
    most = of.generation.most_tokens
    for name in names:
        given = body.get(name)
        if given is not None and (isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= most):
            yield f"invalid {name}: must be an integer from 1 to {most}"


def check_stop(stop: Any, of: Contract) -> Iterator[str]:
    stops = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    if (stop is not None and not isinstance(stop, str | list)) or not all(isinstance(each, str) for each in stops):
        yield "invalid stop: must be a string or an array of strings"
        return
    if not of.host.moonshots:
        return
    if len(stops) > MOST_STOPS:
        yield f"invalid stop: at most {MOST_STOPS} sequences are allowed"
    if any(len(each.encode()) > LONGEST_STOP for each in stops):
        yield f"invalid stop: a sequence may have at most {LONGEST_STOP} bytes"


def check_thinking(body: Json, of: Contract, effort: Any) -> Iterator[str]:
    """`effort` is what stands in `reasoning_effort` or in `output_config.effort`."""
    if not of.host.moonshots or not of.generation.thinks:
        return
    if effort is not None and effort not in EFFORTS:
        yield f"invalid reasoning_effort: {effort!r} is not one of {', '.join(EFFORTS)}"
    thinking = body.get("thinking")
    if thinking is None:
        return
    if not isinstance(thinking, dict) or thinking.get("type") not in ("enabled", "disabled"):
        yield "invalid thinking: type must be enabled or disabled"
        return
    if of.generation.one_switch and effort is not None:
        yield "cannot specify both 'thinking' and 'reasoning_effort'"
    if thinking["type"] == "disabled" and not of.generation.may_not_think:
        yield "invalid thinking: only type=enabled is allowed for this model"
    if thinking.get("keep") is not None and (not of.generation.keeps or thinking["keep"] != "all"):
        yield (
            "invalid thinking: keep is not allowed for this model"
            if not of.generation.keeps
            else ("invalid thinking: keep must be 'all' or null")
        )
    if thinking.get("effort") is not None and thinking["effort"] not in EFFORTS:
        yield f"invalid thinking: effort {thinking['effort']!r} is not one of {', '.join(EFFORTS)}"
