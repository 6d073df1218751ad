"""The identifiers of an answer's calls: what is right stays, what is not becomes right."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.ids import IdRepairer
from moonshim.engine.ids.spelling import k2_index
from moonshim.engine.values.conversation import Message, ToolCall, ToolResult
from tests.engine.ids.counting import steps
from tests.engine.ids.histories import HISTORIES, IDS, NAMES, assistant, call, result

Calls = list[tuple[str, str | None]]


def delivered(history: Any, calls: Calls, **options: Any) -> list[str]:
    ids = IdRepairer(history, **options)
    return [ids.assign(name, wire_id)[0] for name, wire_id in calls]


K2: dict[str, tuple[Any, Calls, list[str]]] = {
    "right ones stay": ([], [("a", "functions.a:0"), ("b", "functions.b:1")], ["functions.a:0", "functions.b:1"]),
    "only the wrong one is rewritten": (
        [],
        [("weather", "call_77"), ("time", "functions.time:5")],
        ["functions.weather:0", "functions.time:5"],
    ),
    "after a high index the count goes on from there": (
        [],
        [("time", "functions.time:5"), ("weather", "call_77"), ("weather", "call_78")],
        ["functions.time:5", "functions.weather:6", "functions.weather:7"],
    ),
    "a later one that a rewritten one has overtaken": (
        [],
        [("a", "bad"), ("b", "functions.b:0")],
        ["functions.a:0", "functions.b:1"],
    ),
    "one index for two names": (
        [],
        [("a", "functions.a:0"), ("b", "functions.b:0")],
        ["functions.a:0", "functions.b:1"],
    ),
    "the name of another tool": ([], [("a", "functions.b:0")], ["functions.a:0"]),
    "a foreign prefix": ([], [("a", "a:0"), ("a", "tools.a:3")], ["functions.a:0", "functions.a:1"]),
    "leading zeros": ([], [("a", "functions.a:007")], ["functions.a:0"]),
    "too many digits": ([], [("a", "functions.a:1234567890")], ["functions.a:0"]),
    "digits of another script": ([], [("a", "functions.a:٣")], ["functions.a:0"]),
    "none at all": ([], [("a", None), ("a", ""), ("a", "  ")], ["functions.a:0", "functions.a:1", "functions.a:2"]),
    "no name either": ([], [("", None), ("", "x")], ["functions.unknown:0", "functions.unknown:1"]),
    "dots and dashes in the name": ([], [("a.b-c", "functions.a.b-c:3")], ["functions.a.b-c:3"]),
    "the history is counted on": (
        [assistant(call("functions.a:0"), call("functions.b:1"))],
        [("c", "x")],
        ["functions.c:2"],
    ),
    "tool messages count too": ([result("functions.x:7")], [("t", "call_1")], ["functions.t:8"]),
    "foreign calls in the history count by their number": (
        [assistant(call("call_1"), call("call_2"), call("functions.a:0"))],
        [("t", "bad")],
        ["functions.t:3"],
    ),
    "a host that starts at 0 in every turn": (
        [assistant(call("functions.ls:0")), result("functions.ls:0")],
        [("ls", "functions.ls:0"), ("ls", "functions.ls:1")],
        ["functions.ls:1", "functions.ls:2"],
    ),
    "canonical history": (
        [
            Message("assistant", (ToolCall("hist_tool_1", "a", "{}", "functions.a:4"),)),
            Message("tool", (ToolResult("x"),)),
        ],
        [("b", "bad")],
        ["functions.b:5"],
    ),
    "somebody has used up the far end": (
        [result("functions.a:999999999")],
        [("b", "bad"), ("b", "functions.b:999999998"), ("b", "bad")],
        ["functions.b:0", "functions.b:999999998", "functions.b:1"],
    ),
}


@pytest.mark.parametrize(("history", "calls", "expected"), K2.values(), ids=K2.keys())
def test_k2(history: Any, calls: Calls, expected: list[str]) -> None:
    assert delivered(history, calls) == expected


OPTIONS: dict[str, tuple[dict[str, Any], Any, Calls, list[str]]] = {
    "all are rewritten": (
        {"policy": "k2"},
        [],
        [("a", "bad"), ("b", "functions.b:9"), ("c", None)],
        ["functions.a:0", "functions.b:1", "functions.c:2"],
    ),
    "all are rewritten, after the history": (
        {"policy": "k2"},
        [assistant(call("functions.old:0"))],
        [("a", "bad")],
        ["functions.a:1"],
    ),
    "another prefix": ({"prefix": "fn"}, [], [("t", "functions.t:0"), ("t", "fn.t:1")], ["fn.t:0", "fn.t:1"]),
    "no repair": ({"policy": "keep"}, [assistant(call("x"))], [("t", "call_1"), ("t", "x")], ["call_1", "x"]),
    "no repair, but none came": ({"policy": "keep"}, [], [("t", None)], ["functions.t:0"]),
    "by turn, the history does not move the start": (
        {"scope": "turn"},
        [assistant(call("functions.a:7"))],
        [("b", "bad"), ("b", "bad")],
        ["functions.b:0", "functions.b:1"],
    ),
    "by turn, what the history used stays unused": (
        {"scope": "turn"},
        [assistant(call("functions.a:0"), call("functions.a:1"))],
        [("a", "functions.a:0"), ("a", "functions.a:3")],
        ["functions.a:2", "functions.a:3"],
    ),
    "unique: the later one gets a suffix": (
        {"policy": "unique"},
        [assistant(call("Bash_0", "Bash"))],
        [("Bash", "Bash_0"), ("Bash", "Bash_0"), ("Bash", "Bash_1"), ("Bash", None)],
        ["Bash_0__2", "Bash_0__3", "Bash_1", "functions.Bash:1"],
    ),
    "unique: the suffix may be taken": (
        {"policy": "unique"},
        [assistant(call("x"), call("x__2")), result("x__3")],
        [("t", "x"), ("t", "x__2")],
        ["x__4", "x__2__2"],
    ),
    "keep: hands off": (
        {"policy": "keep"},
        [assistant(call("x"))],
        [("t", "x"), ("t", "x"), ("t", "functions.t:4"), ("t", "")],
        ["x", "x", "functions.t:4", "functions.t:5"],
    ),
}


@pytest.mark.parametrize(("options", "history", "calls", "expected"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options(options: dict[str, Any], history: Any, calls: Calls, expected: list[str]) -> None:
    assert delivered(history, calls, **options) == expected


RULES: dict[str, tuple[dict[str, Any], str | None, str | None]] = {
    "right": ({}, "functions.t:3", None),
    "wrong": ({}, "call_1", "id_invalid"),
    "missing": ({}, None, "id_missing"),
    "missing, kept": ({"policy": "keep"}, "", "id_missing"),
    "repeated": ({"policy": "unique"}, "old", "id_repeated"),
    "new": ({"policy": "unique"}, "new", None),
    "kept": ({"policy": "keep"}, "old", None),
    "normalized": ({"policy": "k2"}, "functions.t:3", "id_normalized"),
    "normalized, and was right": ({"policy": "k2"}, "functions.t:1", None),
}


@pytest.mark.parametrize(("options", "wire_id", "rule"), RULES.values(), ids=RULES.keys())
def test_the_rule_that_acted_is_told(options: dict[str, Any], wire_id: str | None, rule: str | None) -> None:
    ids = IdRepairer([assistant(call("old"))], **options)
    given_id, reported = ids.assign("t", wire_id)
    assert reported == rule
    assert (given_id == wire_id) == (rule is None)


CALLS = st.lists(
    st.tuples(NAMES, st.none() | IDS | st.sampled_from(["functions.ls:3", "functions.cat:3"])), max_size=12
)
OPTION_SETS = st.fixed_dictionaries(
    {},
    optional={
        "policy": st.sampled_from(["k2", "k2_repair", "unique", "keep"]),
        "scope": st.sampled_from(["conversation", "turn"]),
        "prefix": st.sampled_from(["functions", "fn"]),
    },
)


@given(HISTORIES, CALLS, OPTION_SETS)
def test_what_was_repaired_is_left_alone_the_next_time(
    history: list[dict[str, Any]], calls: Calls, options: dict[str, Any]
) -> None:
    before = copy.deepcopy(history)
    once = delivered(history, calls, **options)
    names = [name for name, _ in calls]
    assert delivered(history, list(zip(names, once, strict=True)), **options) == once
    assert delivered(history, calls, **options) == once
    assert history == before


@given(HISTORIES, CALLS, st.sampled_from(["conversation", "turn"]), st.sampled_from(["k2", "k2_repair"]))
def test_k2_gives_right_identifiers_with_indexes_of_their_own(
    history: list[dict[str, Any]], calls: Calls, scope: str, policy: str
) -> None:
    ids = delivered(history, calls, scope=scope, policy=policy)
    indexes = [k2_index(id, name=name) for id, (name, _) in zip(ids, calls, strict=True)]
    used = {k2_index(id) for id in _ids_of(history)} - {None}
    assert None not in indexes
    assert len(set(indexes)) == len(indexes)
    assert not used & set(indexes)


@given(HISTORIES, CALLS)
def test_unique_never_gives_one_out_twice(history: list[dict[str, Any]], calls: Calls) -> None:
    ids = delivered(history, calls, policy="unique")
    assert len({*ids}) == len(ids)
    assert not {*ids} & {id for id in _ids_of(history) if id}


def _ids_of(history: list[dict[str, Any]]) -> list[str]:
    calls = [entry["id"] for message in history for entry in message.get("tool_calls", ())]
    return calls + [message["tool_call_id"] for message in history if "tool_call_id" in message]


@pytest.mark.parametrize("policy", ["k2", "k2_repair", "unique", "keep"])
@pytest.mark.parametrize("scope", ["conversation", "turn"])
@pytest.mark.parametrize("wire_id", ["x", "functions.t:0", None])
def test_work_is_linear_in_history_and_answer(policy: Any, scope: Any, wire_id: str | None) -> None:
    def work(count: int) -> int:
        history = [assistant(*(call(f"functions.t:{n}") for n in range(count)))]
        return steps(lambda: delivered(history, [("t", wire_id)] * count, policy=policy, scope=scope))

    assert work(400) <= 2.1 * work(200)
