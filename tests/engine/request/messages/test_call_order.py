"""Calls and results in any order become what hosts accept, and what was sent stays as it was sent."""

from __future__ import annotations

import pytest

from moonshim.engine.request.messages.call_order import NO_RESULT
from moonshim.engine.values.conversation import Text
from tests.engine.request.chats import Json, ai, body, call, made, rules, sent_messages, tool, user

A, B = call("a", "ls"), call("b", "cat")
MISSING = {"role": "tool", "content": NO_RESULT}

CASES: dict[str, tuple[list[Json], list[tuple[str, str]], list[str]]] = {
    # name: (messages behind the first, what is sent of them as role and text, rules)
    "a right turn": (
        [ai(A, B), tool("a", "1"), tool("b", "2"), user("go")],
        [("assistant", ""), ("tool", "1"), ("tool", "2"), ("user", "go")],
        [],
    ),
    "results in the wrong order": (
        [ai(A, B), tool("b", "2"), tool("a", "1")],
        [("assistant", ""), ("tool", "1"), ("tool", "2")],
        ["result_moved", "result_moved"],
    ),
    "somebody speaks between a call and its result": (
        [ai(A, B), tool("a", "1"), user("wait"), tool("b", "2")],
        [("assistant", ""), ("tool", "1"), ("tool", "2"), ("user", "wait")],
        ["result_moved"],
    ),
    "a system message between them": (
        [ai(A), {"role": "system", "content": "new rules"}, tool("a", "1")],
        [("assistant", ""), ("tool", "1"), ("system", "new rules")],
        ["result_moved"],
    ),
    "calls in two messages, results behind both": (
        [ai(A), ai(B), tool("a", "1"), tool("b", "2")],
        [("assistant", ""), ("tool", "1"), ("assistant", ""), ("tool", "2")],
        ["result_moved", "result_moved"],
    ),
    "a call that nobody answers": (
        [ai(A, B), tool("b", "2"), user("go")],
        [("assistant", ""), ("tool", NO_RESULT), ("tool", "2"), ("user", "go")],
        ["result_missing"],
    ),
    "an unanswered call at the end": (
        [ai(A)],
        [("assistant", ""), ("tool", NO_RESULT)],
        ["result_missing"],
    ),
    "an orphan": (
        [tool("zz", "text", name="cat"), user("go")],
        [("user", "[Result of tool cat, whose call is not in this conversation]\ntext"), ("user", "go")],
        ["result_orphan"],
    ),
    "an orphan without a name and without text": (
        [tool("zz", "")],
        [("user", "[Result of a tool, whose call is not in this conversation]")],
        ["result_orphan"],
    ),
    "an orphan among results": (
        [ai(A, B), tool("a", "1"), tool("zz", "x"), tool("b", "2")],
        [
            ("assistant", ""),
            ("tool", "1"),
            ("tool", "2"),
            ("user", "[Result of a tool, whose call is not in this conversation]\nx"),
        ],
        ["result_orphan"],
    ),
    "a result when the conversation has gone on": (
        [ai(A), user("go on"), ai(content="well"), tool("a", "1"), user("go")],
        [
            ("assistant", ""),
            ("tool", NO_RESULT),
            ("user", "go on"),
            ("assistant", "well"),
            ("user", "[Result of tool ls, which came when the conversation had gone on]\n1"),
            ("user", "go"),
        ],
        ["result_missing", "result_late"],
    ),
    "a result behind an answer that said nothing": (
        [ai(A), user("go on"), ai(content=""), tool("a", "1")],
        [
            ("assistant", ""),
            ("tool", NO_RESULT),
            ("user", "go on"),
            ("user", "[Result of tool ls, which came when the conversation had gone on]\n1"),
        ],
        ["result_missing", "result_late", "empty_message"],
    ),
    "a second result": (
        [ai(A), tool("a", "1"), tool("a", "2")],
        [("assistant", ""), ("tool", "1"), ("user", "[A further result of tool ls]\n2")],
        ["result_again"],
    ),
    "the same result twice": (
        [ai(A), tool("a", "1"), tool("a", "1")],
        [("assistant", ""), ("tool", "1")],
        ["result_copy"],
    ),
    "the same result alone behind an answer": (
        [ai(A), tool("a", "1"), ai(content="well"), tool("a", "1"), ai(content="as I said"), user("go")],
        [("assistant", ""), ("tool", "1"), ("assistant", "well"), ("assistant", "as I said"), ("user", "go")],
        ["result_copy", "empty_message"],
    ),
    "calls that share an id": (
        [ai(call("x", "ls"), call("x", "cat")), tool("x", "2", name="cat"), tool("x", "1", name="ls")],
        [("assistant", ""), ("tool", "1"), ("tool", "2")],
        ["result_moved", "result_moved", "history_id"],
    ),
}


def said(message: Json) -> tuple[str, str]:
    content = message.get("content")
    texts = [part["text"] for part in content] if isinstance(content, list) else [content or ""]
    return message["role"], "".join(texts)


@pytest.mark.parametrize(("messages", "expected", "told"), CASES.values(), ids=CASES.keys())
def test_each_call_is_answered_once_behind_its_message(
    messages: list[Json], expected: list[tuple[str, str]], told: list[str]
) -> None:
    first = [user("hi"), *(m | {"reasoning_content": "r"} if m["role"] == "assistant" else m for m in messages)]
    assert [said(message) for message in sent_messages(*first)] == [("user", "hi"), *expected]
    assert rules(made(body(*first)).changes) == told


def test_each_result_goes_to_the_right_one_of_calls_that_share_an_id() -> None:
    history = [user(), ai(call("x", "ls"), call("x", "cat")), tool("x", "2", name="cat"), tool("x", "1", name="ls")]
    ids = [message.get("tool_call_id") for message in sent_messages(*history)]
    assert ids == [None, None, "x", "x_2"]


def test_a_turn_that_only_repeats_a_result_stays_a_turn_where_roles_alternate() -> None:
    history = [user(), ai(A), tool("a", "1"), ai(content="well"), tool("a", "1"), ai(content="so"), user("go")]
    messages = made(body(*history), "moonshot-anthropic").request.messages
    texts = [(m.role, [part.text for part in m.parts if isinstance(part, Text)]) for m in messages[3:]]
    assert texts == [("assistant", ["well"]), ("user", ["[empty message]"]), ("assistant", ["so"]), ("user", ["go"])]


def test_changes_name_the_place_in_the_clients_body() -> None:
    changes = made(body(user(), tool("zz", "x"), ai(A, reasoning_content=""), user("go"))).changes
    assert [(change.rule, change.place) for change in changes[:2]] == [
        ("result_orphan", "messages[1]"),
        ("result_missing", "messages[2]"),
    ]


def test_the_places_of_what_is_sent_are_those_it_came_from() -> None:
    request = made(body(user(""), user(), ai(A, reasoning_content=""), user("go"))).request
    assert request.locations == ("messages[1]", "messages[2]", "messages[2]", "messages[3]")
