"""The identifiers that a provider sees: right, distinct, and the same however one asks."""

from __future__ import annotations

import copy
import random
import re
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.formats import TOOL_FORMATS
from moonshim.engine.ids import tool_id_strategy
from moonshim.engine.ids.pairing import pair
from moonshim.engine.values.conversation import Message, Text, ToolCall, ToolResult
from moonshim.engine.values.tool_calls import FoundCall, walk_calls
from moonshim.errors import InvalidInput, UnknownFormat
from tests.engine.ids.counting import steps
from tests.engine.ids.histories import HISTORIES, assistant, call, result

STRATEGIES: Final = ["kimi", "openai", "anthropic", "mistral"]
FORMS: Final = {
    "kimi": re.compile(r"functions\..+:\d{1,9}", re.DOTALL),
    "openai": re.compile(r"call_[A-Za-z0-9_-]{0,35}"),
    "anthropic": re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    "mistral": re.compile(r"[a-zA-Z0-9]{9}"),
}


def answers(history: Any, format: str, asked: Any = None) -> list[str]:
    """What the mapper for a history says about each call and result of it (or of another one), in order."""
    mapper = tool_id_strategy(format).create_mapper(history)
    return [
        mapper.resolve_tool_call_id(seen.value)
        if isinstance(seen, FoundCall)
        else mapper.resolve_tool_response_id(seen.value)
        for seen in walk_calls(history if asked is None else asked)
    ]


@pytest.mark.parametrize("format", TOOL_FORMATS)
def test_every_format_has_a_strategy(format: str) -> None:
    own = format if format in ("kimi", "anthropic", "mistral") else "standard"
    assert tool_id_strategy(format).name == own


def test_an_unknown_format_has_none() -> None:
    with pytest.raises(UnknownFormat):
        tool_id_strategy("auto")


# --- kimi: the whole conversation is counted through ------------------------------------------------------------

COUNTED: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "one call": ([assistant(call("hist_tool_q", "read"))], ["functions.read:0"]),
    "two in a turn, in the order of the turn": (
        [assistant(call("b", "read"), call("a", "glob"))],
        ["functions.read:0", "functions.glob:1"],
    ),
    "over turns, the same tool": (
        [assistant(call("x")), result("x"), {"role": "user", "content": "more"}, assistant(call("y")), result("y")],
        ["functions.ls:0", "functions.ls:0", "functions.ls:1", "functions.ls:1"],
    ),
    "results out of order": (
        [assistant(call("a", "glob"), call("b", "read")), result("b"), result("a")],
        ["functions.glob:0", "functions.read:1", "functions.read:1", "functions.glob:0"],
    ),
    "identifiers of K2 itself, already right": (
        [assistant(call("functions.ls:0"), call("functions.ls:1")), result("functions.ls:0"), result("functions.ls:1")],
        ["functions.ls:0", "functions.ls:1", "functions.ls:0", "functions.ls:1"],
    ),
    "one identifier in two turns": (
        [assistant(call("Bash_0", "Bash")), result("Bash_0"), assistant(call("Bash_0", "Bash")), result("Bash_0")],
        ["functions.Bash:0", "functions.Bash:0", "functions.Bash:1", "functions.Bash:1"],
    ),
    "one identifier twice in a turn": (
        [assistant(call("x"), call("x")), result("x"), result("x")],
        ["functions.ls:0", "functions.ls:1", "functions.ls:0", "functions.ls:1"],
    ),
    "one identifier twice in a turn, the names tell": (
        [assistant(call("0", "a"), call("0", "b")), result("0", name="b"), result("0", name="a")],
        ["functions.a:0", "functions.b:1", "functions.b:1", "functions.a:0"],
    ),
    "a call that was never answered, and its identifier again": (
        [assistant(call("x")), {"role": "user", "content": "stop"}, assistant(call("x")), result("x")],
        ["functions.ls:0", "functions.ls:1", "functions.ls:1"],
    ),
    "a second result for one call": (
        [assistant(call("x")), result("x", "1"), result("x", "2")],
        ["functions.ls:0", "functions.ls:0", "functions.ls:0"],
    ),
    "no identifiers at all": (
        [assistant(call(""), call(None, "cat")), result(""), result(None)],
        ["functions.ls:0", "functions.cat:1", "functions.ls:0", "functions.cat:1"],
    ),
    "no name": ([assistant(call("x", "")), result("x")], ["functions.unknown:0", "functions.unknown:0"]),
    "an orphan counts for the call that it has lost": (
        [result("gone", name="grep"), assistant(call("x")), result("x")],
        ["functions.grep:0", "functions.ls:1", "functions.ls:1"],
    ),
    "two orphans under one identifier": (
        [result("gone"), result("gone")],
        ["functions.unknown:0", "functions.unknown:1"],
    ),
    "a result before its call is an orphan": (
        [result("x"), assistant(call("x")), result("x")],
        ["functions.unknown:0", "functions.ls:1", "functions.ls:1"],
    ),
    "names with dots, dashes and colons": (
        [assistant(call("a", "mcp.x-y"), call("b", "k:v"))],
        ["functions.mcp.x-y:0", "functions.k:v:1"],
    ),
}


@pytest.mark.parametrize(("history", "expected"), COUNTED.values(), ids=COUNTED.keys())
def test_kimi_identifiers(history: list[dict[str, Any]], expected: list[str]) -> None:
    assert answers(history, "kimi") == expected


@pytest.mark.parametrize(("history", "expected"), COUNTED.values(), ids=COUNTED.keys())
@pytest.mark.parametrize("format", STRATEGIES)
def test_the_other_strategies_tell_the_same_things_apart(
    format: str, history: list[dict[str, Any]], expected: list[str]
) -> None:
    def classes(ids: list[str]) -> list[int]:
        return [ids.index(id) for id in ids]

    assert classes(answers(history, format)) == classes(expected)


def test_dicts_and_canonical_values_of_one_history_get_the_same_answers() -> None:
    dicts = [assistant(call("call_1"), call("call_2", "cat")), result("call_2"), result("call_1")]
    values = [
        Message(
            "assistant", (ToolCall("hist_tool_1", "ls", "{}", "call_1"), ToolCall("hist_tool_2", "cat", "{}", "call_2"))
        ),
        Message("tool", (ToolResult("hist_tool_2", wire_id="call_2"),)),
        Message("tool", (ToolResult("hist_tool_1", wire_id="call_1"),)),
    ]
    for format in STRATEGIES:
        assert answers(dicts, format) == answers(values, format)
        assert answers([dicts[0], *values[1:]], format) == answers(dicts, format)
        assert answers(dicts, format, asked=values) == answers(dicts, format)
        assert answers(values, format, asked=dicts) == answers(dicts, format)


def test_a_canonical_result_finds_its_call_without_any_wire_identifier() -> None:
    history = [
        Message(
            "assistant", (ToolCall("hist_tool_1", "ls", "{}", "same"), ToolCall("hist_tool_2", "cat", "{}", "same"))
        ),
        Message("tool", (ToolResult("hist_tool_2"), ToolResult("hist_tool_1"))),
    ]
    assert answers(history, "kimi") == ["functions.ls:0", "functions.cat:1", "functions.cat:1", "functions.ls:0"]


# --- how a question is understood -------------------------------------------------------------------------------


def test_equal_objects_at_different_places_have_their_own_answers() -> None:
    history = [assistant(call("x")), result("x"), assistant(call("x")), result("x")]
    mapper = tool_id_strategy("kimi").create_mapper(history)
    late, early = history[2]["tool_calls"][0], history[0]["tool_calls"][0]
    assert late == early
    for _ in range(2):
        assert mapper.resolve_tool_call_id(late) == "functions.ls:1"
        assert mapper.resolve_tool_call_id(early) == "functions.ls:0"
        assert mapper.resolve_tool_response_id(history[3]) == "functions.ls:1"
        assert mapper.resolve_tool_response_id(history[1]) == "functions.ls:0"


def test_copies_stand_for_the_equal_ones_in_the_order_of_asking_and_keep_their_answers() -> None:
    history = [assistant(call("x")), result("x"), assistant(call("x")), result("x")]
    mapper = tool_id_strategy("kimi").create_mapper(history)
    copies = [call("x"), call("x")]
    assert [mapper.resolve_tool_call_id(one) for one in copies] == ["functions.ls:0", "functions.ls:1"]
    assert [mapper.resolve_tool_call_id(one) for one in reversed(copies)] == ["functions.ls:1", "functions.ls:0"]


def test_a_copy_is_known_by_its_name_and_by_what_it_says() -> None:
    history = [
        assistant(call("x", "a"), call("x", "b"), call("x", "b", '{"n":1}')),
        result("x", "first"),
        result("x", "second"),
    ]
    mapper = tool_id_strategy("kimi").create_mapper(history)
    assert mapper.resolve_tool_call_id(call("x", "b", '{"n":1}')) == "functions.b:2"
    assert mapper.resolve_tool_call_id(call("x", "b")) == "functions.b:1"
    assert mapper.resolve_tool_call_id(call("x", "a", "other")) == "functions.a:0"
    assert mapper.resolve_tool_response_id(result("x", "second")) == "functions.b:1"
    assert mapper.resolve_tool_response_id(result("x", "first")) == "functions.a:0"
    canonical = ToolResult("x", parts=(Text("second"),), wire_id="x")
    assert mapper.resolve_tool_response_id(canonical) == "functions.b:1"


@pytest.mark.parametrize("format", STRATEGIES)
def test_what_is_not_in_the_history_has_an_answer_of_its_own(format: str) -> None:
    history = [assistant(call("hist_tool_q", "read"))]
    strangers: list[Any] = [result(f"hist_tool_{n}", name="grep") for n in range(20)]
    strangers += [result("call_a.b", name="grep"), result("call_ab", name="grep"), ToolResult("hist_tool_new", "cat")]
    forward = tool_id_strategy(format).create_mapper(history)
    backward = tool_id_strategy(format).create_mapper(history)
    first = [forward.resolve_tool_response_id(one) for one in strangers]
    second = [backward.resolve_tool_response_id(one) for one in reversed(strangers)]
    assert first == second[::-1]
    assert first == [forward.resolve_tool_response_id(one) for one in strangers]
    assert len({*first, *answers(history, format)}) == len(strangers) + 1
    assert all(FORMS[format].fullmatch(id) for id in first)


def test_a_stranger_keeps_its_name_and_gets_an_index_that_nobody_has() -> None:
    mapper = tool_id_strategy("kimi").create_mapper([assistant(call("a", "read"))])
    said = mapper.resolve_tool_response_id(result("elsewhere", name="grep"))
    assert re.fullmatch(r"functions\.grep:[1-9]\d*", said)


def test_a_result_that_came_after_the_mapper_takes_the_identifier_of_its_call() -> None:
    mapper = tool_id_strategy("kimi").create_mapper([assistant(call("a")), assistant(call("a"), call("b", "cat"))])
    assert mapper.resolve_tool_response_id(result("b")) == "functions.cat:2"
    assert mapper.resolve_tool_response_id(result("a")) == "functions.ls:1"


@pytest.mark.parametrize("wrong", [{}, {"role": "user"}, "x", None])
def test_a_question_about_nothing_is_refused(wrong: Any) -> None:
    mapper = tool_id_strategy("kimi").create_mapper([])
    with pytest.raises(InvalidInput):
        mapper.resolve_tool_call_id(wrong)
    with pytest.raises(InvalidInput):
        mapper.resolve_tool_response_id(wrong)


# --- for all histories ------------------------------------------------------------------------------------------


@given(HISTORIES, st.sampled_from(STRATEGIES))
def test_answers_are_right_distinct_and_deterministic(history: list[dict[str, Any]], format: str) -> None:
    before = copy.deepcopy(history)
    ids = answers(history, format)
    assert history == before
    assert ids == answers(copy.deepcopy(history), format)
    assert all(FORMS[format].fullmatch(id) for id in ids)
    pairing = pair(history)
    slots: dict[int, str] = {}
    for id, slot in zip(ids, pairing.slot_of, strict=True):
        assert slots.setdefault(slot, id) == id, "a result has the identifier of its call"
    assert len(set(slots.values())) == len(pairing.slots), "what is different stays different"


@given(HISTORIES, st.sampled_from(STRATEGIES), st.integers(0, 10))
def test_what_comes_later_changes_nothing_before_it(history: list[dict[str, Any]], format: str, cut: int) -> None:
    short = answers(history[:cut], format)
    assert answers(history, format)[: len(short)] == short


@given(HISTORIES, st.sampled_from(STRATEGIES), st.randoms(use_true_random=False))
def test_the_order_of_questions_does_not_matter(
    history: list[dict[str, Any]], format: str, dice: random.Random
) -> None:
    mapper = tool_id_strategy(format).create_mapper(history)
    expected = answers(history, format)
    seen = list(enumerate(walk_calls(history)))
    for number, one in dice.sample(seen, len(seen)) * 2:
        ask = mapper.resolve_tool_call_id if isinstance(one, FoundCall) else mapper.resolve_tool_response_id
        assert ask(one.value) == expected[number]


@given(HISTORIES, st.sampled_from(STRATEGIES))
def test_a_copy_of_the_whole_history_asked_in_order_gets_the_same_answers(
    history: list[dict[str, Any]], format: str
) -> None:
    assert answers(history, format, asked=copy.deepcopy(history)) == answers(history, format)


def rounds(count: int) -> list[dict[str, Any]]:
    return [
        m for n in range(count) for m in (assistant(call(f"c{n}"), call(f"d{n}")), result(f"c{n}"), result(f"d{n}"))
    ]


def same(count: int) -> list[dict[str, Any]]:
    return [m for _ in range(count) for m in (assistant(call("x")), result("x"))]


def crowd(count: int) -> list[dict[str, Any]]:
    calls = [call("x", f"n{n}") for n in range(count)]
    return [assistant(*calls), *(result("x", name=f"n{n}") for n in reversed(range(count)))]


def unanswered(count: int) -> list[dict[str, Any]]:
    return [*(assistant(call("x")) for _ in range(count)), *(result("x") for _ in range(2 * count))]


def orphans(count: int) -> list[dict[str, Any]]:
    return [result("x", str(n)) for n in range(count)]


@pytest.mark.parametrize("make", [rounds, same, crowd, unanswered, orphans])
@pytest.mark.parametrize("format", STRATEGIES)
@pytest.mark.parametrize("by_copy", [False, True], ids=["own objects", "copies"])
def test_work_is_linear_in_the_history(make: Any, format: str, by_copy: bool) -> None:
    small, large = make(150), make(300)
    ask_small, ask_large = (copy.deepcopy(small), copy.deepcopy(large)) if by_copy else (small, large)
    one = steps(lambda: answers(small, format, asked=ask_small))
    two = steps(lambda: answers(large, format, asked=ask_large))
    assert two <= 2.1 * one


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"foo": 1}, "messages[0]: not a message: it has no role"),
        ({}, "messages[0]: not a message: it has no role"),
        ("junk", "messages[0]: not a message: str"),
        (None, "messages[0]: not a message: NoneType"),
    ],
    ids=str,
)
def test_what_is_no_message_is_refused_with_its_field(entry: Any, why: str) -> None:
    history = [{"role": "user", "content": "hi"}, entry]
    with pytest.raises(InvalidInput) as error:
        tool_id_strategy("kimi").create_mapper([entry])
    assert (error.value.field, f"messages[0]: {error.value}") == ("messages[0]", why)
    with pytest.raises(InvalidInput) as error:
        tool_id_strategy("openai").create_mapper(iter(history))
    assert error.value.field == "messages[1]"


@pytest.mark.parametrize("history", ["messages", {"role": "user"}, 7], ids=str)
def test_what_is_no_list_of_messages_is_refused(history: Any) -> None:
    with pytest.raises(InvalidInput) as error:
        tool_id_strategy("kimi").create_mapper(history)
    assert error.value.field == "messages"
