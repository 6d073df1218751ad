"""The sampling parameters of a request -> Moonshot's objections to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from moonshim.simulator.rules.contracts import Contract, Json
from moonshim.simulator.rules.objection import Objection
from moonshim.simulator.rules.shapes import is_number

__all__ = ["check_messages_sampling", "check_sampling", "check_stop", "check_tokens"]

NUMBERS: Final = ("temperature", "top_p", "n", "presence_penalty", "frequency_penalty")
MOST_STOPS: Final = 5
LONGEST_STOP: Final = 32


def check_sampling(body: Json, of: Contract, thinking: bool) -> Iterator[Objection]:
    """Omitting a parameter is always valid; `null` counts as omitted."""
    if not of.moonshots:
        return
    yield from _check_fixed(body, of, thinking) if of.generation.fixed_sampling else _check_ranges(body)
    if not of.generation.no_logprobs:
        return
    if body.get("logprobs") not in (None, False):
        yield Objection("invalid logprobs: only false is allowed for this model")
    elif body.get("top_logprobs") is not None:
        yield Objection("Invalid request: logprobs must be set to true if top_logprobs is used")


def check_messages_sampling(body: Json, of: Contract, thinking: bool) -> Iterator[Objection]:
    for found in check_sampling(body, of, thinking):
        yield found if of.host.samples_messages else msgspec.structs.replace(found, ours=True)


def _check_fixed(body: Json, of: Contract, thinking: bool) -> Iterator[Objection]:
    # Two sources disagree about K2.6 and later while thinking: Moonshot's tests for other hosts expect 0 and 0.6 to
    # pass beside 1, but its documentation and every refusal that was seen name only 1.
    generation = of.generation
    allowed: dict[str, tuple[float, ...]] = {
        "temperature": generation.temperatures if thinking else (generation.plain_temperature,),
        "top_p": (0.95,),
        "n": (1,),
        "presence_penalty": (0,),
        "frequency_penalty": (0,),
    }
    for name, values in allowed.items():
        if body.get(name) is not None and (not is_number(body[name]) or body[name] not in values):
            yield Objection(f"invalid {name}: only {values[0]} is allowed for this model")


def _check_ranges(body: Json) -> Iterator[Objection]:
    """The first K2 accepts any value in range, with a temperature from 0 to 1."""
    for name in NUMBERS:
        if body.get(name) is not None and not is_number(body[name]):
            yield Objection(f"invalid {name}: must be a number")
            return
    heat = body.get("temperature")
    if heat is not None and not 0 <= heat <= 1:
        yield Objection("invalid temperature: only values from 0 to 1 are allowed for this model")
    elif heat is not None and heat < 0.01 and body.get("n") not in (None, 1):
        yield Objection("invalid n: only 1 is allowed when temperature is close to 0")


def check_tokens(body: Json, of: Contract, *names: str) -> Iterator[Objection]:
    most = of.generation.most_tokens
    for name in names:
        given = body.get(name)
        if given is None:
            continue
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            yield Objection(f"invalid {name}: must be an integer from 1 to {most}")
        elif given > most:
            yield of.objection(f"invalid {name}: must be an integer from 1 to {most}")


def check_stop(stop: Any, of: Contract) -> Iterator[Objection]:
    stops = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    if (stop is not None and not isinstance(stop, str | list)) or not all(isinstance(each, str) for each in stops):
        yield Objection("invalid stop: must be a string or an array of strings")
        return
    if not of.moonshots:
        return
    if len(stops) > MOST_STOPS:
        yield Objection(f"invalid stop: expected an array with maximum length {MOST_STOPS}, got {len(stops)}")
    if any(len(each.encode(errors="surrogatepass")) > LONGEST_STOP for each in stops):
        yield Objection(f"invalid stop: a sequence must not be longer than {LONGEST_STOP} bytes")
