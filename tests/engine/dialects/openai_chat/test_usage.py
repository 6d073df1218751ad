"""Usage is kept once, at the top of a chunk, and no later chunk resets it."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.dialects.openai_chat.usage import UsageKeeper
from moonshim.engine.repair.repair_log import RepairLog

TOLD = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
MORE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
ZERO = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def top(usage: Any) -> dict[str, Any]:
    return {"choices": [], "usage": usage}


def inner(usage: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "usage": usage}]}


PLAIN: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": "a"}}]}

# chunks; what each carries at its top; the usage in the end; the rules told
KEPT: dict[str, tuple[list[dict[str, Any]], list[Any], Any, list[str]]] = {
    "none": ([PLAIN, {"choices": None}, {}], [None, None, None], None, []),
    "at the top": ([PLAIN, top(TOLD)], [None, TOLD], TOLD, []),
    "null until it is known": ([top(None), top(TOLD)], [None, TOLD], TOLD, []),
    "growing from chunk to chunk": ([top(TOLD), top(MORE)], [TOLD, MORE], MORE, []),
    "inside a choice": ([inner(TOLD)], [TOLD], TOLD, ["usage_moved"]),
    "inside a choice, then at the top": (
        [inner(TOLD), top(TOLD)],
        [TOLD, None],
        TOLD,
        ["usage_moved", "usage_repeated"],
    ),
    "the same twice": ([top(TOLD), top(TOLD)], [TOLD, None], TOLD, ["usage_repeated"]),
    "reset to zeros": ([top(TOLD), top(ZERO)], [TOLD, None], TOLD, ["usage_repeated"]),
    "reset to an empty object": ([top(TOLD), top({})], [TOLD, None], TOLD, ["usage_repeated"]),
    "reset to null": ([top(TOLD), top(None)], [TOLD, None], TOLD, []),
    "choices that are none": ([{"choices": [7]}, {"choices": "x", "usage": TOLD}], [None, TOLD], TOLD, []),
}


@pytest.mark.parametrize("case", KEPT)
def test_usage_is_kept_once_where_a_client_looks_for_it(case: str) -> None:
    chunks, carried, usage, rules = KEPT[case]
    keeper, log = UsageKeeper(enabled=True), RepairLog()
    assert [keeper.read(chunk, log)[0] for chunk in chunks] == carried
    assert keeper.usage == usage
    assert [repair.rule for repair in log.repairs] == rules


@pytest.mark.parametrize(
    ("chunk", "changed"),
    [(PLAIN, False), (top(TOLD), False), (top(None), False), (inner(TOLD), True), (inner(None), False)],
)
def test_only_usage_in_the_wrong_place_is_a_change(chunk: dict[str, Any], changed: bool) -> None:
    assert UsageKeeper(enabled=True).read(chunk, RepairLog())[1] is changed


@pytest.mark.parametrize("chunk", [top(TOLD), inner(TOLD)])
def test_where_deltas_are_not_repaired_usage_is_only_read(chunk: dict[str, Any]) -> None:
    keeper, log = UsageKeeper(enabled=False), RepairLog()
    for _ in range(2):
        assert keeper.read(chunk, log) == (chunk.get("usage"), False)
    assert keeper.usage == TOLD
    assert log.repairs == []
