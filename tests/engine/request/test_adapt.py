"""The laws of conditioning, over conversations as bad as clients make them: accepted, stable, settled, untouched."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from moonshim.engine.dialects.anthropic.dialect import ANTHROPIC
from moonshim.engine.dialects.openai_chat.request import render_request
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.hosts.table import HOSTS
from moonshim.engine.request.adapt import AdaptedRequest, adapt_request
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidInput
from moonshim.simulator.rules.request_rules import check_chat, check_messages
from tests.engine.request.chats import Json, ai, body, call, parsed, rules, tool, user
from tests.support.profiles import examples

MODELS: Final = {
    "k2": "kimi-k2-0905-preview",
    "k2-thinking": "kimi-k2-thinking",
    "k2.5": "kimi-k2.5",
    "k2.6": "kimi-k2.6",
    "k2.7": "kimi-k2.7-code",
    "k3": "kimi-k3",
    "k3.1": "kimi-k3.1-pro",
    "other": "some-model",
}
KIMI_ONLY: Final = ("moonshot", "moonshot-anthropic", "kimi-coding", "openrouter", "vllm")
"""Other models get what the client sent there; the validator has rules for Kimi's."""
LENIENT: Final = KimiOptions(accept_role_tool=False)

# --- conversations that clients send --------------------------------------------------------------------------

_words = st.sampled_from(["", "hi", "go on", "x-anthropic-billing-header: cch=1;\nbe brief", " "])
_text = st.builds(lambda text: {"type": "text", "text": text}, _words)
_image = st.just({"type": "image_url", "image_url": {"url": "https://x.org/a.png"}})
_ids = st.sampled_from(["a", "b", "functions.ls:0", "x y", "", "call_1"])
_names = st.sampled_from(["ls", "cat", "fs.read", "my tool", "fs_read"])
_arguments = st.sampled_from(["{}", '{ "a": 1 }', "", "null", "[1]", '{"a": ', '"{}"', '{"a": "\\ud83d"}'])
_calls = st.lists(st.builds(call, _ids, _names, _arguments), max_size=3)
_reasoning = st.one_of(
    st.just({}),
    st.builds(lambda text: {"reasoning_content": text}, _words),
    st.builds(lambda text: {"reasoning": text}, _words),
    st.just({"reasoning_details": [{"type": "summary", "summary": "s", "index": 0}]}),
)


def contents(images: bool) -> st.SearchStrategy[Any]:
    listed = st.one_of(_text, _image) if images else _text
    return st.one_of(_words, _words, st.lists(listed, max_size=3), st.none())


def conversations(images: bool) -> st.SearchStrategy[list[Json]]:
    content = contents(images)
    speech = st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "user", "system", "developer"]),
        content,
    )
    answer = st.builds(
        lambda content, calls, reasoning: ai(*calls, content=content, **reasoning), content, _calls, _reasoning
    )
    result = st.builds(tool, st.one_of(_ids, st.none()), content)
    named = st.builds(lambda result, name: result | {"name": name}, result, _names)
    return st.lists(st.one_of(speech, answer, answer, result, result, named), min_size=1, max_size=9)


_tools = st.lists(
    st.builds(lambda name: {"type": "function", "function": {"name": name}}, _names), max_size=3, unique_by=str
)


def made(messages: list[Json], tools: list[Json], profile: HostProfile) -> AdaptedRequest:
    return adapt_request(parsed(body(*messages, **({"tools": tools} if tools else {}))), profile, LENIENT)


def made_or_skipped(messages: list[Json], tools: list[Json], profile: HostProfile) -> AdaptedRequest:
    try:
        return made(messages, tools, profile)
    except InvalidInput as error:
        assume("nothing to send" not in str(error))
        raise


def written(found: AdaptedRequest, profile: HostProfile) -> Json:
    return (render_request if profile.dialect == "openai_chat" else ANTHROPIC.render_request)(found.request)[0]


def entries(given: Json, profile: HostProfile) -> list[Any]:
    """What the host reads, in order: messages, and for Messages the blocks, since a turn may have more added to it."""
    if profile.dialect == "openai_chat":
        return list(given["messages"])
    out: list[Any] = []
    for message in given["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        out += [(message["role"], block) for block in blocks]
    return [given.get("system"), *out]


def turns(messages: list[Json]) -> list[int]:
    """Where requests were made: before each answer of the model."""
    roles = [message["role"] for message in messages]
    return [n for n in range(1, len(roles)) if roles[n] == "assistant" != roles[n - 1]]


@pytest.mark.parametrize("host", HOSTS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_whatever_comes_the_host_accepts_and_nothing_changes_later(host: str, data: st.DataObject) -> None:
    generation = data.draw(st.sampled_from([name for name in MODELS if name != "other" or host not in KIMI_ONLY]))
    profile = profile_for(host=host, model=MODELS[generation])
    messages, tools = data.draw(conversations("image" in profile.media)), data.draw(_tools)
    found = made_or_skipped(messages, tools, profile)
    sent = written(found, profile)

    # Accepted.
    check = check_chat if profile.dialect == "openai_chat" else check_messages
    assert check(sent, generation=generation, host=host) == []

    # Settled: a second time changes nothing more.
    again = adapt_request(found.request, profile, LENIENT)
    assert again.request == found.request
    assert again.changes == []

    # Stable: what every former turn sent is the beginning of what this one sends.
    for end in turns(messages):
        try:
            earlier = written(made(messages[:end], tools, profile), profile)
        except InvalidInput:
            continue
        assert earlier.get("tools") == sent.get("tools")
        before = entries(earlier, profile)
        assert entries(sent, profile)[: len(before)] == before


# --- conversations that are right -------------------------------------------------------------------------------


def right_turns(field: str) -> st.SearchStrategy[list[Json]]:
    """Turns of a good client: every call answered in order, ids of their own, reasoning where it belongs."""
    shape = st.tuples(st.integers(0, 3), st.sampled_from(["ok", "done"]))
    return st.builds(lambda shapes: _right(shapes, field), st.lists(shape, min_size=1, max_size=5))


def _right(shapes: list[tuple[int, str]], field: str) -> list[Json]:
    out, number = [user("hi")], 0
    for count, text in shapes:
        calls = [call(f"functions.ls:{number + n}", "ls", '{ "a": 1 }') for n in range(count)]
        number += count
        if calls:
            out.append(ai(*calls, **{field: "hm"}))
            out += [tool(entry["id"], text) for entry in calls]
        else:
            out += [ai(content=text), user("next")]
    return out


@pytest.mark.parametrize("host", [host for host in HOSTS if host != "moonshot-anthropic"])
@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_request_that_is_right_comes_back_equal(host: str, data: st.DataObject) -> None:
    profile = profile_for(host=host, model="kimi-k2.6")
    field = "reasoning" if profile.reasoning_in in ("reasoning", "reasoning_details") else "reasoning_content"
    messages = data.draw(right_turns(field))
    request = parsed(body(*messages, tools=[{"type": "function", "function": {"name": "ls"}}]))
    found = adapt_request(request, profile, KimiOptions())
    assert rules(found.changes) == []
    assert found.request.messages is request.messages
    assert found.request.tools is request.tools
    assert render_request(found.request)[0]["messages"] == messages


@given(right_turns("reasoning_content"))
def test_even_within_a_turn_right_results_only_add(messages: list[Json]) -> None:
    # Every beginning that ends with a user's word, or with the last result of a turn.
    profile = profile_for(host="vllm", model="kimi-k2.6")
    whole = written(made(messages, [], profile), profile)["messages"]
    for end in range(1, len(messages)):
        open_calls = messages[end]["role"] == "tool"
        if messages[end - 1]["role"] in ("user", "tool") and not open_calls:
            before = written(made(messages[:end], [], profile), profile)["messages"]
            assert whole[: len(before)] == before


def test_the_request_that_was_given_is_not_changed() -> None:
    given = body(user([{"type": "text", "text": ""}, {"type": "text", "text": "x"}]), ai(call("a")), user("go"))
    before = repr(given)
    request = parsed(given)
    seen = repr(request)
    adapt_request(request, profile_for(host="moonshot", model="kimi-k2.6"), KimiOptions())
    assert repr(request) == seen
    assert repr(given) == before
