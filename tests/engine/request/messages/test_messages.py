"""System prompts, roles, empty text, arguments, media and odd shapes: each made such as the host accepts."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from moonshim.engine.values.conversation import Media, Message, Reasoning, Request, Text, ToolCall, ToolResult
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import CannotExpress, InvalidInput
from tests.engine.request.chats import Json, ai, body, call, made, rules, sent_messages, tool, user

BILLING = "x-anthropic-billing-header: cc_version=2.1.325; cch=a1b2c;"


def text(value: str, **more: Any) -> Json:
    return {"type": "text", "text": value, **more}


def image(url: str = "https://x.org/a.png") -> Json:
    return {"type": "image_url", "image_url": {"url": url}}


def system(content: Any) -> Json:
    return {"role": "system", "content": content}


SENT: dict[str, tuple[list[Json], dict[str, Any], list[Json], list[str]]] = {
    "a billing line of its own": (
        [system([text(BILLING), text("be brief", cache_control={})]), user()],
        {},
        [system([text("be brief", cache_control={})]), user()],
        ["billing_line"],
    ),
    "a billing line before other lines": (
        [system(f"{BILLING}\nbe brief"), user()],
        {},
        [system("be brief"), user()],
        ["billing_line"],
    ),
    "nothing but a billing line": ([system(BILLING), user()], {}, [user()], ["billing_line", "empty_message"]),
    "somebody talks about the line": ([user(BILLING)], {}, [user(BILLING)], []),
    "a developer": (
        [{"role": "developer", "content": "be brief"}, user()],
        {},
        [system("be brief"), user()],
        ["role"],
    ),
    "a role that nobody knows": ([{"role": "critic", "content": "no"}], {}, [user("no")], ["role"]),
    "a system message in the middle": ([user(), system("now")], {}, [user(), system("now")], []),
    "where the host has no place for it": (
        [system("top"), system("two"), user(), system("now"), user("go")],
        {"overrides": {"system_anywhere": False}},
        [system("top"), system("two"), user(), user("<system>\nnow\n</system>"), user("go")],
        ["system_as_text"],
    ),
    "empty text among others": (
        [user([text(""), text("a", x=1), text("")])],
        {},
        [user([text("a", x=1)])],
        ["empty_text"],
    ),
    "empty text where the host does not mind": (
        [user([text(""), text("a")])],
        {"host": "generic", "model": "gpt-5"},
        [user([text(""), text("a")])],
        [],
    ),
    "a refusal is what the model said": (
        [user(), ai(content=None, refusal="No."), user("go"), ai(content="", refusal="No."), user("on")],
        {},
        [user(), ai(content="No."), user("go"), ai(content="No."), user("on")],
        ["refusal", "refusal"],
    ),
    "a refusal where the host knows the field": (
        [user(), ai(content=None, refusal="No."), user("go")],
        {"host": "generic", "model": "gpt-5"},
        [user(), ai(content=None, refusal="No."), user("go")],
        [],
    ),
    "messages that say nothing": (
        [user(""), user(), ai(content=""), ai(content=None), user([]), user([text("")]), system(""), user("go")],
        {},
        [user(), user("go")],
        ["empty_message"] * 6,
    ),
    "a part that nobody knows is not nothing": (
        [user([{"type": "hologram"}, text("")])],
        {},
        [user([{"type": "hologram"}])],
        ["empty_text"],
    ),
    "empty content beside calls": (
        [user(), ai(call(), content="", reasoning_content="r"), tool()],
        {},
        [user(), ai(call(), reasoning_content="r"), tool()],
        ["empty_text"],
    ),
    "an empty list of text beside calls": (
        [user(), ai(call(), content=[text("")], reasoning_content="r"), tool()],
        {},
        [user(), ai(call(), reasoning_content="r"), tool()],
        ["empty_text"],
    ),
    "an empty list beside calls": (
        [user(), ai(call(), content=[], reasoning_content="r"), tool()],
        {},
        [user(), ai(call(), reasoning_content="r"), tool()],
        ["empty_text"],
    ),
    "an empty result": (
        [user(), ai(call(), reasoning_content="r"), tool("c1", "")],
        {},
        [user(), ai(call(), reasoning_content="r"), tool("c1", "")],
        [],
    ),
    "empty text in a result": (
        [
            user(),
            ai(call("a"), call("b"), reasoning_content="r"),
            tool("a", [text("")]),
            tool("b", [text(""), text("x")]),
        ],
        {},
        [user(), ai(call("a"), call("b"), reasoning_content="r"), tool("a", ""), tool("b", "x")],
        ["empty_text", "empty_text"],
    ),
    "an empty list of calls": (
        [user(), ai(content="a", tool_calls=[])],
        {},
        [user(), ai(content="a")],
        ["calls_shape"],
    ),
    "calls without a type, and arguments that are no text": (
        [user(), ai({"id": "c1", "function": {"name": "ls", "arguments": {"a": 1}}}, reasoning_content="r"), tool()],
        {},
        [user(), ai(call("c1", "ls", '{"a":1}'), reasoning_content="r"), tool()],
        ["calls_shape"],
    ),
    "an entry that is no call": (
        [user(), ai(call(), {"type": "function"}, reasoning_content="r"), tool()],
        {},
        [user(), ai(call(), reasoning_content="r"), tool()],
        ["calls_shape"],
    ),
    "a beginning to go on with": (
        [user(), ai(content="{", partial=True)],
        {},
        [user(), ai(content="{", partial=True)],
        [],
    ),
    "a beginning that was gone on with": (
        [user(), ai(content="{", partial=True), user()],
        {},
        [user(), ai(content="{"), user()],
        ["partial"],
    ),
    "an empty beginning that was gone on with": (
        [user(), ai(content="", partial=True), user("go")],
        {},
        [user(), user("go")],
        ["empty_message"],
    ),
    "empty text in a beginning that was gone on with": (
        [user(), ai(content=[text("a"), text("")], partial=True), user("go")],
        {},
        [user(), ai(content=[text("a")]), user("go")],
        ["empty_text", "partial"],
    ),
    "an empty beginning to go on with": (
        [user(), ai(content="", partial=True)],
        {},
        [user(), ai(content="", partial=True)],
        [],
    ),
    "the protocol of 2023": (
        [
            user(),
            ai(content=None, function_call={"name": "ls", "arguments": "{}"}, reasoning_content="r"),
            {"role": "function", "name": "ls", "content": "x"},
        ],
        {"host": "vllm", "model": "kimi-k2.6"},
        [
            user(),
            ai(call("functions.ls:0"), content=None, reasoning="r"),
            {"role": "tool", "tool_call_id": "functions.ls:0", "content": "x"},
        ],
        ["function_call", "function_call", "reasoning_field", "history_id"],
    ),
    "an image in a result": (
        [user(), ai(call(), reasoning_content="r"), tool("c1", [text("a"), image()]), user("go")],
        {},
        [
            user(),
            ai(call(), reasoning_content="r"),
            tool("c1", [text("a"), text("[image 1: see the next message]")]),
            user([text("[image 1: from the result of tool ls]"), image()]),
            user("go"),
        ],
        ["media_moved"],
    ),
    "an image in the model's own message": (
        [user(), ai(content=[text("look"), image()])],
        {},
        [
            user(),
            ai(content=[text("look"), text("[image 1: see the next message]")]),
            user([text("[image 1: from the assistant]"), image()]),
        ],
        ["media_moved"],
    ),
    "images in several results": (
        [
            user(),
            ai(call("a"), call("b"), reasoning_content="r"),
            tool("a", [image("https://1")]),
            tool("b", [image("https://2")]),
        ],
        {},
        [
            user(),
            ai(call("a"), call("b"), reasoning_content="r"),
            tool("a", [text("[image 1: see the next message]")]),
            tool("b", [text("[image 2: see the next message]")]),
            user(
                [
                    text("[image 1: from the result of tool ls]"),
                    image("https://1"),
                    text("[image 2: from the result of tool ls]"),
                    image("https://2"),
                ]
            ),
        ],
        ["media_moved", "media_moved"],
    ),
}


@pytest.mark.parametrize(("given", "where", "expected", "told"), SENT.values(), ids=SENT.keys())
def test_messages_are_sent_as_the_host_accepts_them(
    given: list[Json], where: dict[str, Any], expected: list[Json], told: list[str]
) -> None:
    assert sent_messages(*given, **where) == expected
    assert rules(made(body(*given), **where).changes) == told


ARGUMENTS: dict[str, tuple[str, str]] = {
    "valid ones stay to the letter": ('{ "a" : 1.0 }', '{ "a" : 1.0 }'),
    "half a character stays": ('{"a": "\\ud83d"}', '{"a": "\\ud83d"}'),
    "what can be mended": ('{"a": 1', '{"a": 1}'),
    "what cannot": ("nonsense", "{}"),
    "no arguments": ("", "{}"),
    "null": ("null", "{}"),
    "a list": ("[1]", "{}"),
}


def close(arguments: str) -> str | None:
    return arguments + "}" if arguments.startswith("{") else arguments + "!" if arguments == "[1]" else None


@pytest.mark.parametrize(("given", "expected"), ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_arguments_become_an_object(given: str, expected: str) -> None:
    found = made(body(user(), ai(call("c1", "ls", given), reasoning_content=""), tool()), mend_arguments=close)
    assert [part.arguments for part in found.request.messages[1].parts if isinstance(part, ToolCall)] == [expected]
    assert rules(found.changes) == ([] if given == expected else ["arguments"])


@pytest.mark.parametrize("name", ["", None])
def test_a_call_without_a_name_gets_one_and_that_is_reported(name: str | None) -> None:
    nameless = {"id": "c1", "type": "function", "function": {"name": name, "arguments": "{"}}
    found = made(body(user(), ai(nameless, reasoning_content=""), tool()))
    assert [part.name for part in found.request.messages[1].parts if isinstance(part, ToolCall)] == ["unknown"]
    assert [(change.rule, change.place, change.detail) for change in found.changes[:2]] == [
        (
            "tool_name",
            "messages[1]",
            "calls without a name sent as calls of 'unknown': the host requires a name",
        ),
        (
            "arguments",
            "messages[1]",
            "arguments of a nameless call replaced with {}: they were not a JSON object: '{'",
        ),
    ]


MISSING: dict[str, tuple[Json, str]] = {
    "no id": ({"role": "tool", "content": "x"}, "messages[2].tool_call_id"),
    "an invalid id": (tool(None), "messages[2].tool_call_id"),
    "no content": ({"role": "tool", "tool_call_id": "c1"}, "messages[2].content"),
    "null for content": (tool("c1", None), "messages[2].content"),
}


@pytest.mark.parametrize(("result", "field"), MISSING.values(), ids=MISSING.keys())
def test_a_tool_message_without_id_or_content_is_refused_or_mended(result: Json, field: str) -> None:
    history = [user(), ai(call("c1"), reasoning_content=""), result]
    with pytest.raises(InvalidInput, match="Tool messages must have tool_call_id and content") as caught:
        made(body(*history))
    assert caught.value.field == field
    mended = sent_messages(*history, options=KimiOptions(accept_role_tool=False))
    assert mended[2] == tool("c1", result.get("content") or "")


EMPTY: dict[str, tuple[list[Json], list[tuple[str, str]]]] = {
    "of one call": ([ai(call("a"), reasoning_content=""), tool("", "1")], [("a", "1")]),
    "of calls that have none either": (
        [ai(call(""), call("", "cat"), reasoning_content=""), tool("", "1"), tool("", "2")],
        [("call_0", "1"), ("call_1", "2")],
    ),
    "of two in order": (
        [ai(call("a"), call("b"), reasoning_content=""), tool("", "1"), tool("", "2")],
        [("a", "1"), ("b", "2")],
    ),
    "of the one that is left": (
        [ai(call("a"), call("b"), reasoning_content=""), tool("", "2"), tool("a", "1")],
        [("a", "1"), ("b", "2")],
    ),
    "of the latest turn": (
        [ai(call("a"), reasoning_content=""), tool("a", "1"), ai(call("b"), reasoning_content=""), tool("", "2")],
        [("a", "1"), ("b", "2")],
    ),
    "of the one with its name": (
        [ai(call("a"), call("b", "cat"), reasoning_content=""), tool("", "2", name="cat"), tool("", "1", name="ls")],
        [("a", "1"), ("b", "2")],
    ),
}


@pytest.mark.parametrize(("history", "expected"), EMPTY.values(), ids=EMPTY.keys())
def test_an_empty_id_is_that_of_the_call_which_the_order_decides(
    history: list[Json], expected: list[tuple[str, str]]
) -> None:
    adapted = made(body(user(), *history))
    found = sent_messages(user(), *history)
    calls = [entry["id"] for message in found for entry in message.get("tool_calls", ())]
    results = [(message["tool_call_id"], message["content"]) for message in found if message["role"] == "tool"]
    assert [id for id, _ in results] == calls
    assert [text for _, text in results] == [text for _, text in expected]
    assert len(set(calls)) == len(calls)
    assert "result_id" in rules(adapted.changes)


@pytest.mark.parametrize(
    "history",
    [
        [tool("", "1")],
        [ai(call("a"), reasoning_content=""), tool("a", "1"), tool("", "2")],
        [ai(content="Hello."), tool("", "1")],
    ],
    ids=["no call", "no call left", "another turn"],
)
def test_an_empty_id_without_a_call_is_refused(history: list[Json]) -> None:
    with pytest.raises(InvalidInput, match="Tool messages must have tool_call_id and content") as caught:
        made(body(user(), *history))
    assert caught.value.field == f"messages[{len(history)}].tool_call_id"


def test_results_without_ids_answer_the_calls_that_nobody_else_answers() -> None:
    nameless = {"role": "tool", "content": "1"}
    history = [user(), ai(call("a"), call("b"), call("c", "cat"), reasoning_content=""), nameless]
    history += [tool("a", "2"), {"role": "tool", "name": "cat", "content": "3"}]
    found = sent_messages(*history, options=KimiOptions(accept_role_tool=False))
    assert [(m["tool_call_id"], m["content"]) for m in found[2:]] == [("a", "2"), ("b", "1"), ("c", "3")]


def document(data: bytes, media_type: str, name: str | None = None) -> Request:
    media = Media("file", data=base64.b64encode(data).decode(), media_type=media_type, name=name)
    return Request(model="k", messages=(Message("user", (Text("read"), media)),), locations=("messages[0]",))


def test_a_document_of_text_is_sent_as_text_under_its_name() -> None:
    parts = made(document(b"a,b", "text/csv", "t.csv")).request.messages[0].parts
    assert parts == (Text("read"), Text("# t.csv\n\na,b"))
    assert made(document(b"{}", "application/json; charset=utf-8")).request.messages[0].parts[1] == Text("{}")


def test_an_image_is_refused_by_a_model_that_cannot_see() -> None:
    with pytest.raises(CannotExpress, match="does not accept an image"):
        made(body(user([image()])), model="kimi-k2-0905")


def test_results_in_a_human_turn_come_first_and_their_images_behind_them() -> None:
    shot = Media("image", url="https://x.org/a.png")
    turn = Message("user", (Text("see"), ToolResult("hist_tool_a", "ls", (shot,), wire_id="a")))
    asked = Request(model="k", messages=(Message("user", (Text("hi"),)), Message("assistant", (_CALL,)), turn))
    assert made(asked).request.messages[2:] == (
        Message("tool", (ToolResult("hist_tool_a", "ls", (Text("[image 1: see the next message]"),), wire_id="a"),)),
        Message("user", (Text("[image 1: from the result of tool ls]"), shot)),
        Message("user", (Text("see"),)),
    )


_CALL = ToolCall("hist_tool_a", "ls", "{}", "a")


def failed(*parts: Text) -> Request:
    result = ToolResult("hist_tool_a", "ls", parts, is_error=True, wire_id="a")
    said = (Message("user", (Text("hi"),)), Message("assistant", (Reasoning("r"), _CALL)), Message("tool", (result,)))
    return Request(model="k", messages=said)


@pytest.mark.parametrize("silent", [(), (Text(""),), (Text(""), Text(""))])
def test_a_failed_result_that_says_nothing_says_so_where_there_is_no_mark_for_it(silent: tuple[Text, ...]) -> None:
    found = made(failed(*silent), "vllm").request.messages[2].parts[0]
    assert isinstance(found, ToolResult)
    assert (found.parts, found.is_error) == ((Text("[The tool failed.]"),), True)
    kept = made(failed(*silent), "moonshot-anthropic").request.messages[2].parts[0]
    assert isinstance(kept, ToolResult)
    assert kept.parts in ((), (Text(""),))


def test_a_failed_result_that_says_something_stays_as_it_is() -> None:
    assert "result_failed" not in rules(made(failed(Text("no such file"))).changes)


def test_a_request_that_says_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nothing to send"):
        made(body(user("")))
    with pytest.raises(InvalidInput, match="nothing to send"):
        made(body(system("be brief")), "moonshot-anthropic")


def test_a_conversation_in_messages_begins_with_the_user_and_roles_alternate() -> None:
    history = [system("top"), ai(content="hello"), ai(content="there"), user(), system("mid")]
    found = made(body(*history), "moonshot-anthropic")
    speakers = [(m.role, [p.text for p in m.parts if isinstance(p, Text)]) for m in found.request.messages]
    assert speakers == [
        ("system", ["top"]),
        ("user", ["[The conversation begins with the assistant]"]),
        ("assistant", ["hello", "there"]),
        ("user", ["hi"]),
        ("user", ["<system>\nmid\n</system>"]),
    ]


def test_a_prompt_behind_the_picture_of_another_is_said_as_text() -> None:
    found = made(body(system([image()]), system("be brief"), user()), "moonshot-anthropic")
    assert [message.role for message in found.request.messages] == ["system", "user", "user", "user"]
    assert made(found.request, "moonshot-anthropic").request == found.request


def test_an_empty_turn_between_two_others_stays_where_roles_alternate() -> None:
    history = [user(), ai(content="one"), user(""), ai(content="two"), user("go"), ai(content=""), user("on")]
    found = made(body(*history), "moonshot-anthropic")
    texts = [part.text for message in found.request.messages for part in message.parts if isinstance(part, Text)]
    assert texts == ["hi", "one", "[empty message]", "two", "go", "[empty message]", "on"]
