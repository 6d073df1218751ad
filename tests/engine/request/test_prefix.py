"""Two prompts as digests: every single change is found where it is, and what only continues is no change."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.engine.request.prefix import PrefixChange, compare_prompts, digest_prompt, is_same_conversation
from tests.engine.hosts.told import TELLERS, Turn, turns
from tests.engine.request.nasty.case import Nasty
from tests.engine.request.test_prefix_stability import sent
from tests.support.profiles import examples

Json = dict[str, Any]
SECRET: Final = b"secret"
NEW: Final = "something that is nowhere else"


def tool(name: str) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def chat(
    *texts: str, system: str = "Be brief.", tools: tuple[str, ...] = ("read", "write", "run"), **more: Any
) -> Json:
    roles = ("user", "assistant")
    said = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    messages = [{"role": "system", "content": system}, *said] if system else said
    return {"model": "kimi-k3", "messages": messages, "tools": [tool(name) for name in tools], **more}


def found(before: Json, after: Json) -> str | None:
    """What changed, in words."""
    change = compare_prompts(digest_prompt(before, SECRET), digest_prompt(after, SECRET))
    return None if change is None else change.describe(after)


BASE: Final = chat("one", "two", "three", "four", "five")

CHANGES: Final[dict[str, tuple[Json, str | None]]] = {
    "continued": (chat("one", "two", "three", "four", "five", "six", "seven"), None),
    "taken back": (chat("one", "two", "three"), None),
    "a message": (chat("one", "two", "x", "four", "five", "six", "seven"), "messages[3] (user) changed"),
    "an answer": (chat("one", "x", "three", "four", "five"), "messages[2] (assistant) changed"),
    "the first two left out": (chat("three", "four", "five", "six"), "2 messages were removed at messages[1]"),
    "one left out": (
        BASE | {"messages": [*BASE["messages"][:4], *BASE["messages"][5:]]},
        "1 message was removed at messages[4]",
    ),
    "one inserted": (
        BASE | {"messages": [*BASE["messages"][:2], {"role": "user", "content": "x"}, *BASE["messages"][2:]]},
        "1 message was added at messages[2] (user)",
    ),
    "the system prompt": (
        chat("one", "two", "three", "four", "five", system="It is 10:31."),
        "messages[0] (system) changed",
    ),
    "a tool": (
        BASE | {"tools": [tool("read"), tool("write") | {"strict": True}, tool("run")]},
        "tools[1] (write) changed",
    ),
    "a new tool": (
        chat("one", "two", "three", "four", "five", tools=("read", "find", "write", "run")),
        "1 tool was added at tools[1] (find)",
    ),
    "two tools less": (
        chat("one", "two", "three", "four", "five", tools=("read",)),
        "2 tools were removed at tools[1]",
    ),
    "tools in another order": (
        chat("one", "two", "three", "four", "five", tools=("read", "run", "write")),
        "the tools were reordered from tools[1] on",
    ),
    "the model": (BASE | {"model": "kimi-k2.6"}, "the model changed"),
    "the effort": (BASE | {"reasoning_effort": "low"}, "`reasoning_effort` changed"),
    "the tool choice": (BASE | {"tool_choice": "required"}, "`tool_choice` changed"),
    "the cache key": (BASE | {"prompt_cache_key": "other"}, "`prompt_cache_key` changed"),
    "an earlier change counts": (
        BASE | {"tools": [tool("run")], "messages": [{"role": "user", "content": "x"}]},
        "2 tools were removed at tools[0]",
    ),
    "what is not part of the prompt": (BASE | {"temperature": 1, "stream": True, "max_tokens": 5}, None),
}


@pytest.mark.parametrize(("after", "words"), CHANGES.values(), ids=CHANGES.keys())
def test_the_first_change_is_named(after: Json, words: str | None) -> None:
    assert found(BASE, after) == words


def test_another_provider_or_key_is_named() -> None:
    one = digest_prompt(BASE, SECRET, provider="moonshot", key="sk-1")
    other_key = digest_prompt(BASE, SECRET, provider="moonshot", key="sk-2")
    other_host = digest_prompt(BASE, SECRET, provider="groq", key="sk-3")
    assert compare_prompts(one, other_key) == PrefixChange("key")
    assert compare_prompts(one, other_host) == PrefixChange("provider")
    assert PrefixChange("key").describe(BASE) == "the API key of the provider changed"


MESSAGES: Final[Json] = {
    "model": "kimi-k3",
    "system": [{"type": "text", "text": "You code."}, {"type": "text", "text": "Folder: /src"}],
    "tools": [{"name": "read", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "abc"}]},
    ],
}


def test_a_messages_request_is_named_in_its_own_terms() -> None:
    system = copy.deepcopy(MESSAGES)
    system["system"][1]["text"] = "Folder: /docs"
    assert found(MESSAGES, system) == "system[1] changed"
    result = copy.deepcopy(MESSAGES)
    result["messages"][2]["content"][0]["content"] = "cleared"
    assert found(MESSAGES, result) == "messages[2] (tool) changed"
    described = copy.deepcopy(MESSAGES)
    described["tools"][0]["description"] = "Reads."
    assert found(MESSAGES, described) == "tools[0] (read) changed"
    one, other = ({**MESSAGES, "system": text} for text in ("You code.", "You do not."))
    assert found(one, other) == "system changed"


def test_cache_markers_and_the_form_of_a_text_are_no_change() -> None:
    marker = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    marked = copy.deepcopy(MESSAGES)
    marked["system"][1] |= marker
    marked["tools"][0] |= marker
    marked["messages"][0]["content"] = [{"type": "text", "text": "Read it."} | marker]
    marked["messages"][2]["content"][0] |= marker
    assert found(MESSAGES, marked) is None
    assert found(marked, MESSAGES) is None


def test_digests_contain_no_text_and_depend_on_the_secret() -> None:
    body = chat("a peculiar sentence", "another one")
    stored = msgspec.msgpack.encode(digest_prompt(body, SECRET, provider="moonshot", key="sk-1"))
    for word in (b"peculiar", b"another", b"Be brief", b"read", b"kimi", b"moonshot", b"sk-1"):
        assert word not in stored
    assert digest_prompt(body, SECRET).messages != digest_prompt(body, b"other").messages


def test_a_conversation_of_any_length_takes_a_bounded_space() -> None:
    body = chat(*("x" * (at % 7) + str(at) for at in range(10_000)))
    assert len(msgspec.msgpack.encode(digest_prompt(body, SECRET))) < 40_000


CONVERSATIONS: Final[dict[str, tuple[Json, bool]]] = {
    "it continues": (chat("one", "two", "three", "four", "five", "six"), True),
    "with another system prompt": (chat("one", "two", "three", "four", "five", "six", system="At 10:32."), True),
    "with another system prompt and one more tool": (
        chat("one", "two", "three", "four", "five", "six", system="x", tools=("read", "write", "run", "find")),
        True,
    ),
    "without its beginning": (chat("three", "four", "five", "six"), True),
    "with other tools": (chat("one", "two", "three", tools=("find",)), True),
    "a subagent": (chat("Find it.", system="You search.", tools=("read",)), False),
    "a new one with the same prompt and tools": (chat("hello"), False),
    "a title for it": (chat("one", "two", "three", system="Write a title.", tools=()), False),
    "a title for it with the tools": (chat("one", "two", "three", "four", "five", system="Write a title."), False),
    "the same again": (BASE, True),
    "a summary of it": (chat("one", "two", "three", "four", "five", "Sum up.", system="Sum up.", tools=()), False),
    "after a compaction": (chat("The story so far"), False),
}


@pytest.mark.parametrize(("after", "same"), CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_another_conversation_of_the_session_is_recognized(after: Json, same: bool) -> None:
    assert is_same_conversation(digest_prompt(BASE, SECRET), digest_prompt(after, SECRET)) is same


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
@settings(max_examples=examples(60))
@given(data=st.data(), conversation=turns)
def test_any_change_of_one_piece_is_found_at_its_index(
    dialect: str, data: st.DataObject, conversation: list[Turn]
) -> None:
    body = TELLERS[dialect](conversation) | {"tools": BASE["tools"]}
    section = data.draw(st.sampled_from(["tools", "messages"] if body["messages"] else ["tools"]))
    index = data.draw(st.integers(0, len(body[section]) - 1))
    changed = copy.deepcopy(body)
    changed[section][index]["x"] = NEW
    change = compare_prompts(digest_prompt(body, SECRET), digest_prompt(changed, SECRET))
    assert change is not None
    assert change.action == "changed"
    assert change.describe(changed).startswith(f"{section}[{index}] (")


@pytest.mark.parametrize(("host", "upstream"), [("moonshot", "openai_chat"), ("moonshot-anthropic", "anthropic")])
@settings(max_examples=examples(60))
@given(conversation=turns, dialect=st.sampled_from(sorted(TELLERS)))
def test_what_is_adapted_and_continued_keeps_its_prefix(
    host: str, upstream: str, conversation: list[Turn], dialect: str
) -> None:
    asked = Nasty("generated", dialect, TELLERS[dialect](conversation))
    first, second = (
        [digest_prompt(body, SECRET) for body in sent(asked, host, upstream, "kimi-k2.6")] for _ in range(2)
    )
    assert first == second
    assert [compare_prompts(earlier, later) for earlier, later in pairwise(first)] == [None] * (len(first) - 1)
