"""Tools, calls and results as text: what a prompt says, and that a call is read back as it was written."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim import CannotExpress, InvalidInput, Media, Message, Reasoning, Text, Tool, ToolCall, ToolResult
from moonshim.engine.formats import TEXT_FORMATS
from moonshim.engine.formats.prompting import as_text, calls_as_text, describe_tools, results_as_text
from moonshim.engine.grammar.protocol import CallDelta, CallStarted
from moonshim.engine.grammar.registry import grammar_for
from moonshim.engine.values.conversation import ToolChoice

GRAMMARS: Final = {"hermes": "hermes", "xml": "qwen_xml", "llama": "llama_json"}
SCHEMA: Final = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}, "deep": {"type": "object"}},
    "required": ["path"],
}
READ: Final = Tool("read_file", "Reads a file.", SCHEMA)
LIST: Final = Tool("ls", None, {"type": "object", "properties": {"path": {"type": "string"}}})

every_format = pytest.mark.parametrize("format", TEXT_FORMATS)


def read_back(text: str, format: str) -> list[tuple[str, Any]]:
    """The calls that the engine's grammar finds in a text."""
    grammar = grammar_for(GRAMMARS[format], "text", tools=[READ, LIST])
    calls: list[tuple[str, str]] = []
    for found in [*grammar.feed(text), *grammar.flush()]:
        if isinstance(found, CallStarted):
            calls.append((found.name or "", ""))
        elif isinstance(found, CallDelta):
            calls[-1] = (calls[-1][0], calls[-1][1] + found.text)
    return [(name, json.loads(arguments)) for name, arguments in calls]


class TestTools:
    @every_format
    def test_each_tool_is_told_with_its_schema(self, format: str) -> None:
        prompt = describe_tools([READ, LIST], format)
        assert "Reads a file." in prompt
        shown = json.dumps(SCHEMA, indent=4) if format == "llama" else json.dumps(SCHEMA)
        assert shown.replace(" ", "").replace("\n", "") in prompt.replace(" ", "").replace("\n", "")
        assert '"name": "ls"' in prompt

    @every_format
    def test_what_cannot_be_called_is_not_told(self, format: str) -> None:
        assert describe_tools([], format) == ""
        assert describe_tools([READ], format, choice=ToolChoice("none")) == ""
        only = describe_tools([READ, LIST], format, choice=ToolChoice("auto", allowed=("ls",)))
        assert "read_file" not in only

    @every_format
    def test_a_call_that_has_to_be_made_is_asked_for(self, format: str) -> None:
        assert "MUST call a function now" in describe_tools([READ], format, choice=ToolChoice("required"))
        assert "MUST call the function ls now" in describe_tools([LIST], format, choice=ToolChoice("tool", "ls"))
        assert "MUST call" not in describe_tools([LIST], format, choice=ToolChoice("auto"))

    def test_a_name_that_the_form_cannot_write_is_refused(self) -> None:
        with pytest.raises(CannotExpress, match="<b>"):
            describe_tools([Tool("<b>")], "xml")

    def test_other_formats_are_no_text(self) -> None:
        with pytest.raises(InvalidInput, match="hermes, xml, llama"):
            describe_tools([READ], "kimi")


class TestCalls:
    @every_format
    def test_several_calls_are_read_back(self, format: str) -> None:
        calls = [
            ToolCall("hist_tool_1", "read_file", '{"path": "a\\nb", "lines": 3, "deep": {"x": [1, null]}}'),
            ToolCall("hist_tool_2", "ls", '{"path": "ünï"}'),
            ToolCall("hist_tool_3", "ls", ""),
        ]
        expected = [
            ("read_file", {"path": "a\nb", "lines": 3, "deep": {"x": [1, None]}}),
            ("ls", {"path": "ünï"}),
            ("ls", {}),
        ]
        assert read_back(calls_as_text(calls, format), format) == expected

    @every_format
    @given(
        path=st.text(st.characters(codec="utf-8", exclude_characters="<>\r\n")),
        lines=st.integers(),
        said=st.text("ab{ "),
    )
    def test_any_arguments_are_read_back(self, format: str, path: str, lines: int, said: str) -> None:
        arguments = {"path": path, "lines": lines, "deep": {"said": said}}
        call = ToolCall("hist_tool_1", "read_file", json.dumps(arguments))
        assert read_back(calls_as_text([call], format), format) == [("read_file", arguments)]

    @every_format
    def test_arguments_that_are_no_json_are_not_lost(self, format: str) -> None:
        assert "/tmp" in calls_as_text([ToolCall("hist_tool_1", "ls", '{"path": "/tmp')], format)


class TestConversation:
    CALLED: Final = Message(
        "assistant",
        (Reasoning("Hm."), Text("I look."), ToolCall("hist_tool_1", "ls", "{}"), ToolCall("hist_tool_2", "ls", "{}")),
    )
    RESULTS: Final = (
        Message("tool", (ToolResult("hist_tool_1", "ls", (Text("a.py"),)),)),
        Message("tool", (ToolResult("hist_tool_2", "ls", (Text("no such file"),), is_error=True),)),
    )

    @every_format
    def test_calls_and_results_are_text(self, format: str) -> None:
        human = Message("user", (Text("List"),))
        said = as_text([human, self.CALLED, *self.RESULTS, Message("assistant", (Text("Done"),))], [LIST], format)
        assert [message.role for message in said] == ["system", "user", "assistant", "user", "assistant"]
        thought, spoken = said[2].parts
        assert thought == Reasoning("Hm.")
        assert isinstance(spoken, Text)
        assert spoken.text.startswith("I look.\n")
        assert len(read_back(spoken.text, format)) == 2
        (given_back,) = said[3].parts
        assert isinstance(given_back, Text)
        assert given_back.text.index("a.py") < given_back.text.index("Error: no such file")

    @every_format
    def test_what_was_said_stays_the_beginning_of_what_is_said(self, format: str) -> None:
        history = [Message("user", (Text("List"),)), self.CALLED, *self.RESULTS, Message("assistant", (Text("Done"),))]
        shorter = as_text(history[:2], [LIST], format)
        longer = as_text([*history, Message("user", (Text("more"),))], [LIST], format)
        assert longer[: len(shorter)] == shorter

    @every_format
    def test_the_tools_stand_behind_the_system_prompt(self, format: str) -> None:
        said = as_text([Message("system", (Text("Be brief."),)), Message("user", (Text("hi"),))], [LIST], format)
        (prompt,) = said[0].parts
        assert isinstance(prompt, Text)
        assert prompt.text.startswith("Be brief.\n\n")
        assert prompt.text.endswith(describe_tools([LIST], format))

    @every_format
    def test_without_tools_a_conversation_stays_as_it_is(self, format: str) -> None:
        history = (Message("user", (Text("hi"),)), Message("assistant", (Text("hello"),)))
        assert as_text(history, [], format) == history

    @every_format
    def test_pictures_of_a_result_are_kept(self, format: str) -> None:
        seen = Media("image", url="https://example.org/a.png")
        message = Message("tool", (ToolResult("hist_tool_1", "look", (seen,)),))
        (said,) = as_text([message], [], format)
        assert said.parts[1] == seen
        assert "see below" in results_as_text([ToolResult("hist_tool_1", "look", (seen,))], format)
