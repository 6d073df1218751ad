"""Input items to and from canonical messages: equal after the round trip, and one message for each turn."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moonshim.engine.dialects.openai_responses.messages import parse_messages, render_messages
from moonshim.engine.values.conversation import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from moonshim.errors import InvalidInput

Json = dict[str, Any]

TEXT: Json = {"type": "input_text", "text": "look"}
IMAGE: Json = {"type": "input_image", "image_url": "https://x.org/a.png", "detail": "low"}
DATA: Json = {"type": "input_image", "image_url": "data:image/png;base64,iVBO"}
PDF: Json = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}


def user(content: Any, **more: Any) -> Json:
    return {"type": "message", "role": "user", "content": content, **more}


def said(text: str, **more: Any) -> Json:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part], **more}


def call(call_id: str = "c1", name: str = "ls", arguments: str = "{}", **more: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def output(call_id: str = "c1", output: Any = "a.py", **more: Any) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": output, **more}


def thought(*texts: str, **more: Any) -> Json:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in texts], **more}


SHAPES: dict[str, list[Json]] = {
    "a short message": [{"role": "user", "content": "hi"}],
    "a message of parts": [user([TEXT, IMAGE, DATA, PDF])],
    "no content": [{"role": "user"}, {"role": "user", "content": None}, user([])],
    "a developer and a system prompt in the middle": [
        {"role": "developer", "content": "be brief"},
        user("hi"),
        {"role": "system", "content": [TEXT]},
        user("ho"),
    ],
    "fields that nobody knows": [user([TEXT | {"x": {"y": [1]}}], z=None), call(q=1), output(w=[{}])],
    "an image and a file that only the host knows": [user([{"type": "input_image", "file_id": "f1"}, TEXT])],
    "a part that nobody knows": [user([{"type": "hologram"}, TEXT, {"type": "hologram", "n": 2}])],
    "a sound": [user([{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}])],
    "a file by address and one that is bare base64": [
        user([{"type": "input_file", "file_url": "https://x.org/a.pdf"}, {"type": "input_file", "file_data": "JVBE"}])
    ],
    "a refusal": [{"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
    "an answer with its fields": [said("hi", id="msg_1", status="completed", phase="final_answer")],
    "a whole turn": [
        user("go"),
        thought("Hm.", "So.", id="rs_1", encrypted_content="gAAAA"),
        said("Looking.", id="msg_1"),
        call("c1", id="fc_1", status="completed"),
        call("c2", "cat", '{"path": "a"}'),
        output("c1"),
        output("c2", [TEXT, DATA]),
        said("Done."),
    ],
    "reasoning with its own content": [
        thought("short", content=[{"type": "reasoning_text", "text": "long"}], status="completed")
    ],
    "reasoning without anything to see": [thought(encrypted_content="gAAAA", id="rs_1")],
    "a namespace": [call("c1", "search", "{}", namespace="github"), output("c1")],
    "free text": [
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": '*** "Begin"\n', "id": "ctc_1"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Success"},
    ],
    "shells": [
        {"type": "local_shell_call", "id": "ls_1", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c1", "output": "a.py"},
        {"type": "shell_call", "call_id": "c2", "action": {"commands": ["ls"]}, "status": "completed"},
        {"type": "shell_call_output", "call_id": "c2", "output": [{"stdout": "a", "stderr": ""}]},
        {"type": "apply_patch_call", "call_id": "c3", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "apply_patch_call_output", "call_id": "c3", "status": "failed", "output": "no such file"},
    ],
    "a search for tools": [
        {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {"query": "mail"}},
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [{"type": "function"}]},
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
    ],
    "what the host did itself": [
        user("go"),
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        said("Found."),
        {"type": "mcp_approval_request", "id": "m1", "name": "x", "arguments": "{}", "server_label": "s"},
        {"type": "mcp_approval_response", "approval_request_id": "m1", "approve": True},
    ],
    "references": [user("go"), {"type": "item_reference", "id": "rs_1"}, {"id": "fc_1"}, output("c1")],
    "only a reference": [{"type": "item_reference", "id": "rs_1"}],
    "two calls under one identifier": [call("c1"), output("c1", "one"), call("c1"), output("c1", "two")],
    "a result without a call, and a call without an identifier": [output("lost"), call() | {"call_id": None}],
    "arguments that should have been text": [call() | {"arguments": {"a": 1}}],
}


@pytest.mark.parametrize("items", SHAPES.values(), ids=SHAPES.keys())
def test_items_come_back_as_they_were(items: list[Json]) -> None:
    before = copy.deepcopy(items)
    assert render_messages(parse_messages(items)) == before
    assert items == before


def test_a_turn_of_the_assistant_is_one_message() -> None:
    messages = parse_messages(SHAPES["a whole turn"])
    assert [message.role for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[1].parts == (
        Reasoning("Hm.\n\nSo.", "gAAAA"),
        Text("Looking."),
        ToolCall("hist_tool_c1", "ls", "{}", "c1"),
        ToolCall("hist_tool_c2", "cat", '{"path": "a"}', "c2"),
    )
    assert messages[2].parts == (ToolResult("hist_tool_c1", "ls", (Text("a.py"),), wire_id="c1"),)
    assert messages[3].parts == (
        ToolResult("hist_tool_c2", "cat", (Text("look"), Media("image", None, "iVBO", "image/png")), wire_id="c2"),
    )


PARSED: dict[str, tuple[Json, Part]] = {
    "an image by address": (user([IMAGE]), Media("image", "https://x.org/a.png", detail="low")),
    "a file": (user([PDF]), Media("file", None, "JVBE", "application/pdf", name="a.pdf")),
    "a refusal": (SHAPES["a refusal"][0], Text("no")),
    "a joined name": (call(name="search", namespace="github"), ToolCall("hist_tool_c1", "github__search", "{}", "c1")),
    "a namespace that ends in a joint": (
        call(name="search", namespace="mcp__github__"),
        ToolCall("hist_tool_c1", "mcp__github__search", "{}", "c1"),
    ),
    "free text": (
        SHAPES["free text"][0],
        ToolCall("hist_tool_c1", "apply_patch", '{"input":"*** \\"Begin\\"\\n"}', "c1"),
    ),
    "a shell": (
        SHAPES["shells"][2],
        ToolCall("hist_tool_c2", "shell", '{"commands":["ls"]}', "c2"),
    ),
    "a patch that failed": (
        SHAPES["shells"][5],
        ToolResult("hist_tool_c3", None, (Text("no such file"),), True, "c3"),
    ),
    "a think tag, which is only text": (said("<think>Hm.</think>Hi"), Text("<think>Hm.</think>Hi")),
    "the thoughts rather than their summary": (SHAPES["reasoning with its own content"][0], Reasoning("long")),
}


@pytest.mark.parametrize(("item", "part"), PARSED.values(), ids=PARSED.keys())
def test_an_item_is_read_as_one_part(item: Json, part: Part) -> None:
    assert parse_messages([item])[0].parts == (part,)


def test_no_message_is_without_parts_because_of_what_the_host_did() -> None:
    messages = parse_messages(SHAPES["what the host did itself"])
    assert [(message.role, len(message.parts)) for message in messages] == [("user", 1), ("assistant", 1)]


def test_a_text_is_one_message_of_the_user() -> None:
    assert parse_messages("hi")[0].parts == (Text("hi"),)


def changed(items: list[Json], **parts: Any) -> list[Json]:
    """The items after the first part of the first message got these fields."""
    first, *rest = parse_messages(items)
    return render_messages([replace(first, parts=(replace(first.parts[0], **parts), *first.parts[1:])), *rest])


CHANGED: dict[str, tuple[list[Json], Json, list[Json]]] = {
    "a text": ([user("hi", id="m")], {"text": "ho"}, [user("ho", id="m")]),
    "a text among parts": (
        [user([TEXT | {"x": 1}, IMAGE])],
        {"text": "ho"},
        [user([{"type": "input_text", "text": "ho", "x": 1}, IMAGE])],
    ),
    "an identifier": ([call(id="fc_1", x=1)], {"wire_id": "functions.ls:0"}, [call("functions.ls:0", id="fc_1", x=1)]),
    "arguments": ([call(x=1)], {"arguments": '{"a":1}'}, [call(arguments='{"a":1}', x=1)]),
    "a name": ([call(namespace="a", name="b", x=1)], {"name": "c"}, [call(name="c", x=1)]),
    "free text": (
        [SHAPES["free text"][0]],
        {"arguments": '{"input": "new"}'},
        [SHAPES["free text"][0] | {"input": "new"}],
    ),
    "an object": (
        [SHAPES["shells"][2]],
        {"arguments": '{"commands": ["rm"]}'},
        [SHAPES["shells"][2] | {"action": {"commands": ["rm"]}}],
    ),
    "a result": ([output(x=1)], {"parts": (Text("b.py"),)}, [output(output="b.py", x=1)]),
    "the identifier of a result": ([output(x=1)], {"wire_id": "z"}, [output("z", x=1)]),
    "reasoning": ([thought("Hm.", id="rs")], {"text": "So."}, [thought("So.", id="rs")]),
    "a signature": (
        [thought("Hm.", encrypted_content="a")],
        {"signature": "b"},
        [thought("Hm.", encrypted_content="b")],
    ),
}


@pytest.mark.parametrize(("items", "fields", "wanted"), CHANGED.values(), ids=CHANGED.keys())
def test_what_was_changed_is_written_with_the_fields_beside_it(
    items: list[Json], fields: Json, wanted: list[Json]
) -> None:
    before = copy.deepcopy(items)
    assert changed(items, **fields) == wanted
    assert items == before


def test_parts_that_came_and_went_leave_the_others_as_they_were() -> None:
    items = [thought("Hm.", id="rs"), said("Look.", id="msg"), {"type": "web_search_call", "id": "ws"}, call(x=1)]
    (turn,) = parse_messages(items)
    new = ToolCall("hist_tool_n", "cat", "{}", "n")
    assert render_messages([replace(turn, parts=turn.parts[1:])]) == items[1:]
    assert render_messages([replace(turn, parts=(*turn.parts, new))]) == [*items, call("n", "cat")]
    assert render_messages([replace(turn, parts=(turn.parts[0], turn.parts[2], Text("!")))]) == [
        items[0],
        items[2],
        items[3],
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "!"}]},
    ]


WRONG: dict[str, tuple[list[Any], str]] = {
    "no object": ([7], "input[0]"),
    "neither type nor role": ([{"content": "x"}], "input[0]"),
    "a role that there is not": ([user("a"), {"role": "wizard", "content": "x"}], "input[1].role"),
    "content that is a number": ([user(7)], "input[0].content"),
    "a part that is a number": ([user([TEXT, 7])], "input[0].content[1]"),
    "a text without text": ([user([{"type": "input_text"}])], "input[0].content[0].text"),
    "a call without a name": ([call() | {"name": None}], "input[0].name"),
    "an identifier that is a number": ([call() | {"call_id": 7}], "input[0].call_id"),
    "a result under a number": ([output() | {"call_id": 7}], "input[0].call_id"),
    "free text that is none": ([SHAPES["free text"][0] | {"input": 7}], "input[0].input"),
    "an output that is a number": ([output(output=7)], "input[0].output"),
    "a summary that is text": ([thought() | {"summary": "x"}], "input[0].summary"),
    "encrypted content that is none": ([thought(encrypted_content=7)], "input[0].encrypted_content"),
}


@pytest.mark.parametrize(("items", "field"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_understood_is_refused_by_its_field(items: list[Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_messages(items)
    assert refused.value.field == field


def test_input_that_is_no_list_is_refused() -> None:
    with pytest.raises(InvalidInput):
        parse_messages({"role": "user"})


# --- from elsewhere ---------------------------------------------------------------------------------------------

WORDS = st.text(max_size=12)
MEDIA = st.builds(
    Media,
    st.just("image"),
    url=st.none(),
    data=st.just("iVBO"),
    media_type=st.just("image/png"),
    detail=st.sampled_from([None, "low"]),
) | st.builds(Media, st.sampled_from(["image", "file"]), url=st.just("https://x.org/a"))
CONTENT = st.lists(st.builds(Text, WORDS) | MEDIA, min_size=1, max_size=3).map(tuple)
ARGUMENTS = st.sampled_from(["{}", '{"a": 1}', "", "broken"])


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Turns as any client may have had them: each call is answered in the turn behind it."""
    out = [Message("system", (Text(draw(WORDS)),))] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 4))):
        out.append(Message("user", draw(CONTENT)))
        parts: list[Part] = []
        if draw(st.booleans()):
            parts.append(Reasoning(draw(WORDS), draw(st.sampled_from([None, "gAAA"]))))
        parts += [Text(text) for text in draw(st.lists(WORDS, max_size=2))]
        calls = [
            ToolCall(f"hist_tool_{turn}-{n}", draw(st.sampled_from(["ls", "cat"])), draw(ARGUMENTS), f"call_{turn}-{n}")
            for n in range(draw(st.integers(0, 3)))
        ]
        if not parts and not calls:
            continue
        out.append(Message("assistant", (*parts, *calls)))
        out += [Message("tool", (ToolResult(one.id, one.name, draw(CONTENT), wire_id=one.wire_id),)) for one in calls]
    return out


@given(conversations())
def test_conversations_from_elsewhere_come_back_as_they_were(messages: list[Message]) -> None:
    parsed = parse_messages(render_messages(messages))
    assert [replace(message, extras={}) for message in parsed] == messages


def test_results_in_a_turn_of_the_user_come_before_its_text() -> None:
    turn = Message("user", (Text("and?"), ToolResult("hist_tool_a", "ls", (Text("a.py"),), wire_id="a")))
    assert [item["type"] for item in render_messages([turn])] == ["function_call_output", "message"]


def test_calls_that_never_were_on_a_wire_and_their_results_get_the_same_identifier() -> None:
    history = [
        Message("assistant", (ToolCall("hist_tool_a.b", "ls", "{}"),)),
        Message("tool", (ToolResult("hist_tool_a.b", "ls", (Text("x"),)),)),
    ]
    assert [item["call_id"] for item in render_messages(history)] == ["call_ab", "call_ab"]
