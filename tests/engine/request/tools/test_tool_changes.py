"""`tool_addition` and `tool_removal` of Messages: the model gets the tools that the client believes it has."""

from __future__ import annotations

from typing import Any, Final

import pytest

from moonshim import InvalidInput, prepare_request

HOSTS: Final = [("moonshot", "openai_chat"), ("moonshot-anthropic", "anthropic"), ("vllm", "openai_chat")]
USER: Final = {"role": "user", "content": "hi"}


def tool(name: str, description: str = "does something") -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": {"type": "object", "properties": {}}}


def added(name: str) -> dict[str, Any]:
    return {"type": "tool_addition", "tool": {"type": "tool_reference", "name": name}}


def defined(definition: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}


def withdrawn(name: str) -> dict[str, Any]:
    return {"type": "tool_removal", "tool": {"type": "tool_reference", "name": name}}


def prepared(*blocks: Any, host: str = "moonshot", upstream: str = "openai_chat", model: str = "kimi-k3") -> Any:
    """A conversation in which these blocks come after the first turn, each in a message of its own."""
    messages: list[Any] = [USER, {"role": "assistant", "content": "Yes?"}]
    messages += [{"role": "system", "content": block if isinstance(block, list) else [block]} for block in blocks]
    body = {"model": model, "max_tokens": 99, "messages": [*messages, USER], "tools": [tool("first"), tool("second")]}
    return prepare_request(body, dialect="anthropic", upstream=upstream, host=host)


def names(made: Any) -> list[str]:
    return [one.get("name") or one["function"]["name"] for one in made.body.get("tools", ())]


@pytest.mark.parametrize(("host", "upstream"), HOSTS)
@pytest.mark.parametrize(
    ("blocks", "left"),
    [
        ([withdrawn("first")], ["second"]),
        ([[withdrawn("first"), withdrawn("second")]], []),
        ([withdrawn("first"), added("first")], ["second", "first"]),
        ([added("second")], ["first", "second"]),
        ([defined(tool("third"))], ["first", "second", "third"]),
        ([defined(tool("third")), withdrawn("third"), added("third")], ["first", "second", "third"]),
    ],
)
def test_the_tools_are_those_of_the_last_change(blocks: list[Any], left: list[str], host: str, upstream: str) -> None:
    made = prepared(*blocks, host=host, upstream=upstream)
    assert names(made) == left
    assert "tool_addition" not in str(made.body)
    assert "tool_removal" not in str(made.body)
    assert [change.rule for change in made.changes].count("tool_changes") == sum(
        len(block) if isinstance(block, list) else 1 for block in blocks
    )
    assert not [change for change in made.changes if change.rule == "document_text"]
    assert [message["role"] for message in made.body["messages"]] == ["user", "assistant", "user"]


def test_a_tool_that_is_defined_again_has_its_new_definition() -> None:
    made = prepared(defined(tool("first", "does it better")))
    assert [one["function"]["description"] for one in made.body["tools"]] == ["does it better", "does something"]


def test_text_beside_a_change_stays() -> None:
    made = prepared([{"type": "text", "text": "You have a new tool."}, defined(tool("third"))])
    assert names(made) == ["first", "second", "third"]
    assert "You have a new tool." in str(made.body["messages"])


def test_nothing_changes_before_the_next_block() -> None:
    """The host's prompt cache fits until then."""
    first = prepared(defined(tool("third")))
    later = prepared(defined(tool("third")), [{"type": "text", "text": "Go on."}])
    assert first.body["tools"] == later.body["tools"]
    assert later.body["messages"][:2] == first.body["messages"][:2]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (withdrawn("unknown"), "there is no such tool"),
        ({"type": "tool_addition", "tool": {"type": "mcp_toolset_reference", "server_name": "x"}}, "MCP server"),
    ],
)
def test_a_change_that_is_not_possible_is_reported(block: Any, words: str) -> None:
    made = prepared(block)
    assert names(made) == ["first", "second"]
    (change,) = [change for change in made.changes if change.rule == "tool_changes"]
    assert words in change.detail
    assert change.place == "messages[2].content[0]"


def test_a_block_without_a_tool_names_the_field() -> None:
    with pytest.raises(InvalidInput) as refused:
        prepared({"type": "tool_addition"})
    assert refused.value.field == "messages[2].content[0].tool"


def test_claude_gets_them_unchanged() -> None:
    made = prepared(withdrawn("first"), host="generic", upstream="anthropic", model="claude-opus-5-5")
    assert made.body["messages"][2] == {"role": "system", "content": [withdrawn("first")]}
    assert names(made) == ["first", "second"]
