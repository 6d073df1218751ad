"""What a client printed and what the host was asked -> what is wrong with a run, in sentences."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from moonshim.simulator.http.recorded import RecordedRequest
from tests.clients.client import Client

__all__ = [
    "Ended",
    "Outcome",
    "answer_of",
    "noticed_by_the_host",
    "noticed_by_the_user",
    "refused_by_the_host",
    "said_otherwise",
    "summary",
]

_MARKER: Final = re.compile(r"<\|\w+\|>")


class Ended(Struct, frozen=True, kw_only=True):
    """What a client left behind."""

    code: int | None
    """None: it was stopped when its time was over."""
    printed: str
    complained: str
    seconds: float


class Outcome(Struct, frozen=True, kw_only=True):
    """How a run ended. No problems: the client saw every result, and nobody refused anything."""

    problems: tuple[str, ...]
    seen: str
    seconds: float


def answer_of(client: Client, ended: Ended) -> str:
    """The final answer; everything that it printed, if that cannot be read."""
    try:
        return client.answer(ended.printed)
    except msgspec.MsgspecError:
        return ended.printed


def noticed_by_the_user(client: Client, ended: Ended, words: Sequence[str]) -> Iterator[str]:
    """`words`: what the tools printed, and what nobody else knows."""
    answer = answer_of(client, ended)
    if ended.code is None:
        yield f"timed out after {ended.seconds:.0f} s"
    elif ended.code:
        yield f"exited with code {ended.code}: {_complaint(answer, ended.complained)[:200]}"
    if marker := _MARKER.search(ended.printed):
        yield f"{marker[0]} reached the user"
    if lost := sum(word not in answer for word in words):
        yield f"{lost} of {len(words)} results are missing from the answer: {answer[:80]!r}"


def _complaint(answer: str, complained: str) -> str:
    """The line that says most: one with an error in it, else the last."""
    lines = [line.strip() for line in [*complained.splitlines(), *answer.splitlines()] if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [""])[-1]


def noticed_by_the_host(requests: Sequence[RecordedRequest], times: int) -> Iterator[str]:
    """`times`: how often the tool ran that must run once."""
    yield from refused_by_the_host(requests)
    if times != 1:
        yield f"the tool ran {times} times"
    if len(_rounds(requests)) < 2:
        yield f"there were {len(_rounds(requests))} rounds"


def refused_by_the_host(requests: Sequence[RecordedRequest]) -> Iterator[str]:
    if refused := [seen for seen in requests if seen.problem is not None]:
        yield f"{len(refused)} of {len(requests)} requests refused: {refused[0].problem}"


def said_otherwise(requests: Sequence[RecordedRequest]) -> Iterator[str]:
    """Where a request does not begin as the one before it: the host's prompt cache would not fit any longer."""
    bodies = [_without_cache_marks(seen.body) for seen in _rounds(requests)]
    for number, (before, after) in enumerate(itertools.pairwise(bodies), 2):
        begun = after["messages"][: len(before["messages"])]
        if (before["tools"], before.get("system"), before["messages"]) != (after["tools"], after.get("system"), begun):
            yield f"request {number} does not start with the previous request"


def _without_cache_marks(value: Any) -> Any:
    """Clients move these marks along on purpose."""
    if isinstance(value, dict):
        return {key: _without_cache_marks(one) for key, one in value.items() if key != "cache_control"}
    return [_without_cache_marks(one) for one in value] if isinstance(value, list) else value


def summary(requests: Sequence[RecordedRequest], lines: Sequence[dict[str, Any]]) -> str:
    """What was seen, in a few words; `lines` are those of the gateway's log."""
    calls = sum(len(seen.intended.calls) for seen in requests if seen.intended is not None)
    repairs: Counter[str] = Counter()
    for line in lines:
        repairs.update(line.get("repairs") or {})
    mended = ", ".join(f"{name} {count}" for name, count in sorted(repairs.items()))
    return f"{len(_rounds(requests))} rounds, {calls} calls" + (f"; {mended}" if mended else "")


def _rounds(requests: Sequence[RecordedRequest]) -> list[RecordedRequest]:
    """The requests of the conversation; titles and the like offer no tools."""
    return [seen for seen in requests if seen.request is not None and seen.request.tools]
