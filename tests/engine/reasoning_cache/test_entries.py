"""What is filed of an answer, and what is read of it again: also when it is broken, foreign or too much."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from moonshim import mend_response
from moonshim.engine.prepare import read_request
from moonshim.engine.reasoning_cache import MAX_REASONING_BYTES, CacheEntry, ConversationIndex, cache_entry, lookup
from moonshim.engine.values.conversation import Media, Message, Reasoning, Request, Text, ToolCall, ToolResult
from tests.engine.reasoning_cache.clients import DIALECTS, Json, Memory

QUESTION: Final = Message("user", (Text("What is it?"),))
ASKED: Final = Request(model="k3", messages=(QUESTION,))
SAID: Final = Text("A fish.")


def filed(*parts: Any) -> CacheEntry | None:
    return cache_entry(ASKED, Message("assistant", parts))


def found(entry: CacheEntry, *said: Message) -> Reasoning | None:
    (turn,) = ConversationIndex(said or (QUESTION, Message("assistant", (SAID,)))).lost
    return lookup(turn, {entry.field: entry.value}) if turn.key == entry.key else None


THOUGHTS: Final = {
    "words": Reasoning("It swims."),
    "words under a name": Reasoning("It swims.", field="reasoning"),
    "a signature": Reasoning("It swims.", "EqoBCkgIARAB"),
    "a signature alone": Reasoning("", "EqoBCkgIARAB"),
    "details": Reasoning("", details=({"type": "reasoning.encrypted", "data": "x", "n": [1, {"a": None}]},)),
}


@pytest.mark.parametrize("thought", THOUGHTS.values(), ids=THOUGHTS.keys())
def test_all_of_a_thought_comes_back(thought: Reasoning) -> None:
    entry = filed(thought, SAID)
    assert entry is not None
    assert found(entry) == thought


def test_several_thoughts_come_back_as_one_without_their_signatures() -> None:
    entry = filed(Reasoning("One.", "s1"), SAID, Reasoning(" "), Reasoning("Two.", "s2", ({"type": "x"},)))
    assert entry is not None
    assert found(entry) == Reasoning("One.\nTwo.", details=({"type": "x"},))


NOTHING: Final = {
    "no thought": (SAID,),
    "an empty thought": (Reasoning(""), SAID),
    "a blank thought": (Reasoning(" \n"), SAID),
    "nothing said": (Reasoning("hm"), Text(" ")),
    "too long a thought": (Reasoning("x" * (MAX_REASONING_BYTES + 1)), SAID),
    "half a character": (Reasoning("\ud83d"), SAID),
    "a number of the host's own": (Reasoning("", details=({"n": 2**70},)), SAID),
}


@pytest.mark.parametrize("parts", NOTHING.values(), ids=NOTHING.keys())
def test_what_cannot_be_kept_or_known_again_is_not_filed(parts: tuple[Any, ...]) -> None:
    assert filed(*parts) is None


def test_what_a_later_version_wrote_or_nobody_can_read_is_left_alone() -> None:
    entry = filed(Reasoning("It swims."), SAID)
    assert entry is not None
    (turn,) = ConversationIndex((QUESTION, Message("assistant", (SAID,)))).lost
    others = {
        f"{entry.field}1": b"",
        f"{entry.field}2": b"\x02" + entry.value[1:],
        f"{entry.field}3": entry.value[:-3],
        f"{entry.field}4": b"\x01",
        f"{entry.field}5": b"\x01\xc1",
    }
    assert lookup(turn, others) is None
    assert lookup(turn, others | {entry.field: entry.value}) == Reasoning("It swims.")


def test_values_of_a_long_conversation_are_small() -> None:
    said = [Message("user" if n % 2 == 0 else "assistant", (Text(f"word {n}"),)) for n in range(2001)]
    entry = cache_entry(Request(model="k3", messages=tuple(said)), Message("assistant", (Reasoning("hm"), SAID)))
    assert entry is not None
    assert len(entry.value) < 1500
    assert found_last(entry, *said, Message("assistant", (SAID,))) == Reasoning("hm")
    other = [Message("user", (Text("another beginning"),)), *said[1:], Message("assistant", (SAID,))]
    assert found_last(entry, *other) is None


def found_last(entry: CacheEntry, *said: Message) -> Reasoning | None:
    turn = ConversationIndex(said).lost[-1]
    assert turn.key == entry.key
    return lookup(turn, {entry.field: entry.value})


def test_the_same_turn_run_over_and_over_takes_a_bounded_number_of_places() -> None:
    fields = {entry.field for n in range(3000) if (entry := filed(Reasoning(str(n)), SAID)) is not None}
    assert len(fields) <= 256


SHOWN: Final = {
    "an address": Media("image", url="https://x.example/a.png"),
    "data": Media("image", data="iVBORw0KGgo=", media_type="image/png"),
    "a document": Media("file", data="iVBORw0KGgo=", media_type="image/png"),
}


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN.keys())
def test_what_was_shown_counts(shown: Media) -> None:
    def asked(picture: Media | None) -> Message:
        return Message("user", (Text("What is it?"), *([picture] if picture is not None else [])))

    entry = cache_entry(Request(model="k3", messages=(asked(shown),)), Message("assistant", (Reasoning("hm"), SAID)))
    assert entry is not None
    same = replace(shown, extras={"openai_chat": {"outer": {"cache_control": {}}}}, detail="low")
    answered = Message("assistant", (SAID,))
    assert found(entry, asked(same), answered) == Reasoning("hm")
    assert found(entry, asked(None), answered) is None
    for other in SHOWN.values():
        assert (found(entry, asked(other), answered) is not None) == (other is shown)


def test_a_picture_in_a_result_counts() -> None:
    call = ToolCall("hist_tool_1", "look", "{}")

    def asked(data: str) -> tuple[Message, ...]:
        result = ToolResult("hist_tool_1", "look", (Text("seen"), Media("image", data=data)))
        return (QUESTION, Message("assistant", (Reasoning("kept"), call)), Message("tool", (result,)))

    entry = cache_entry(Request(model="k3", messages=asked("YQ==")), Message("assistant", (Reasoning("hm"), SAID)))
    assert entry is not None
    assert found(entry, *asked("YQ=="), Message("assistant", (SAID,))) == Reasoning("hm")
    assert found(entry, *asked("Yg=="), Message("assistant", (SAID,))) is None


def test_results_count_the_same_before_and_behind_what_the_user_says_beside_them() -> None:
    call = Message("assistant", (Reasoning("kept"), ToolCall("hist_tool_1", "look", "{}")))
    result, words = Message("tool", (ToolResult("hist_tool_1", "look", (Text("seen"),)),)), Message("user", (SAID,))
    asked = Request(model="k3", messages=(QUESTION, call, result, words))
    entry = cache_entry(asked, Message("assistant", (Reasoning("hm"), SAID)))
    assert entry is not None
    assert found(entry, QUESTION, call, words, result, Message("assistant", (SAID,))) == Reasoning("hm")


ARGUMENTS: Final = {
    "spacing": ('{"a":1,"b":[1,2]}', '{ "b" : [1, 2],\n "a": 1 }', True),
    "nothing": ("", "{}", True),
    "whole numbers": ('{"a": 1.0, "b": 2e3}', '{"a": 1, "b": 2000}', True),
    "characters and their escapes": ('{"a": "\\u00e4\\/"}', '{"a": "ä/"}', True),
    "other numbers": ('{"a": 12345678901234567890}', '{"a": 12345678901234567891}', False),
    "a number and a text": ('{"a": 1}', '{"a": "1"}', False),
    "true and one": ('{"a": true}', '{"a": 1}', False),
    "the order of a list": ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
    "what is no JSON, the same": ('{"a": ', '{"a": ', True),
    "what is no JSON, otherwise": ('{"a": ', '{"a":', False),
    "nested without measure, the same": ('{"a":' * 9999, '{"a":' * 9999, True),
}


@pytest.mark.parametrize(("filed_as", "comes_as", "same"), ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_arguments_are_known_by_what_they_mean(filed_as: str, comes_as: str, same: bool) -> None:
    entry = filed(Reasoning("hm"), ToolCall("hist_tool_1", "ls", filed_as))
    assert entry is not None
    later = Message("assistant", (Text(""), ToolCall("hist_tool_9", "ls", comes_as, "call_9")))
    assert (found(entry, QUESTION, later) is not None) == same


def test_text_cannot_pass_for_a_call_and_one_call_not_for_two() -> None:
    entry = filed(Reasoning("hm"), Text("ls"), ToolCall("hist_tool_1", "a", "{}"))
    assert entry is not None
    for parts in (
        (Text("ls"), Text("a"), Text("{}")),
        (Text("lsa"), ToolCall("hist_tool_1", "", "{}")),
        (ToolCall("hist_tool_1", "ls", "{}"), ToolCall("hist_tool_2", "a", "{}")),
        (Text("ls"), ToolCall("hist_tool_1", "a", "{}"), ToolCall("hist_tool_1", "a", "{}")),
    ):
        assert found(entry, QUESTION, Message("assistant", parts)) is None


# --- answers of a host, as clients hand them back ---------------------------------------------------------------------

TOOLS: Final[Json] = {"type": "object", "properties": {"path": {"type": "string"}}}
NAME: Final = "fs.read file"
HOST_SAYS: Final = "  Let me look.\n\n"


def tools_of(dialect: str) -> list[Json]:
    if dialect == "openai_chat":
        return [{"type": "function", "function": {"name": NAME, "parameters": TOOLS}}]
    if dialect == "anthropic":
        return [{"name": NAME, "input_schema": TOOLS}]
    return [
        {"type": "function", "name": NAME, "parameters": TOOLS},
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "git", "tools": [{"type": "function", "name": "log", "parameters": TOOLS}]},
    ]


def echoed(dialect: str, body: Json) -> list[Json]:
    """What a client that drops reasoning hands back of an answer, and the results of its calls."""
    if dialect == "openai_chat":
        message = {key: value for key, value in body["choices"][0]["message"].items() if "reasoning" not in key}
        return [message] + [
            {"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in message["tool_calls"]
        ]
    if dialect == "anthropic":
        blocks = [block for block in body["content"] if block["type"] != "thinking"]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "done"}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        return [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
    items = [item for item in body["output"] if item["type"] != "reasoning"]
    return items + [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "done"}
        for item in items
        if item["type"].endswith("_call")
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_of_a_host_is_known_again_in_the_words_of_its_client(dialect: str) -> None:
    key = "input" if dialect == "openai_responses" else "messages"
    body: Json = {
        "model": "kimi-k2.6",
        "max_tokens": 99,
        "tools": tools_of(dialect),
        key: [{"role": "user", "content": "hi"}],
    }
    if dialect == "openai_responses":
        del body["max_tokens"]
    memory = Memory()
    asked = read_request(body, dialect=dialect)
    prepared = asked.prepare(host="moonshot")
    names = [tool["function"]["name"] for tool in prepared.body["tools"]]
    given = {"patch": '{"input": "*** Begin \\"Patch\\"\\n+ä"}'}
    calls = [
        {
            "id": f"functions.x:{n}",
            "type": "function",
            "function": {"name": name, "arguments": given.get(name, '{"path": "a",  "n": 1.0}')},
        }
        for n, name in enumerate([*names, names[0]])
    ]
    message = {"role": "assistant", "content": HOST_SAYS, "reasoning_content": "I have to look.", "tool_calls": calls}
    reply = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    mended = mend_response(reply, plan=prepared.plan)
    assert NAME not in names
    memory.file(asked, mended.message)
    later = body | {key: [*body[key], *echoed(dialect, mended.body)]}
    again = read_request(later, dialect=dialect)
    lookup = memory.recall(again)
    assert [thought.text for thought in lookup.values()] == ["I have to look."]
    sent = again.prepare(host="moonshot", recalled=lookup)
    assert sent.body["messages"][1]["reasoning_content"] == "I have to look."
    assert "reasoning_recalled" in [change.rule for change in sent.changes]
