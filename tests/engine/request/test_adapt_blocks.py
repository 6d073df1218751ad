"""The laws of conditioning again, for clients that speak Messages: blocks in any order, over both kinds of upstream."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from moonshim.engine.dialects.anthropic.dialect import ANTHROPIC
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.adapt import AdaptedRequest, adapt_request
from moonshim.engine.signing import Signer
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidInput
from moonshim.simulator.rules.request_rules import check_chat, check_messages
from tests.engine.request.chats import Json
from tests.engine.request.test_adapt import LENIENT, MODELS, entries, turns, written
from tests.support.profiles import examples

_ids = st.sampled_from(["a", "b", "toolu_1", "x.y"])
_words = st.sampled_from(["", "hi", "go"])
_text = st.builds(lambda text: {"type": "text", "text": text}, _words)
_image = st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}})
_use = st.builds(
    lambda id, name: {"type": "tool_use", "id": id, "name": name, "input": {}}, _ids, st.sampled_from(["ls", "fs.read"])
)
_thinking = st.builds(
    lambda text, signature: {"type": "thinking", "thinking": text, **signature},
    _words,
    st.sampled_from([{}, {"signature": ""}, {"signature": "abc"}, {"signature": "a+/="}]),
)
_redacted = st.just({"type": "redacted_thinking", "data": "abc"})
_result = st.builds(
    lambda id, content: {"type": "tool_result", "tool_use_id": id, "content": content},
    _ids,
    st.one_of(_words, st.lists(st.one_of(_text, _image), max_size=2)),
)


def _message(role: str, blocks: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    content: st.SearchStrategy[Any] = st.one_of(_words, st.lists(blocks, max_size=4))
    return st.builds(lambda content: {"role": role, "content": content}, content)


conversations = st.lists(
    st.one_of(
        _message("user", st.one_of(_text, _image, _result, _result)),
        _message("assistant", st.one_of(_text, _thinking, _redacted, _use)),
        _message("system", _text),
    ),
    min_size=1,
    max_size=8,
)


def made(messages: list[Json], profile: HostProfile) -> AdaptedRequest:
    body = {"model": "kimi", "max_tokens": 99, "messages": messages}
    return adapt_request(ANTHROPIC.parse_request(body, Signer())[0], profile, LENIENT)


@pytest.mark.parametrize("host", ["moonshot", "moonshot-anthropic", "kimi-coding", "vllm"])
@settings(max_examples=examples(100))
@given(messages=conversations, generation=st.sampled_from(["k2.5", "k2.6", "k2.7", "k3"]))
def test_whatever_blocks_come_the_host_accepts_and_nothing_changes_later(
    host: str, messages: list[Json], generation: str
) -> None:
    profile = profile_for(host=host, model=MODELS[generation])
    try:
        found = made(messages, profile)
    except InvalidInput as error:
        assume("nothing to send" not in str(error))
        raise
    sent = written(found, profile)
    check = check_chat if profile.dialect == "openai_chat" else check_messages
    assert check(sent, generation=generation, host=host) == []
    again = adapt_request(found.request, profile, LENIENT)
    assert again.changes == []
    assert again.request == found.request
    for end in turns(messages):
        try:
            before = entries(written(made(messages[:end], profile), profile), profile)
        except InvalidInput:
            continue
        assert entries(sent, profile)[: len(before)] == before


RIGHT: list[Json] = [
    {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x", "is_error": True},
            {"type": "text", "text": "go on"},
        ],
    },
]


def test_right_blocks_go_through_as_they_came() -> None:
    profile = profile_for(host="moonshot-anthropic", model="kimi-k2.6")
    body = {"model": "kimi", "max_tokens": 99, "system": "be brief", "messages": RIGHT}
    found = adapt_request(ANTHROPIC.parse_request(body, Signer())[0], profile, KimiOptions())
    assert found.changes == []
    assert written(found, profile)["messages"] == RIGHT


def test_system_messages_before_the_first_turn_join_the_prompt_and_users_in_a_row_are_one() -> None:
    profile = profile_for(host="moonshot-anthropic", model="kimi-k2.6")
    cached = {"type": "text", "text": "there", "cache_control": {"type": "ephemeral"}}
    given: list[Json] = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "user", "content": [cached]},
    ]
    found = made(given, profile)
    sent = written(found, profile)
    assert sent["system"] == "be brief"
    assert sent["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}, cached]}]
    assert [change.rule for change in found.changes] == ["system_first", "turn_joined"]


def test_results_are_sent_before_what_the_user_says_beside_them() -> None:
    profile = profile_for(host="moonshot-anthropic", model="kimi-k2-0905-preview")
    call = {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x", "y": 1}
    cached = {"type": "text", "text": "there", "cache_control": {"type": "ephemeral"}}
    asked: list[Json] = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [call]}]
    found = made([*asked, {"role": "user", "content": [cached, result]}], profile)
    right = [*asked, {"role": "user", "content": [result, cached]}]
    assert written(found, profile)["messages"] == right
    assert [change.rule for change in found.changes] == ["result_moved"]
    assert made(right, profile).changes == []
