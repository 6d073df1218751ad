"""The name of a call, from what stood in the identifier's place: the right one, or none, never an invented one."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.repair.tool_names import DeclaredTools, NamedArguments, unwrap
from moonshim.engine.values.conversation import Tool


def declared(*names: str) -> DeclaredTools:
    return DeclaredTools([Tool(name) for name in names])


UNKNOWN = DeclaredTools(None)

# with no tools known: by the text's own shape
CLEAR: dict[str, str | None] = {
    "functions.read_file:3": "read_file",
    "functions.a.b-c:3": "a.b-c",
    "functions.ls": "ls",
    "function.ls:0": "ls",
    "search:0": "search",
    "Bash_0": "Bash",
    "functions_get_weather_1": "get_weather",
    "functionsexec5": "exec",
    "functions exec:0": "exec",
    "functions.read\n_file:3": "read_file",
    " functions.ls:0\n": "ls",
    "ls": "ls",
    "call00003": None,
    "call_59adf5614cfe4f4b8a71be54": None,
    "3": None,
    "0": None,
    "": None,
    "  ": None,
    "toolu_01A09q90qw90lq917835lq9": None,
    "chatcmpl-tool-0123456789abcdef": None,
    "a1b2c3d4-e5f6-7890-abcd-ef1234567890": None,
    "deadbeefdeadbeef0123": None,
    "hist_tool_abc": None,
    "two words": None,
    ":0": None,
}


@pytest.mark.parametrize("header", CLEAR)
def test_a_name_is_read_from_the_text_alone_when_nobody_knows_the_tools(header: str) -> None:
    assert UNKNOWN.name_in(header) == CLEAR[header]


def test_a_prefix_without_a_name_behind_it_is_no_name() -> None:
    assert UNKNOWN.name_in("functions.:0") is None


@pytest.mark.parametrize(
    ("tools", "header", "name"),
    [
        (("get_weather",), "functions_get_weather_1", "get_weather"),
        (("weather",), "functions_weather_1", "weather"),
        (("exec",), "functionsexec5", "exec"),
        (("exec5",), "functionsexec5", "exec5"),
        (("Bash_0",), "Bash_0", "Bash_0"),
        (("Bash",), "Bash_0", "Bash"),
        (("a.b-c",), "functions.a.b-c:3", "a.b-c"),
        (("search",), "functions.api.tools.search:1", "search"),
        (("tools.search", "search"), "functions.api.tools.search:1", "tools.search"),
        (("functions.ls",), "functions.ls:0", "functions.ls"),
        (("call_home",), "call_home", "call_home"),
        (("call_home",), "call_home:0", "call_home"),
        (("read_file",), "functions.read\n_file:3", "read_file"),
        (("read_file",), "read\n_file", "read_file"),
        (("ls",), "two\nwords", None),
        (("ls", "cat"), "functions.rm:0", "rm"),
        (("ls", "cat"), "call_59ad", None),
        (("ls", "cat"), "7", None),
    ],
)
def test_a_declared_name_is_preferred_and_a_clear_one_is_a_name_all_the_same(
    tools: tuple[str, ...], header: str, name: str | None
) -> None:
    assert declared(*tools).name_in(header) == name


@pytest.mark.parametrize(
    ("name", "fixed"),
    [
        ("read_file", "read_file"),
        ("functions.read_file", "read_file"),
        ("functions_read_file", "read_file"),
        ("functions.read_file:2", "read_file"),
        (" read_file ", "read_file"),
        ("rm", "rm"),
        ("read", "read"),
    ],
)
def test_a_native_name_in_disguise_becomes_the_declared_one(name: str, fixed: str) -> None:
    assert declared("read_file", "ls").fix(name) == fixed


def test_a_native_name_stays_when_nobody_knows_the_tools() -> None:
    assert UNKNOWN.fix("functions.read_file") == "functions.read_file"


@pytest.mark.parametrize(
    ("name", "grows"),
    [("read", True), ("read_file", True), ("read_file_lines", False), ("rea", True), ("ls", False), ("x", False)],
)
def test_a_name_may_grow_while_a_longer_declared_one_begins_with_it(name: str, grows: bool) -> None:
    tools = declared("read", "read_file", "read_file_lines", "ls")
    assert tools.may_grow(name) is grows
    assert tools.may_grow(name) is grows


def test_no_name_grows_when_nobody_knows_the_tools() -> None:
    assert not UNKNOWN.may_grow("read")


def test_what_is_declared_is_known() -> None:
    assert declared("ls").knows("ls")
    assert not declared("ls").knows("cat")
    assert declared("ls", "cat").names == frozenset({"ls", "cat"})
    assert declared().names == frozenset()
    assert UNKNOWN.names is None


def schema(required: list[str], *optional: str) -> dict[str, Any]:
    return {"type": "object", "properties": {key: {} for key in (*required, *optional)}, "required": required}


FITTING = DeclaredTools(
    [
        Tool("read", parameters=schema(["path"], "lines")),
        Tool("write", parameters=schema(["path", "text"])),
        Tool("search", parameters=schema(["query"])),
        Tool("invite", parameters=schema(["user", "name"])),
        Tool("rename", parameters=schema(["user", "name"])),
        Tool("optional", parameters=schema([], "anything")),
        Tool("bare"),
        Tool("odd", parameters={"properties": [], "required": {}}),
        Tool("nested", parameters={"properties": {"inner": {}}, "required": ["inner", ["x"]]}),
    ]
)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"query": "x"}, "search"),
        ({"path": "a", "lines": 3}, "read"),
        ({"path": "a", "text": "b"}, "write"),
        ({"path": "a"}, "read"),
        ({"text": "b"}, "write"),
        ({"user": 1}, None),
        ({"user": 1, "name": "x"}, None),
        ({"query": "x", "other": 1}, None),
        ({"inner": 1}, "nested"),
        ({"anything": 1}, "optional"),
        ({}, None),
        ([], None),
        ("query", None),
        (None, None),
    ],
)
def test_arguments_tell_the_tool_only_if_one_alone_can_be_meant(arguments: Any, name: str | None) -> None:
    assert FITTING.fitting(arguments) == name


UNWRAPPED: dict[str, tuple[str, NamedArguments | None]] = {
    "name and arguments": ('{"name": "ls", "arguments": {"a":  1}}', NamedArguments("ls", '{"a":  1}')),
    "with the rest of an entry": (
        '{"id": "x", "type": "function", "name": "ls", "arguments": {}}',
        NamedArguments("ls", "{}"),
    ),
    "the arguments as a string": ('{"name": "ls", "arguments": "{\\"a\\": 1}"}', NamedArguments("ls", '{"a": 1}')),
    "no arguments": ('{"name": "ls"}', None),
    "no name": ('{"arguments": {}}', None),
    "an empty name": ('{"name": "", "arguments": {}}', None),
    "a name that is no text": ('{"name": 7, "arguments": {}}', None),
    "other keys: they are honest arguments": ('{"name": "Ann", "arguments": {}, "age": 3}', None),
    "cut off": ('{"name": "ls", "arguments": {', None),
    "no object": ('["name"]', None),
    "nothing": ("", None),
    "half a character": ('{"name": "ls", "arguments": "\\ud83d"}', None),
}


@pytest.mark.parametrize("case", UNWRAPPED)
def test_a_call_that_wrote_its_name_into_its_arguments_is_unwrapped(case: str) -> None:
    text, found = UNWRAPPED[case]
    assert unwrap(text) == found
