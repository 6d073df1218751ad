"""Chat messages to and from the canonical form: equal after the round trip, and nothing is shared."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.messages import parse_messages, render_messages
from moonshim.engine.ids import tool_id_strategy
from moonshim.engine.values.conversation import Media, Message, Reasoning, Text, ToolCall, ToolResult
from moonshim.errors import CannotExpress, InvalidInput


def call(id: Any = "c1", name: str = "ls", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def ai(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", **fields}


TEXT = {"type": "text", "text": "look"}
URL = {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}
DATA = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO", "detail": "high"}}

SHAPES: dict[str, dict[str, Any]] = {
    "text": {"role": "user", "content": "hi"},
    "empty text": {"role": "user", "content": ""},
    "no content key": {"role": "user"},
    "null content": {"role": "user", "content": None},
    "content that is a number": {"role": "user", "content": 7},
    "content that is an object": {"role": "user", "content": {"text": "x"}},
    "an empty list": {"role": "user", "content": []},
    "a list with one text": {"role": "user", "content": [TEXT]},
    "a text with a field of its own": {"role": "user", "content": [TEXT | {"cache_control": {"type": "ephemeral"}}]},
    "texts and images": {"role": "user", "content": [TEXT, URL, DATA, TEXT]},
    "an image with a field of its own": {"role": "user", "content": [URL | {"cache_control": {}, "x": None}]},
    "an image address without an object": {"role": "user", "content": [{"type": "image_url", "image_url": "ms://f1"}]},
    "a data address with parameters": {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "data:image/svg+xml;charset=utf-8,<svg/>"}}],
    },
    "an image without an address": {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
    "a video": {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "https://x.org/a.mp4"}}]},
    "a sound": {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "a/b"}}]},
    "a file by value": {
        "role": "user",
        "content": [{"type": "file", "file": {"file_data": "data:application/pdf;base64,JV", "filename": "a.pdf"}}],
    },
    "a file by id": {"role": "user", "content": [{"type": "file", "file": {"file_id": "f1"}}, TEXT]},
    "parts that nobody knows": {"role": "user", "content": [{"type": "hologram", "x": [1]}, TEXT, "bare", None, 3]},
    "a text part without text": {"role": "user", "content": [{"type": "text"}, {"type": "text", "text": None}]},
    "a name": {"role": "user", "name": "ann", "content": "hi"},
    "system": {"role": "system", "content": "be brief"},
    "developer": {"role": "developer", "content": "be brief"},
    "tools declared in a message": {"role": "system", "content": "", "tools": [{"type": "function"}]},
    "a role that nobody knows": {"role": "critic", "content": "no", "tool_calls": [call()]},
    "a prefill": ai(content='{"a":', partial=True, name="kimi"),
    "calls with null content": ai(content=None, tool_calls=[call(), call("c2", "cat")]),
    "calls without content": ai(tool_calls=[call()]),
    "calls with empty content": ai(content="", tool_calls=[call()]),
    "calls with text": ai(content="let me see", tool_calls=[call()]),
    "calls with a list": ai(content=[TEXT], tool_calls=[call()]),
    "no calls in the list": ai(content="x", tool_calls=[]),
    "null calls": ai(content="x", tool_calls=None),
    "calls that are no list": ai(content="x", tool_calls={"id": "a"}),
    "a call with fields of its own": ai(tool_calls=[call(index=0, extra_content={"google": {"sig": "x"}})]),
    "a call without a type": ai(tool_calls=[{"id": "a", "function": {"name": "ls", "arguments": "{}"}}]),
    "a call without an id": ai(tool_calls=[{"type": "function", "function": {"name": "ls", "arguments": "{}"}}]),
    "a call with a null id": ai(tool_calls=[call(None)]),
    "a call with an empty id": ai(tool_calls=[call("")]),
    "a call with a numeric id": ai(tool_calls=[call(7)]),
    "a call without arguments": ai(tool_calls=[{"id": "a", "type": "function", "function": {"name": "ls"}}]),
    "a call with null arguments": ai(tool_calls=[call(arguments=None)]),
    "a call with empty arguments": ai(tool_calls=[call(arguments="", index=0)]),
    "a call with an object for arguments": ai(tool_calls=[call(arguments={"p": [1.0, "ä"]})]),
    "a call with broken arguments": ai(tool_calls=[call(arguments='{"a": tru')]),
    "a call with strict": ai(
        tool_calls=[{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}", "s": 1}}]
    ),
    "a call without a name": ai(tool_calls=[{"id": "a", "type": "function", "function": {"arguments": "{}"}}]),
    "a call without a function": ai(tool_calls=[{"id": "a", "type": "function"}]),
    "a custom call": ai(tool_calls=[{"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}]),
    "entries that are no calls": ai(tool_calls=[None, call(), "x", {}]),
    "the protocol of 2023, calling": ai(content=None, function_call={"name": "ls", "arguments": "{}"}),
    "the protocol of 2023, answering": {"role": "function", "name": "ls", "content": "a.py"},
    "reasoning": ai(content="4", reasoning_content="2+2"),
    "empty reasoning": ai(content="4", reasoning_content=""),
    "null reasoning": ai(content="4", reasoning_content=None),
    "reasoning by its other name": ai(content="4", reasoning="2+2"),
    "reasoning under both names": ai(content="4", reasoning="2+2", reasoning_content="2+2"),
    "reasoning that differs": ai(content="4", reasoning="2+2", reasoning_content="1+3"),
    "reasoning that is an object": ai(content="4", reasoning={"effort": "high"}),
    "reasoning details alone": ai(content="4", reasoning_details=[{"type": "reasoning.text", "text": "2+2"}]),
    "reasoning details beside": ai(
        content="4", reasoning="2+2", reasoning_details=[{"type": "summary", "summary": "s"}]
    ),
    "encrypted reasoning": ai(content="4", reasoning_details=[{"type": "encrypted", "encrypted": "x"}]),
    "empty reasoning details": ai(content="4", reasoning_details=[]),
    "reasoning details that are none": ai(content="4", reasoning_details=["x"], reasoning="y"),
    "reasoning with calls": ai(reasoning_content="hm", tool_calls=[call()]),
    "reasoning of a user": {"role": "user", "content": "x", "reasoning_content": "y"},
    "a refusal": ai(content=None, refusal="no", annotations=[], audio={"id": "a"}),
    "fields invented tomorrow": ai(content="x", hologram={"deep": [{"er": 1}]}),
    "a result": {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
    "a result with a name": {"role": "tool", "tool_call_id": "c1", "name": "ls", "content": "a.py"},
    "a result that is a list": {
        "role": "tool",
        "tool_call_id": "c1",
        "content": [TEXT, URL, {"type": "tool_reference"}],
    },
    "an empty result": {"role": "tool", "tool_call_id": "c1", "content": ""},
    "a result without content": {"role": "tool", "tool_call_id": "c1"},
    "a result with null content": {"role": "tool", "tool_call_id": "c1", "content": None},
    "a result without an id": {"role": "tool", "content": "a.py"},
    "a result with a null id": {"role": "tool", "tool_call_id": None, "content": "a.py"},
    "a result with an empty id": {"role": "tool", "tool_call_id": "", "content": "a.py"},
    "a result with a numeric name": {"role": "tool", "tool_call_id": "c1", "name": 7, "content": "x", "cached": True},
}


@pytest.mark.parametrize("message", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_is_equal_after_the_round_trip(message: dict[str, Any]) -> None:
    before = copy.deepcopy(message)
    assert render_messages(parse_messages([message])) == [message]
    assert message == before


MESSAGES = st.lists(st.sampled_from(list(SHAPES.values())).map(copy.deepcopy), max_size=8)


@given(MESSAGES)
def test_whole_conversations_are_equal_after_the_round_trip(messages: list[dict[str, Any]]) -> None:
    before = copy.deepcopy(messages)
    parsed = parse_messages(messages)
    assert parse_messages(messages) == parsed
    out = render_messages(parsed)
    assert messages == before
    assert out == messages
    for message in out:
        message.clear()
    assert render_messages(parsed) == before, "the output shares nothing with the canonical form"


VALUES: st.SearchStrategy[Any] = st.none() | st.text(max_size=3) | st.integers(0, 3) | st.just([]) | st.just({})
ENTRIES = st.dictionaries(st.sampled_from(["id", "type", "function", "custom", "name", "arguments"]), VALUES)
ANY_MESSAGE = st.builds(
    lambda role, fields: {"role": role, **fields},
    st.sampled_from(["user", "assistant", "tool", "system", "developer", "function", "x"]),
    st.fixed_dictionaries(
        {},
        optional={
            "content": VALUES
            | st.lists(VALUES | st.dictionaries(st.sampled_from(["type", "text"]), VALUES), max_size=3),
            "tool_calls": VALUES | st.lists(VALUES | ENTRIES | st.builds(call, VALUES, arguments=VALUES), max_size=3),
            "tool_call_id": VALUES,
            "name": VALUES,
            "reasoning": VALUES,
            "reasoning_content": VALUES,
            "reasoning_details": VALUES | st.lists(VALUES, max_size=2),
            "other": VALUES,
        },
    ),
)


@given(st.lists(ANY_MESSAGE, max_size=5))
def test_no_shape_is_lost(messages: list[dict[str, Any]]) -> None:
    assert render_messages(parse_messages(messages)) == messages


@given(MESSAGES, st.sampled_from(["kimi", "openai", "anthropic", "mistral"]))
def test_with_a_format_only_identifiers_change(messages: list[dict[str, Any]], format: str) -> None:
    def bare(message: dict[str, Any]) -> dict[str, Any]:
        rest = {key: value for key, value in message.items() if key != "tool_call_id"}
        if isinstance(rest.get("tool_calls"), list) and rest["role"] == "assistant":
            rest["tool_calls"] = [
                {k: v for k, v in one.items() if k != "id"} if isinstance(one, dict) else one
                for one in rest["tool_calls"]
            ]
        return rest

    out = render_messages(parse_messages(messages), format=format)
    assert [bare(message) for message in out] == [bare(message) for message in messages]


# --- what the canonical form says -------------------------------------------------------------------------------


def test_parts_come_in_the_order_reasoning_content_calls() -> None:
    message = ai(content=[TEXT, DATA], reasoning="hm", tool_calls=[call("call_1", arguments={"a": 1})])
    (parsed,) = parse_messages([message])
    assert parsed.role == "assistant"
    assert parsed.parts == (
        Reasoning("hm"),
        Text("look"),
        Media("image", data="iVBO", media_type="image/png", detail="high"),
        ToolCall("hist_tool_1", "ls", '{"a":1}', "call_1"),
    )


PLAIN = ["text", "system", "calls without content", "calls with text", "reasoning", "a result", "an empty result"]


@pytest.mark.parametrize("shape", PLAIN)
def test_a_plain_message_needs_nothing_beside_its_parts(shape: str) -> None:
    (parsed,) = parse_messages([SHAPES[shape]])
    assert parsed.extras == {}


def test_a_result_knows_its_call_and_the_name_of_it() -> None:
    parsed = parse_messages(
        [ai(tool_calls=[call("x", "ls"), call("x", "cat")]), *({"role": "tool", "tool_call_id": "x"} for _ in "12")]
    )
    ids = [part.id for part in parsed[0].parts if isinstance(part, ToolCall)]
    assert ids == ["hist_tool_x", "hist_tool_x_2"]
    assert [message.parts[0] for message in parsed[1:]] == [
        ToolResult("hist_tool_x", "ls", wire_id="x"),
        ToolResult("hist_tool_x_2", "cat", wire_id="x"),
    ]


def test_what_continues_a_conversation_does_not_reuse_its_identifiers() -> None:
    stored = parse_messages([ai(tool_calls=[call("Bash_0", "Bash")])])
    more = parse_messages(
        [{"role": "tool", "tool_call_id": "Bash_0", "content": "1"}, ai(tool_calls=[call("Bash_0", "Bash")])],
        after=stored,
    )
    assert more[0].parts == (ToolResult("hist_tool_Bash_0", "Bash", (Text("1"),), wire_id="Bash_0"),)
    assert more[1].parts == (ToolCall("hist_tool_Bash_0_2", "Bash", "{}", "Bash_0"),)


# --- what is rendered -------------------------------------------------------------------------------------------


def test_the_parts_win_over_what_was_kept() -> None:
    (parsed,) = parse_messages(
        [ai(content=None, reasoning=None, tool_calls=[call(index=0, arguments={"a": 1}), call("c2", x=1)])]
    )
    first, second = (part for part in parsed.parts if isinstance(part, ToolCall))
    changed = replace(parsed, parts=(Reasoning("why"), Text("because"), replace(first, arguments='{"a":2}'), second))
    assert render_messages([changed]) == [
        ai(
            content="because",
            reasoning_content="why",
            reasoning=None,
            tool_calls=[call(index=0, arguments='{"a":2}'), call("c2", x=1)],
        )
    ]
    fewer = replace(parsed, parts=(second,))
    assert render_messages([fewer])[0]["tool_calls"] == [call("c2")], "what the first call had is not the second's"


def test_a_list_that_grew_keeps_its_order() -> None:
    (parsed,) = parse_messages([{"role": "user", "content": [{"type": "x"}, TEXT | {"y": 1}]}])
    grown = replace(parsed, parts=(*parsed.parts, Text("more")))
    assert render_messages([grown])[0]["content"] == [
        {"type": "x"},
        TEXT | {"y": 1},
        {"type": "text", "text": "more"},
    ]
    emptied = replace(parsed, parts=())
    assert render_messages([emptied])[0]["content"] == [{"type": "x"}]


FOREIGN: dict[str, tuple[Message, list[dict[str, Any]]]] = {
    "nothing at all": (Message("user"), [{"role": "user", "content": ""}]),
    "two texts": (
        Message("user", (Text("a"), Text("b"))),
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    ),
    "an identifier that was never on a wire": (
        Message("assistant", (ToolCall("hist_tool_q", "ls", "{}"),)),
        [ai(tool_calls=[call("call_q")])],
    ),
    "several results in one message": (
        Message("tool", (ToolResult("hist_tool_a", parts=(Text("1"),)), ToolResult("hist_tool_b"))),
        [
            {"role": "tool", "tool_call_id": "call_a", "content": "1"},
            {"role": "tool", "tool_call_id": "call_b", "content": ""},
        ],
    ),
    "results in a human turn go before it": (
        Message("user", (Text("and now?"), ToolResult("hist_tool_a", parts=(Text("1"),)))),
        [{"role": "tool", "tool_call_id": "call_a", "content": "1"}, {"role": "user", "content": "and now?"}],
    ),
    "results in an assistant's turn go after it": (
        Message("assistant", (ToolCall("hist_tool_a", "ls", "{}"), ToolResult("hist_tool_a", parts=(Text("1"),)))),
        [ai(tool_calls=[call("call_a")]), {"role": "tool", "tool_call_id": "call_a", "content": "1"}],
    ),
    "reasoning in pieces": (
        Message("assistant", (Reasoning("a"), Text("t"), Reasoning("b", signature="s"))),
        [ai(content="t", reasoning_content="a\nb")],
    ),
    "a sound by address": (
        Message("user", (Media("audio", url="https://x.org/a.mp3"),)),
        [{"role": "user", "content": [{"type": "file", "file": {"file_data": "https://x.org/a.mp3"}}]}],
    ),
    "what another dialect kept": (
        Message("user", (Text("a"),), {"vercel_ai": {"fields": {"providerOptions": {}}}}),
        [{"role": "user", "content": "a"}],
    ),
}


@pytest.mark.parametrize(("message", "expected"), FOREIGN.values(), ids=FOREIGN.keys())
def test_messages_that_came_from_elsewhere(message: Message, expected: list[dict[str, Any]]) -> None:
    assert render_messages([message]) == expected


def test_a_result_without_a_wire_identifier_takes_that_of_its_call() -> None:
    history = [
        Message("assistant", (ToolCall("hist_tool_q", "ls", "{}", "Bash:0"),)),
        Message("tool", (ToolResult("hist_tool_q"),)),
    ]
    assert render_messages(history)[1]["tool_call_id"] == "Bash:0"


def test_a_message_that_stands_twice_in_a_history_gets_two_identifiers() -> None:
    history = parse_messages([ai(tool_calls=[call("x")]), {"role": "tool", "tool_call_id": "x", "content": ""}]) * 2
    out = render_messages(history, format="kimi")
    assert [out[0]["tool_calls"][0]["id"], out[1]["tool_call_id"]] == ["functions.ls:0"] * 2
    assert [out[2]["tool_calls"][0]["id"], out[3]["tool_call_id"]] == ["functions.ls:1"] * 2


def test_a_mapper_made_from_the_dicts_serves_as_well() -> None:
    wire = [
        message
        for _ in range(3)
        for message in (ai(content=None, tool_calls=[call("x")]), {"role": "tool", "tool_call_id": "x", "content": ""})
    ]
    mapper = tool_id_strategy("kimi").create_mapper(wire)
    assert render_messages(parse_messages(wire), mapper=mapper) == render_messages(parse_messages(wire), format="kimi")


@pytest.mark.parametrize(
    "message",
    [
        Message("user", (ToolCall("hist_tool_a", "ls", "{}"),)),
        Message("system", (Reasoning("x"),)),
        Message("tool", (Text("x"),)),
    ],
    ids=["a call of a human", "reasoning of the system", "text of a tool"],
)
def test_what_the_protocol_has_no_place_for_is_refused(message: Message) -> None:
    with pytest.raises(CannotExpress) as refused:
        render_messages([Message("user", (Text("hi"),)), message])
    assert refused.value.field == "messages[1]"


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ("hi", "messages"),
        ({"role": "user"}, "messages"),
        (None, "messages"),
        (["hi"], "messages[0]"),
        ([{"role": "user"}, {}], "messages[1]"),
        ([{"role": 3}], "messages[0]"),
    ],
)
def test_what_is_no_message_is_refused_and_the_place_is_told(messages: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_messages(messages)
    assert refused.value.field == field


REFUSALS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "beside null": (ai(content=None, refusal="No."), ["No."]),
    "without content": (ai(refusal="No."), ["No."]),
    "beside an empty text": (ai(content="", refusal="No."), ["", "No."]),
    "beside an empty list": (ai(content=[], refusal="No."), ["No."]),
    "beside a part that nobody knows": (ai(content=[{"type": "x"}], refusal="No."), ["No."]),
    "beside calls": (ai(content=None, refusal="No.", tool_calls=[call()]), ["No."]),
    "beside words": (ai(content="Yes.", refusal="No."), ["Yes."]),
    "that says nothing": (ai(content=None, refusal=""), []),
    "that is none": (ai(content=None, refusal=None), []),
}


@pytest.mark.parametrize(("message", "texts"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refusal_is_text_where_the_content_has_none_and_comes_back_as_it_was(
    message: dict[str, Any], texts: list[str]
) -> None:
    parsed = parse_messages([message])
    assert [part.text for part in parsed[0].parts if isinstance(part, Text)] == texts
    assert render_messages(parsed) == [message]


def test_a_refusal_that_was_changed_is_written_as_content() -> None:
    (parsed,) = parse_messages([ai(content=None, refusal="No.")])
    assert render_messages([replace(parsed, parts=(Text("Never."),))]) == [ai(content="Never.")]
