"""Usage is reported once, at the top of a chunk, and no later chunk resets it."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim import KimiOptions, Mender, mend_chunks
from moonshim.engine.dialects.openai_chat.usage import ChatUsageReader
from moonshim.engine.grammar.protocol import Notice
from moonshim.engine.upstream_events import UpstreamEvent, UsageReported
from tests.support.streams import sse

COUNTED = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
MORE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
ZERO = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def top(usage: Any) -> dict[str, Any]:
    return {"choices": [], "usage": usage}


def inner(usage: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "usage": usage}]}


PLAIN: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": "a"}}]}

# chunks; for each the usage that it reports, and the rule
READ: dict[str, tuple[list[dict[str, Any]], list[tuple[Any, str | None]]]] = {
    "none": ([PLAIN, {"choices": None}, {}], [(None, None)] * 3),
    "at the top": ([PLAIN, top(COUNTED)], [(None, None), (COUNTED, None)]),
    "null until it is known": ([top(None), top(COUNTED)], [(None, None), (COUNTED, None)]),
    "growing from chunk to chunk": ([top(COUNTED), top(MORE)], [(COUNTED, None), (MORE, None)]),
    "in a choice": ([inner(COUNTED)], [(COUNTED, "usage_moved")]),
    "null in a choice": ([inner(None)], [(None, None)]),
    "in a choice, then at the top": (
        [inner(COUNTED), top(COUNTED)],
        [(COUNTED, "usage_moved"), (None, "usage_repeated")],
    ),
    "the same twice": ([top(COUNTED), top(COUNTED)], [(COUNTED, None), (None, "usage_repeated")]),
    "reset to zeros": ([top(COUNTED), top(ZERO)], [(COUNTED, None), (None, "usage_repeated")]),
    "reset to an empty object": ([top(COUNTED), top({})], [(COUNTED, None), (None, "usage_repeated")]),
    "reset to null": ([top(COUNTED), top(None)], [(COUNTED, None), (None, None)]),
    "choices without a usage": (
        [{"choices": [7]}, {"choices": "x", "usage": COUNTED}],
        [(None, None), (COUNTED, None)],
    ),
}


def summarized(events: list[UpstreamEvent]) -> tuple[Any, str | None]:
    usages = [one.usage.raw for one in events if isinstance(one, UsageReported)]
    rules = [one.rule for one in events if isinstance(one, Notice)]
    assert len(usages) + len(rules) == len(events)
    return next(iter(usages), None), next(iter(rules), None)


@pytest.mark.parametrize("case", READ)
def test_what_a_chunk_reports(case: str) -> None:
    chunks, expected = READ[case]
    reader = ChatUsageReader()
    assert [summarized(reader.read(one)) for one in chunks] == expected


@pytest.mark.parametrize("case", READ)
def test_usage_leaves_once_where_a_client_looks_for_it(case: str) -> None:
    chunks, expected = READ[case]
    sent = [one.get("usage") for one in mend_chunks(chunks, model="kimi-k2.5")]
    assert [usage for usage in sent if usage] == [usage for usage, _ in expected if usage]
    mender = Mender(model="kimi-k2.5")
    mender.feed(sse(chunks))
    assert mender.usage == next((usage for usage, _ in reversed(expected) if usage), None)
    rules = [repair.rule for repair in mender.repairs if repair.rule.startswith("usage_")]
    assert rules == [rule for _, rule in expected if rule]


@pytest.mark.parametrize(
    ("chunk", "changed"),
    [(PLAIN, False), (top(COUNTED), False), (top(None), False), (inner(COUNTED), True)],
)
def test_only_usage_in_the_wrong_place_is_a_change(chunk: dict[str, Any], changed: bool) -> None:
    assert (next(iter(mend_chunks([chunk], model="kimi-k2.5"))) is not chunk) is changed


@pytest.mark.parametrize("chunk", [top(COUNTED), inner(COUNTED)])
def test_where_deltas_are_not_repaired_usage_is_only_read(chunk: dict[str, Any]) -> None:
    mender = Mender(model="kimi-k2.5", options=KimiOptions.mending(repair_deltas=False))
    frame = sse([chunk], done=False)
    assert mender.feed(frame) + mender.feed(frame) == frame + frame
    assert mender.usage == COUNTED
    assert mender.repairs == []
