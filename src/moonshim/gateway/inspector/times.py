"""A trace -> when things happened in it: phases, and how the output arrived."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from moonshim.gateway.inspector.trace import ExchangeTrace, TracedAttempt

__all__ = ["milliseconds", "progress_of", "timeline_of"]

Json = dict[str, Any]

_POINTS: Final = 400


def timeline_of(trace: ExchangeTrace) -> Iterator[Json]:
    """The phases in order, in milliseconds since the request arrived."""
    zero, attempts = trace.started, list(trace.attempts)
    now = trace.ended
    if now is None:
        now = max((one.sizes[-1][0] for one in attempts if one.marks), default=zero)

    def step(name: str, kind: str, start: float, end: float) -> Json:
        return {"name": name, "kind": kind, "start": milliseconds(start - zero), "end": milliseconds(end - zero)}

    if trace.request_read is not None:
        yield step("Read the request", "wait", zero, trace.request_read)
        first = attempts[0].started if attempts else now
        yield step("Prepare and route", "wait", trace.request_read, first)
    for number, one in enumerate(attempts):
        end = max(one.ended or now, one.started)
        label = f"{one.provider} (attempt {number + 1})" if len(attempts) > 1 else "the host"
        if one.opened is None and one.error is not None:
            yield step(f"Failed: {label}", "failed", one.started, end)
            continue
        opened = one.opened or end
        connected = min(one.started + (one.connect_seconds or 0.0), opened)
        if one.connect_seconds is not None:
            yield step(f"Connect to {label}", "wait", one.started, connected)
        yield step(f"Wait for {label}", "wait", connected, opened)
        if one.opened is not None:
            yield from _response_steps(trace, one, opened, end, step)


def _response_steps(trace: ExchangeTrace, one: TracedAttempt, opened: float, end: float, step: Any) -> Iterator[Json]:
    pieces = one.sizes
    begins = pieces[0][0] if pieces else end
    if begins > opened:
        yield step("Wait for the first byte", "wait", opened, begins)
    if not pieces:
        return
    seconds = trace.record.first_byte_seconds
    token = begins if seconds is None else min(max(begins, trace.started + seconds), end)
    if token > begins:
        yield step("Until the first token", "think", begins, token)
    name, kind = ("Stream", "settled") if one.input_format != "json" else ("Read the response", "settled")
    yield step(f"{name}, then failed" if one.error else name, "failed" if one.error else kind, token, end)


def progress_of(trace: ExchangeTrace, chain: Sequence[TracedAttempt], rows: Sequence[Json] | None) -> Json:
    """How much has come over time: characters of text if they are recorded, else bytes."""
    if not chain:
        return {"unit": "bytes", "points": []}
    if rows is not None and any(row["text"] for row in rows):
        offset = milliseconds(chain[0].started - trace.started)
        arrived = [(offset + row["at"], len(row["text"] or "")) for row in rows if row["at"] is not None]
        return {"unit": "characters", "points": _sums(arrived)}
    pieces = [piece for one in chain for piece in one.sizes]
    return {"unit": "bytes", "points": _sums([(milliseconds(when - trace.started), size) for when, size in pieces])}


def _sums(arrived: Sequence[tuple[float, int]]) -> list[list[float]]:
    """
    >>> _sums([(1.0, 5), (2.0, 3)])
    [[1.0, 5], [2.0, 8]]
    """
    points: list[list[float]] = []
    total, step = 0, max(1, len(arrived) // _POINTS)
    for index, (at, size) in enumerate(arrived):
        total += size
        if index % step == 0 or index == len(arrived) - 1:
            points.append([at, total])
    return points


def milliseconds(seconds: float) -> float:
    """
    >>> milliseconds(0.01234), milliseconds(-1.0)
    (12.3, 0.0)
    """
    return round(max(0.0, seconds) * 1000, 1)
