"""Client sampling parameters -> parameters that this host accepts. Omitting one is always accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.values.conversation import Change, Sampling
from moonshim.errors import CannotExpress

__all__ = ["fit_sampling"]

Note: TypeAlias = Callable[[str, Any, str, str], None]

_RANGES: Final[dict[str, tuple[float, float]]] = {
    "temperature": (0.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "top_p": (0.0, 1.0),
}
_POSITIVE: Final = ("top_p", "n", "max_tokens")
"""Must be greater than 0, and are omitted otherwise."""
_GREEDY: Final = 0.01
_HUGE: Final = 10**15


def fit_sampling(sampling: Sampling, profile: HostProfile, *, thinking: bool) -> tuple[Sampling, list[Change]]:
    """The sampling to send, and each change. For models other than Kimi only the token limit is adapted.

    Raises `CannotExpress` for a host that returns fewer choices than `n`: without it, a client would miss some.

    >>> from moonshim.engine.hosts.detect import profile_for
    >>> row = profile_for(host="moonshot", model="kimi-k3")
    >>> fit_sampling(Sampling(temperature=0.2, top_p=0.95), row, thinking=True)[0] == Sampling(top_p=0.95)
    True
    """
    new: dict[str, Any] = {}
    changes: list[Change] = []

    def change(field: str, value: Any, rule: str, why: str) -> None:
        new[field] = value
        changes.append(Change(rule, why, field))

    kimi = profile.generation != "other"
    for name, fixed in profile.fixed_sampling.items():
        value, allowed = getattr(sampling, name), fixed.thinking if thinking else fixed.plain
        if value is not None and value not in allowed:
            if name == "n" and value > 1:
                raise _too_many_choices(value, "for this model")
            only = " or ".join(f"{each:g}" for each in allowed)
            why = f"the host accepts only {only}" if only else "the host refuses it"
            if profile.generation == "kimi" and not only:
                why = "not every Kimi accepts it, and the name does not say which one this is"
            change(name, None, "fixed_sampling", f"{name} {_format_number(value)} dropped: {why}")
    for field, (least, most) in _RANGES.items() if kimi else ():
        value = getattr(sampling, field)
        most = profile.temperature_max or most if field == "temperature" else most
        if value is not None and field not in new and not least <= value <= most:
            near = min(max(value, least), most)
            change(
                field,
                near,
                "sampling_range",
                f"{field} {_format_number(value)} is outside the accepted range {least:g} to {most:g}",
            )
    for field in _POSITIVE if kimi else ():
        value = new.get(field, getattr(sampling, field))
        if value is not None and value <= 0:
            change(field, None, "sampling_range", f"{field} dropped: it must be greater than 0")
    heat, count = new.get("temperature", sampling.temperature), new.get("n", sampling.n)
    if profile.one_when_greedy and heat is not None and heat < _GREEDY and count is not None and count > 1:
        raise _too_many_choices(count, "with a temperature near 0")
    _fit_tokens(new.get("max_tokens", sampling.max_tokens), profile, change)
    _fit_stop(sampling.stop, profile, change)
    return (replace(sampling, **new) if new else sampling), changes


def _too_many_choices(count: int, when: str) -> CannotExpress:
    return CannotExpress(
        f"n is {count}, but the host returns a single choice {when}: send n=1, or a request for each", field="n"
    )


def _format_number(value: float) -> str:
    """Format a number for a message; Python refuses to print one with thousands of digits."""
    return f"{value:.10g}" if abs(value) < _HUGE else "(a very large number)"


def _fit_tokens(tokens: int | None, profile: HostProfile, change: Note) -> None:
    window, limit, usual = profile.context_window, profile.output_limit, profile.default_max_tokens
    if limit is not None and usual is not None:
        usual = min(limit, usual)
    if tokens is None:
        if usual is not None:
            change("max_tokens", usual, "max_tokens", "limit added: the host requires a limit of output tokens")
        return
    fitting = tokens if limit is None else min(tokens, limit)
    if not profile.clips_output and window is not None and fitting >= window:
        why = f"{_format_number(tokens)} output tokens leave no room for the prompt in the context window of {window}"
        change("max_tokens", usual, "max_tokens", why)
    elif fitting != tokens:
        change("max_tokens", fitting, "max_tokens", f"{_format_number(tokens)} lowered to the host's limit of {limit}")


def _fit_stop(stop: tuple[str, ...], profile: HostProfile, change: Note) -> None:
    if profile.stop_limit is None or not stop:
        return
    count, size = profile.stop_limit
    fitting = [text for text in stop if text and len(text.encode("utf-8", "surrogatepass")) <= size]
    if tuple(fitting[:count]) != stop:
        lost = [text for text in stop if text not in fitting[:count]]
        why = f"the host accepts at most {count} stop sequences of at most {size} bytes; dropped: "
        change("stop", tuple(fitting[:count]), "stop", why + ", ".join(map(repr, lost)))
