"""Tools as a host accepts them: names, kinds, schemas, limits, and the way back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.dialects.anthropic.dialect import ANTHROPIC
from moonshim.engine.dialects.openai_responses.dialect import OPENAI_RESPONSES
from moonshim.engine.prepare import prepare_request
from moonshim.engine.request.tools.tool_names import ToolNames
from moonshim.engine.signing import Signer
from moonshim.engine.values.conversation import Request, Tool
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import CannotExpress, InvalidInput
from tests.engine.request.chats import Json, ai, body, call, made, rules, sent, tool, user


def function(name: str, **more: Any) -> Json:
    return {"type": "function", "function": {"name": name, **more}}


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
SEARCH = {"type": "web_search"}


def names(given: Json) -> list[str]:
    return [entry["function"]["name"] for entry in given.get("tools", ())]


def test_names_are_the_same_everywhere_and_can_be_mapped_back() -> None:
    given = body(
        user(),
        ai(call("a", "fs.read"), call("b", "gone tool"), reasoning_content="r"),
        tool("a", name="fs.read"),
        tool("b"),
        tools=[function("fs.read"), function("fs_read"), function("7up")],
        tool_choice={"type": "function", "function": {"name": "fs.read"}},
        thinking={"type": "disabled"},
    )
    found, out = made(given), sent(given)
    assert names(out) == ["fs_read_2", "fs_read", "tool_7up"]
    assert [entry["function"]["name"] for entry in out["messages"][1]["tool_calls"]] == ["fs_read_2", "gone_tool"]
    assert "name" not in out["messages"][2]
    assert out["tool_choice"] == {"type": "function", "function": {"name": "fs_read_2"}}
    assert {name: one.name for name, one in found.tools.items()} == {
        "fs_read_2": "fs.read",
        "fs_read": "fs_read",
        "tool_7up": "7up",
    }
    assert [change.place for change in found.changes if change.rule == "tool_name"] == [
        "tools[0]",
        "tools[2]",
        "messages[1]",
    ]


@given(st.lists(st.text(st.sampled_from("ab.-_ 7é\ud83d/"), max_size=12), unique=True), st.sampled_from([16, 64]))
def test_every_name_is_legal_its_own_and_independent_of_later_ones(given: list[str], limit: int) -> None:
    book = ToolNames(r"^[A-Za-z][A-Za-z0-9_-]*$", limit)
    found = [book.resolve(name) for name in given]
    assert all(map(book.accepts, found))
    assert len(set(found)) == len(given)
    shorter = ToolNames(r"^[A-Za-z][A-Za-z0-9_-]*$", limit)
    assert [shorter.resolve(name) for name in given[: len(given) // 2]] == found[: len(given) // 2]
    again = ToolNames(r"^[A-Za-z][A-Za-z0-9_-]*$", limit)
    assert [again.resolve(name) for name in found] == found


def test_a_long_name_keeps_its_beginning() -> None:
    found = names(sent(body(user(), tools=[function("x" * 100), function("x" * 101)])))
    assert [name[:40] for name in found] == ["x" * 40] * 2
    assert [len(name) for name in found] == [64, 64]


def test_the_search_of_the_host_stands_for_the_clients() -> None:
    out = sent(body(user(), tools=[function("ls"), SEARCH]))
    assert out["tools"][1] == {"type": "builtin_function", "function": {"name": "$web_search"}}
    assert made(body(user(), tools=[SEARCH])).tools["$web_search"].name == "web_search"
    own = {"type": "builtin_function", "function": {"name": "$web_search"}}
    assert rules(made(body(user(), tools=[own])).changes) == []


def test_calls_of_the_search_in_the_history_have_the_hosts_name() -> None:
    out = sent(body(user(), ai(call("a", "web_search"), reasoning_content=""), tool("a"), tools=[SEARCH]))
    assert out["messages"][1]["tool_calls"][0]["function"]["name"] == "$web_search"


def test_a_tool_that_only_another_host_can_run_is_left_out() -> None:
    given = body(user(), tools=[function("ls"), SEARCH, {"type": "code_interpreter"}])
    assert names(sent(given, "vllm")) == ["ls"]
    assert rules(made(given, "vllm").changes) == ["tool_left_out", "tool_left_out"]
    # Nothing is left to declare, and hosts refuse an empty list.
    assert not {"tools", "tool_choice"} & sent(body(user(), tools=[SEARCH], tool_choice="auto"), "vllm").keys()


@pytest.mark.parametrize("live", [True, False, None])
def test_a_search_of_stored_pages_is_not_one_of_the_web(live: bool | None) -> None:
    search = {"type": "web_search"} | ({} if live is None else {"external_web_access": live})
    given = {"model": "kimi-k3", "input": "hi", "tools": [search]}
    prepared = prepare_request(given, dialect="openai_responses", host="moonshot")
    assert ("tools" in prepared.body) == (live is not False)
    assert ("tool_left_out" in rules(prepared.changes)) == (live is False)


REFUSED: dict[str, tuple[Json, str, str]] = {
    "a choice of a tool that is left out": (
        {"tools": [function("ls"), SEARCH], "tool_choice": {"type": "function", "function": {"name": "web_search"}}},
        "web_search",
        "tool_choice",
    ),
    "a call is required and no tool is left": ({"tools": [SEARCH], "tool_choice": "required"}, "none", "tool_choice"),
    "one name with two definitions": (
        {"tools": [function("ls"), function("ls", parameters=SCHEMA)]},
        "tool 'ls' is declared twice with different definitions",
        "tools[1]",
    ),
}


@pytest.mark.parametrize(("fields", "message", "field"), REFUSED.values(), ids=REFUSED.keys())
def test_what_would_change_the_meaning_is_refused(fields: Json, message: str, field: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        made(body(user(), **fields), "vllm")
    assert caught.value.field == field


def test_more_tools_than_the_host_takes_are_refused_with_both_numbers() -> None:
    tools = [function(f"t{number}") for number in range(129)]
    with pytest.raises(InvalidInput, match=r"129 tools are declared, but moonshot accepts at most 128"):
        made(body(user(), tools=tools))
    assert len(sent(body(user(), tools=tools[:128]))["tools"]) == 128


def test_a_schema_that_cannot_be_said_names_the_tool_and_the_path() -> None:
    bad = function("odd", parameters={"type": "object", "properties": {"a": {"$ref": "https://x.org/s"}}})
    with pytest.raises(CannotExpress, match=r"'odd'.*properties\.a") as caught:
        made(body(user(), tools=[function("ls"), bad]))
    assert caught.value.field == "tools[1].function.parameters"


def test_where_nobody_can_tell_the_place_of_a_tool_the_list_is_named() -> None:
    far = {"type": "object", "properties": {"a": {"$ref": "https://x.org/s"}}}
    group = {"type": "namespace", "name": "g", "tools": [{"type": "function", "name": n} for n in "ab"]}
    odd = {"type": "function", "name": "odd", "parameters": far}
    asked, _ = OPENAI_RESPONSES.parse_request({"model": "k3", "input": "hi", "tools": [group, odd]}, Signer())
    with pytest.raises(CannotExpress, match="'odd'") as caught:
        made(asked)
    assert caught.value.field == "tools"


def test_schemas_are_rewritten_only_where_the_host_wants_its_own_flavour() -> None:
    odd = function("odd", parameters={"type": "object", "properties": {"a": {"const": 1}}})
    assert sent(body(user(), tools=[odd]), "vllm")["tools"] == [odd]
    assert sent(body(user(), tools=[odd]))["tools"][0]["function"]["parameters"]["properties"]["a"]["enum"] == [1]
    assert "tool_schema" in rules(made(body(user(), tools=[odd])).changes)


def test_the_same_definition_twice_is_one_tool() -> None:
    given = body(user(), tools=[function("ls", parameters=SCHEMA), function("cat"), function("ls", parameters=SCHEMA)])
    assert names(sent(given)) == ["ls", "cat"]
    assert rules(made(given).changes) == ["tool_merged"]


def test_a_custom_tool_becomes_a_function_of_one_string_and_its_calls_too() -> None:
    patch = {"type": "custom", "custom": {"name": "patch", "description": "Apply a patch"}}
    entry = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    given = body(user(), ai(entry, reasoning_content=""), tool("a"), tools=[patch])
    out = sent(given)
    assert out["tools"][0]["function"]["parameters"]["required"] == ["input"]
    assert out["messages"][1]["tool_calls"] == [call("a", "patch", '{"input":"*** Begin"}')]
    assert made(given).tools["patch"].kind == "custom"


def test_deferred_tools_are_declared_like_the_others_and_stay_in_order() -> None:
    tools = (Tool("a", deferred=True), Tool("b"), Tool("c", deferred=True))
    asked = Request(model="k3", messages=made(body(user())).request.messages, tools=tools)
    found = made(asked)
    assert found.request.tools == (Tool("a"), Tool("b"), Tool("c"))
    assert found.tools["a"].deferred
    assert rules(found.changes) == ["tool_deferred", "tool_deferred"]


def test_a_legal_name_stays_and_later_ones_change_nothing() -> None:
    later = {"role": "system", "content": "", "tools": [function("a_b"), function("c")]}
    given = body(user(), tools=[function("a.b"), function("c d"), function("c_d")])
    assert names(sent(given, model="k3")) == ["a_b", "c_d_2", "c_d"]
    grown = sent(given | {"messages": [*given["messages"], ai(call("x", "gone_b")), tool("x"), later]}, model="k3")
    assert names(grown) == ["a_b", "c_d_2", "c_d"]
    assert names(grown["messages"][-1]) == ["a_b_2", "c"]


def test_the_default_of_the_choice_is_said_under_the_name_of_the_host() -> None:
    options = KimiOptions(tool_choice_default="fs.read")
    out = sent(body(user(), tools=[function("ls"), function("fs.read")]), "vllm", options=options)
    assert out["tool_choice"] == {"type": "function", "function": {"name": "fs_read"}}


TYPED = [{"type": "bash_20250124", "name": "bash"}, {"type": "memory_20250818", "name": "memory"}]


def test_tools_that_anthropic_has_defined_are_declared_with_their_schema() -> None:
    given = {"model": "k", "max_tokens": 9, "messages": [user()], "tools": TYPED}
    asked, _ = ANTHROPIC.parse_request(given, Signer())
    found = made(asked, "kimi-coding", upstream="anthropic")
    bash, memory = ANTHROPIC.render_request(found.request)[0]["tools"]
    assert (bash.keys(), memory.keys()) == ({"name", "input_schema"}, {"name", "input_schema"})
    assert bash["input_schema"]["properties"]["command"] == {"type": "string"}
    assert rules(found.changes) == ["tool_typed", "tool_typed"]
    same = made(asked, "generic", "claude-sonnet-5", upstream="anthropic")
    assert ANTHROPIC.render_request(same.request)[0]["tools"] == TYPED


LATER = {"role": "system", "content": "", "tools": [function("late.tool", parameters=SCHEMA)]}


def test_tools_that_a_message_declares_stay_there_where_the_host_reads_them() -> None:
    out = sent(body(user(), LATER, user("go")), model="k3")
    assert out["messages"][1] == {"role": "system", "content": "", "tools": [function("late_tool", parameters=SCHEMA)]}
    assert made(body(user(), LATER), model="k3").tools["late_tool"].name == "late.tool"


def test_tools_that_a_message_declares_join_the_others_where_the_host_does_not() -> None:
    out = sent(body(user(), LATER, user("go"), tools=[function("ls")]))
    assert names(out) == ["ls", "late_tool"]
    assert [message["role"] for message in out["messages"]] == ["user", "user"]


def test_text_beside_tools_gets_a_message_of_its_own() -> None:
    out = sent(body(user(), LATER | {"content": "new tools"}), model="k3")
    assert [message["content"] for message in out["messages"]] == ["hi", "new tools", ""]
    assert ["tools" in message for message in out["messages"]] == [False, False, True]
